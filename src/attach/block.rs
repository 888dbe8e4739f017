//! A block device of this machine, as `/sys/class/block` and `/dev` show it: who uses it, its
//! partitions, its node.
#![allow(unsafe_code)] // Three ioctls without arguments, on an open block device.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::ioctl::{NoArg, Opcode, ioctl};

use super::partitions;
use crate::image;
use crate::storage::{FileStorage, OpenMode};
use crate::units::SectorSize;

/// Writes dirty pages of the device's cache out and drops the cache. Source: linux/fs.h.
const BLKFLSBUF: Opcode = 0x1261;
/// Reads the partition table again. Source: linux/fs.h.
const BLKRRPART: Opcode = 0x125f;
/// How long a node may take to appear in `/dev`: udev makes it after the kernel's event.
const NODE_WAIT: Duration = Duration::from_secs(2);

/// A whole block device, by the kernel's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    /// `nbd0`, `loop3`.
    name: String,
}

impl BlockDevice {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its node.
    pub(crate) fn path(&self) -> PathBuf {
        dev(&self.name)
    }

    /// The number in its name.
    pub(crate) fn number(&self) -> Option<u32> {
        let digits = self.name.trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok()
    }

    /// A file of its folder in sysfs, read and trimmed.
    pub(crate) fn fact(&self, file: &str) -> io::Result<String> {
        let path = self.sys().join(file);
        fs::read_to_string(path).map(|text| text.trim_end().to_owned())
    }

    /// Whether its folder in sysfs has this file: the driver adds some while it is in use.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.sys().join(file).exists()
    }

    /// Changes one of its settings in sysfs.
    pub(crate) fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.sys().join(file), value)
    }

    fn sys(&self) -> PathBuf {
        Path::new("/sys/block").join(&self.name)
    }

    /// Waits for its node, and makes it where nobody else does (a container's static `/dev`).
    pub(crate) fn wait_for_node(&self) -> io::Result<()> {
        for name in self.names() {
            wait_for_node(&name)?;
        }
        Ok(())
    }

    /// Opens it. Exclusive: fails with EBUSY while it or a partition of it is mounted, swap, or
    /// part of another device, and keeps all of those away while open.
    pub(crate) fn open(&self, write: bool, exclusive: bool) -> io::Result<File> {
        let exclusive = if exclusive { libc::O_EXCL } else { 0 };
        File::options()
            .read(true)
            .write(write)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | exclusive)
            .open(self.path())
    }

    /// Brings the partitions inside it to light: by the kernel, else (it may know no tables) by
    /// our own reading.
    pub(crate) fn scan_partitions(&self) -> io::Result<()> {
        // The first open scans on its own.
        let device = self.open(false, false)?;
        if self.partitions().is_empty() {
            // EINVAL: this device can't have any. EBUSY: somebody uses it already.
            let _ = no_argument::<BLKRRPART>(&device);
        }
        if self.partitions().is_empty() {
            self.add_partitions(&device);
        }
        Ok(())
    }

    /// A damaged table, or an entry that doesn't fit, is no reason to refuse the whole device.
    fn add_partitions(&self, device: &File) {
        let table = FileStorage::open(&self.path(), OpenMode::ReadOnly)
            .and_then(|storage| image::read_table(&storage));
        let Ok(Some(table)) = table else { return };
        for partition in table.partitions {
            let _ = partitions::add(device, &partition);
        }
    }

    /// Fails unless its logical and physical blocks are exactly `block_size`. Partitions and file
    /// systems are laid out by these two numbers: with others than dm-crypt's, mkfs makes what
    /// dm-crypt's device can't mount.
    pub(crate) fn check_block_size(&self, block_size: SectorSize) -> io::Result<()> {
        for fact in ["queue/logical_block_size", "queue/physical_block_size"] {
            let found = self.fact(fact)?;
            if found != block_size.bytes().to_string() {
                let device = self.path();
                return Err(io::Error::other(format!(
                    "{} has a {fact} of {found} instead of {block_size:?}",
                    device.display()
                )));
            }
        }
        Ok(())
    }

    /// Writes everything cached out to it, and from it to what lies below.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let device = self.open(false, false)?;
        device.sync_all()?;
        no_argument::<BLKFLSBUF>(&device)
    }

    /// Who uses it, in words; `None` if nobody does. Openers other than exclusive ones count too,
    /// as far as this process may see them.
    pub(crate) fn user(&self) -> Option<String> {
        self.lasting_user().or_else(|| self.visitor())
    }

    /// A mount, a device built on it, or swap.
    pub(crate) fn lasting_user(&self) -> Option<String> {
        self.names().iter().find_map(|name| {
            mounted_on(name)
                .or_else(|| holder_of(name))
                .or_else(|| swap_on(name))
        })
    }

    /// Whoever else has it open; it may be gone in a moment.
    fn visitor(&self) -> Option<String> {
        let paths: Vec<_> = self.names().iter().map(|name| dev(name)).collect();
        opener_of(&paths).or_else(|| match self.open(false, true) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                Some("in use by the kernel or in another mount namespace".to_owned())
            }
            _ => None,
        })
    }

    /// The names of its partitions.
    pub(crate) fn partitions(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.sys()) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().join("partition").exists())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Its own name and its partitions'.
    fn names(&self) -> Vec<String> {
        let mut names = vec![self.name.clone()];
        names.extend(self.partitions());
        names
    }
}

/// Loads a kernel module, if that is allowed and it is there. Whether it worked shows in what it
/// brings.
pub(crate) fn load_module(name: &str) {
    let there = fs::exists(Path::new("/sys/module").join(name)).unwrap_or(true);
    if there || !rustix::process::geteuid().is_root() {
        return;
    }
    for program in ["modprobe", "/sbin/modprobe", "/usr/sbin/modprobe"] {
        let status = Command::new(program)
            .args(["-q", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if status.is_ok() {
            return;
        }
    }
}

/// The names of all block devices that begin with `prefix` and go on with a number.
pub(crate) fn devices(prefix: &str) -> Vec<BlockDevice> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            name.strip_prefix(prefix)
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
        .map(BlockDevice::new)
        .collect()
}

fn no_argument<const OPCODE: Opcode>(device: &File) -> io::Result<()> {
    // SAFETY: callers give an opcode of block devices that takes no argument.
    unsafe { ioctl(device, NoArg::<OPCODE>::new()) }.map_err(Into::into)
}

fn dev(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

fn numbers_of(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/sys/class/block").join(name).join("dev")).ok()?;
    Some(text.trim().to_owned())
}

fn wait_for_node(name: &str) -> io::Result<()> {
    let path = dev(name);
    let numbers = numbers_of(name).ok_or(io::ErrorKind::NotFound)?;
    let device = parse_numbers(&numbers).ok_or(io::ErrorKind::InvalidData)?;
    let end = Instant::now() + NODE_WAIT;
    loop {
        match fs::metadata(&path) {
            Ok(found) if found.file_type().is_block_device() && found.rdev() == device => {
                return Ok(());
            }
            Ok(_) => return Err(io::Error::other(format!("{} is not it", path.display()))),
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            Err(_) => break,
        }
    }
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::BlockDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, device).map_err(Into::into)
}

fn parse_numbers(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// Where `name` is mounted. Some file systems show their own device numbers, so the source is
/// compared, too.
fn mounted_on(name: &str) -> Option<String> {
    let numbers = numbers_of(name)?;
    let node = format!("/dev/{name}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mount = Mount::parse(line)?;
        let found = mount.numbers == numbers || mount.source == node;
        found.then(|| format!("mounted on {}", mount.target))
    })
}

fn holder_of(name: &str) -> Option<String> {
    let holders = Path::new("/sys/class/block").join(name).join("holders");
    let holder = fs::read_dir(holders).ok()?.flatten().next()?;
    Some(format!("part of {}", holder.file_name().to_string_lossy()))
}

fn swap_on(name: &str) -> Option<String> {
    let node = format!("/dev/{name}");
    let swaps = fs::read_to_string("/proc/swaps").ok()?;
    let found = swaps
        .lines()
        .skip(1)
        .any(|line| line.split(' ').next() == Some(&node));
    found.then(|| "swap space".to_owned())
}

/// A process that has one of these files open, in words. Links are read and not followed, so that
/// a hung file system can't hold this up.
pub(crate) fn opener_of(paths: &[PathBuf]) -> Option<String> {
    let own = std::process::id();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let mut targets = files
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        if pid != own && targets.any(|target| paths.contains(&target)) {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("open in {} (process {pid})", command.trim_end()));
        }
    }
    None
}

/// One line of `/proc/self/mountinfo`. Source: proc_pid_mountinfo(5).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) numbers: String,
    pub(crate) target: String,
    pub(crate) kind: String,
    pub(crate) source: String,
}

impl Mount {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (mount, source) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let numbers = mount.nth(2)?.to_owned();
        let target = unescape(mount.nth(1)?);
        let mut source = source.split(' ');
        let kind = source.next()?.to_owned();
        Some(Self {
            numbers,
            target,
            kind,
            source: unescape(source.next()?),
        })
    }
}

/// Undoes the octal escapes of blanks and backslashes in mountinfo.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let escaped = (*byte == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_taken_apart() {
        let line = "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.numbers, "98:0");
        assert_eq!(mount.target, "/mnt/a b");
        assert_eq!(
            (mount.kind.as_str(), mount.source.as_str()),
            ("ext3", "/dev/root")
        );
        assert_eq!(Mount::parse("36 35 98:0 /mnt1"), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(r"a\"), r"a\");
        assert_eq!(unescape(r"a\9zz\134"), r"a\9zz\");
    }
}

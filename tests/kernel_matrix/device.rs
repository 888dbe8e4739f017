#![allow(unsafe_code)] // ioctls of device-mapper, which has no other face

//! Device-mapper without its tools: a process for each of thousands of tables would take hours
//! where the CPU is emulated.
//! Source: Linux `include/uapi/linux/dm-ioctl.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const CREATE: u8 = 3;
const REMOVE: u8 = 4;
/// Suspends or, without the flag for that, resumes.
const SUSPEND: u8 = 6;
const LOAD: u8 = 9;

const HEAD_BYTES: usize = 312;
const TARGET_BYTES: usize = 40;

/// One device of device-mapper's, which gets one table after another: a device of its own for each
/// would take far longer. It goes when this is dropped.
pub(crate) struct Mapper {
    control: File,
    name: String,
    path: PathBuf,
}

impl Mapper {
    /// `None` where this process may not map devices, or there is no `crypt` target.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/mapper/control")
            .ok()?;
        if !Path::new("/sys/module/dm_crypt").exists() {
            return None;
        }
        let mut mapper = Self {
            control,
            name: format!("nbdcrypt-{name}-{}", std::process::id()),
            path: PathBuf::new(),
        };
        let device = mapper.call(CREATE, None).ok()?;
        mapper.path = PathBuf::from(format!("/dev/dm-{}", minor(device)));
        Some(mapper)
    }

    /// Whether `sectors` of 512 bytes can be mapped by a `crypt` target with these parameters.
    pub(crate) fn load(&self, sectors: u64, parameters: &str) -> io::Result<()> {
        self.call(LOAD, Some((sectors, parameters))).map(|_| ())
    }

    /// Maps what was loaded.
    pub(crate) fn resume(&self) -> Mapped<'_> {
        self.call(SUSPEND, None).expect("resuming the device");
        Mapped { path: &self.path }
    }

    /// Returns the device's number.
    fn call(&self, command: u8, table: Option<(u64, &str)>) -> io::Result<u64> {
        let mut request = vec![0_u8; HEAD_BYTES];
        if let Some((sectors, parameters)) = table {
            request.extend(0_u64.to_ne_bytes());
            request.extend(sectors.to_ne_bytes());
            request.extend([0; 8]);
            let mut kind = [0; 16];
            kind[..5].copy_from_slice(b"crypt");
            request.extend(kind);
            debug_assert_eq!(request.len(), HEAD_BYTES + TARGET_BYTES);
            request.extend(parameters.as_bytes());
            request.push(0);
            request.resize(request.len().next_multiple_of(8), 0);
        }
        let len = request.len() as u32;
        for (at, word) in [
            (0, 4),
            (12, len),
            (16, HEAD_BYTES as u32),
            (20, table.iter().len() as u32),
        ] {
            request[at..at + 4].copy_from_slice(&u32::to_ne_bytes(word));
        }
        request[48..48 + self.name.len()].copy_from_slice(self.name.as_bytes());
        let number = 3 << 30 | (HEAD_BYTES as u64) << 16 | 0xfd << 8 | u64::from(command);
        // SAFETY: the request begins with a `dm_ioctl`, says its own length, and outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.control.as_raw_fd(),
                number as libc::Ioctl,
                request.as_mut_ptr(),
            )
        };
        match result {
            0 => Ok(u64::from_ne_bytes(
                request[40..48].try_into().expect("8 bytes"),
            )),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The kernel's 32-bit device numbers: the minor's low byte, the major, the minor's rest.
fn minor(device: u64) -> u64 {
    device & 0xff | (device >> 12) & !0xff
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.call(REMOVE, None).expect("removing the device");
    }
}

/// A device with a table.
pub(crate) struct Mapped<'a> {
    pub(crate) path: &'a Path,
}

impl Mapped<'_> {
    pub(crate) fn write(&self, data: &Pages) {
        self.open().write_all_at(data.bytes(), 0).expect("writing");
    }

    pub(crate) fn read(&self, data: &mut Pages) {
        self.open()
            .read_exact_at(data.bytes_mut(), 0)
            .expect("reading");
    }

    /// Past the page cache, which would answer in the kernel's stead.
    fn open(&self) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(self.path)
            .unwrap_or_else(|e| panic!("{}: {e}", self.path.display()))
    }
}

/// Bytes that lie as O_DIRECT wants them.
pub(crate) struct Pages(Vec<[u8; 4096]>, usize);

impl Pages {
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(4096));
        Self(vec![[0; 4096]; bytes / 4096 + 1], bytes)
    }

    fn range(&self) -> std::ops::Range<usize> {
        let start = self.0.as_ptr().addr().next_multiple_of(4096) - self.0.as_ptr().addr();
        start..start + self.1
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.as_flattened()[self.range()]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        &mut self.0.as_flattened_mut()[range]
    }
}

/// A file with a loop device over it, both gone when this is dropped.
pub(crate) struct Backing {
    file: File,
    pub(crate) path: PathBuf,
    pub(crate) device: String,
    _folder: tempfile::TempDir,
}

impl Backing {
    /// `None` where there are no loop devices.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("backing");
        let file = File::create_new(&path).expect("a file");
        file.set_len(bytes).expect("its length");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .expect("the same file");
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&path)
            .output()
            .ok()?;
        output.status.success().then(|| Self {
            file,
            path,
            device: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            _folder: folder,
        })
    }

    pub(crate) fn write(&self, data: &[u8], at_bytes: u64) {
        self.file.write_all_at(data, at_bytes).expect("writing");
    }

    pub(crate) fn read(&self, data: &mut [u8], at_bytes: u64) {
        self.file.read_exact_at(data, at_bytes).expect("reading");
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
    }
}

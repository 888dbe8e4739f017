//! Mounting under FUSE: by mount(2) where this process may, else by the setuid helper fusermount3.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::block::{Mount, load_module};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// Mounts a FUSE file system on the folder `target` and gives the kernel's end. Only this user
/// may reach it, root included: `allow_other` isn't set.
pub(crate) fn mount(target: &Path) -> io::Result<OwnedFd> {
    match mount_directly(target) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => mount_by_helper(target),
        result => result,
    }
}

fn mount_directly(target: &Path) -> io::Result<OwnedFd> {
    let open = || File::options().read(true).write(true).open(DEVICE);
    let device = open().or_else(|e| {
        load_module("fuse");
        open().map_err(|_| io::Error::new(e.kind(), format!("{DEVICE}: {e}")))
    })?;
    // Source: Linux Documentation/filesystems/fuse.rst, mount options.
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    rustix::mount::mount("luks", target, "fuse.luks", flags, options.as_c_str())?;
    Ok(device.into())
}

/// The helper mounts, and passes the kernel's end over a socket. Source: fusermount3's interface,
/// as libfuse documents it: the socket's number is in `_FUSE_COMMFD`.
fn mount_by_helper(target: &Path) -> io::Result<OwnedFd> {
    let (ours, its) = UnixStream::pair()?;
    let child = Command::new(HELPER)
        .args([
            "-o",
            "nosuid,nodev,noexec,noatime,fsname=luks,subtype=luks",
            "--",
        ])
        .arg(target)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{HELPER}: {e}")))?;
    let received = receive_fd(&ours);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(helper_error(&output.stderr));
    }
    received
}

fn receive_fd(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::other(format!("{HELPER} passed no file descriptor")))
}

fn helper_error(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().next().unwrap_or("it failed");
    let line = line
        .strip_prefix(HELPER)
        .and_then(|l| l.strip_prefix(": "))
        .unwrap_or(line);
    let kind = if line.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::PermissionDenied
    };
    io::Error::new(kind, format!("{HELPER}: {line}"))
}

/// Unmounts `target`; EBUSY while a file below it is open. Nothing mounted there is fine.
pub(crate) fn unmount(target: &Path) -> io::Result<()> {
    unmount_as(target, UnmountFlags::NOFOLLOW, &["-u"])
}

/// Takes the mount at `target` out of sight at once, whoever uses it: for what is dead.
pub(crate) fn unmount_dead(target: &Path) -> io::Result<()> {
    unmount_as(
        target,
        UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        &["-u", "-z"],
    )
}

fn unmount_as(target: &Path, flags: UnmountFlags, helper_options: &[&str]) -> io::Result<()> {
    if !is_mounted(target) {
        return Ok(());
    }
    match rustix::mount::unmount(target, flags) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let output = Command::new(HELPER)
        .args(helper_options)
        .arg("--")
        .arg(target)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("{HELPER}: {e}")))?;
    if output.status.success() || !is_mounted(target) {
        return Ok(());
    }
    Err(helper_error(&output.stderr))
}

/// Whether a FUSE file system is mounted on `target`; asks the kernel's list and not the mount
/// itself, whose server may be dead.
pub(crate) fn is_mounted(target: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
        return false;
    };
    mounts
        .lines()
        .filter_map(Mount::parse)
        .any(|mount| Path::new(&mount.target) == target && mount.kind.starts_with("fuse"))
}

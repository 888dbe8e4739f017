//! The probes. Each gives what was found, or the reason why the part can't be used.
#![allow(unsafe_code)] // One system call that only asks: io_uring_setup with nothing to set up.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::cipher::CpuEngine;

const NOT_LOADED_YET: &str = "its module is installed and not loaded yet";

type Found = Result<String, String>;

/// AF_ALG's number; Linux `include/linux/socket.h`.
const AF_ALG: AddressFamily = AddressFamily::from_raw(38);
/// CAP_SYS_ADMIN's bit; Linux `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;

/// What the ciphers run on, and what else of it `--engine` can force on this CPU.
pub(super) fn cpu() -> Found {
    let here = CpuEngine::ALL.into_iter().filter(|engine| engine.is_here());
    let names: Vec<_> = here.map(CpuEngine::name).collect();
    Ok(format!(
        "AES by {}, of {}",
        CpuEngine::in_use(),
        names.join(", ")
    ))
}

/// The kernel's crypto API for programs, the way to its hardware drivers.
pub(super) fn af_alg() -> Found {
    let socket = socket_with(AF_ALG, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    match socket {
        Ok(_) => Ok("the kernel takes AF_ALG sockets; this version encrypts on the CPU".to_owned()),
        Err(e) => Err(format!(
            "the kernel refuses AF_ALG sockets: {}",
            io::Error::from(e)
        )),
    }
}

/// Deep queues to the disk.
pub(super) fn io_uring() -> Found {
    // SAFETY: no entries and a null pointer set nothing up; the kernel answers EINVAL or EFAULT
    // where it would take a sound call, before it touches any memory.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, std::ptr::null_mut::<u8>()) };
    let error = io::Error::last_os_error();
    match (result, error.raw_os_error()) {
        (-1, Some(libc::EFAULT | libc::EINVAL)) => Ok("the kernel takes io_uring calls".to_owned()),
        (-1, Some(libc::ENOSYS)) => Err("the kernel has no io_uring, or hides it".to_owned()),
        (-1, Some(libc::EPERM)) => Err("io_uring is forbidden here".to_owned()),
        _ => Err(format!("io_uring doesn't answer as it should: {error}")),
    }
}

/// The kernel's NBD client: a real block device.
pub(super) fn kernel_nbd() -> Found {
    let loaded = Path::new("/sys/module/nbd").exists();
    if !loaded && !module_is_there("nbd") {
        return Err("the kernel has no nbd driver, and no module of it is installed".to_owned());
    }
    if !has_capability(CAP_SYS_ADMIN) {
        return Err("attaching needs CAP_SYS_ADMIN (root)".to_owned());
    }
    match (loaded, Path::new("/dev/nbd0").exists()) {
        (true, true) => Ok("/dev/nbd0 and up".to_owned()),
        (true, false) => Err("the driver is loaded, but /dev has no nbd devices".to_owned()),
        (false, _) => Ok(NOT_LOADED_YET.to_owned()),
    }
}

/// Whether the device isn't there only because nobody has asked for its driver.
fn may_be_loaded(device: &str, module: &str) -> bool {
    !Path::new(device).exists() && has_capability(CAP_SYS_ADMIN) && module_is_there(module)
}

fn module_is_there(name: &str) -> bool {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let Ok(list) = fs::read_to_string(format!("/lib/modules/{release}/modules.dep")) else {
        return false;
    };
    list.lines()
        .filter_map(|line| line.split(':').next())
        .any(|path| {
            Path::new(path).file_name().is_some_and(|file| {
                file.to_string_lossy()
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(".ko"))
            })
        })
}

fn has_capability(bit: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << bit) != 0)
}

/// A file that is the volume.
pub(super) fn fuse() -> Found {
    if may_be_loaded("/dev/fuse", "fuse") {
        return Ok(NOT_LOADED_YET.to_owned());
    }
    open_both_ways("/dev/fuse")?;
    let helper = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|p| p.join("fusermount3").exists()));
    match (has_capability(CAP_SYS_ADMIN), helper) {
        (true, _) => Ok("/dev/fuse, mounted as root".to_owned()),
        (false, true) => Ok("/dev/fuse, mounted by fusermount3".to_owned()),
        (false, false) => {
            Err("without root it needs fusermount3 (Debian package fuse3)".to_owned())
        }
    }
}

/// A block device over that file.
pub(super) fn loop_devices() -> Found {
    if may_be_loaded("/dev/loop-control", "loop") {
        return Ok(NOT_LOADED_YET.to_owned());
    }
    open_both_ways("/dev/loop-control")?;
    match has_capability(CAP_SYS_ADMIN) {
        true => Ok("/dev/loop-control".to_owned()),
        false => Err("attaching needs CAP_SYS_ADMIN (root)".to_owned()),
    }
}

fn open_both_ways(path: &str) -> Result<(), String> {
    let opened = File::options().read(true).write(true).open(path);
    opened.map(drop).map_err(|e| format!("{path}: {e}"))
}

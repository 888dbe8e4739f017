//! A loop device over a file, with the block size that the volume has.
#![allow(unsafe_code)] // The loop driver's ioctls.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::ioctl::{IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

use super::block::{BlockDevice, devices, load_module};
use crate::units::SectorSize;

// Source of these numbers and of the two structures: linux/loop.h.
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_SET_STATUS64: Opcode = 0x4c04;
const LOOP_SET_DIRECT_IO: Opcode = 0x4c08;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_PARTSCAN: u32 = 8;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Others may take the free device first; so often is only bad luck.
const ATTEMPTS_MAX: u32 = 64;
/// How long short visitors (udev's and blkid's looks) may keep the device from going.
const DETACH_WAIT: Duration = Duration::from_secs(3);

/// A loop device of ours.
#[derive(Clone, Debug)]
pub(crate) struct LoopDevice {
    /// The device.
    pub(crate) block: BlockDevice,
}

impl LoopDevice {
    /// A free loop device over `backing`, with logical and physical blocks of exactly
    /// `block_size`, partitions looked for, and no cache of its own below it.
    pub(crate) fn attach(
        backing: &Path,
        block_size: SectorSize,
        read_only: bool,
    ) -> io::Result<Self> {
        let backing = File::options().read(true).write(!read_only).open(backing)?;
        let control = control()?;
        let mut attempt = 0;
        loop {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a device's number.
            let index = unsafe { ioctl(&control, GetFree) }?;
            let block = BlockDevice::new(format!("loop{index}"));
            block.wait_for_node()?;
            let device = block.open(!read_only, false)?;
            match configure(&device, &backing, block_size, read_only) {
                Ok(()) => return Self { block }.finish(&device, block_size),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && attempt < ATTEMPTS_MAX => {}
                Err(e) => return Err(e),
            }
            attempt += 1;
        }
    }

    fn finish(self, device: &File, block_size: SectorSize) -> io::Result<Self> {
        // A direct path to the file below keeps one cache, the device's own. Refused where the
        // file can't; the flag was set above already where the kernel takes it there.
        // SAFETY: LOOP_SET_DIRECT_IO takes 1 or 0 by value.
        let _ = unsafe { ioctl(device, IntegerSetter::<LOOP_SET_DIRECT_IO>::new_usize(1)) };
        // The driver turns "discard" and "write zeroes" into the same hole in the file below,
        // where a hole has to read as zeros. An encrypted volume's discarded sectors don't.
        let _ = self.block.set("queue/discard_max_bytes", "0");
        let set = self
            .block
            .check_block_size(block_size)
            .and_then(|()| self.block.scan_partitions());
        if let Err(e) = set.and_then(|()| self.block.wait_for_node()) {
            let _ = clear(device);
            return Err(e);
        }
        Ok(self)
    }

    /// The loop devices over files below `folder`.
    pub(crate) fn over_files_in(folder: &Path) -> Vec<Self> {
        devices("loop")
            .into_iter()
            .filter(|block| {
                let backing = block.fact("loop/backing_file").unwrap_or_default();
                Path::new(&backing).starts_with(folder)
            })
            .map(|block| Self { block })
            .collect()
    }

    /// Whether it has a file below it still.
    pub(crate) fn is_attached(&self) -> bool {
        self.block.has("loop/backing_file")
    }

    /// Lets go of the file below. EBUSY if somebody has the device open; it then stays.
    pub(crate) fn detach(&self) -> io::Result<()> {
        if !self.is_attached() {
            return Ok(());
        }
        let device = self.block.open(false, true)?;
        clear(&device)?;
        drop(device);
        let end = Instant::now() + DETACH_WAIT;
        while self.is_attached() {
            if Instant::now() > end {
                self.keep()?;
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Lets go of the file below as soon as nobody has the device open.
    pub(crate) fn detach_when_unused(&self) -> io::Result<()> {
        if !self.is_attached() {
            return Ok(());
        }
        clear(&self.block.open(false, false)?)
    }

    /// Takes back what a refused detach left behind: that the device goes with its last user.
    fn keep(&self) -> io::Result<()> {
        let device = self.block.open(false, false)?;
        let info = Info64 {
            flags: LO_FLAGS_PARTSCAN,
            ..Info64::default()
        };
        // SAFETY: the structure is the one that LOOP_SET_STATUS64 reads.
        unsafe { ioctl(&device, Setter::<LOOP_SET_STATUS64, Info64>::new(info)) }?;
        Ok(())
    }
}

fn control() -> io::Result<File> {
    let path = "/dev/loop-control";
    let open = || File::options().read(true).write(true).open(path);
    open().or_else(|_| {
        load_module("loop");
        open()
    })
}

fn configure(
    device: &File,
    backing: &File,
    block_size: SectorSize,
    read_only: bool,
) -> io::Result<()> {
    let read_only = if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let config = Config {
        fd: backing.as_raw_fd() as u32,
        block_size: block_size.bytes() as u32,
        info: Info64 {
            flags: LO_FLAGS_PARTSCAN | LO_FLAGS_DIRECT_IO | read_only,
            ..Info64::default()
        },
        reserved: [0; 8],
    };
    // SAFETY: the structure is the one that LOOP_CONFIGURE reads.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, Config>::new(config)) }?;
    Ok(())
}

fn clear(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }.map_err(Into::into)
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info64,
    reserved: [u64; 8],
}

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl Default for Info64 {
    fn default() -> Self {
        Self {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

const _: () = assert!(size_of::<Info64>() == 232 && size_of::<Config>() == 304);

/// LOOP_CTL_GET_FREE: its result is its return value.
struct GetFree;

// SAFETY: the call passes no pointer; the output is the return value.
unsafe impl Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _ptr: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

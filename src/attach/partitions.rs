//! Partitions that the kernel is told of, for kernels that don't know the table.
#![allow(unsafe_code)] // One ioctl with a structure that points to another.

use std::fs::File;
use std::io;

use rustix::ioctl::{Opcode, Setter, ioctl};

use crate::image::Partition;

// Source: linux/blkpg.h.
const BLKPG: Opcode = 0x1269;
const BLKPG_ADD_PARTITION: i32 = 1;

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Argument {
    op: i32,
    flags: i32,
    data_len: i32,
    data: *const Entry,
}

/// `struct blkpg_partition`.
#[repr(C)]
struct Entry {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// Adds one partition to an open block device. EINVAL where it doesn't fit or isn't on the
/// device's block grid.
pub(crate) fn add(device: &File, partition: &Partition) -> io::Result<()> {
    let number = |value: u64| i64::try_from(value).map_err(|_| io::ErrorKind::InvalidInput);
    let entry = Entry {
        start: number(partition.start_bytes)?,
        length: number(partition.len_bytes)?,
        number: i32::try_from(partition.number).map_err(|_| io::ErrorKind::InvalidInput)?,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let argument = Argument {
        op: BLKPG_ADD_PARTITION,
        flags: 0,
        data_len: size_of::<Entry>() as i32,
        data: &entry,
    };
    // SAFETY: the structure is the one that BLKPG reads, and what it points to outlives the call.
    unsafe { ioctl(device, Setter::<BLKPG, Argument>::new(argument)) }.map_err(Into::into)
}

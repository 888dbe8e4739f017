//! What lies below: the backing file or disk, behind one trait, with faults to inject in tests.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

mod faulty;
mod file;
mod memory;
mod window;

pub use faulty::{Event, FaultyStorage};
pub use file::{FileStorage, OpenMode};
pub use memory::MemoryStorage;
pub use window::Window;

/// A stretch of the storage that is all hole or all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte after the stretch (at most the end that was asked for).
    pub end_bytes: u64,
    /// True where nothing is allocated.
    pub hole: bool,
}

/// Random-access bytes. Every call may come from many threads at once. Offsets and lengths are in
/// bytes, at any alignment.
pub trait Storage: Send + Sync + Debug {
    /// Size in bytes, as it is now.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Fills `buf` from `offset_bytes`. Reading past the end is `UnexpectedEof`.
    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()>;

    /// Fills `buf` if that needs no waiting for a device; `false` says it would wait and the
    /// contents of `buf` are then unspecified.
    fn read_without_waiting_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<bool>;

    /// Writes all of `buf` at `offset_bytes`.
    fn write_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()>;

    /// Writes all of `buf`, durable on return.
    fn write_durable_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.write_at(buf, offset_bytes)?;
        self.sync()
    }

    /// Makes everything written before durable.
    fn sync(&self) -> io::Result<()>;

    /// Frees the range (it then reads as zeros), keeping the size. `Unsupported` where the
    /// storage can't.
    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()>;

    /// Whether `discard` frees anything here.
    fn can_discard(&self) -> bool;

    /// The extent that begins at `offset_bytes`, cut at `end_bytes`. Storage that can't tell says
    /// data.
    fn extent_at(&self, offset_bytes: u64, end_bytes: u64) -> io::Result<Extent>;

    /// Whether nothing ever waits for a device: it is all in memory.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// The file that holds the range, and where in it, if one does: for those that read and write
    /// it by themselves.
    fn file_at(&self, _offset_bytes: u64, _len_bytes: u64) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    /// Tells the storage that this range will be read soon. Does nothing by default.
    fn will_need(&self, _offset_bytes: u64, _len_bytes: u64) {}
}

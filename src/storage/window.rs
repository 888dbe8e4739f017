//! A part of another storage: a partition, or a volume inside a disk image.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Extent, Storage};

/// `len_bytes` of another storage, from `start_bytes` on. I/O past its end is `UnexpectedEof`,
/// even where the storage below goes on.
#[derive(Debug)]
pub struct Window {
    below: Arc<dyn Storage>,
    start_bytes: u64,
    /// `None`: to the end of what is below, wherever that is at the time.
    len_bytes: Option<u64>,
}

impl Window {
    /// The part of `below` from `start_bytes`, `len_bytes` long or (where `None`) to its end.
    pub fn new(below: Arc<dyn Storage>, start_bytes: u64, len_bytes: Option<u64>) -> Self {
        Self {
            below,
            start_bytes,
            len_bytes,
        }
    }

    fn offset(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<u64> {
        let end = offset_bytes.checked_add(len_bytes);
        match (end, self.len_bytes) {
            (None, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (Some(end), Some(len)) if end > len => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => offset_bytes
                .checked_add(self.start_bytes)
                .ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Storage for Window {
    fn size_bytes(&self) -> io::Result<u64> {
        let rest = self.below.size_bytes()?.saturating_sub(self.start_bytes);
        Ok(self.len_bytes.map_or(rest, |len| len.min(rest)))
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.below
            .read_at(buf, self.offset(offset_bytes, buf.len() as u64)?)
    }

    fn read_without_waiting_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<bool> {
        self.below
            .read_without_waiting_at(buf, self.offset(offset_bytes, buf.len() as u64)?)
    }

    fn write_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.below
            .write_at(buf, self.offset(offset_bytes, buf.len() as u64)?)
    }

    fn write_durable_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.below
            .write_durable_at(buf, self.offset(offset_bytes, buf.len() as u64)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.below
            .discard(self.offset(offset_bytes, len_bytes)?, len_bytes)
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn extent_at(&self, offset_bytes: u64, end_bytes: u64) -> io::Result<Extent> {
        let len_bytes = end_bytes.saturating_sub(offset_bytes);
        let start = self.offset(offset_bytes, len_bytes)?;
        let extent = self.below.extent_at(start, start + len_bytes)?;
        Ok(Extent {
            end_bytes: extent.end_bytes - self.start_bytes,
            hole: extent.hole,
        })
    }

    fn is_in_memory(&self) -> bool {
        self.below.is_in_memory()
    }

    fn file_at(&self, offset_bytes: u64, len_bytes: u64) -> Option<(BorrowedFd<'_>, u64)> {
        let offset_bytes = self.offset(offset_bytes, len_bytes).ok()?;
        self.below.file_at(offset_bytes, len_bytes)
    }

    fn will_need(&self, offset_bytes: u64, len_bytes: u64) {
        if let Ok(offset_bytes) = self.offset(offset_bytes, len_bytes) {
            self.below.will_need(offset_bytes, len_bytes);
        }
    }
}

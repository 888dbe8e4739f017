//! Storage in memory, for tests and the demo's models.

use std::io;
use std::sync::RwLock;

use super::{Extent, Storage};

/// A `Vec<u8>` behind the storage trait. It never waits and never grows.
#[derive(Debug)]
pub struct MemoryStorage(RwLock<Vec<u8>>);

impl MemoryStorage {
    /// Storage that begins with `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(RwLock::new(bytes))
    }

    /// A copy of what it holds.
    pub fn contents(&self) -> Vec<u8> {
        self.0.read().expect("no writer panics").clone()
    }
}

fn range(len: usize, offset_bytes: u64, count: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset_bytes).ok();
    let end = start
        .and_then(|start| start.checked_add(count))
        .filter(|&end| end <= len);
    match (start, end) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Storage for MemoryStorage {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.read().expect("no writer panics").len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let bytes = self.0.read().expect("no writer panics");
        let range = range(bytes.len(), offset_bytes, buf.len())?;
        buf.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn read_without_waiting_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<bool> {
        self.read_at(buf, offset_bytes).map(|()| true)
    }

    fn write_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        let mut bytes = self.0.write().expect("no writer panics");
        let range = range(bytes.len(), offset_bytes, buf.len())?;
        bytes[range].copy_from_slice(buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let mut bytes = self.0.write().expect("no writer panics");
        let len = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let range = range(bytes.len(), offset_bytes, len)?;
        bytes[range].fill(0);
        Ok(())
    }

    fn can_discard(&self) -> bool {
        true
    }

    fn extent_at(&self, _offset_bytes: u64, end_bytes: u64) -> io::Result<Extent> {
        Ok(Extent {
            end_bytes,
            hole: false,
        })
    }
}

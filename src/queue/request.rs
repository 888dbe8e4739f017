//! What a front end asks of a device.

use std::io;

use crate::buffer::Buffer;

/// What a request does. Offsets and lengths may lie off the sector grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the payload.
    Read,
    /// Writes the payload; with `fua`, it is durable before the answer.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Makes every write answered before durable, on all connections.
    Flush,
    /// Frees the storage below whole sectors of the range; what they read as is unspecified.
    Trim {
        /// Force unit access.
        fua: bool,
    },
    /// Makes the range read as zeros.
    WriteZeroes {
        /// Force unit access.
        fua: bool,
    },
    /// Brings the range into the page cache below.
    Cache,
}

/// One request and the memory it needs. Made by [`super::Device::prepare`].
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// First byte, from the volume's start.
    pub offset_bytes: u64,
    /// Length in bytes; 0 for a flush.
    pub len_bytes: u32,
    /// The front end's own name for it.
    pub cookie: u64,
    /// The sector-aligned range around the payload (reads and writes only).
    pub(super) buffer: Option<Buffer>,
    /// Where the payload begins in `buffer`.
    pub(super) pad_bytes: usize,
}

impl Request {
    /// The data: filled by a read, empty for what moves none.
    pub fn payload(&self) -> &[u8] {
        let range = self.payload_range();
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[range])
    }

    /// The data, for a front end to fill before a write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = self.payload_range();
        self.buffer
            .as_mut()
            .map_or(&mut [], |buffer| &mut buffer[range])
    }

    fn payload_range(&self) -> std::ops::Range<usize> {
        self.pad_bytes..self.pad_bytes + self.len_bytes as usize
    }
}

/// Where finished requests go; a front end's connection.
pub trait Completions: Send + Sync {
    /// Called once for each submitted request, from any thread, with its memory and result.
    fn complete(&self, request: Request, result: io::Result<()>);
}

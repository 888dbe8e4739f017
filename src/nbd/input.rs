//! What a lane has received and not yet used.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use super::wire::REQUEST_HEADER_BYTES;
use crate::limits;

/// A write at least this long is received straight into its own memory: the next header is then
/// read alone, so that no payload comes along with it into the receive buffer.
const LARGE_WRITE_BYTES: u32 = 16 << 10;

/// The receive buffer. One receive fills it with as many requests as there are.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last command was a large write, so the next is expected to be one.
    header_only: bool,
    /// The last receive took less than it could: there was no more at the time.
    pub(super) drained: bool,
}

/// How much one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes into the payload.
    pub(super) payload_bytes: usize,
    /// All bytes; 0 is the end of the stream.
    pub(super) total_bytes: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            // Zeroed memory of this size comes from the kernel untouched: a page costs nothing
            // until a receive needs it.
            buffer: vec![0; limits::RECEIVE_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            header_only: false,
            drained: false,
        }
    }

    /// The next request header, if all of it is here. It stays until [`Self::consume`].
    pub(super) fn header(&self) -> Option<&[u8; REQUEST_HEADER_BYTES]> {
        self.bytes().first_chunk()
    }

    /// Drops `count` bytes off the front.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Copies bytes off the front into `payload`; how many were here.
    pub(super) fn copy_to(&mut self, payload: &mut [u8]) -> usize {
        let here = self.bytes();
        let count = here.len().min(payload.len());
        if let (Some(to), Some(from)) = (payload.get_mut(..count), here.get(..count)) {
            to.copy_from_slice(from);
        }
        self.consume(count);
        count
    }

    /// Bytes that are here.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Notes a command, to guess what comes next. `len_bytes` of payload follow it.
    pub(super) fn expect_like(&mut self, len_bytes: u32) {
        self.header_only = len_bytes >= LARGE_WRITE_BYTES;
    }

    /// Receives into `payload` first and then behind what is here.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        payload: &mut [u8],
        flags: RecvFlags,
    ) -> Result<Received, Errno> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
        let room = if self.header_only {
            REQUEST_HEADER_BYTES
        } else {
            self.buffer.len()
        };
        let behind = self.buffer.get_mut(self.end..room).unwrap_or_default();
        let payload_len = payload.len();
        let asked = payload_len + behind.len();
        let mut slices = [IoSliceMut::new(payload), IoSliceMut::new(behind)];
        let total_bytes = loop {
            match recvmsg(
                socket,
                &mut slices,
                &mut RecvAncillaryBuffer::default(),
                flags,
            ) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        };
        let payload_bytes = total_bytes.min(payload_len);
        self.end += total_bytes - payload_bytes;
        self.drained = total_bytes < asked;
        Ok(Received {
            payload_bytes,
            total_bytes,
        })
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }
}

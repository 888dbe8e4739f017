//! Replies on their way out: a header, and what follows it without being copied.

use std::io::{self, IoSlice};

use super::check::Refusal;
use super::handshake::Terms;
use super::wire::{
    BASE_ALLOCATION_ID, Errno, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STATE_HOLE,
    STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::queue::{Extent, Operation, Request};

/// The longest header: an error chunk at an offset (20 + 4 + 2 + 8), rounded up.
const HEADER_BYTES_MAX: usize = 40;

/// One reply, whole or partly sent.
#[derive(Debug)]
pub(super) struct Reply {
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    body: Body,
    /// Bytes that have left already, header included.
    sent_bytes: usize,
    /// Bytes of request memory that its request took; counted as held until the reply has left.
    held_bytes: u32,
}

#[derive(Debug)]
enum Body {
    None,
    /// The payload of a read.
    Payload(Request),
    /// Extents.
    Bytes(Vec<u8>),
    /// A line for people.
    Text(&'static str),
}

impl Reply {
    /// The reply to a request that the device ended.
    pub(super) fn to_request(request: Request, result: io::Result<()>, terms: Terms) -> Self {
        let cookie = request.cookie;
        let held_bytes = request.payload().len() as u32;
        let mut reply = match result {
            Ok(()) if request.operation == Operation::Read => Self::data(request, terms),
            Ok(()) => Self::done(cookie),
            Err(e) if terms.structured_replies => Self::error_at(
                cookie,
                Errno::of(&e),
                // A flush has no range, so its error has no place.
                (request.operation != Operation::Flush).then_some(request.offset_bytes),
            ),
            Err(e) => Self::simple(cookie, Errno::of(&e) as u32),
        };
        reply.held_bytes = held_bytes;
        reply
    }

    /// The reply to a request that moved nothing and succeeded.
    pub(super) fn nothing(cookie: u64, is_read: bool, terms: Terms) -> Self {
        if is_read && terms.structured_replies {
            // A data chunk may not be empty, and a read may not be answered by a simple reply.
            return Self::new(Body::None, |header| header.chunk(chunk::NONE, cookie, 0));
        }
        Self::done(cookie)
    }

    /// The reply to a request that was refused.
    pub(super) fn refused(cookie: u64, refusal: Refusal, terms: Terms) -> Self {
        if !terms.structured_replies {
            return Self::simple(cookie, refusal.errno as u32);
        }
        let text = refusal.message;
        Self::new(Body::Text(text), |header| {
            header.chunk(chunk::ERROR, cookie, 6 + text.len() as u32);
            header.put(&(refusal.errno as u32).to_be_bytes());
            header.put(&(text.len() as u16).to_be_bytes());
        })
    }

    /// The reply to BLOCK_STATUS: `extents` begin at `offset_bytes`, one or more, without gaps.
    /// A hole here reads as noise (it is decrypted), so it is never told to be zero.
    pub(super) fn extents(cookie: u64, offset_bytes: u64, extents: &[Extent]) -> Self {
        let mut bytes = Vec::with_capacity(8 * extents.len());
        let mut at_bytes = offset_bytes;
        for extent in extents {
            let len = u32::try_from(extent.end_bytes.saturating_sub(at_bytes)).unwrap_or(u32::MAX);
            bytes.extend(len.to_be_bytes());
            bytes.extend(if extent.hole { STATE_HOLE } else { 0 }.to_be_bytes());
            at_bytes = extent.end_bytes;
        }
        let len_bytes = 4 + bytes.len() as u32;
        Self::new(Body::Bytes(bytes), |header| {
            header.chunk(chunk::BLOCK_STATUS, cookie, len_bytes);
            header.put(&BASE_ALLOCATION_ID.to_be_bytes());
        })
    }

    /// The reply to a command that failed and is no request of the device's.
    pub(super) fn failed(cookie: u64, error: &io::Error, offset_bytes: u64) -> Self {
        Self::error_at(cookie, Errno::of(error), Some(offset_bytes))
    }

    fn data(request: Request, terms: Terms) -> Self {
        let (cookie, offset_bytes) = (request.cookie, request.offset_bytes);
        let len_bytes = request.len_bytes;
        Self::new(Body::Payload(request), |header| {
            if terms.structured_replies {
                header.chunk(chunk::OFFSET_DATA, cookie, 8 + len_bytes);
                header.put(&offset_bytes.to_be_bytes());
            } else {
                header.simple(cookie, 0);
            }
        })
    }

    fn done(cookie: u64) -> Self {
        Self::simple(cookie, 0)
    }

    fn simple(cookie: u64, errno: u32) -> Self {
        Self::new(Body::None, |header| header.simple(cookie, errno))
    }

    fn error_at(cookie: u64, errno: Errno, offset_bytes: Option<u64>) -> Self {
        Self::new(Body::None, |header| {
            match offset_bytes {
                Some(_) => header.chunk(chunk::ERROR_OFFSET, cookie, 14),
                None => header.chunk(chunk::ERROR, cookie, 6),
            }
            header.put(&(errno as u32).to_be_bytes());
            header.put(&0u16.to_be_bytes());
            if let Some(offset_bytes) = offset_bytes {
                header.put(&offset_bytes.to_be_bytes());
            }
        })
    }

    fn new(body: Body, write: impl FnOnce(&mut Header)) -> Self {
        let mut header = Header {
            bytes: [0; HEADER_BYTES_MAX],
            len: 0,
        };
        write(&mut header);
        Self {
            header: header.bytes,
            header_len: header.len as u8,
            body,
            sent_bytes: 0,
            held_bytes: 0,
        }
    }

    /// Bytes of request memory that count as held until it has left.
    pub(super) fn held_bytes(&self) -> u64 {
        u64::from(self.held_bytes)
    }

    /// Bytes that have yet to leave.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.header().len() + self.body().len() - self.sent_bytes
    }

    /// The slices that have yet to leave; either may be empty.
    pub(super) fn slices(&self) -> [IoSlice<'_>; 2] {
        let (header, body) = (self.header(), self.body());
        let header_sent = self.sent_bytes.min(header.len());
        let body_sent = self.sent_bytes - header_sent;
        [
            IoSlice::new(header.get(header_sent..).unwrap_or_default()),
            IoSlice::new(body.get(body_sent..).unwrap_or_default()),
        ]
    }

    /// Notes that `count` more bytes have left, at most all; says how many of them were not its.
    pub(super) fn advance(&mut self, count: usize) -> usize {
        let own = count.min(self.unsent_bytes());
        self.sent_bytes += own;
        count - own
    }

    fn header(&self) -> &[u8] {
        self.header
            .get(..usize::from(self.header_len))
            .unwrap_or_default()
    }

    fn body(&self) -> &[u8] {
        match &self.body {
            Body::None => &[],
            Body::Payload(request) => request.payload(),
            Body::Bytes(bytes) => bytes,
            Body::Text(text) => text.as_bytes(),
        }
    }
}

/// A header being written.
struct Header {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Header {
    fn put(&mut self, field: &[u8]) {
        let end = self.len + field.len();
        let place = self
            .bytes
            .get_mut(self.len..end)
            .expect("every header fits its maximum");
        place.copy_from_slice(field);
        self.len = end;
    }

    fn simple(&mut self, cookie: u64, errno: u32) {
        self.put(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        self.put(&errno.to_be_bytes());
        self.put(&cookie.to_be_bytes());
    }

    /// Every reply is one chunk, so every chunk is the last.
    fn chunk(&mut self, kind: u16, cookie: u64, len_bytes: u32) {
        self.put(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        self.put(&REPLY_FLAG_DONE.to_be_bytes());
        self.put(&kind.to_be_bytes());
        self.put(&cookie.to_be_bytes());
        self.put(&len_bytes.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRUCTURED: Terms = Terms {
        structured_replies: true,
        allocation: true,
    };

    fn bytes(reply: &Reply) -> Vec<u8> {
        reply
            .slices()
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect()
    }

    #[test]
    fn replies_are_laid_out_as_specified() {
        let cookie = 0x0102_0304_0506_0708;
        assert_eq!(
            bytes(&Reply::nothing(cookie, true, Terms::default())),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        let refusal = Refusal {
            errno: Errno::NoSpc,
            message: "past",
        };
        assert_eq!(
            bytes(&Reply::refused(cookie, refusal, STRUCTURED)),
            [
                0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 10, 0, 0,
                0, 28, 0, 4, b'p', b'a', b's', b't'
            ]
        );
        let extents = [
            Extent {
                end_bytes: 0x1200,
                hole: false,
            },
            Extent {
                end_bytes: 0x2000,
                hole: true,
            },
        ];
        assert_eq!(
            bytes(&Reply::extents(cookie, 0x1000, &extents)),
            [
                0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 20, 0, 0, 0,
                1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0, 0, 0, 0, 1
            ]
        );
    }

    #[test]
    fn a_reply_leaves_in_any_pieces() {
        let refusal = Refusal {
            errno: Errno::Inval,
            message: "a flag",
        };
        let whole = bytes(&Reply::refused(1, refusal, STRUCTURED));
        for piece in 1..whole.len() + 2 {
            let mut reply = Reply::refused(1, refusal, STRUCTURED);
            let mut sent = Vec::new();
            while reply.unsent_bytes() > 0 {
                let rest = bytes(&reply);
                let count = piece.min(rest.len());
                sent.extend_from_slice(&rest[..count]);
                assert_eq!(reply.advance(count), 0);
            }
            assert_eq!(sent, whole);
            assert_eq!(reply.advance(5), 5);
        }
    }
}

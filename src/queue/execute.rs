//! Running one request: storage below, encryption in place, on the calling thread.
//!
//! The caller holds the request's range in [`super::order::Order`].

use std::io;

use super::plan::Span;
use super::request::{Operation, Request};
use crate::storage::Storage;
use crate::units::IV_UNIT_BYTES;
use crate::volume::{Segment, SegmentKind, Volume};

/// Zeros are encrypted and written this many bytes at a time.
const ZERO_CHUNK_BYTES: u64 = 256 << 10;

/// What a request runs against.
#[derive(Clone, Copy)]
pub(super) struct Below<'a> {
    pub volume: &'a Volume,
    pub storage: &'a dyn Storage,
}

impl Below<'_> {
    /// Runs `request` to its end. Flushes are the device's own matter.
    pub(super) fn execute(self, request: &mut Request) -> io::Result<()> {
        let (offset_bytes, len_bytes) = (request.offset_bytes, u64::from(request.len_bytes));
        let span = Span::around(offset_bytes, len_bytes, self.volume.sector_size);
        match request.operation {
            Operation::Read => {
                let buffer = request
                    .buffer
                    .as_deref_mut()
                    .expect("prepared with a buffer");
                self.read(buffer, span.start_bytes)
            }
            Operation::Write { fua } => {
                let len = request.len_bytes as usize;
                let buffer = request
                    .buffer
                    .as_deref_mut()
                    .expect("prepared with a buffer");
                self.write(buffer, len, span, fua)
            }
            Operation::WriteZeroes { fua } => self.write_zeroes(offset_bytes, len_bytes, fua),
            Operation::Trim { fua } => self.trim(span, fua),
            Operation::Cache => {
                self.each_piece(span.start_bytes, span.end_bytes(), |_, at, len| {
                    self.storage.will_need(at, len);
                    Ok(())
                })
            }
            Operation::Flush => Ok(()),
        }
    }

    /// Reads and decrypts if that needs no waiting; `false` says it would.
    pub(super) fn read_without_waiting(self, request: &mut Request) -> io::Result<bool> {
        let span = Span::around(
            request.offset_bytes,
            u64::from(request.len_bytes),
            self.volume.sector_size,
        );
        let buffer = request
            .buffer
            .as_deref_mut()
            .expect("prepared with a buffer");
        let mut cached = true;
        self.each_slice(buffer, span.start_bytes, |segment, start, slice| {
            if cached
                && self
                    .storage
                    .read_without_waiting_at(slice, below(segment, start))?
            {
                decrypt(segment, start, slice);
            } else {
                cached = false;
            }
            Ok(())
        })?;
        Ok(cached)
    }

    /// Encrypts a request of whole sectors of one segment, in place.
    pub(super) fn encrypt(self, request: &mut Request) {
        let start_bytes = request.offset_bytes;
        let segment = &self.volume.segments[self.volume.segment_index_at(start_bytes)];
        if let Some(buffer) = request.buffer.as_deref_mut() {
            encrypt(segment, start_bytes, buffer);
        }
    }

    /// Decrypts the sectors around a request in one segment, in place.
    pub(super) fn decrypt(self, request: &mut Request) {
        let start_bytes = request.offset_bytes - request.pad_bytes as u64;
        let segment = &self.volume.segments[self.volume.segment_index_at(start_bytes)];
        if let Some(buffer) = request.buffer.as_deref_mut() {
            decrypt(segment, start_bytes, buffer);
        }
    }

    /// Writes whole sectors of one segment from memory that stays as it is, by way of `piece`.
    pub(super) fn write_from(
        self,
        data: &[u8],
        mut start_bytes: u64,
        piece: &mut [u8],
    ) -> io::Result<()> {
        let segment = &self.volume.segments[self.volume.segment_index_at(start_bytes)];
        for source in data.chunks(piece.len().max(1)) {
            let target = &mut piece[..source.len()];
            match &segment.kind {
                SegmentKind::Crypt(cipher) => {
                    let unit = (start_bytes - segment.start_bytes) / IV_UNIT_BYTES;
                    cipher.encrypt_to(source, target, unit);
                    self.storage.write_at(target, below(segment, start_bytes))?;
                }
                SegmentKind::Linear => {
                    self.storage.write_at(source, below(segment, start_bytes))?
                }
            }
            start_bytes += source.len() as u64;
        }
        Ok(())
    }

    /// Reads and decrypts whole sectors from `start_bytes` on.
    fn read(self, buffer: &mut [u8], start_bytes: u64) -> io::Result<()> {
        self.each_slice(buffer, start_bytes, |segment, start, slice| {
            self.storage.read_at(slice, below(segment, start))?;
            decrypt(segment, start, slice);
            Ok(())
        })
    }

    /// Writes `len` payload bytes that lie in `buffer` after the span's pad; sectors that are
    /// only partly covered are read first.
    fn write(self, buffer: &mut [u8], len: usize, span: Span, fua: bool) -> io::Result<()> {
        let sector = self.volume.sector_size.bytes();
        if span.head_partial {
            self.read_around(&mut buffer[..sector], span.start_bytes, span.pad_bytes, len)?;
        }
        if span.tail_partial {
            let last = buffer.len() - sector;
            let kept_from = span.pad_bytes + len - last;
            let start = span.start_bytes + last as u64;
            self.read_around(&mut buffer[last..], start, 0, kept_from)?;
        }
        self.each_slice(buffer, span.start_bytes, |segment, start, slice| {
            encrypt(segment, start, slice);
            let at = below(segment, start);
            if fua {
                self.storage.write_durable_at(slice, at)
            } else {
                self.storage.write_at(slice, at)
            }
        })
    }

    /// Fills a sector around the `len` new bytes at `from` with what is stored now.
    fn read_around(self, sector: &mut [u8], start: u64, from: usize, len: usize) -> io::Result<()> {
        let mut old = [0; 4096];
        let old = &mut old[..sector.len()];
        self.read(old, start)?;
        let new_end = (from + len).min(sector.len());
        sector[..from].copy_from_slice(&old[..from]);
        sector[new_end..].copy_from_slice(&old[new_end..]);
        Ok(())
    }

    fn write_zeroes(self, offset_bytes: u64, len_bytes: u64, fua: bool) -> io::Result<()> {
        let end_bytes = offset_bytes + len_bytes;
        let sector = self.volume.sector_size;
        let mut zeros = vec![0; (ZERO_CHUNK_BYTES as usize) + 2 * sector.bytes()];
        let mut at_bytes = offset_bytes;
        while at_bytes < end_bytes {
            // Chunks end on the grid, so that only the range's own ends are partial.
            let chunk_end = (at_bytes + ZERO_CHUNK_BYTES) / ZERO_CHUNK_BYTES * ZERO_CHUNK_BYTES;
            let chunk_bytes = chunk_end.min(end_bytes) - at_bytes;
            let span = Span::around(at_bytes, chunk_bytes, sector);
            let buffer = &mut zeros[..span.len_bytes as usize];
            buffer.fill(0);
            self.write(buffer, chunk_bytes as usize, span, false)?;
            at_bytes += chunk_bytes;
        }
        if fua { self.storage.sync() } else { Ok(()) }
    }

    /// Frees the whole sectors inside the span; partial ones stay as they are.
    fn trim(self, span: Span, fua: bool) -> io::Result<()> {
        let (start_bytes, end_bytes) = span.interior(self.volume.sector_size);
        self.each_piece(start_bytes, end_bytes, |_, at, len| {
            self.storage.discard(at, len)
        })?;
        if fua { self.storage.sync() } else { Ok(()) }
    }

    /// Calls `piece(segment, storage offset, length)` for each segment's part of a range.
    pub(super) fn each_piece(
        self,
        mut start_bytes: u64,
        end_bytes: u64,
        mut piece: impl FnMut(&Segment, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let first = self.volume.segment_index_at(start_bytes);
        for segment in self.volume.segments.iter().skip(first) {
            if start_bytes >= end_bytes {
                break;
            }
            let piece_end = end_bytes.min(segment.start_bytes + segment.len_bytes);
            piece(
                segment,
                below(segment, start_bytes),
                piece_end - start_bytes,
            )?;
            start_bytes = piece_end;
        }
        Ok(())
    }

    /// Calls `each(segment, volume offset, slice)` for each segment's part of a buffer.
    fn each_slice(
        self,
        buffer: &mut [u8],
        mut start_bytes: u64,
        mut each: impl FnMut(&Segment, u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rest = buffer;
        let end_bytes = start_bytes + rest.len() as u64;
        self.each_piece(start_bytes, end_bytes, |segment, _, len| {
            let (slice, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = after;
            let result = each(segment, start_bytes, slice);
            start_bytes += len;
            result
        })
    }
}

/// Where a volume offset inside `segment` lies in the storage.
fn below(segment: &Segment, offset_bytes: u64) -> u64 {
    segment.storage_offset_bytes + (offset_bytes - segment.start_bytes)
}

fn encrypt(segment: &Segment, start_bytes: u64, data: &mut [u8]) {
    if let SegmentKind::Crypt(cipher) = &segment.kind {
        cipher.encrypt(data, (start_bytes - segment.start_bytes) / IV_UNIT_BYTES);
    }
}

fn decrypt(segment: &Segment, start_bytes: u64, data: &mut [u8]) {
    if let SegmentKind::Crypt(cipher) = &segment.kind {
        cipher.decrypt(data, (start_bytes - segment.start_bytes) / IV_UNIT_BYTES);
    }
}

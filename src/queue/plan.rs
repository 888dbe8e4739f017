//! Where a request lies on the sector grid. Pure arithmetic: no I/O, no threads.

use crate::units::SectorSize;

/// A byte range and the whole sectors around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// First byte of the first sector.
    pub start_bytes: u64,
    /// Length of the whole sectors.
    pub len_bytes: u64,
    /// Bytes of the first sector that lie before the range.
    pub pad_bytes: usize,
    /// Whether the first sector is only partly in the range.
    pub head_partial: bool,
    /// Whether the last sector is only partly in the range, and is another than the first.
    pub tail_partial: bool,
}

impl Span {
    /// The span of `len_bytes` bytes from `offset_bytes`. The range must not overflow.
    pub(super) fn around(offset_bytes: u64, len_bytes: u64, sector: SectorSize) -> Self {
        let sector = sector.bytes_u64();
        let end_bytes = offset_bytes + len_bytes;
        let start_bytes = offset_bytes - offset_bytes % sector;
        let end_sectors_bytes = end_bytes.next_multiple_of(sector);
        let pad_bytes = (offset_bytes - start_bytes) as usize;
        let one_sector = end_sectors_bytes - start_bytes <= sector;
        let tail_cut = end_bytes != end_sectors_bytes;
        Self {
            start_bytes,
            len_bytes: end_sectors_bytes - start_bytes,
            pad_bytes,
            head_partial: pad_bytes > 0 || (one_sector && tail_cut),
            tail_partial: !one_sector && tail_cut,
        }
    }

    /// First byte after the whole sectors.
    pub(super) fn end_bytes(&self) -> u64 {
        self.start_bytes + self.len_bytes
    }

    /// Whether the range ends or begins inside a sector.
    pub(super) fn is_partial(&self) -> bool {
        self.head_partial || self.tail_partial
    }

    /// The whole sectors that lie entirely inside the range: start and end in bytes, start ≤ end.
    pub(super) fn interior(&self, sector: SectorSize) -> (u64, u64) {
        let sector = sector.bytes_u64();
        let start = self.start_bytes + if self.head_partial { sector } else { 0 };
        let end = self.end_bytes() - if self.tail_partial { sector } else { 0 };
        (start.min(end), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_span_is_the_smallest_run_of_sectors_around_a_range(
            offset in 0u64..100_000, len in 0u64..100_000, size in prop::sample::select(vec![512u64, 1024, 2048, 4096]),
        ) {
            let sector = SectorSize::new(size).unwrap();
            let span = Span::around(offset, len, sector);
            prop_assert!(span.start_bytes.is_multiple_of(size) && span.len_bytes.is_multiple_of(size));
            prop_assert!(span.start_bytes <= offset && offset - span.start_bytes < size);
            prop_assert!(span.end_bytes() >= offset + len && span.end_bytes() - (offset + len) < size);
            prop_assert_eq!(span.pad_bytes as u64, offset - span.start_bytes);
            // A sector is partial exactly where the range covers it in part.
            let covers = |at: u64| offset <= at && at + size <= offset + len;
            if span.len_bytes > 0 {
                prop_assert_eq!(span.head_partial, !covers(span.start_bytes));
                let last = span.end_bytes() - size;
                prop_assert_eq!(span.tail_partial, last != span.start_bytes && !covers(last));
            }
            let (start, end) = span.interior(sector);
            for at in (span.start_bytes..span.end_bytes()).step_by(size as usize) {
                prop_assert_eq!(start <= at && at < end, covers(at));
            }
        }
    }
}

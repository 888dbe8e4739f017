//! A run of sectors, and what encrypts one.

use cipher::Array;
use cipher::consts::U16;
use cipher::inout::InOutBuf;

/// A 16-byte block.
pub(super) type Block = Array<u8, U16>;

/// Whole sectors one after another, from one place to the same or another, with the numbers that
/// their IVs are made of.
pub(super) struct Run<'inp, 'out> {
    pub(super) data: InOutBuf<'inp, 'out, u8>,
    pub(super) sector_bytes: usize,
    pub(super) numbers: IvNumbers,
}

impl<'inp, 'out> Run<'inp, 'out> {
    /// Takes up to `sectors` sectors off the front.
    pub(super) fn split(self, sectors: usize) -> (Self, Self) {
        let at = (sectors * self.sector_bytes).min(self.data.len());
        let Self {
            data,
            sector_bytes,
            numbers,
        } = self;
        let (data, rest) = data.split_at(at);
        let rest_numbers = numbers.skip(at / sector_bytes);
        (
            Self {
                data,
                sector_bytes,
                numbers,
            },
            Self {
                data: rest,
                sector_bytes,
                numbers: rest_numbers,
            },
        )
    }

    pub(super) fn sectors(&self) -> usize {
        self.data.len() / self.sector_bytes
    }

    /// Blocks of 16 bytes in a sector: 32, 64, 128 or 256.
    pub(super) fn sector_blocks(&self) -> usize {
        self.sector_bytes / size_of::<Block>()
    }

    /// The data as blocks; a sector is always whole blocks.
    pub(super) fn into_blocks(self) -> InOutBuf<'inp, 'out, Block> {
        let (blocks, rest) = self.data.into_chunks();
        debug_assert!(rest.is_empty());
        blocks
    }
}

/// The numbers of a run's sectors, as the IV generator gets them. All arithmetic wraps, as the
/// kernel's does. Source: dm-crypt.rst, `iv_large_sectors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IvNumbers {
    /// The first sector's number in 512-byte units, IV offset added.
    pub(super) first_unit: u64,
    /// 512-byte units in a sector.
    pub(super) sector_units: u64,
    /// Whether sectors are counted, instead of 512-byte units.
    pub(super) large_sectors: bool,
}

impl IvNumbers {
    /// The number of the run's sector `index`.
    #[inline(always)]
    pub(super) fn at(self, index: usize) -> u64 {
        let unit = self
            .first_unit
            .wrapping_add(self.sector_units.wrapping_mul(index as u64));
        if self.large_sectors {
            unit >> self.sector_units.trailing_zeros()
        } else {
            unit
        }
    }

    fn skip(self, sectors: usize) -> Self {
        let first_unit = self
            .first_unit
            .wrapping_add(self.sector_units.wrapping_mul(sectors as u64));
        Self { first_unit, ..self }
    }
}

/// A keyed mode with its IV rule: what a CPU kernel implements. It sees whole runs, so that it can
/// keep its registers full across sectors.
pub(super) trait RunCipher: Send + Sync {
    fn encrypt(&self, run: Run<'_, '_>);
    fn decrypt(&self, run: Run<'_, '_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_units_or_sectors_and_wrap() {
        let numbers = IvNumbers {
            first_unit: 16,
            sector_units: 8,
            large_sectors: false,
        };
        assert_eq!([numbers.at(0), numbers.at(1), numbers.at(5)], [16, 24, 56]);
        assert_eq!(numbers.skip(5).at(0), 56);
        let large = IvNumbers {
            large_sectors: true,
            ..numbers
        };
        assert_eq!([large.at(0), large.at(1), large.at(5)], [2, 3, 7]);
        let last = IvNumbers {
            first_unit: u64::MAX - 7,
            ..numbers
        };
        assert_eq!([last.at(0), last.at(1)], [u64::MAX - 7, 0]);
        let last = IvNumbers {
            large_sectors: true,
            ..last
        };
        assert_eq!([last.at(0), last.at(1)], [u64::MAX >> 3, 0]);
    }
}

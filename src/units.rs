//! Units that must not be mixed up.

use std::fmt;

/// The unit in which dm-crypt and LUKS count sectors and IVs, whatever the volume's sector size:
/// 512 bytes. Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst`.
pub const IV_UNIT_BYTES: u64 = 512;

/// The size in bytes of one encryption sector: 512, 1024, 2048 or 4096.
/// Source: dm-crypt.rst, `sector_size`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorSize(u32);

impl SectorSize {
    /// 512 bytes: LUKS1's only size, and plain's default.
    pub const MIN: Self = Self(512);
    /// 4096 bytes, the largest that dm-crypt takes.
    pub const MAX: Self = Self(4096);

    /// The sector size of `bytes`, or `None` where dm-crypt has no such size.
    pub fn new(bytes: u64) -> Option<Self> {
        match bytes {
            512 | 1024 | 2048 | 4096 => Some(Self(bytes as u32)),
            _ => None,
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// In bytes, for arithmetic on offsets.
    pub const fn bytes_u64(self) -> u64 {
        self.0 as u64
    }

    /// How many 512-byte IV units one sector covers: 1, 2, 4 or 8.
    pub const fn iv_units(self) -> u64 {
        self.0 as u64 / IV_UNIT_BYTES
    }
}

impl fmt::Debug for SectorSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

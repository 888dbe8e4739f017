//! One volume's data cipher: keys, mode and IV rule together.

use super::CipherSpec;
use crate::error::Result;
use crate::units::SectorSize;

/// How sector numbers become IV numbers. Source: dm-crypt.rst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IvOptions {
    /// Added (wrapping) to every sector number, in 512-byte units (`iv_offset`).
    pub offset_iv_units: u64,
    /// `iv_large_sectors`: count IVs in units of the sector size.
    pub large_sectors: bool,
}

/// A keyed sector cipher. Immutable; shared by every thread.
pub struct SectorCipher {}

impl SectorCipher {
    /// Errors: `Device` (exit 4), naming the cipher, where it isn't supported or the key's length
    /// doesn't fit it.
    pub fn new(
        _spec: &CipherSpec,
        _key: &[u8],
        _sector_size: SectorSize,
        _iv: IvOptions,
    ) -> Result<Self> {
        todo!()
    }

    /// Encrypts `data`, a run of whole sectors, in place. `first_iv_unit` is the number of the
    /// first sector in 512-byte units from the segment's start.
    pub fn encrypt(&self, _data: &mut [u8], _first_iv_unit: u64) {
        todo!()
    }

    /// Decrypts, as [`Self::encrypt`].
    pub fn decrypt(&self, _data: &mut [u8], _first_iv_unit: u64) {
        todo!()
    }
}

impl std::fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SectorCipher")
    }
}

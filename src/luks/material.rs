//! Key material: a key, split 4000 ways and encrypted, as LUKS1 and LUKS2 key slots hold it.

use std::io;

use crate::cipher::{CipherSpec, IvOptions, SectorCipher};
use crate::error::{Error, Result};
use crate::kdf::{HashAlgorithm, Kdf, af_merge};
use crate::limits::LUKS_KEY_BYTES_MAX;
use crate::secret::Secret;
use crate::storage::Storage;
use crate::units::{IV_UNIT_BYTES, SectorSize};

/// The number of stripes that every LUKS key is split into. Source: LUKS1 on-disk format,
/// `LUKS_STRIPES`; LUKS2 has no other value either.
pub(crate) const STRIPES: u32 = 4000;

/// The length in bytes of the split key on disk: a whole number of 512-byte sectors (a 192-bit
/// key's stripes end within one).
pub(crate) const fn material_bytes(key_bytes: u32) -> u64 {
    (key_bytes as u64 * STRIPES as u64).next_multiple_of(IV_UNIT_BYTES)
}

/// Whether data under this cipher specification are plaintext (`cipher_null-ecb`).
///
/// Errors: `Device` where that was not asked for, or the text is no specification.
pub(crate) fn is_null_cipher(what: &str, cipher: &str, allow_null_cipher: bool) -> Result<bool> {
    let spec = CipherSpec::parse(cipher)?;
    // In other modes the null cipher isn't the identity; they are refused as any unknown cipher.
    let null = spec.is_null() && spec.mode() == Some("ecb");
    if null && !allow_null_cipher {
        return Err(Error::device(format!(
            "{what} uses the null cipher {spec}, which encrypts nothing"
        ))
        .hint("--allow-null-cipher, if that is known and meant"));
    }
    Ok(null)
}

/// The area of a key slot, as the header states it.
#[derive(Debug)]
pub(crate) struct Area<'a> {
    /// Where it begins, in bytes.
    pub(crate) offset_bytes: u64,
    /// Its length in bytes.
    pub(crate) size_bytes: u64,
    /// The cipher specification it is encrypted with.
    pub(crate) cipher: &'a str,
    /// Length in bytes of the key inside.
    pub(crate) key_bytes: i64,
    /// Length in bytes of the key it is encrypted with.
    pub(crate) area_key_bytes: i64,
    /// The hash of the anti-forensic split.
    pub(crate) af_hash: HashAlgorithm,
}

impl Area<'_> {
    /// Checks everything that needs no passphrase.
    pub(crate) fn check(&self, allow_null_cipher: bool) -> Result<()> {
        is_null_cipher("its area", self.cipher, allow_null_cipher)?;
        let key_bytes = key_bytes_u32(self.key_bytes)?;
        if material_bytes(key_bytes) > self.size_bytes {
            return Err(Error::device(format!(
                "header damaged: a key of {key_bytes} bytes doesn't fit its area of {} bytes",
                self.size_bytes
            )));
        }
        key_bytes_u32(self.area_key_bytes).map(|_| ())
    }

    /// The key inside, if the passphrase is right; else some other bytes. `None` where it can't
    /// be right: a null cipher is opened by the empty passphrase only, as in cryptsetup, so that
    /// no passphrase seems to protect what nothing does.
    pub(crate) fn unwrap_key(
        &self,
        storage: &dyn Storage,
        kdf: &Kdf,
        passphrase: &[u8],
    ) -> Result<Option<Secret>> {
        let key_bytes = key_bytes_u32(self.key_bytes)?;
        let null = is_null_cipher("its area", self.cipher, true)?;
        if null && !passphrase.is_empty() {
            return Ok(None);
        }
        let mut material = Secret::zeroed(material_bytes(key_bytes) as usize);
        storage
            .read_at(&mut material, self.offset_bytes)
            .map_err(|e| self.read_error(e))?;
        if !null {
            let area_key = kdf.derive(passphrase, key_bytes_u32(self.area_key_bytes)? as usize)?;
            let spec = CipherSpec::parse(self.cipher)?;
            SectorCipher::new(&spec, &area_key, SectorSize::MIN, IvOptions::default())?
                .decrypt(&mut material, 0);
        }
        let split = &material[..key_bytes as usize * STRIPES as usize];
        Ok(Some(af_merge(
            split,
            key_bytes as usize,
            STRIPES,
            self.af_hash,
        )))
    }

    fn read_error(&self, error: io::Error) -> Error {
        Error::device(format!(
            "can't read the key material at offset {}",
            self.offset_bytes
        ))
        .caused_by(error)
    }
}

fn key_bytes_u32(stated: i64) -> Result<u32> {
    u32::try_from(stated)
        .ok()
        .filter(|bytes| (1..=LUKS_KEY_BYTES_MAX).contains(bytes))
        .ok_or_else(|| Error::device(format!("header damaged: a key of {stated} bytes")))
}

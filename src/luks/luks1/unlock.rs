//! From a passphrase or key to the volume key, and from that to the volume.

use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::{DIGEST_BYTES, Keyslot, Luks1};
use crate::cipher::{CipherSpec, IvOptions, SectorCipher};
use crate::error::{Error, Result};
use crate::kdf::Kdf;
use crate::luks::attempts::{Attempts, no_such_keyslot};
use crate::luks::material::{Area, is_null_cipher, material_bytes};
use crate::luks::{UnlockOptions, VolumeKey};
use crate::secret::Secret;
use crate::storage::Storage;
use crate::units::{IV_UNIT_BYTES, SectorSize};
use crate::volume::{Segment, SegmentKind, Volume, VolumeAbout};

impl Luks1 {
    /// Tries the key slots in use, or the named one.
    pub(crate) fn unlock(
        &self,
        storage: &dyn Storage,
        passphrase: &[u8],
        options: &UnlockOptions,
    ) -> Result<VolumeKey> {
        let mut attempts = Attempts::default();
        for (index, slot) in self.slots_to_try(options.keyslot)? {
            let result = self.open_slot(storage, slot, passphrase, options.allow_null_cipher);
            if let Some(key) = attempts.take(index, result) {
                return Ok(VolumeKey {
                    key,
                    keyslot: Some(index),
                    digest: 0,
                });
            }
        }
        Err(attempts.failure())
    }

    /// Confirms a volume key by the digest.
    pub(crate) fn confirm(&self, key: &Secret) -> Result<VolumeKey> {
        match key.len() == self.key_bytes as usize && self.verify(key)? {
            true => Ok(VolumeKey {
                key: key.clone(),
                keyslot: None,
                digest: 0,
            }),
            false => Err(Error::permission("this is not the volume key")),
        }
    }

    /// The volume over a data device of `data_bytes`. `detached`: the data device is not the
    /// header's.
    pub(crate) fn volume(
        &self,
        key: &VolumeKey,
        data_bytes: u64,
        detached: bool,
        options: &UnlockOptions,
    ) -> Result<Volume> {
        let start_bytes = self.payload_offset_bytes;
        if start_bytes == 0 && !detached {
            return Err(
                Error::device("the header is detached: the data lie on another device")
                    .hint("name the data device, and this one with --header"),
            );
        }
        let rest_bytes = data_bytes.saturating_sub(start_bytes);
        let size_bytes = rest_bytes - rest_bytes % IV_UNIT_BYTES;
        if size_bytes == 0 {
            return Err(Error::device(format!(
                "there is no data area: it begins at {start_bytes}, the device ends at {data_bytes}"
            ))
            .hint("name the data device, and this one with --header, if the header is detached"));
        }
        let kind = self.segment_kind(&key.key, options)?;
        let segment = Segment {
            start_bytes: 0,
            len_bytes: size_bytes,
            storage_offset_bytes: start_bytes,
            kind,
        };
        let about = VolumeAbout {
            format: "luks1",
            cipher: self.cipher(),
            key_bits: self.key_bytes * 8,
            uuid: self.uuid.clone(),
            label: String::new(),
            keyslot: key.keyslot,
            flags: Vec::new(),
        };
        Ok(Volume {
            segments: vec![segment],
            size_bytes,
            sector_size: SectorSize::MIN,
            about,
        })
    }

    fn slots_to_try(&self, named: Option<u32>) -> Result<Vec<(u32, &Keyslot)>> {
        let active = (0..).zip(&self.keyslots).filter(|(_, slot)| slot.active);
        let slots = active.filter(|(index, _)| named.is_none_or(|named| named == *index));
        let slots = slots.collect::<Vec<_>>();
        match (named, slots.is_empty()) {
            (Some(named), true) => Err(no_such_keyslot(named)),
            _ => Ok(slots),
        }
    }

    fn open_slot(
        &self,
        storage: &dyn Storage,
        slot: &Keyslot,
        passphrase: &[u8],
        allow_null_cipher: bool,
    ) -> Result<Option<Secret>> {
        let cipher = self.checked_cipher()?;
        let area = Area {
            offset_bytes: slot.offset_bytes,
            size_bytes: material_bytes(self.key_bytes),
            cipher: &cipher,
            key_bytes: i64::from(self.key_bytes),
            area_key_bytes: i64::from(self.key_bytes),
            af_hash: self.hash,
        };
        area.check(allow_null_cipher)?;
        let kdf = self.pbkdf2(slot.iterations, &slot.salt)?;
        let Some(key) = area.unwrap_key(storage, &kdf, passphrase)? else {
            return Ok(None);
        };
        Ok(self.verify(&key)?.then_some(key))
    }

    fn verify(&self, key: &[u8]) -> Result<bool> {
        let kdf = self.pbkdf2(self.digest_iterations, &self.digest_salt)?;
        let computed = kdf.derive(key, DIGEST_BYTES)?;
        Ok(computed.ct_eq(&self.digest).into())
    }

    fn pbkdf2(&self, iterations: u32, salt: &[u8]) -> Result<Kdf> {
        match iterations {
            0 => Err(Error::device("header damaged: PBKDF2 with 0 iterations")),
            _ => Ok(Kdf::Pbkdf2 {
                hash: self.hash,
                iterations,
                salt: salt.to_vec(),
            }),
        }
    }

    fn segment_kind(&self, key: &Secret, options: &UnlockOptions) -> Result<SegmentKind> {
        let cipher = self.checked_cipher()?;
        if is_null_cipher("the volume", &cipher, options.allow_null_cipher)? {
            return Ok(SegmentKind::Linear);
        }
        let spec = CipherSpec::parse(&cipher)?;
        let cipher = SectorCipher::new(&spec, key, SectorSize::MIN, IvOptions::default())?;
        Ok(SegmentKind::Crypt(Arc::new(cipher)))
    }

    /// A name alone would mean a mode of its own to dm-crypt; in a LUKS1 header it is a fault.
    fn checked_cipher(&self) -> Result<String> {
        CipherSpec::from_parts(&self.cipher_name, &self.cipher_mode)?;
        Ok(self.cipher())
    }
}

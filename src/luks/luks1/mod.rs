//! LUKS1. Source: LUKS On-Disk Format Specification, version 1.2.3.
//!
//! [`Luks1::load`] reads and checks the header; [`unlock`] finds the key and makes the volume.

mod unlock;

use crate::error::{Error, Result};
use crate::kdf::HashAlgorithm;
use crate::limits::LUKS_KEY_BYTES_MAX;
use crate::luks::material::{STRIPES, material_bytes};
use crate::luks::text::{field, printable};
use crate::storage::Storage;
use crate::units::IV_UNIT_BYTES;

/// Length of the header in bytes.
const HEADER_BYTES: usize = 592;
/// Key slots in it.
const KEYSLOTS: usize = 8;
/// Length of the digest of the volume key in bytes, and the shortest hash that fits it.
const DIGEST_BYTES: usize = 20;
/// A key slot's state when it is in use.
const KEYSLOT_ACTIVE: u32 = 0x00ac_71f3;

/// A LUKS1 header, checked.
#[derive(Debug)]
pub(crate) struct Luks1 {
    /// dm-crypt's name of the cipher, as stored.
    pub(crate) cipher_name: String,
    /// dm-crypt's name of mode and IV, as stored.
    pub(crate) cipher_mode: String,
    /// The hash of PBKDF2 and of the anti-forensic split.
    pub(crate) hash: HashAlgorithm,
    /// Its name as stored.
    pub(crate) hash_name: String,
    /// Where the data begin, in bytes; 0 where they lie on another device.
    pub(crate) payload_offset_bytes: u64,
    /// Length of the volume key in bytes, 1 to 512.
    pub(crate) key_bytes: u32,
    /// The digest of the volume key.
    pub(crate) digest: [u8; DIGEST_BYTES],
    /// Its salt.
    pub(crate) digest_salt: [u8; 32],
    /// Its iterations.
    pub(crate) digest_iterations: u32,
    /// The UUID, as stored.
    pub(crate) uuid: String,
    /// The key slots.
    pub(crate) keyslots: [Keyslot; KEYSLOTS],
}

/// A key slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyslot {
    /// Whether it is in use.
    pub(crate) active: bool,
    /// PBKDF2 iterations; 0 in unused slots.
    pub(crate) iterations: u32,
    /// PBKDF2's salt.
    pub(crate) salt: [u8; 32],
    /// Where its key material begins, in bytes.
    pub(crate) offset_bytes: u64,
}

impl Luks1 {
    /// Reads and checks the header at the start of `storage`. `detached`: the data lie elsewhere.
    ///
    /// Errors: `Device` where it is damaged, with the reason.
    pub(crate) fn load(storage: &dyn Storage, detached: bool) -> Result<Self> {
        let damaged = |reason: String| {
            Error::device(format!("LUKS1 header at offset 0 is damaged: {reason}"))
                .hint("`luks repair`, or `luks header-restore` from a backup")
        };
        let mut bytes = [0; HEADER_BYTES];
        storage
            .read_at(&mut bytes, 0)
            .map_err(|e| damaged("the device ends within it".into()).caused_by(e))?;
        let header = Self::parse(&bytes).map_err(damaged)?;
        header.check_keyslots(detached).map_err(damaged)?;
        let device_bytes = storage
            .size_bytes()
            .map_err(|e| Error::device("can't tell the device's size").caused_by(e))?;
        let end_bytes = header.keyslots_end_bytes();
        if device_bytes < end_bytes {
            return Err(damaged(format!(
                "the device ends at {device_bytes}, within the key material (up to {end_bytes})"
            )));
        }
        Ok(header)
    }

    /// dm-crypt's cipher specification.
    pub(crate) fn cipher(&self) -> String {
        match self.cipher_mode.as_str() {
            "" => self.cipher_name.clone(),
            mode => format!("{}-{mode}", self.cipher_name),
        }
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> std::result::Result<Self, String> {
        let hash_name = field(&bytes[72..104]);
        let hash = HashAlgorithm::parse(&hash_name)
            .filter(|hash| hash.output_bytes() >= DIGEST_BYTES)
            .ok_or_else(|| format!("its hash {:?} is not known", printable(&hash_name)))?;
        let key_bytes = u32_at(bytes, 108);
        if !(1..=LUKS_KEY_BYTES_MAX).contains(&key_bytes) {
            return Err(format!("a volume key of {key_bytes} bytes"));
        }
        let keyslot = |index: usize| {
            let at = 208 + 48 * index;
            let stripes = u32_at(bytes, at + 44);
            if stripes != STRIPES {
                return Err(format!(
                    "key slot {index} has {stripes} stripes, not {STRIPES}"
                ));
            }
            Ok(Keyslot {
                active: u32_at(bytes, at) == KEYSLOT_ACTIVE,
                iterations: u32_at(bytes, at + 4),
                salt: array_at(bytes, at + 8),
                offset_bytes: u64::from(u32_at(bytes, at + 40)) * IV_UNIT_BYTES,
            })
        };
        let keyslots = (0..KEYSLOTS)
            .map(keyslot)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Self {
            cipher_name: field(&bytes[8..40]),
            cipher_mode: field(&bytes[40..72]),
            hash,
            hash_name,
            payload_offset_bytes: u64::from(u32_at(bytes, 104)) * IV_UNIT_BYTES,
            key_bytes,
            digest: array_at(bytes, 112),
            digest_salt: array_at(bytes, 132),
            digest_iterations: u32_at(bytes, 164),
            uuid: printable(&field(&bytes[168..208])),
            keyslots: keyslots.try_into().expect("eight key slots"),
        })
    }

    /// Key material, of unused slots too, lies behind the header, before the payload, and clear
    /// of the other slots'.
    fn check_keyslots(&self, detached: bool) -> std::result::Result<(), String> {
        let material_bytes = material_bytes(self.key_bytes);
        let mut areas = Vec::new();
        for (index, slot) in self.keyslots.iter().enumerate() {
            let end_bytes = slot.offset_bytes + material_bytes;
            if slot.offset_bytes < HEADER_BYTES as u64 {
                return Err(format!(
                    "the key material of slot {index} lies over the header"
                ));
            }
            let same_device = !detached && self.payload_offset_bytes != 0;
            if same_device && end_bytes > self.payload_offset_bytes {
                return Err(format!(
                    "the key material of slot {index} lies over the payload"
                ));
            }
            areas.push((slot.offset_bytes, end_bytes, index));
        }
        areas.sort_unstable();
        match areas.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(format!(
                "the key material of slots {} and {} overlaps",
                pair[0].2, pair[1].2
            )),
            None => Ok(()),
        }
    }

    fn keyslots_end_bytes(&self) -> u64 {
        let last_bytes = self
            .keyslots
            .iter()
            .map(|slot| slot.offset_bytes)
            .max()
            .unwrap_or(0);
        last_bytes + material_bytes(self.key_bytes)
    }
}

/// Big-endian; `offset` lies inside the fixed-size header.
fn u32_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, offset))
}

fn array_at<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("a field inside the header")
}

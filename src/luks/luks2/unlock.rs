//! From a passphrase or key to a volume key that a digest confirmed.

use super::Luks2;
use super::keyslot::Priority;
use crate::error::{Error, Result};
use crate::luks::attempts::{Attempts, no_such_keyslot};
use crate::luks::{UnlockOptions, VolumeKey};
use crate::secret::Secret;
use crate::storage::Storage;

impl Luks2 {
    /// Tries the key slots: the named one, or all that serve data, preferred ones first, ignored
    /// ones not at all.
    pub(crate) fn unlock(
        &self,
        storage: &dyn Storage,
        passphrase: &[u8],
        options: &UnlockOptions,
    ) -> Result<VolumeKey> {
        let mut attempts = Attempts::default();
        for slot in self.slots_to_try(options.keyslot)? {
            let result = self.open_slot(storage, slot, passphrase, options.allow_null_cipher);
            if let Some(key) = attempts.take(slot, result) {
                return Ok(key);
            }
        }
        Err(attempts.failure())
    }

    /// Confirms a volume key by any digest of a key that serves data.
    pub(crate) fn confirm(&self, key: &Secret) -> Result<VolumeKey> {
        let mut unsupported = None;
        for (&id, digest) in &self.copy.metadata.digests {
            if digest.segments.is_empty() {
                continue;
            }
            match digest.verify(key) {
                Ok(true) => {
                    return Ok(VolumeKey {
                        key: key.clone(),
                        keyslot: None,
                        digest: id,
                    });
                }
                Ok(false) => {}
                Err(e) => unsupported = Some(e.within(format!("digest {id}"))),
            }
        }
        Err(unsupported.unwrap_or_else(|| Error::permission("this is not the volume key")))
    }

    fn slots_to_try(&self, named: Option<u32>) -> Result<Vec<u32>> {
        let keyslots = &self.copy.metadata.keyslots;
        if let Some(named) = named {
            // Also an unbound slot: its passphrase can be tested, and `volume` refuses its key.
            return match keyslots.get(&named).filter(|slot| slot.is_usable()) {
                Some(_) => Ok(vec![named]),
                None => Err(no_such_keyslot(named)),
            };
        }
        let mut slots = keyslots
            .iter()
            .filter(|(id, slot)| {
                slot.is_usable() && slot.priority > Priority::Ignore && self.serves_data(**id)
            })
            .map(|(id, slot)| (std::cmp::Reverse(slot.priority), *id))
            .collect::<Vec<_>>();
        slots.sort_unstable();
        Ok(slots.into_iter().map(|(_, id)| id).collect())
    }

    /// Whether a key slot's key belongs to a segment in use; else it is unbound, as cryptsetup
    /// says.
    pub(crate) fn is_bound(&self, keyslot: u32) -> bool {
        let digest = self.copy.metadata.digest_of_keyslot(keyslot);
        let active = self.active();
        digest.is_some_and(|(_, digest)| {
            active
                .iter()
                .any(|(segment, _)| digest.segments.contains(segment))
        })
    }

    /// Whether a key slot's key belongs to a segment of any kind, also one of before or after a
    /// re-encryption.
    fn serves_data(&self, keyslot: u32) -> bool {
        let digest = self.copy.metadata.digest_of_keyslot(keyslot);
        digest.is_some_and(|(_, digest)| !digest.segments.is_empty())
    }

    fn open_slot(
        &self,
        storage: &dyn Storage,
        id: u32,
        passphrase: &[u8],
        allow_null_cipher: bool,
    ) -> Result<Option<VolumeKey>> {
        let metadata = &self.copy.metadata;
        let (digest_id, digest) = metadata
            .digest_of_keyslot(id)
            .ok_or_else(|| Error::device("header damaged: no digest proves its key"))?;
        let slot = metadata
            .keyslots
            .get(&id)
            .ok_or_else(|| no_such_keyslot(id))?;
        let Some(key) = slot.unwrap_key(storage, passphrase, allow_null_cipher)? else {
            return Ok(None);
        };
        let fits = digest.verify(&key)?;
        Ok(fits.then_some(VolumeKey {
            key,
            keyslot: Some(id),
            digest: digest_id,
        }))
    }
}

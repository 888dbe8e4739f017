//! LUKS1 and LUKS2: headers, key slots, and the volume they describe.
//!
//! Free of sockets and threads. It reads headers through [`Storage`] and never trusts a number in
//! them before it is checked.

use std::sync::Arc;

use serde_json::Value;

use crate::error::Result;
use crate::secret::Secret;
use crate::storage::Storage;
use crate::volume::Volume;

/// What unlocks a volume.
#[derive(Debug)]
pub enum Credential {
    /// A passphrase, typed or from a key file (key files are passphrases to LUKS).
    Passphrase(Secret),
    /// The volume key itself.
    VolumeKey(Secret),
}

/// How a volume is unlocked and mapped.
#[derive(Debug, Default, Clone)]
pub struct UnlockOptions {
    /// Try this key slot only (also one of priority `ignore`).
    pub keyslot: Option<u32>,
    /// Accept a null cipher.
    pub allow_null_cipher: bool,
}

/// A volume key that a digest confirmed.
#[derive(Debug)]
pub struct VolumeKey {
    /// The key.
    pub key: Secret,
    /// The key slot it came from, unless it was given as a key.
    pub keyslot: Option<u32>,
    /// The digest that confirmed it (0 for LUKS1).
    pub digest: u32,
}

/// A header that was read and checked.
#[derive(Debug)]
pub struct Header {}

impl Header {
    /// Whether `storage` begins with a LUKS magic (or holds LUKS2's second copy).
    pub fn probe(_storage: &dyn Storage) -> Result<bool> {
        todo!()
    }

    /// Reads and checks the header at the start of `storage`. `detached` where the data lie
    /// elsewhere: the data area is then not checked against this storage's size.
    ///
    /// Errors: `Device` (exit 4) telling apart: no header, damaged (with offset and reason), a
    /// version or requirement not known.
    pub fn load(_storage: Arc<dyn Storage>, _detached: bool) -> Result<Self> {
        todo!()
    }

    /// Warnings a person should see (one header copy damaged, …), one line each.
    pub fn warnings(&self) -> &[String] {
        todo!()
    }

    /// The description that `dump --json` prints; its fields are cli.md's.
    pub fn description(&self) -> Value {
        todo!()
    }

    /// The LUKS2 JSON area exactly as stored, or `None` for LUKS1.
    pub fn json_area(&self) -> Option<&str> {
        todo!()
    }

    /// The UUID, as stored.
    pub fn uuid(&self) -> &str {
        todo!()
    }

    /// Finds the volume key.
    ///
    /// Errors: `Permission` (exit 2) where no slot opens; `Memory` (exit 3) where the only slots
    /// left need more memory than there is; `Device` for an unsupported KDF, hash or cipher.
    pub fn unlock(&self, _credential: &Credential, _options: &UnlockOptions) -> Result<VolumeKey> {
        todo!()
    }

    /// The volume that `key` opens, on data of `data_size_bytes`.
    ///
    /// Errors: `Device` (exit 4) for unsupported ciphers, requirements (named), or segments that
    /// don't fit the data.
    pub fn volume(
        &self,
        _key: &VolumeKey,
        _data_size_bytes: u64,
        _options: &UnlockOptions,
    ) -> Result<Volume> {
        todo!()
    }
}

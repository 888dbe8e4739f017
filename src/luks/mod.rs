//! LUKS1 and LUKS2: headers, key slots, and the volume they describe.
//!
//! Free of sockets and threads. It reads headers through [`Storage`] and never trusts a number in
//! them before it is checked.

mod attempts;
mod describe;
mod foreign;
mod luks1;
mod luks2;
mod material;
mod text;

use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::storage::Storage;
use crate::volume::Volume;

pub(crate) use material::is_null_cipher;

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
pub struct Header {
    storage: Arc<dyn Storage>,
    detached: bool,
    format: Format,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Format {
    Luks1(Box<luks1::Luks1>),
    Luks2(Box<luks2::Luks2>),
}

impl Header {
    /// Whether `storage` begins with a LUKS magic, or holds something of a LUKS2 header's second
    /// copy. No promise that it loads: [`Self::load`] says why it doesn't.
    ///
    /// Errors: `Device` where it can't be read.
    pub fn probe(storage: &dyn Storage) -> Result<bool> {
        Ok(magic_version(storage)?.is_some() || luks2::Luks2::probe_secondary(storage))
    }

    /// Reads and checks the header at the start of `storage`. `detached` where the data lie
    /// elsewhere: the data area is then not checked against this storage's size.
    ///
    /// Errors: `Device` (exit 4) telling apart: no header, damaged (with offset and reason), a
    /// version or requirement not known.
    pub fn load(storage: Arc<dyn Storage>, detached: bool) -> Result<Self> {
        let (format, warnings) = match magic_version(&*storage)? {
            Some(1) => (
                Format::Luks1(Box::new(luks1::Luks1::load(&*storage, detached)?)),
                Vec::new(),
            ),
            _ => {
                let (header, warnings) = luks2::Luks2::load(&*storage)?;
                (Format::Luks2(Box::new(header)), warnings)
            }
        };
        Ok(Self {
            storage,
            detached,
            format,
            warnings,
        })
    }

    /// `luks1` or `luks2`.
    pub fn format(&self) -> &'static str {
        match &self.format {
            Format::Luks1(_) => "luks1",
            Format::Luks2(_) => "luks2",
        }
    }

    /// Warnings a person should see (one header copy damaged, …), one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The description that `dump --json` prints; its fields are cli.md's.
    pub fn description(&self) -> Value {
        describe::json(&self.format)
    }

    /// The description that `dump` prints, in words.
    pub fn description_in_words(&self) -> String {
        describe::words(&self.description())
    }

    /// The LUKS2 JSON area exactly as stored, or `None` for LUKS1.
    pub fn json_area(&self) -> Option<&str> {
        match &self.format {
            Format::Luks1(_) => None,
            Format::Luks2(header) => Some(&header.copy.json),
        }
    }

    /// The UUID as stored (what could upset a terminal is escaped), or empty.
    pub fn uuid(&self) -> &str {
        match &self.format {
            Format::Luks1(header) => &header.uuid,
            Format::Luks2(header) => &header.copy.uuid,
        }
    }

    /// Finds the volume key. A named key slot may be an unbound one, whose key [`Self::volume`]
    /// then refuses; without a name only slots of keys that serve data are tried.
    ///
    /// Errors: `Permission` (exit 2) where no slot opens; `Memory` (exit 3) where the only slots
    /// left need more memory than there is; `Device` for an unsupported KDF, hash or cipher, or a
    /// parameter out of range, of a slot that might have opened.
    pub fn unlock(&self, credential: &Credential, options: &UnlockOptions) -> Result<VolumeKey> {
        let storage = &*self.storage;
        match (&self.format, credential) {
            (Format::Luks1(header), Credential::Passphrase(passphrase)) => {
                header.unlock(storage, passphrase, options)
            }
            (Format::Luks2(header), Credential::Passphrase(passphrase)) => {
                header.unlock(storage, passphrase, options)
            }
            (Format::Luks1(header), Credential::VolumeKey(key)) => header.confirm(key),
            (Format::Luks2(header), Credential::VolumeKey(key)) => header.confirm(key),
        }
    }

    /// The volume that `key` opens, on data of `data_size_bytes`.
    ///
    /// Errors: `Device` (exit 4) for unsupported ciphers, requirements (named), or segments that
    /// don't fit the data; `Permission` (exit 2) for a key that is bound to no segment.
    pub fn volume(
        &self,
        key: &VolumeKey,
        data_size_bytes: u64,
        options: &UnlockOptions,
    ) -> Result<Volume> {
        match &self.format {
            Format::Luks1(header) => header.volume(key, data_size_bytes, self.detached, options),
            Format::Luks2(header) => header.volume(key, data_size_bytes, self.detached, options),
        }
    }
}

/// The version after LUKS's magic at the start, if it is there.
fn magic_version(storage: &dyn Storage) -> Result<Option<u16>> {
    let mut bytes = [0; 8];
    match storage.read_at(&mut bytes, 0) {
        Ok(()) if bytes[..6] == luks2::MAGIC_PRIMARY => {
            Ok(Some(u16::from_be_bytes([bytes[6], bytes[7]])))
        }
        Ok(()) => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(Error::device("can't read it").caused_by(e)),
    }
}

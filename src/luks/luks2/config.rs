//! `config`: the sizes of the areas, persistent flags, and requirements.

use super::json::{Fault, Object};
use crate::limits::LUKS2_KEYSLOTS_BYTES_MAX;

/// Source: LUKS2 on-disk format, "Config object".
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The key slots area's size in bytes: a multiple of 4096, at most 128 MiB.
    pub(crate) keyslots_bytes: u64,
    /// Persistent flags, as stored; unknown ones are kept and have no effect.
    pub(crate) flags: Vec<String>,
    /// Mandatory requirements, as stored.
    pub(crate) requirements: Vec<String>,
}

impl Config {
    /// Reads `config` of a header whose JSON area is `json_bytes` long by its binary part.
    pub(super) fn parse(config: &Object<'_>, json_bytes: u64) -> Result<Self, Fault> {
        let stated_bytes = config.number("json_size")?;
        if stated_bytes != json_bytes {
            return Err(format!(
                "config.json_size is {stated_bytes}, the header has {json_bytes} bytes of it"
            ));
        }
        let keyslots_bytes = config.number("keyslots_size")?;
        if keyslots_bytes % 4096 != 0 || keyslots_bytes > LUKS2_KEYSLOTS_BYTES_MAX {
            return Err(format!(
                "config.keyslots_size {keyslots_bytes} is out of range"
            ));
        }
        let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        let flags = owned(config.strings_or_none("flags")?);
        // Anything but `mandatory` is for information only.
        let requirements = match config.has("requirements") {
            true => owned(
                config
                    .object("requirements")?
                    .strings_or_none("mandatory")?,
            ),
            false => Vec::new(),
        };
        Ok(Self {
            keyslots_bytes,
            flags,
            requirements,
        })
    }
}

/// A requirement in words.
pub(crate) fn requirement_in_words(name: &str) -> Option<&'static str> {
    Some(match name {
        "offline-reencrypt" => "an offline re-encryption is under way",
        "online-reencrypt" | "online-reencrypt-v2" | "online-reencrypt-v3" => {
            "a re-encryption is under way"
        }
        "opal" => "the drive itself encrypts (OPAL)",
        "inline-hw-tags" => "integrity tags lie in the drive's own metadata",
        _ => return None,
    })
}

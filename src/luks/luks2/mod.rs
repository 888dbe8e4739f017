//! LUKS2. Source: LUKS2 on-disk format specification, version 1.1.
//!
//! [`Luks2::load`] picks the header copy that counts; [`unlock`] finds the key; [`mapping`] makes
//! the volume. Nothing here writes to the device.

mod config;
mod digest;
mod header;
mod json;
mod keyslot;
mod mapping;
mod metadata;
mod segment;
mod token;
mod unlock;

pub(crate) use config::requirement_in_words;
pub(crate) use digest::Digest;
pub(crate) use header::{Copy, MAGIC_PRIMARY};
pub(crate) use keyslot::{Keyslot, Priority};
pub(crate) use segment::{Segment, Size};

use super::foreign;
use crate::error::{Error, Result};
use crate::storage::Storage;

use header::{Damage, read_primary, read_secondary};

/// A LUKS2 header: the copy that counts.
#[derive(Debug)]
pub(crate) struct Luks2 {
    /// The copy that counts.
    pub(crate) copy: Copy,
}

impl Luks2 {
    /// Reads both copies and takes the valid one with the higher sequence id. With it come
    /// warnings for a person.
    ///
    /// Errors: `Device`, with offset and reason for each copy where both are damaged.
    pub(crate) fn load(storage: &dyn Storage) -> Result<(Self, Vec<String>)> {
        let primary = read_primary(storage);
        let secondary = read_secondary(storage, primary.as_ref().ok());
        match (primary, secondary) {
            (Ok(primary), Ok(secondary)) if secondary.sequence_id > primary.sequence_id => {
                Ok((Self { copy: secondary }, vec![stale(&primary)]))
            }
            (Ok(primary), Ok(secondary)) => {
                let warnings = match secondary.sequence_id < primary.sequence_id {
                    true => vec![stale(&secondary)],
                    false => Vec::new(),
                };
                Ok((Self { copy: primary }, warnings))
            }
            (Ok(primary), Err(damage)) => Ok((Self { copy: primary }, vec![damaged(&damage)])),
            (Err(damage), Ok(secondary)) => {
                if damage.absent {
                    refuse_foreign(storage, &secondary)?;
                }
                Ok((Self { copy: secondary }, vec![damaged(&damage)]))
            }
            (Err(primary), Err(secondary)) => Err(none_left(&primary, &secondary)),
        }
    }

    /// Whether there is anything of a second copy, good or damaged. [`Self::load`] then says what
    /// is wrong with it, and what else has taken the device since.
    pub(crate) fn probe_secondary(storage: &dyn Storage) -> bool {
        read_secondary(storage, None).map_or_else(|damage| !damage.absent, |_| true)
    }
}

fn damaged(damage: &Damage) -> String {
    format!(
        "the header copy at offset {} is damaged ({}); the other one is used; `luks repair` mends it",
        damage.offset_bytes, damage.reason
    )
}

fn stale(copy: &Copy) -> String {
    format!(
        "the header copy at offset {} is older (sequence {}); the newer one is used; \
         `luks repair` mends it",
        copy.offset_bytes, copy.sequence_id
    )
}

fn refuse_foreign(storage: &dyn Storage, secondary: &Copy) -> Result<()> {
    match foreign::signature(storage) {
        None => Ok(()),
        Some(name) => Err(Error::device(format!(
            "not a LUKS volume now: {name} begins here; only a second LUKS2 header copy is left, \
             at offset {}",
            secondary.offset_bytes
        ))
        .hint("use it as what it is; or `luks repair`, if it should be LUKS again")),
    }
}

fn none_left(primary: &Damage, secondary: &Damage) -> Error {
    if primary.absent && secondary.absent {
        return Error::device("not a LUKS volume: no LUKS header at offset 0, nor a second copy");
    }
    Error::device(format!(
        "both LUKS2 header copies are damaged: at offset {}: {}; at offset {}: {}",
        primary.offset_bytes, primary.reason, secondary.offset_bytes, secondary.reason
    ))
    .hint("`luks header-restore` from a backup")
}

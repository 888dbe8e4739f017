//! The JSON area as a whole: its objects, and how they refer to each other.
//!
//! Source: LUKS2 on-disk format, "JSON area".

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::config::Config;
use super::digest::Digest;
use super::json::{Fault, Object};
use super::keyslot::Keyslot;
use super::segment::{self, Segment};
use super::token::Token;

/// Everything the JSON area says. Unknown keys are ignored, as the format asks.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// Key slots by id.
    pub(crate) keyslots: BTreeMap<u32, Keyslot>,
    /// Tokens by id.
    pub(crate) tokens: BTreeMap<u32, Token>,
    /// Segments; their ids are their places.
    pub(crate) segments: Vec<Segment>,
    /// Digests by id.
    pub(crate) digests: BTreeMap<u32, Digest>,
    /// Sizes, flags, requirements.
    pub(crate) config: Config,
}

impl Metadata {
    /// Reads and checks the JSON area of a header copy of `header_bytes`.
    pub(super) fn parse(top: &Map<String, Value>, header_bytes: u64) -> Result<Self, Fault> {
        let top = Object::top(top);
        let objects = |name: &str| top.object(name)?.numbered();
        let metadata = Self {
            config: Config::parse(&top.object("config")?, header_bytes - 4096)?,
            keyslots: parse_each(objects("keyslots")?, Keyslot::parse)?,
            tokens: parse_each(objects("tokens")?, Token::parse)?,
            segments: segment::parse_all(&top.object("segments")?)?,
            digests: parse_each(objects("digests")?, Digest::parse)?,
        };
        metadata.check_references()?;
        metadata.check_areas(header_bytes)?;
        Ok(metadata)
    }

    /// The first byte after the key slots area.
    pub(super) fn keyslots_end_bytes(&self, header_bytes: u64) -> u64 {
        2 * header_bytes + self.config.keyslots_bytes
    }

    /// The digest of a key slot's key.
    pub(crate) fn digest_of_keyslot(&self, keyslot: u32) -> Option<(u32, &Digest)> {
        let mut digests = self.digests.iter();
        let (id, digest) = digests.find(|(_, digest)| digest.keyslots.contains(&keyslot))?;
        Some((*id, digest))
    }

    fn check_references(&self) -> Result<(), Fault> {
        let missing = |ids: &[u32]| {
            ids.iter()
                .find(|id| !self.keyslots.contains_key(id))
                .copied()
        };
        for (id, token) in &self.tokens {
            if let Some(keyslot) = missing(&token.keyslots) {
                return Err(format!(
                    "tokens.{id} refers to a missing key slot {keyslot}"
                ));
            }
        }
        let mut digested: Vec<u32> = Vec::new();
        for (id, digest) in &self.digests {
            if let Some(keyslot) = missing(&digest.keyslots) {
                return Err(format!(
                    "digests.{id} refers to a missing key slot {keyslot}"
                ));
            }
            let mut segments = digest.segments.iter();
            if let Some(n) = segments.find(|&&n| n as usize >= self.segments.len()) {
                return Err(format!("digests.{id} refers to a missing segment {n}"));
            }
            let mut keyslots = digest.keyslots.clone();
            keyslots.sort_unstable();
            keyslots.dedup();
            digested.extend(keyslots);
        }
        digested.sort_unstable();
        if let Some(pair) = digested.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("key slot {} has more than one digest", pair[0]));
        }
        let is_digested = |id: &u32| digested.binary_search(id).is_ok();
        let mut wrapped = self.keyslots.iter().filter(|(_, slot)| slot.is_usable());
        if let Some((id, _)) = wrapped.find(|(id, _)| !is_digested(id)) {
            return Err(format!("key slot {id} has no digest"));
        }
        for (id, segment) in (0u32..).zip(&self.segments) {
            let has_digest = self
                .digests
                .values()
                .any(|digest| digest.segments.contains(&id));
            if segment.kind == "crypt" && !has_digest {
                return Err(format!("segment {id} is encrypted and has no digest"));
            }
        }
        Ok(())
    }

    /// Key slots' areas lie inside the key slots area, clear of each other, and the data begin
    /// after it (or at 0, which means on another device).
    fn check_areas(&self, header_bytes: u64) -> Result<(), Fault> {
        let (start_bytes, end_bytes) = (2 * header_bytes, self.keyslots_end_bytes(header_bytes));
        let mut areas = Vec::new();
        for (id, keyslot) in &self.keyslots {
            let Some(area) = &keyslot.area else { continue };
            let area_end_bytes = area.offset_bytes.checked_add(area.size_bytes);
            match area_end_bytes {
                Some(end) if area.offset_bytes >= start_bytes && end <= end_bytes => {
                    areas.push((area.offset_bytes, end, *id));
                }
                _ => {
                    return Err(format!(
                        "the area of key slot {id} lies outside of the key slots area"
                    ));
                }
            }
        }
        areas.sort_unstable();
        if let Some(pair) = areas.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(format!(
                "the areas of key slots {} and {} overlap",
                pair[0].2, pair[1].2
            ));
        }
        let data_bytes = segment::data_offset_bytes(&self.segments);
        if data_bytes != 0 && data_bytes < end_bytes {
            return Err(format!(
                "the data begin at {data_bytes}, within the key slots area (up to {end_bytes})"
            ));
        }
        Ok(())
    }
}

fn parse_each<T>(
    objects: Vec<(u32, Object<'_>)>,
    parse: impl Fn(&Object<'_>) -> Result<T, Fault>,
) -> Result<BTreeMap<u32, T>, Fault> {
    objects
        .into_iter()
        .map(|(id, object)| Ok((id, parse(&object)?)))
        .collect()
}

//! `segments`: where the volume's data lie, and how they are encrypted.

use super::json::{Fault, Object};
use crate::luks::text::printable;
use crate::units::{IV_UNIT_BYTES, SectorSize};

/// A run of the volume. Source: LUKS2 on-disk format, "Segments object".
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// `crypt`, `linear`, `hw-opal`, `hw-opal-crypt`, or what is not known yet.
    pub(crate) kind: String,
    /// Where it begins on the data device, in bytes; a multiple of 512.
    pub(crate) offset_bytes: u64,
    /// Its length.
    pub(crate) size: Size,
    /// Its flags, as stored.
    pub(crate) flags: Vec<String>,
    /// How it is encrypted, where it is.
    pub(crate) crypt: Option<Crypt>,
}

/// A segment's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// To the end of the device.
    Dynamic,
    /// This many bytes; a multiple of 512 and of the sector size, never 0.
    Fixed(u64),
}

/// The encryption of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Crypt {
    /// dm-crypt's cipher specification, never empty.
    pub(crate) encryption: String,
    /// The encryption sector.
    pub(crate) sector_size: SectorSize,
    /// Added to IV numbers, in 512-byte units.
    pub(crate) iv_tweak: u64,
    /// The integrity type, where there is one.
    pub(crate) integrity: Option<String>,
}

impl Segment {
    /// Whether it takes part in the volume now (others describe it before or after a
    /// re-encryption).
    pub(crate) fn is_active(&self) -> bool {
        !self.flags.iter().any(|flag| flag.starts_with("backup-"))
    }

    /// Whether a re-encryption works on it, or left it for later.
    pub(crate) fn in_reencryption(&self) -> bool {
        self.flags.iter().any(|flag| flag == "in-reencryption") || !self.is_active()
    }

    fn parse(segment: &Object<'_>) -> Result<Self, Fault> {
        let kind = segment.string("type")?.to_owned();
        let place = segment.place();
        let offset_bytes = segment.number("offset")?;
        if offset_bytes % IV_UNIT_BYTES != 0 {
            return Err(format!(
                "{place}.offset {offset_bytes} is not a multiple of 512"
            ));
        }
        let size = match segment.string("size")? {
            "dynamic" => Size::Dynamic,
            _ => Size::Fixed(segment.number("size")?),
        };
        let flags = segment
            .strings_or_none("flags")?
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let crypt = match kind.as_str() {
            "crypt" | "hw-opal-crypt" => Some(Crypt::parse(segment)?),
            "linear" => None,
            // Of a type that isn't known, `dump` shows what looks familiar.
            _ => Crypt::parse(segment).ok(),
        };
        let grid_bytes = match (kind.as_str(), &crypt) {
            ("crypt", Some(crypt)) => crypt.sector_size.bytes_u64(),
            _ => IV_UNIT_BYTES,
        };
        match size {
            Size::Fixed(bytes) if bytes == 0 || bytes % grid_bytes != 0 => Err(format!(
                "{place}.size {bytes} is not a multiple of {grid_bytes}"
            )),
            _ => Ok(Self {
                kind,
                offset_bytes,
                size,
                flags,
                crypt,
            }),
        }
    }
}

impl Crypt {
    fn parse(segment: &Object<'_>) -> Result<Self, Fault> {
        let place = segment.place();
        let encryption = segment.string("encryption")?.to_owned();
        let stated = segment.integer("sector_size")?;
        let sector_size = u64::try_from(stated)
            .ok()
            .and_then(SectorSize::new)
            .ok_or_else(|| format!("{place}.sector_size {stated} is not one of dm-crypt's"))?;
        let iv_tweak = segment.number("iv_tweak")?;
        let integrity = match segment.has("integrity") {
            true => Some(segment.object("integrity")?.string("type")?.to_owned()),
            false => None,
        };
        Ok(Self {
            encryption,
            sector_size,
            iv_tweak,
            integrity,
        })
    }
}

/// Reads `segments`: at least one, numbered from 0 without gaps, those of a re-encryption's past
/// and future (`backup-…`) after the others.
pub(super) fn parse_all(segments: &Object<'_>) -> Result<Vec<Segment>, Fault> {
    let mut numbered = segments.numbered_unbounded()?;
    numbered.sort_by_key(|(id, _)| *id);
    if numbered.is_empty() {
        return Err("segments is empty".into());
    }
    if let Some((expected, _)) = (0u32..)
        .zip(&numbered)
        .find(|(expected, (id, _))| expected != id)
    {
        return Err(format!("segments has no object {expected}"));
    }
    let parsed = numbered
        .iter()
        .map(|(_, segment)| Segment::parse(segment))
        .collect::<Result<Vec<_>, _>>()?;
    let active = parsed
        .iter()
        .take_while(|segment| segment.is_active())
        .count();
    if active == 0 {
        return Err("segments has only backups".into());
    }
    if parsed.iter().skip(active).any(Segment::is_active) {
        return Err("segments has a segment after a backup".into());
    }
    Ok(parsed)
}

/// Where the data begin: the lowest offset of the segments in use, in bytes.
pub(crate) fn data_offset_bytes(segments: &[Segment]) -> u64 {
    let active = segments.iter().filter(|segment| segment.is_active());
    active
        .map(|segment| segment.offset_bytes)
        .min()
        .unwrap_or(0)
}

impl Segment {
    /// Its type, fit for a message.
    pub(crate) fn kind_printable(&self) -> String {
        printable(&self.kind)
    }
}

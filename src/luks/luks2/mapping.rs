//! From the segments and a volume key to the volume.

use std::sync::Arc;

use super::segment::Crypt;
use super::{Luks2, Segment, Size, requirement_in_words};
use crate::cipher::{CipherSpec, IvOptions, SectorCipher};
use crate::error::{Error, Result};
use crate::luks::material::is_null_cipher;
use crate::luks::text::printable;
use crate::luks::{UnlockOptions, VolumeKey};
use crate::units::{IV_UNIT_BYTES, SectorSize};
use crate::volume::{self, SegmentKind, Volume, VolumeAbout};

impl Luks2 {
    /// The volume over a data device of `data_bytes`. `detached`: the data device is not the
    /// header's.
    pub(crate) fn volume(
        &self,
        key: &VolumeKey,
        data_bytes: u64,
        detached: bool,
        options: &UnlockOptions,
    ) -> Result<Volume> {
        self.refuse_unsupported()?;
        self.refuse_unbound(key)?;
        let active = self.active();
        let header_end_bytes = self.copy.metadata.keyslots_end_bytes(self.copy.size_bytes);
        if !detached
            && active
                .iter()
                .any(|(_, s)| s.offset_bytes < header_end_bytes)
        {
            return Err(
                Error::device("the header is detached: the data lie on another device")
                    .hint("name the data device, and this one with --header"),
            );
        }
        let sector_size = self.sector_size()?;
        let places = places(&active, data_bytes, sector_size)?;
        let mut segments = Vec::new();
        let mut start_bytes = 0u64;
        for ((_, segment), len_bytes) in active.iter().zip(places) {
            let kind = match &segment.crypt {
                None => SegmentKind::Linear,
                Some(crypt) => {
                    // cryptsetup ignores the IV tweak of a volume of one segment; the volume it
                    // wrote is what counts (`docs/decisions/0002-lenient-headers.md`).
                    let offset_iv_units = if active.len() == 1 { 0 } else { crypt.iv_tweak };
                    segment_kind(crypt, key, offset_iv_units, options)?
                }
            };
            let storage_offset_bytes = segment.offset_bytes;
            segments.push(volume::Segment {
                start_bytes,
                len_bytes,
                storage_offset_bytes,
                kind,
            });
            start_bytes += len_bytes;
        }
        Ok(Volume {
            segments,
            size_bytes: start_bytes,
            sector_size,
            about: self.about(key),
        })
    }

    /// The segments that make up the volume, with their ids.
    pub(crate) fn active(&self) -> Vec<(u32, &Segment)> {
        (0..)
            .zip(&self.copy.metadata.segments)
            .filter(|(_, s)| s.is_active())
            .collect()
    }

    fn refuse_unsupported(&self) -> Result<()> {
        let metadata = &self.copy.metadata;
        if let Some(name) = metadata.config.requirements.first() {
            let words =
                requirement_in_words(name).map_or_else(String::new, |words| format!(": {words}"));
            let name = printable(name);
            return Err(Error::device(format!(
                "it requires {name:?}, which is not supported{words}"
            )));
        }
        let reencrypts = metadata
            .keyslots
            .values()
            .any(|slot| slot.kind == "reencrypt")
            || metadata.segments.iter().any(Segment::in_reencryption);
        if reencrypts {
            return Err(
                Error::device("a re-encryption is under way, which is not supported")
                    .hint("finish it with `cryptsetup reencrypt --resume-only`"),
            );
        }
        for (id, segment) in self.active() {
            match (segment.kind.as_str(), &segment.crypt) {
                ("linear", _) => {}
                (
                    "crypt",
                    Some(Crypt {
                        integrity: Some(integrity),
                        ..
                    }),
                ) => {
                    let integrity = printable(integrity);
                    return Err(Error::device(format!(
                        "segment {id} has integrity protection ({integrity}), which is not \
                         supported"
                    )));
                }
                ("crypt", Some(_)) => {}
                _ => {
                    return Err(Error::device(format!(
                        "segment {id} is of type {:?}, which is not supported",
                        segment.kind_printable()
                    )));
                }
            }
        }
        Ok(())
    }

    /// A key that no segment is encrypted with must not decrypt one.
    fn refuse_unbound(&self, key: &VolumeKey) -> Result<()> {
        let digest = self.copy.metadata.digests.get(&key.digest);
        for (id, segment) in self.active() {
            let bound = digest.is_some_and(|digest| digest.segments.contains(&id));
            if segment.crypt.is_some() && !bound {
                return Err(Error::permission(format!(
                    "this key does not open segment {id}: it is not bound to it"
                ))
                .hint("use a key slot that `luks dump` doesn't show as unbound"));
            }
        }
        Ok(())
    }

    fn sector_size(&self) -> Result<SectorSize> {
        let mut sizes = self
            .active()
            .into_iter()
            .filter_map(|(_, s)| s.crypt.as_ref())
            .map(|c| c.sector_size);
        let first = sizes.next().unwrap_or(SectorSize::MIN);
        match sizes.all(|size| size == first) {
            true => Ok(first),
            false => Err(Error::device(
                "its segments have several sector sizes, which is not supported",
            )),
        }
    }

    fn about(&self, key: &VolumeKey) -> VolumeAbout {
        let crypt = self
            .active()
            .into_iter()
            .find_map(|(_, s)| s.crypt.as_ref());
        VolumeAbout {
            format: "luks2",
            cipher: crypt.map_or_else(String::new, |crypt| crypt.encryption.clone()),
            key_bits: key.key.len() as u32 * 8,
            uuid: self.copy.uuid.clone(),
            label: self.copy.label.clone(),
            keyslot: key.keyslot,
            flags: self.copy.metadata.config.flags.clone(),
        }
    }
}

/// The length of each segment on a data device of `data_bytes`, checked to lie on it, clear of
/// the others, and on the sector grid.
fn places(
    active: &[(u32, &Segment)],
    data_bytes: u64,
    sector_size: SectorSize,
) -> Result<Vec<u64>> {
    let mut lengths = Vec::new();
    let mut taken = Vec::new();
    let mut total_bytes = 0u64;
    for (index, (id, segment)) in active.iter().enumerate() {
        let rest_bytes = data_bytes.saturating_sub(segment.offset_bytes);
        let len_bytes = match segment.size {
            Size::Fixed(bytes) if bytes > rest_bytes => {
                return Err(Error::device(format!(
                    "segment {id} is {bytes} bytes long, and the device has {rest_bytes} after \
                     its start at {}",
                    segment.offset_bytes
                )));
            }
            Size::Fixed(bytes) => bytes,
            Size::Dynamic if index + 1 < active.len() => {
                return Err(Error::device(format!(
                    "segment {id} has no end, and another follows"
                )));
            }
            // As a block device below dm-crypt would: a tail under 512 bytes is no sector.
            Size::Dynamic => rest_bytes - rest_bytes % IV_UNIT_BYTES,
        };
        if len_bytes == 0 {
            return Err(Error::device(format!(
                "there is no data area: segment {id} begins at {}, the device ends at {data_bytes}",
                segment.offset_bytes
            ))
            .hint("name the data device, and this one with --header, if the header is detached"));
        }
        if len_bytes % sector_size.bytes_u64() != 0 {
            return Err(Error::device(format!(
                "segment {id} is {len_bytes} bytes long, not a multiple of its sector size \
                 ({sector_size:?})"
            )));
        }
        total_bytes = total_bytes
            .checked_add(len_bytes)
            .ok_or_else(|| Error::device("its segments are longer than any device"))?;
        taken.push((segment.offset_bytes, segment.offset_bytes + len_bytes));
        lengths.push(len_bytes);
    }
    taken.sort_unstable();
    match taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        true => Err(Error::device("header damaged: its segments overlap")),
        false => Ok(lengths),
    }
}

fn segment_kind(
    crypt: &Crypt,
    key: &VolumeKey,
    offset_iv_units: u64,
    options: &UnlockOptions,
) -> Result<SegmentKind> {
    if is_null_cipher("the volume", &crypt.encryption, options.allow_null_cipher)? {
        return Ok(SegmentKind::Linear);
    }
    let spec = CipherSpec::parse(&crypt.encryption)?;
    // LUKS2 counts IVs in 512-byte units at every sector size.
    let iv = IvOptions {
        offset_iv_units,
        large_sectors: false,
    };
    let cipher = SectorCipher::new(&spec, &key.key, crypt.sector_size, iv)?;
    Ok(SegmentKind::Crypt(Arc::new(cipher)))
}

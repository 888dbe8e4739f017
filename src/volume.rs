//! An unlocked volume: where its bytes lie below, and the keys to them.

use std::sync::Arc;

use crate::cipher::SectorCipher;
use crate::units::SectorSize;

/// What a segment's bytes are below.
#[derive(Debug, Clone)]
pub enum SegmentKind {
    /// Sectors encrypted with this cipher. Sector numbers (in 512-byte units) count from the
    /// segment's start; the cipher adds its own IV offset.
    Crypt(Arc<SectorCipher>),
    /// Plaintext.
    Linear,
}

/// A run of the volume that lies in one piece below.
#[derive(Debug, Clone)]
pub struct Segment {
    /// First byte of the run in the volume; a multiple of the sector size.
    pub start_bytes: u64,
    /// Length of the run in bytes; a multiple of the sector size, never 0.
    pub len_bytes: u64,
    /// Where the run begins in the storage, in bytes.
    pub storage_offset_bytes: u64,
    /// What lies there.
    pub kind: SegmentKind,
}

/// An unlocked volume. Segments are in order, without gaps, from byte 0 to `size_bytes`.
#[derive(Debug)]
pub struct Volume {
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Size in bytes; a multiple of `sector_size`.
    pub size_bytes: u64,
    /// The encryption sector size: the grid of whole-sector I/O.
    pub sector_size: SectorSize,
    /// What `status` says of it.
    pub about: VolumeAbout,
}

/// What is worth telling of a volume; no secrets.
#[derive(Debug, Clone, Default)]
pub struct VolumeAbout {
    /// `luks1`, `luks2`, `plain`, …
    pub format: &'static str,
    /// The cipher as dm-crypt spells it: `aes-xts-plain64`.
    pub cipher: String,
    /// Key bits as cryptsetup counts (512 for AES-256-XTS).
    pub key_bits: u32,
    /// UUID, or empty.
    pub uuid: String,
    /// Label, or empty.
    pub label: String,
    /// The key slot that opened it, if one did.
    pub keyslot: Option<u32>,
    /// LUKS2 persistent flags (`allow-discards`, `no-read-workqueue`, …).
    pub flags: Vec<String>,
}

impl Volume {
    /// The index in `segments` of the one that holds `offset_bytes`, which must lie inside the
    /// volume.
    pub fn segment_index_at(&self, offset_bytes: u64) -> usize {
        self.segments
            .partition_point(|s| s.start_bytes + s.len_bytes <= offset_bytes)
    }
}

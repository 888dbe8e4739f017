//! Partition tables: MBR with logical partitions, and GPT. Sources: UEFI Specification 2.10,
//! chapter 5 (GPT, protective MBR); for logical partitions the chain that Linux's
//! `block/partitions/msdos.c` describes.

use crate::error::{Error, Result};
use crate::storage::Storage;

/// The sector sizes that GPT disks have, in bytes.
const GPT_SECTOR_BYTES: [u64; 2] = [512, 4096];
/// The unit of MBR tables, in bytes. (MBR has no field for it, and images of disks with larger
/// sectors use GPT.)
const MBR_SECTOR_BYTES: u64 = 512;
/// Most logical partitions followed in a chain: Linux stops at fewer.
const LOGICAL_MAX: u32 = 256;
/// Largest array of GPT entries read, in bytes. The specification asks for 16 KiB at least, and
/// everything in use has that.
const GPT_ARRAY_BYTES_MAX: u64 = 1 << 20;
const GPT_SIGNATURE: &[u8] = b"EFI PART";

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, counted as the kernel does: from 1; logical partitions from 5.
    pub number: u32,
    /// First byte in the image.
    pub start_bytes: u64,
    /// Length in bytes, never 0. It may reach beyond the end of an image that was cut short.
    pub len_bytes: u64,
}

/// The kinds of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A DOS partition table.
    Mbr,
    /// A GUID partition table.
    Gpt,
}

impl TableKind {
    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mbr => "MBR",
            Self::Gpt => "GPT",
        }
    }
}

/// A partition table, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// What kind it is.
    pub kind: TableKind,
    /// Its partitions, by number.
    pub partitions: Vec<Partition>,
}

/// The partition table of `image`; `None` where it has none.
///
/// Errors: `Device` (exit 4) where it says it has a GPT and neither copy is sound, where logical
/// partitions don't end, or where the image can't be read.
pub fn read_table(image: &dyn Storage) -> Result<Option<PartitionTable>> {
    let size_bytes = image.size_bytes().map_err(read_error)?;
    if size_bytes < MBR_SECTOR_BYTES {
        return Ok(None);
    }
    let mbr = Mbr::read(image)?;
    for sector_bytes in GPT_SECTOR_BYTES {
        if let Some(table) = read_gpt(image, 1, sector_bytes, size_bytes)? {
            return Ok(Some(table));
        }
    }
    // A second copy counts where the disk still says that it is GPT's, or says nothing: a disk
    // that was given an MBR later may keep an old copy at its end.
    if mbr.as_ref().is_none_or(Mbr::is_protective) {
        for sector_bytes in GPT_SECTOR_BYTES {
            let last_lba = (size_bytes / sector_bytes).saturating_sub(1);
            if let Some(table) = read_gpt(image, last_lba, sector_bytes, size_bytes)? {
                return Ok(Some(table));
            }
        }
    }
    match mbr {
        Some(mbr) if mbr.is_protective() => Err(Error::device(
            "its GPT partition table is damaged, both copies",
        )),
        Some(mbr) => Ok(Some(PartitionTable {
            kind: TableKind::Mbr,
            partitions: mbr.partitions(image)?,
        })),
        None => Ok(None),
    }
}

fn read_error(error: std::io::Error) -> Error {
    Error::device("can't read its partition table").caused_by(error)
}

/// The GPT whose header is at `lba`; `None` where there is none or it isn't sound.
fn read_gpt(
    image: &dyn Storage,
    lba: u64,
    sector_bytes: u64,
    size_bytes: u64,
) -> Result<Option<PartitionTable>> {
    let Some(header_bytes) = lba.checked_mul(sector_bytes) else {
        return Ok(None);
    };
    if lba == 0 || header_bytes.saturating_add(sector_bytes) > size_bytes {
        return Ok(None);
    }
    let mut sector = vec![0; sector_bytes as usize];
    image
        .read_at(&mut sector, header_bytes)
        .map_err(read_error)?;
    let Some(header) = GptHeader::parse(&sector, lba) else {
        return Ok(None);
    };

    let array_bytes = u64::from(header.entry_count) * u64::from(header.entry_bytes);
    let Some(array_start) = header.array_lba.checked_mul(sector_bytes) else {
        return Ok(None);
    };
    if array_bytes > GPT_ARRAY_BYTES_MAX || array_start.saturating_add(array_bytes) > size_bytes {
        return Ok(None);
    }
    let mut array = vec![0; array_bytes as usize];
    image.read_at(&mut array, array_start).map_err(read_error)?;
    if crc32(&[&array]) != header.array_crc {
        return Ok(None);
    }
    let entries = array.chunks_exact(header.entry_bytes as usize).zip(1..);
    let partitions = entries
        .filter_map(|(entry, number)| gpt_partition(entry, number, &header, sector_bytes))
        .collect();
    Ok(Some(PartitionTable {
        kind: TableKind::Gpt,
        partitions,
    }))
}

struct GptHeader {
    first_usable_lba: u64,
    last_usable_lba: u64,
    array_lba: u64,
    entry_count: u32,
    entry_bytes: u32,
    array_crc: u32,
}

impl GptHeader {
    /// Source: UEFI, table 5-5. `None` where signature, checksum or place are wrong.
    fn parse(sector: &[u8], lba: u64) -> Option<Self> {
        let header_bytes = le32(sector, 12)? as usize;
        let header = sector.get(..header_bytes).filter(|_| header_bytes >= 92)?;
        let crc = crc32(&[&header[..16], &[0; 4], &header[20..]]);
        if !header.starts_with(GPT_SIGNATURE)
            || crc != le32(header, 16)?
            || le64(header, 24)? != lba
        {
            return None;
        }
        let parsed = Self {
            first_usable_lba: le64(header, 40)?,
            last_usable_lba: le64(header, 48)?,
            array_lba: le64(header, 72)?,
            entry_count: le32(header, 80)?,
            entry_bytes: le32(header, 84)?,
            array_crc: le32(header, 88)?,
        };
        // Entries are 128 bytes times a power of two.
        let sound = parsed.entry_bytes >= 128 && parsed.entry_bytes.is_power_of_two();
        sound.then_some(parsed)
    }
}

/// Source: UEFI, table 5-6. `None` for an unused entry, or one outside what may be used.
fn gpt_partition(
    entry: &[u8],
    number: u32,
    header: &GptHeader,
    sector_bytes: u64,
) -> Option<Partition> {
    let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
    if entry[..16] == [0; 16]
        || first < header.first_usable_lba
        || last < first
        || last > header.last_usable_lba
    {
        return None;
    }
    let start_bytes = first.checked_mul(sector_bytes)?;
    let len_bytes = (last - first).checked_add(1)?.checked_mul(sector_bytes)?;
    Some(Partition {
        number,
        start_bytes,
        len_bytes,
    })
}

/// A sector that ends in the boot signature and whose four entries make sense.
struct Mbr {
    entries: [MbrEntry; 4],
}

#[derive(Clone, Copy)]
struct MbrEntry {
    kind: u8,
    start: u32,
    sectors: u32,
}

impl MbrEntry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    /// Types 0x05 (CHS), 0x0f (LBA) and 0x85 (Linux).
    fn is_extended(self) -> bool {
        self.is_used() && matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

impl Mbr {
    fn read(image: &dyn Storage) -> Result<Option<Self>> {
        let Some(entries) = read_entries(image, 0)? else {
            return Ok(None);
        };
        // A file system's boot sector ends in the same signature, with code where entries would
        // be.
        let sound = entries.iter().any(|e| e.is_used())
            && entries.iter().all(|e| !e.is_used() || e.start != 0);
        Ok(sound.then_some(Self { entries }))
    }

    fn is_protective(&self) -> bool {
        self.entries.iter().any(|e| e.kind == 0xee)
    }

    fn partitions(&self, image: &dyn Storage) -> Result<Vec<Partition>> {
        let mut partitions = Vec::new();
        for (entry, number) in self.entries.iter().zip(1..) {
            if entry.is_used() && !entry.is_extended() {
                partitions.push(mbr_partition(number, u64::from(entry.start), *entry));
            }
        }
        if let Some(extended) = self.entries.iter().find(|e| e.is_extended()) {
            follow_logical(image, u64::from(extended.start), &mut partitions)?;
        }
        Ok(partitions)
    }
}

/// The logical partitions of the extended one at `base`: a chain of sectors, each with one
/// partition (relative to that sector) and the next link (relative to `base`).
fn follow_logical(image: &dyn Storage, base: u64, into: &mut Vec<Partition>) -> Result<()> {
    let mut at = base;
    for number in 5..5 + LOGICAL_MAX {
        let Some(entries) = read_entries(image, at)? else {
            return Ok(());
        };
        match entries.iter().find(|e| e.is_used() && !e.is_extended()) {
            Some(entry) => into.push(mbr_partition(number, at + u64::from(entry.start), *entry)),
            None => return Ok(()),
        }
        match entries.iter().find(|e| e.is_extended()) {
            Some(next) => at = base + u64::from(next.start),
            None => return Ok(()),
        }
    }
    Err(Error::device(format!(
        "its chain of logical partitions has over {LOGICAL_MAX} links"
    )))
}

fn mbr_partition(number: u32, start: u64, entry: MbrEntry) -> Partition {
    Partition {
        number,
        start_bytes: start * MBR_SECTOR_BYTES,
        len_bytes: u64::from(entry.sectors) * MBR_SECTOR_BYTES,
    }
}

/// The four entries of the MBR-like sector `lba`; `None` beyond the image's end, without the boot
/// signature, or with a status byte that no table has.
fn read_entries(image: &dyn Storage, lba: u64) -> Result<Option<[MbrEntry; 4]>> {
    let mut sector = [0; MBR_SECTOR_BYTES as usize];
    let offset_bytes = lba * MBR_SECTOR_BYTES;
    let size_bytes = image.size_bytes().map_err(read_error)?;
    if offset_bytes + MBR_SECTOR_BYTES > size_bytes {
        return Ok(None);
    }
    image
        .read_at(&mut sector, offset_bytes)
        .map_err(read_error)?;
    if !sector.ends_with(&[0x55, 0xaa]) {
        return Ok(None);
    }
    let raw: [&[u8]; 4] = std::array::from_fn(|i| &sector[446 + 16 * i..446 + 16 * (i + 1)]);
    if raw.iter().any(|entry| !matches!(entry[0], 0 | 0x80)) {
        return Ok(None);
    }
    let number = |entry: &[u8], at| le32(entry, at).expect("an entry has 16 bytes");
    Ok(Some(raw.map(|entry| MbrEntry {
        kind: entry[4],
        start: number(entry, 8),
        sectors: number(entry, 12),
    })))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u64::from_le_bytes)
}

/// CRC-32 (polynomial 0x04C11DB7, reflected) of the concatenation of `parts`. A bit at a time: it
/// is run over some 16 KiB, once.
fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in parts.iter().copied().flatten() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use proptest::prelude::*;

    #[test]
    fn crc32_gives_the_published_check_value() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }

    #[test]
    fn a_chain_of_logical_partitions_that_loops_is_refused() {
        let mut disk = vec![0; 64 << 10];
        let mut entry = |lba: usize, slot: usize, kind: u8, start: u32, sectors: u32| {
            let at = lba * 512 + 446 + 16 * slot;
            disk[at + 4] = kind;
            disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
            disk[lba * 512 + 510..lba * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
        };
        entry(0, 0, 0x05, 8, 64);
        entry(8, 0, 0x83, 1, 1);
        entry(8, 1, 0x05, 4, 4);
        entry(12, 0, 0x83, 1, 1);
        entry(12, 1, 0x05, 4, 4);
        let error = read_table(&MemoryStorage::new(disk)).unwrap_err();
        assert!(error.what().contains("logical"));
    }

    proptest! {
        #[test]
        fn no_content_panics(
            noise in proptest::collection::vec((0usize..2048, any::<u8>()), 0..64),
        ) {
            let mut disk = vec![0; 64 << 10];
            disk[510..512].copy_from_slice(&[0x55, 0xaa]);
            disk[450] = 0x05;
            disk[454] = 1;
            disk[458] = 9;
            disk[512..520].copy_from_slice(GPT_SIGNATURE);
            for (at, byte) in noise {
                disk[at] = byte;
            }
            let _ = read_table(&MemoryStorage::new(disk));
        }
    }
}

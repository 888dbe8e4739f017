//! The two copies of a LUKS2 header, and which of them counts.
//!
//! Source: LUKS2 on-disk format, "Binary header" and "Header copies".

use std::io;

use subtle::ConstantTimeEq as _;

use super::json::{self, Fault};
use super::metadata::Metadata;
use crate::kdf::HashAlgorithm;
use crate::limits::LUKS2_HEADER_BYTES_MAX;
use crate::luks::text::{field, printable};
use crate::storage::Storage;

/// Length in bytes of the binary header in front of the JSON area.
const BINARY_BYTES: usize = 4096;
/// Where a second copy may lie, in bytes: after a first one of each size that the format has.
pub(crate) const SECONDARY_OFFSETS_BYTES: [u64; 9] = {
    let mut offsets = [0x4000; 9];
    let mut i = 1;
    while i < offsets.len() {
        offsets[i] = offsets[i - 1] * 2;
        i += 1;
    }
    assert!(offsets[8] == LUKS2_HEADER_BYTES_MAX);
    offsets
};
/// The magic of the first copy.
pub(crate) const MAGIC_PRIMARY: [u8; 6] = *b"LUKS\xba\xbe";
/// The magic of the second copy.
const MAGIC_SECONDARY: [u8; 6] = *b"SKUL\xba\xbe";
/// Where the checksum lies in the binary header; it counts as zeros.
const CHECKSUM_BYTES: std::ops::Range<usize> = 448..512;

/// One good copy of a header.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Where it lies, in bytes.
    pub(crate) offset_bytes: u64,
    /// Its length in bytes: the binary header and the JSON area.
    pub(crate) size_bytes: u64,
    /// Which write of the header it is of.
    pub(crate) sequence_id: u64,
    /// The label, or empty.
    pub(crate) label: String,
    /// The subsystem, or empty.
    pub(crate) subsystem: String,
    /// The UUID.
    pub(crate) uuid: String,
    /// The JSON area up to its NUL.
    pub(crate) json: String,
    /// What it says.
    pub(crate) metadata: Metadata,
}

/// Why there is no good copy at some offset.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Where it was looked for, in bytes.
    pub(crate) offset_bytes: u64,
    /// What is wrong with it.
    pub(crate) reason: Fault,
    /// Whether there is nothing of LUKS at all.
    pub(crate) absent: bool,
}

/// Reads and checks the first copy.
pub(crate) fn read_primary(storage: &dyn Storage) -> Result<Copy, Damage> {
    read_copy(storage, 0, MAGIC_PRIMARY)
}

/// Reads and checks the second copy: where the first says, or (without a first one) wherever it
/// may lie.
pub(crate) fn read_secondary(
    storage: &dyn Storage,
    primary: Option<&Copy>,
) -> Result<Copy, Damage> {
    if let Some(primary) = primary {
        return read_copy(storage, primary.size_bytes, MAGIC_SECONDARY);
    }
    let mut damage: Option<Damage> = None;
    for offset_bytes in SECONDARY_OFFSETS_BYTES {
        match read_copy(storage, offset_bytes, MAGIC_SECONDARY) {
            Ok(copy) => return Ok(copy),
            // What looks most like a header explains most.
            Err(other) if damage.as_ref().is_none_or(|d| d.absent && !other.absent) => {
                damage = Some(other);
            }
            Err(_) => {}
        }
    }
    Err(damage.expect("there are offsets to look at"))
}

fn read_copy(storage: &dyn Storage, offset_bytes: u64, magic: [u8; 6]) -> Result<Copy, Damage> {
    let damage = |reason: Fault| Damage {
        offset_bytes,
        reason,
        absent: false,
    };
    let absent = |reason: Fault| Damage {
        offset_bytes,
        reason,
        absent: true,
    };
    let mut binary = vec![0; BINARY_BYTES];
    storage
        .read_at(&mut binary, offset_bytes)
        .map_err(|e| absent(io_reason(&e)))?;
    if binary[..6] != magic {
        return Err(absent("no header magic".into()));
    }
    let version = u16::from_be_bytes([binary[6], binary[7]]);
    if version != 2 {
        return Err(damage(format!("version {version} is not known")));
    }
    let size_bytes = u64_at(&binary, 8);
    if !SECONDARY_OFFSETS_BYTES.contains(&size_bytes) {
        return Err(damage(format!(
            "a header size of {size_bytes} bytes, which the format lacks"
        )));
    }
    let stated_offset_bytes = u64_at(&binary, 256);
    if stated_offset_bytes != offset_bytes || (offset_bytes != 0 && offset_bytes != size_bytes) {
        return Err(damage(format!(
            "it says that it lies at {stated_offset_bytes}"
        )));
    }
    let device_bytes = storage.size_bytes().map_err(|e| damage(io_reason(&e)))?;
    if device_bytes < offset_bytes + size_bytes {
        return Err(damage(format!(
            "the device ends within it, at {device_bytes}"
        )));
    }
    let mut area = vec![0; size_bytes as usize - BINARY_BYTES];
    storage
        .read_at(&mut area, offset_bytes + BINARY_BYTES as u64)
        .map_err(|e| damage(io_reason(&e)))?;
    check_checksum(&mut binary, &area).map_err(damage)?;
    let json = json_text(area).map_err(damage)?;
    let metadata = json::parse(&json)
        .and_then(|object| Metadata::parse(&object, size_bytes))
        .map_err(damage)?;
    let end_bytes = metadata.keyslots_end_bytes(size_bytes);
    if device_bytes < end_bytes {
        return Err(damage(format!(
            "the device ends at {device_bytes}, within the key slots area (up to {end_bytes})"
        )));
    }
    Ok(Copy {
        offset_bytes,
        size_bytes,
        sequence_id: u64_at(&binary, 16),
        label: field(&binary[24..72]),
        subsystem: field(&binary[208..256]),
        uuid: printable(&field(&binary[168..208])),
        json,
        metadata,
    })
}

fn check_checksum(binary: &mut [u8], area: &[u8]) -> Result<(), Fault> {
    let name = field(&binary[72..104]);
    let algorithm = HashAlgorithm::parse(&name)
        .ok_or_else(|| format!("checksum algorithm {:?} is not known", printable(&name)))?;
    let stored = binary[CHECKSUM_BYTES].to_vec();
    binary[CHECKSUM_BYTES].fill(0);
    let mut computed = vec![0; algorithm.output_bytes()];
    algorithm.digest(&[binary, area], &mut computed);
    match stored.get(..computed.len()) {
        Some(stored) if bool::from(stored.ct_eq(&computed)) => Ok(()),
        _ => Err("its checksum is wrong".into()),
    }
}

fn json_text(mut area: Vec<u8>) -> Result<String, Fault> {
    let end = area
        .iter()
        .position(|&b| b == 0)
        .ok_or("the JSON area has no end")?;
    if area[end..].iter().any(|&b| b != 0) {
        return Err("the JSON area goes on after its end".into());
    }
    area.truncate(end);
    String::from_utf8(area).map_err(|_| "the JSON area is not UTF-8".into())
}

/// Big-endian, from inside the fixed-size binary header.
fn u64_at(binary: &[u8], offset: usize) -> u64 {
    let bytes = binary[offset..offset + 8].try_into().expect("eight bytes");
    u64::from_be_bytes(bytes)
}

fn io_reason(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the device ends before it".into(),
        _ => format!("it can't be read ({error})"),
    }
}

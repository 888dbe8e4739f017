//! Disk images as people have them: partitions inside, and foreign formats by name.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::luks::Header;
use crate::storage::{Storage, Window};

mod foreign;
mod partition;

pub use foreign::{Foreign, recognise};
pub use partition::{Partition, PartitionTable, TableKind, read_table};

/// Where in an image a volume lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All of it.
    Whole,
    /// From this byte to the image's end.
    Offset(u64),
    /// In the partition of this number, counted from 1 as the kernel does.
    Partition(u32),
}

/// The part of `image` that `place` names.
///
/// Errors: `Device` (exit 4) where it lies beyond the image, the image has no partition table, or
/// not this partition.
pub fn window(image: Arc<dyn Storage>, place: Place) -> Result<Arc<dyn Storage>> {
    match place {
        Place::Whole => Ok(image),
        Place::Offset(offset_bytes) => {
            let size_bytes = image.size_bytes().map_err(size_error)?;
            if offset_bytes >= size_bytes {
                return Err(Error::device(format!(
                    "--image-offset {offset_bytes} is beyond its {size_bytes} bytes"
                )));
            }
            Ok(Arc::new(Window::new(image, offset_bytes, None)))
        }
        Place::Partition(number) => {
            let found = find_partition(&*image, number)?;
            Ok(Arc::new(Window::new(
                image,
                found.start_bytes,
                Some(found.len_bytes),
            )))
        }
    }
}

fn find_partition(image: &dyn Storage, number: u32) -> Result<Partition> {
    let Some(table) = read_table(image)? else {
        return Err(match recognise(image) {
            Some(foreign) => not_raw(foreign, None),
            None => Error::device("it has no partition table").hint("leave --partition out"),
        });
    };
    if let Some(found) = table.partitions.iter().find(|p| p.number == number) {
        let size_bytes = image.size_bytes().map_err(size_error)?;
        let fits = found
            .start_bytes
            .checked_add(found.len_bytes)
            .is_some_and(|end| end <= size_bytes);
        return match fits {
            true => Ok(found.clone()),
            false => Err(Error::device(format!(
                "partition {number} reaches beyond the image's {size_bytes} bytes: it is cut short"
            ))),
        };
    }
    let numbers: Vec<_> = table
        .partitions
        .iter()
        .map(|p| p.number.to_string())
        .collect();
    Err(Error::device(format!("it has no partition {number}"))
        .hint(format!("--partition with one of {}", numbers.join(", "))))
}

/// Why `storage` has no LUKS header, as far as its content tells; `detached` where it was given
/// by `--header`. Always a `Device` error (exit 4).
pub fn explain_no_header(storage: &Arc<dyn Storage>, path: &Path, detached: bool) -> Error {
    why_no_header(storage, path, detached).on(path.display())
}

fn why_no_header(storage: &Arc<dyn Storage>, path: &Path, detached: bool) -> Error {
    let size_bytes = match storage.size_bytes() {
        Ok(size_bytes) => size_bytes,
        Err(e) => return size_error(e),
    };
    if size_bytes == 0 {
        return Error::device("no LUKS header: it is empty");
    }
    if let Some(foreign) = recognise(&**storage) {
        return not_raw(foreign, Some(path));
    }
    match read_table(&**storage) {
        Ok(Some(table)) if !table.partitions.is_empty() => return in_a_partition(storage, &table),
        Err(e) => return e,
        Ok(_) => {}
    }
    match begins_with_zeros(&**storage, size_bytes) {
        Ok(true) => return Error::device("no LUKS header: it begins with zeros only"),
        Ok(false) => {}
        Err(e) => return Error::device("can't read it").caused_by(e),
    }
    let error = Error::device("no LUKS header");
    match detached {
        true => error.hint("check that --header names the header's file"),
        false => error.hint("if the header is kept in a separate file, give it with --header FILE"),
    }
}

fn not_raw(foreign: Foreign, path: Option<&Path>) -> Error {
    let error = Error::device(format!("it is {}", foreign.description()));
    match foreign.how_to_open(path.unwrap_or(Path::new("IMAGE"))) {
        Some(how) => error.hint(how),
        None => error,
    }
}

fn in_a_partition(storage: &Arc<dyn Storage>, table: &PartitionTable) -> Error {
    let holds_luks = |p: &&Partition| {
        let window = Window::new(Arc::clone(storage), p.start_bytes, Some(p.len_bytes));
        Header::probe(&window).unwrap_or(false)
    };
    let found: Vec<u32> = table
        .partitions
        .iter()
        .filter(holds_luks)
        .map(|p| p.number)
        .collect();
    let kind = table.kind.name();
    let error = Error::device(format!("no LUKS header, but a partition table ({kind})"));
    match found.as_slice() {
        [] => error.hint("none of its partitions begins with a LUKS header"),
        [one] => error.hint(format!("--partition {one}, which holds a LUKS volume")),
        many => {
            let list: Vec<_> = many.iter().map(u32::to_string).collect();
            error.hint(format!(
                "--partition N; LUKS volumes are in {}",
                list.join(", ")
            ))
        }
    }
}

/// Bytes looked at to call an image blank: as far as LUKS2 looks for its second header copy.
const BLANK_BYTES: u64 = 4 << 20;

fn begins_with_zeros(storage: &dyn Storage, size_bytes: u64) -> io::Result<bool> {
    let end = size_bytes.min(BLANK_BYTES);
    let mut chunk = vec![0; 64 << 10];
    let mut offset = 0;
    while offset < end {
        let len = (end - offset).min(chunk.len() as u64) as usize;
        storage.read_at(&mut chunk[..len], offset)?;
        if chunk[..len].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        offset += len as u64;
    }
    Ok(true)
}

fn size_error(error: io::Error) -> Error {
    Error::device("can't find its size").caused_by(error)
}

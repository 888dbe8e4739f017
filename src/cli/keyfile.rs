//! Key files and piped passphrases, read straight into [`Secret`]s: by descriptor, since the
//! buffer of [`io::stdin`] would keep a copy.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::limits::{KEYFILE_BYTES_MAX, PASSPHRASE_BYTES_MAX};
use crate::secret::Secret;

/// What a first read of a key file of unknown length asks for, in bytes.
const FIRST_READ_BYTES: usize = 4096;

/// The bytes of a key file (`-` is standard input): raw, no newline removed; from `offset_bytes`,
/// `size_bytes` of them or (where `None`) to its end.
///
/// Errors: `Usage` (exit 1, cryptsetup's code) where it can't be read, is shorter than asked, or
/// holds more than `KEYFILE_BYTES_MAX`.
pub(crate) fn read(path: &Path, offset_bytes: u64, size_bytes: Option<u64>) -> Result<Secret> {
    if path == Path::new("-") {
        return read_from(io::stdin().as_fd(), offset_bytes, size_bytes)
            .map_err(|e| e.on("the key on standard input"));
    }
    let named = |e: Error| e.on(format!("key file {}", path.display()));
    let open = File::options()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path);
    let file = open.map_err(|e| named(Error::usage("can't open the key file").caused_by(e)))?;
    read_from(file.as_fd(), offset_bytes, size_bytes).map_err(named)
}

fn read_from(fd: BorrowedFd<'_>, offset_bytes: u64, size_bytes: Option<u64>) -> Result<Secret> {
    if size_bytes.is_some_and(|size| size > KEYFILE_BYTES_MAX) {
        return Err(Error::usage(format!(
            "a key has at most {KEYFILE_BYTES_MAX} bytes"
        )));
    }
    skip(fd, offset_bytes)?;
    let limit = usize::try_from(size_bytes.unwrap_or(KEYFILE_BYTES_MAX)).expect("at most 8 MiB");
    let mut key = Secret::zeroed(limit.min(FIRST_READ_BYTES));
    let mut len = 0;
    while len < limit {
        if len == key.len() {
            key = resized(&key, (len * 2).min(limit));
        }
        match read_some(fd, &mut key[len..])? {
            0 => break,
            count => len += count,
        }
    }
    if len == 0 && offset_bytes > 0 {
        // Never an empty key for want of bytes.
        return Err(Error::usage(format!(
            "it has nothing after byte {offset_bytes}"
        )));
    }
    match size_bytes {
        Some(_) if len < limit => {
            let what = format!("the key has {len} bytes, not the {limit} asked for");
            return Err(Error::usage(what));
        }
        None if len == limit && read_some(fd, &mut Secret::zeroed(1))? > 0 => {
            let what = format!("the key is longer than {KEYFILE_BYTES_MAX} bytes");
            return Err(Error::usage(what).hint("--keyfile-size N, to use its first N bytes"));
        }
        _ => {}
    }
    Ok(Secret::copy_of(&key[..len]))
}

fn skip(fd: BorrowedFd<'_>, offset_bytes: u64) -> Result<()> {
    if offset_bytes == 0 || rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(offset_bytes)).is_ok()
    {
        return Ok(());
    }
    // A pipe: what lies before is read and dropped, as long as there is something.
    let mut skipped = Secret::zeroed(FIRST_READ_BYTES);
    let mut left = offset_bytes;
    while left > 0 {
        let want = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(skipped.len());
        match read_some(fd, &mut skipped[..want])? {
            0 => return Err(Error::usage("the key file ends before --keyfile-offset")),
            count => left -= count as u64,
        }
    }
    Ok(())
}

/// The first line of standard input without its newline; `None` where the input is at its end.
/// It is read a byte at a time, so that what follows is left to others.
///
/// Errors: `Usage` where the line is longer than `PASSPHRASE_BYTES_MAX` or can't be read.
pub(crate) fn read_line_of_stdin() -> Result<Option<Secret>> {
    read_line_from(io::stdin().as_fd()).map_err(|e| e.on("standard input"))
}

fn read_line_from(fd: BorrowedFd<'_>) -> Result<Option<Secret>> {
    let mut line = Secret::zeroed(PASSPHRASE_BYTES_MAX + 1);
    let mut len = 0;
    loop {
        if read_some(fd, &mut line[len..len + 1])? == 0 {
            if len == 0 {
                return Ok(None);
            }
            break;
        }
        if line[len] == b'\n' {
            break;
        }
        len += 1;
        if len > PASSPHRASE_BYTES_MAX {
            let what = format!("the passphrase is longer than {PASSPHRASE_BYTES_MAX} bytes");
            return Err(Error::usage(what).hint("--key-file - reads standard input whole"));
        }
    }
    Ok(Some(Secret::copy_of(&line[..len])))
}

fn read_some(fd: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize> {
    loop {
        match rustix::io::read(fd, &mut *buf) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::usage("can't read the key").caused_by(io::Error::from(e))),
        }
    }
}

fn resized(secret: &Secret, len_bytes: usize) -> Secret {
    let mut larger = Secret::zeroed(len_bytes);
    larger[..secret.len()].copy_from_slice(secret);
    larger
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn pipe(bytes: &[u8]) -> std::io::PipeReader {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(bytes).unwrap();
        reader
    }

    #[test]
    fn a_key_file_is_raw_bytes() {
        let bytes = b"abc\n\0\xffrest\n";
        let key = read(file(bytes).path(), 0, None).unwrap();
        assert_eq!(&*key, bytes);
        assert_eq!(&*read_from(pipe(bytes).as_fd(), 0, None).unwrap(), bytes);
    }

    #[test]
    fn offset_and_size_cut_a_file_and_a_pipe_alike() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        for (offset, size) in [(0, Some(0)), (5, Some(5000)), (9999, Some(1)), (4097, None)] {
            let end = size.map_or(bytes.len(), |size| (offset + size) as usize);
            let expected = &bytes[offset as usize..end];
            assert_eq!(&*read(file(&bytes).path(), offset, size).unwrap(), expected);
            assert_eq!(
                &*read_from(pipe(&bytes).as_fd(), offset, size).unwrap(),
                expected
            );
        }
    }

    #[test]
    fn too_short_and_too_long_are_usage_errors() {
        let short = file(b"12345");
        assert!(
            read(short.path(), 3, Some(3))
                .unwrap_err()
                .what()
                .contains("2 bytes")
        );
        let full = file(&vec![7; KEYFILE_BYTES_MAX as usize]);
        assert_eq!(
            read(full.path(), 0, None).unwrap().len() as u64,
            KEYFILE_BYTES_MAX
        );
        let over = file(&vec![7; KEYFILE_BYTES_MAX as usize + 1]);
        assert!(read(over.path(), 0, None).is_err());
        assert!(read(Path::new("/nonexistent/key"), 0, None).is_err());
        assert!(read_from(pipe(b"12").as_fd(), 3, None).is_err());
    }

    #[test]
    fn a_piped_passphrase_is_one_line_and_leaves_the_rest() {
        let reader = pipe(b"pw\nnext\n\nlast");
        let line = || {
            read_line_from(reader.as_fd())
                .unwrap()
                .map(|line| line.to_vec())
        };
        assert_eq!(line(), Some(b"pw".to_vec()));
        assert_eq!(line(), Some(b"next".to_vec()));
        assert_eq!(line(), Some(b"".to_vec()));
        assert_eq!(line(), Some(b"last".to_vec()));
        assert_eq!(line(), None);
        let long = pipe(&[b'x'; PASSPHRASE_BYTES_MAX + 1]);
        assert!(read_line_from(long.as_fd()).is_err());
        let full = pipe(&[b'x'; PASSPHRASE_BYTES_MAX]);
        assert_eq!(
            read_line_from(full.as_fd()).unwrap().unwrap().len(),
            PASSPHRASE_BYTES_MAX
        );
    }
}

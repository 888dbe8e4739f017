//! A regular file or block device, by positioned reads and writes.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::{Extent, Storage};
use crate::error::{Error, Result};

/// How a backing file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading only; writes fail with EBADF.
    ReadOnly,
    /// For reading and writing.
    ReadWrite,
}

/// A regular file or block device.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    path: PathBuf,
    /// Whether its pages are always in memory (tmpfs, ramfs): no read waits for a device.
    in_memory: bool,
    /// Cleared for good when the kernel says that this file can't be read without waiting.
    reads_without_waiting: AtomicBool,
}

impl FileStorage {
    /// Opens `path`, which must be a regular file or a block device.
    ///
    /// Errors: `Device` (exit 4) where it is missing, not permitted, or of another type.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        let named = || path.display();
        // Non-blocking, so that a FIFO is told apart rather than waited for.
        let file = File::options()
            .read(true)
            .write(mode == OpenMode::ReadWrite)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| open_error(e, mode).on(named()))?;
        let metadata = file
            .metadata()
            .map_err(|e| Error::device("can't stat it").caused_by(e).on(named()))?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Error::device("not a regular file or block device").on(named()));
        }
        Ok(Self {
            in_memory: kind.is_file() && is_in_memory(&file),
            file,
            path: path.to_owned(),
            reads_without_waiting: AtomicBool::new(true),
        })
    }

    fn write_all(&self, mut buf: &[u8], mut at: u64, flags: ReadWriteFlags) -> io::Result<()> {
        while !buf.is_empty() {
            let slices = [IoSlice::new(buf)];
            match rustix::io::pwritev2(&self.file, &slices, at, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if !flags.is_empty() => {
                    // A file system that can't write through: write, then sync.
                    self.write_all(buf, at, ReadWriteFlags::empty())?;
                    return self.sync();
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for locks.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Source: statfs(2), its table of file system types.
fn is_in_memory(file: &File) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    rustix::fs::fstatfs(file)
        .is_ok_and(|about| matches!(about.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

fn open_error(error: io::Error, mode: OpenMode) -> Error {
    let hint = match (error.kind(), mode) {
        (io::ErrorKind::NotFound, _) => Some("check the path"),
        (io::ErrorKind::PermissionDenied, OpenMode::ReadWrite) => {
            Some("--read-only, or get write permission on it")
        }
        (io::ErrorKind::ReadOnlyFilesystem, _) => Some("--read-only"),
        (io::ErrorKind::PermissionDenied, _) => Some("get read permission on it"),
        _ => None,
    };
    let error = Error::device("can't open it").caused_by(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

impl Storage for FileStorage {
    fn size_bytes(&self) -> io::Result<u64> {
        // Seeking to the end gives the size of files and block devices alike; positioned I/O
        // doesn't use the seek position.
        Ok(rustix::fs::seek(&self.file, SeekFrom::End(0))?)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset_bytes)
    }

    fn read_without_waiting_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<bool> {
        if self.in_memory {
            // These file systems don't know the flag below.
            return self.read_at(buf, offset_bytes).map(|()| true);
        }
        if !self.reads_without_waiting.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let len = buf.len();
        let flags = ReadWriteFlags::NOWAIT;
        loop {
            let mut slices = [IoSliceMut::new(buf)];
            match rustix::io::preadv2(&self.file, &mut slices, offset_bytes, flags) {
                // A short read: the rest isn't cached, or the file ends here. The slow path knows.
                Ok(n) => return Ok(n == len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.reads_without_waiting.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.write_all(buf, offset_bytes, ReadWriteFlags::empty())
    }

    fn write_durable_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.write_all(buf, offset_bytes, ReadWriteFlags::DSYNC)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(
            &self.file,
            flags,
            offset_bytes,
            len_bytes,
        )?)
    }

    fn can_discard(&self) -> bool {
        // Asked of a range past the file's end, so that nothing is freed by asking.
        let Ok(size_bytes) = self.size_bytes() else {
            return false;
        };
        match self.discard(size_bytes.next_multiple_of(4096), 4096) {
            Ok(()) => true,
            Err(e) => !matches!(
                e.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EBADF | libc::EPERM | libc::ENODEV)
            ),
        }
    }

    fn extent_at(&self, offset_bytes: u64, end_bytes: u64) -> io::Result<Extent> {
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(offset_bytes)) {
            Ok(data) => data,
            // No data from here to the end of the file.
            Err(Errno::NXIO) => {
                return Ok(Extent {
                    end_bytes,
                    hole: true,
                });
            }
            Err(_) => {
                return Ok(Extent {
                    end_bytes,
                    hole: false,
                });
            }
        };
        if data > offset_bytes {
            return Ok(Extent {
                end_bytes: data.min(end_bytes),
                hole: true,
            });
        }
        let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(offset_bytes)).unwrap_or(end_bytes);
        Ok(Extent {
            end_bytes: hole.clamp(offset_bytes + 1, end_bytes),
            hole: false,
        })
    }

    fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    fn file_at(&self, offset_bytes: u64, _len_bytes: u64) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), offset_bytes))
    }

    fn will_need(&self, offset_bytes: u64, len_bytes: u64) {
        let len = std::num::NonZeroU64::new(len_bytes);
        let _ = rustix::fs::fadvise(&self.file, offset_bytes, len, rustix::fs::Advice::WillNeed);
    }
}

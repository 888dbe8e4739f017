//! The volume as one file of a FUSE file system: a block device's manners on a file, straight
//! through to the device's queue.
//!
//! The kernel caches nothing of it (`FOPEN_DIRECT_IO`), so the file, a loop device over it and
//! NBD clients see the same bytes at once. A loop device has its own cache above.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request as Header,
    Session, SessionACL, TimeOrNow, WriteFlags,
};

use super::fuse_mount;
use crate::limits;
use crate::queue::{Completions, Device, Operation, Request, Stats};

/// The one file's inode.
const FILE: INodeNo = INodeNo(2);
/// The kernel may keep names and attributes: neither ever changes.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Threads that take requests from the kernel. They run what the page cache below takes or has;
/// the device's own workers do the rest.
const THREADS: usize = 4;
/// Most bytes of one request: the most the kernel sends (256 pages) by its default limit.
const REQUEST_BYTES: u32 = 1 << 20;
/// Most bytes zeroed by one request to the device, so that a long range doesn't hold a worker.
const ZERO_BYTES: u64 = 8 << 20;

/// A mounted file system. Dropping it ends its threads once it is unmounted.
#[derive(Debug)]
pub(crate) struct FuseFile {
    target: PathBuf,
    file: PathBuf,
    session: Option<BackgroundSession>,
    holes: Arc<AtomicBool>,
}

impl FuseFile {
    /// Mounts the device as the file `name` in the folder `target`.
    pub(crate) fn mount(device: &Arc<Device>, target: &Path, name: &str) -> io::Result<Self> {
        let fd = fuse_mount::mount(target)?;
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let holes = Arc::new(AtomicBool::new(false));
        let filesystem = VolumeFile {
            device: Arc::clone(device),
            name: name.to_owned(),
            holes: Arc::clone(&holes),
        };
        // Who may come in is the kernel's to check, by the mount: its owner alone.
        let session = Session::from_fd(filesystem, fd, SessionACL::All, config)
            .and_then(Session::spawn)
            .inspect_err(|_| drop(fuse_mount::unmount_dead(target)))?;
        Ok(Self {
            target: target.to_owned(),
            file: target.join(name),
            session: Some(session),
            holes,
        })
    }

    /// From now on holes are punched by writing zeros. For a loop device, whose driver punches one
    /// to write zeroes, and complains in the kernel's log where it can't.
    pub(crate) fn punch_holes_by_zeroing(&self) {
        self.holes.store(true, Ordering::Relaxed);
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Whether it is mounted still.
    pub(crate) fn is_mounted(&self) -> bool {
        fuse_mount::is_mounted(&self.target)
    }

    /// Unmounts it. EBUSY while somebody has the file open; it then stays.
    pub(crate) fn unmount(&mut self) -> io::Result<()> {
        fuse_mount::unmount(&self.target)?;
        match self.session.take() {
            Some(session) => session.join(),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct VolumeFile {
    device: Arc<Device>,
    name: String,
    holes: Arc<AtomicBool>,
}

impl VolumeFile {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino == FILE;
        let size = if is_file { self.device.size_bytes() } else { 0 };
        let epoch = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind: if is_file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: match (is_file, self.device.read_only()) {
                (false, _) => 0o700,
                (true, false) => 0o600,
                (true, true) => 0o400,
            },
            nlink: if is_file { 1 } else { 2 },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: (self.device.sector_size().bytes() as u32).max(4096),
            flags: 0,
        }
    }

    /// The part of a request that lies on the volume: `None` where it begins past the end.
    fn clip(&self, offset_bytes: u64, len_bytes: u64) -> Option<u32> {
        let left = self
            .device
            .size_bytes()
            .checked_sub(offset_bytes)
            .filter(|&left| left > 0)?;
        Some(
            left.min(len_bytes)
                .min(u64::from(limits::REQUEST_BYTES_MAX)) as u32,
        )
    }

    fn submit(&self, request: Request, reply: Reply) {
        let answer = Answer {
            reply: Mutex::new(Some(reply)),
        };
        self.device.submit(request, Arc::new(answer));
    }
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _: &Header, config: &mut KernelConfig) -> io::Result<()> {
        // Each is an offer that an older kernel doesn't make; all of it works without.
        for wish in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_readahead(REQUEST_BYTES);
        // Asynchronous direct I/O counts as background work: this is the depth of the queue.
        let _ = config.set_max_background(limits::CONNECTION_REQUESTS_MAX as u16);
        Ok(())
    }

    fn lookup(&self, _: &Header, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == OsStr::new(&self.name) {
            reply.entry(&FOREVER, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Header, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match ino {
            FILE | INodeNo::ROOT => reply.attr(&FOREVER, &self.attributes(ino)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    /// Like a block device: opening it for truncation leaves it as it is (the kernel then sets a
    /// size of 0), and it never changes its size, mode, owner or times.
    fn setattr(
        &self,
        _: &Header,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let keeps_size = size.is_none_or(|size| size == 0 || size == self.device.size_bytes());
        if ino != FILE || mode.or(uid).or(gid).is_some() {
            reply.error(Errno::EPERM);
        } else if !keeps_size {
            reply.error(Errno::EINVAL);
        } else {
            reply.attr(&FOREVER, &self.attributes(FILE));
        }
    }

    fn open(&self, _: &Header, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            reply.error(Errno::EISDIR);
        } else if self.device.read_only() && flags.acc_mode() != OpenAccMode::O_RDONLY {
            reply.error(Errno::EROFS);
        } else {
            let direct = FopenFlags::FOPEN_DIRECT_IO
                | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
                | FopenFlags::FOPEN_NOFLUSH;
            reply.opened(FileHandle(0), direct);
        }
    }

    fn read(
        &self,
        _: &Header,
        _: INodeNo,
        _: FileHandle,
        offset_bytes: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(len_bytes) = self.clip(offset_bytes, size.into()).filter(|&len| len > 0) else {
            return reply.data(&[]);
        };
        let mut request = self
            .device
            .prepare(Operation::Read, offset_bytes, len_bytes, 0);
        match self.device.run_without_waiting(&mut request) {
            Some(Ok(())) => reply.data(request.payload()),
            Some(Err(e)) => reply.error(errno(&e)),
            None => self.submit(request, Reply::Read(reply)),
        }
    }

    fn write(
        &self,
        _: &Header,
        _: INodeNo,
        _: FileHandle,
        offset_bytes: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if data.is_empty() {
            return reply.written(0);
        }
        let Some(len_bytes) = self.clip(offset_bytes, data.len() as u64) else {
            return reply.error(Errno::ENOSPC);
        };
        let fua = flags.0 & libc::O_DSYNC != 0;
        let data = &data[..len_bytes as usize];
        if !fua && let Some(result) = self.device.write_from(data, offset_bytes) {
            return match result {
                Ok(()) => reply.written(len_bytes),
                Err(e) => reply.error(errno(&e)),
            };
        }
        let mut request = self
            .device
            .prepare(Operation::Write { fua }, offset_bytes, len_bytes, 0);
        request.payload_mut().copy_from_slice(data);
        Stats::add(&self.device.stats().copied_bytes, len_bytes.into());
        self.submit(request, Reply::Write(reply, len_bytes));
    }

    fn fsync(&self, _: &Header, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let request = self.device.prepare(Operation::Flush, 0, 0, 0);
        self.submit(request, Reply::Empty(reply));
    }

    /// Closing syncs nothing: as of a block device, nothing of this file is cached above.
    fn flush(&self, _: &Header, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    /// Zeroes a range by writing encrypted zeros. A hole reads as zeros, and a volume's discarded
    /// sectors read as noise: a hole that frees anything can't be had. Whoever asks for one wants
    /// to free space quickly (mkfs), so it is refused, but where it must mean zeros.
    fn fallocate(
        &self,
        _: &Header,
        _: INodeNo,
        _: FileHandle,
        offset_bytes: u64,
        len_bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroes = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_ZERO_RANGE => true,
            libc::FALLOC_FL_PUNCH_HOLE => self.holes.load(Ordering::Relaxed),
            _ => false,
        };
        if !zeroes {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match offset_bytes.checked_add(len_bytes) {
            Some(end_bytes) if end_bytes <= self.device.size_bytes() && len_bytes > 0 => {
                Zeroing::go_on(&self.device, offset_bytes, end_bytes, reply);
            }
            _ => reply.error(Errno::ENOSPC),
        }
    }

    fn readdir(
        &self,
        _: &Header,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.name.as_str()),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

/// What answers the kernel once a request is done.
#[derive(Debug)]
enum Reply {
    Read(ReplyData),
    Write(ReplyWrite, u32),
    Empty(ReplyEmpty),
}

#[derive(Debug)]
struct Answer {
    reply: Mutex<Option<Reply>>,
}

impl Completions for Answer {
    fn complete(&self, request: Request, result: io::Result<()>) {
        let reply = self.reply.lock().unwrap_or_else(|e| e.into_inner()).take();
        match (reply, result) {
            (None, _) => {}
            (Some(Reply::Read(reply)), Ok(())) => reply.data(request.payload()),
            (Some(Reply::Read(reply)), Err(e)) => reply.error(errno(&e)),
            (Some(Reply::Write(reply, len_bytes)), Ok(())) => reply.written(len_bytes),
            (Some(Reply::Write(reply, _)), Err(e)) => reply.error(errno(&e)),
            (Some(Reply::Empty(reply)), Ok(())) => reply.ok(),
            (Some(Reply::Empty(reply)), Err(e)) => reply.error(errno(&e)),
        }
    }
}

/// A long range of zeros, one piece after the other.
#[derive(Debug)]
struct Zeroing {
    device: Arc<Device>,
    next_bytes: u64,
    end_bytes: u64,
    reply: Mutex<Option<ReplyEmpty>>,
}

impl Zeroing {
    fn go_on(device: &Arc<Device>, offset_bytes: u64, end_bytes: u64, reply: ReplyEmpty) {
        let len_bytes = (end_bytes - offset_bytes).min(ZERO_BYTES) as u32;
        let operation = Operation::WriteZeroes { fua: false };
        let request = device.prepare(operation, offset_bytes, len_bytes, 0);
        let rest = Self {
            device: Arc::clone(device),
            next_bytes: offset_bytes + u64::from(len_bytes),
            end_bytes,
            reply: Mutex::new(Some(reply)),
        };
        device.submit(request, Arc::new(rest));
    }
}

impl Completions for Zeroing {
    fn complete(&self, _: Request, result: io::Result<()>) {
        let Some(reply) = self.reply.lock().unwrap_or_else(|e| e.into_inner()).take() else {
            return;
        };
        match result {
            Err(e) => reply.error(errno(&e)),
            Ok(()) if self.next_bytes == self.end_bytes => reply.ok(),
            Ok(()) => Self::go_on(&self.device, self.next_bytes, self.end_bytes, reply),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(
        error
            .raw_os_error()
            .filter(|&code| code > 0)
            .unwrap_or(libc::EIO),
    )
}

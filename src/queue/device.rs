//! A volume over its storage, as front ends see it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::execute::Below;
use super::order::{EntryId, Order};
use super::plan::Span;
use super::pool::Pool;
use super::{Completions, Operation, Request, Ring, Stats};
use crate::buffer::{Buffer, BufferPool};
use crate::limits;
use crate::storage::{Extent, Storage};
use crate::units::SectorSize;
use crate::volume::{Segment, Volume, VolumeAbout};

/// What is written from a caller's memory is encrypted and written this many bytes at a time: they
/// are still in the second-level cache when the kernel takes them.
const WRITE_PIECE_BYTES: usize = 128 << 10;

/// How storage is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// What is in memory by plain calls, what has to be waited for by io_uring where that can be
    /// had.
    #[default]
    Auto,
    /// By pread and pwrite.
    Plain,
    /// By io_uring, wherever it can be had.
    Uring,
}

/// How a device is served.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Refuse everything that writes.
    pub read_only: bool,
    /// Pass trims down, and tell holes from data.
    pub allow_discards: bool,
    /// How storage is read and written.
    pub io: IoMode,
}

/// A served volume. Shared by every connection and front end.
pub struct Device {
    volume: Volume,
    storage: Arc<dyn Storage>,
    read_only: bool,
    can_trim: bool,
    io: IoMode,
    buffers: Arc<BufferPool>,
    overlaps: Mutex<Overlaps>,
    pool: Pool<Job>,
    stats: Stats,
    /// Set for good when a sync failed: the kernel has then dropped what it could not write, so
    /// no later flush may claim that everything acknowledged before is durable.
    sync_failed: AtomicBool,
    /// Requests that were begun or submitted, and have not ended.
    in_flight: AtomicUsize,
    /// Threads that compute now: lanes that are awake, and workers that help them.
    busy: AtomicUsize,
    cores: usize,
}

/// The order of overlapping requests, and those that wait for their turn.
#[derive(Default)]
struct Overlaps {
    order: Order,
    parked: HashMap<EntryId, Parked>,
}

enum Parked {
    /// A submitted request: its turn puts it into the pool's queue.
    Job(Job),
    /// A thread that runs its request itself.
    Thread(Arc<Turn>),
}

/// A submitted request whose range is entered in the order.
struct Job {
    device: Arc<Device>,
    request: Request,
    completions: Arc<dyn Completions>,
    entry: Option<EntryId>,
    /// Counted in [`Device::busy`] until it is done.
    helps: bool,
}

/// One thread's wait for its turn.
#[derive(Default)]
struct Turn {
    come: Mutex<bool>,
    changed: Condvar,
}

impl Device {
    /// The device of `volume` over `storage`, which holds its data area.
    pub fn new(volume: Volume, storage: Arc<dyn Storage>, options: DeviceOptions) -> Arc<Self> {
        Arc::new(Self {
            can_trim: options.allow_discards && !options.read_only && storage.can_discard(),
            read_only: options.read_only,
            io: io_of(&*storage, options.io),
            volume,
            storage,
            buffers: BufferPool::new(limits::BUFFER_BYTES_MAX),
            overlaps: Mutex::default(),
            pool: Pool::new(Job::run),
            stats: Stats::default(),
            sync_failed: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.volume.size_bytes
    }

    /// The sector grid; requests off it work, and cost a read-modify-write.
    pub fn sector_size(&self) -> SectorSize {
        self.volume.sector_size
    }

    /// Whether it refuses writes.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether trims reach the storage: discards are allowed and the storage can free.
    pub fn can_trim(&self) -> bool {
        self.can_trim
    }

    /// How its storage is read and written: as was asked for, where that can be.
    pub fn io(&self) -> IoMode {
        self.io
    }

    /// Whether an io_uring can be had for it.
    pub fn has_ring(self: &Arc<Self>) -> bool {
        self.ring_file().is_some() && Ring::new(self).is_some()
    }

    /// What volume it is.
    pub fn about(&self) -> &VolumeAbout {
        &self.volume.about
    }

    /// Its counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// A request with its memory. The range must lie inside the device and, for reads and writes,
    /// be at most `limits::REQUEST_BYTES_MAX` long: front ends check, with their own errno. Waits
    /// while the process's buffers are all out.
    pub fn prepare(
        &self,
        operation: Operation,
        offset_bytes: u64,
        len_bytes: u32,
        cookie: u64,
    ) -> Request {
        let take = |len_bytes| Some(self.buffers.take(len_bytes));
        self.prepare_by(take, operation, offset_bytes, len_bytes, cookie)
            .expect("taking a buffer waits, and never fails")
    }

    /// As [`Self::prepare`], but `None` where it would wait for memory.
    pub fn try_prepare(
        &self,
        operation: Operation,
        offset_bytes: u64,
        len_bytes: u32,
        cookie: u64,
    ) -> Option<Request> {
        let take = |len_bytes| self.buffers.try_take(len_bytes);
        self.prepare_by(take, operation, offset_bytes, len_bytes, cookie)
    }

    fn prepare_by(
        &self,
        take: impl FnOnce(usize) -> Option<Buffer>,
        operation: Operation,
        offset_bytes: u64,
        len_bytes: u32,
        cookie: u64,
    ) -> Option<Request> {
        let mut request = Request {
            operation,
            offset_bytes,
            len_bytes,
            cookie,
            buffer: None,
            pad_bytes: 0,
        };
        if matches!(operation, Operation::Read | Operation::Write { .. }) {
            let span = self.span(offset_bytes, len_bytes);
            request.buffer = Some(take(span.len_bytes as usize)?);
            request.pad_bytes = span.pad_bytes;
        }
        Some(request)
    }

    /// Runs the request here and now if it needs no waiting for a device (cached reads); `None`
    /// leaves it to be submitted.
    pub fn run_without_waiting(&self, request: &mut Request) -> Option<io::Result<()>> {
        if request.operation != Operation::Read {
            return None;
        }
        let entry = self.enter_if_free(request)?;
        let result = guarded(|| self.below().read_without_waiting(request));
        self.leave(entry);
        if let Ok(false) = result {
            return None;
        }
        self.begin();
        match result {
            Ok(_) => Some(self.count(request, Ok(()))),
            Err(e) => Some(self.count(request, Err(e))),
        }
    }

    /// Writes `data` at `offset_bytes` here and now, encrypting it on its way out of the caller's
    /// memory: to the page cache below, so without waiting for a device unless too much lies there
    /// already. `None`, and nothing has happened, where it isn't whole sectors of one segment or
    /// has to wait for another request.
    pub fn write_from(&self, data: &[u8], offset_bytes: u64) -> Option<io::Result<()>> {
        let len_bytes = u32::try_from(data.len()).ok()?;
        let span = self.span(offset_bytes, len_bytes);
        if self.read_only || span.is_partial() || self.only_segment(span).is_none() {
            return None;
        }
        let request = Request {
            operation: Operation::Write { fua: false },
            offset_bytes,
            len_bytes,
            cookie: 0,
            buffer: None,
            pad_bytes: 0,
        };
        let entry = self.enter_if_free(&request)?;
        self.begin();
        let mut piece = self.buffers.take(data.len().min(WRITE_PIECE_BYTES));
        let result = guarded(|| self.below().write_from(data, offset_bytes, &mut piece));
        self.leave(entry);
        Some(self.count(&request, result))
    }

    /// Runs the request to its end on this thread.
    pub fn run(&self, request: &mut Request) -> io::Result<()> {
        self.begin();
        let turn = Arc::new(Turn::default());
        let entry = self.enter(request, || Parked::Thread(Arc::clone(&turn)));
        if let Entered::Parked(_) = entry {
            turn.wait();
        }
        let result = self.execute(request);
        if let Entered::Running(Some(entry)) | Entered::Parked(entry) = entry {
            self.leave(entry);
        }
        result
    }

    /// Hands the request to a worker, which calls `completions` once. Many may be in flight; they
    /// may end in any order. Overlapping requests run in the order they are submitted.
    pub fn submit(self: &Arc<Self>, request: Request, completions: Arc<dyn Completions>) {
        self.push(request, completions, false);
    }

    /// As [`Self::submit`] if a core is free for a worker to compute on; else gives the request
    /// back.
    pub fn share(
        self: &Arc<Self>,
        request: Request,
        completions: impl FnOnce() -> Arc<dyn Completions>,
    ) -> Option<Request> {
        if self.busy.fetch_add(1, Ordering::Relaxed) >= self.cores {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            return Some(request);
        }
        self.push(request, completions(), true);
        None
    }

    /// Counts the calling lane as awake until the guard is dropped.
    pub fn awake(&self) -> Awake<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Awake(self)
    }

    /// The file that rings read and write, if one file is all there is below.
    pub(super) fn ring_file(&self) -> Option<BorrowedFd<'_>> {
        self.storage.file_at(0, 0).map(|(file, _)| file)
    }

    /// The segment that holds all of a span, if one does.
    fn only_segment(&self, span: Span) -> Option<&Segment> {
        let segment = &self.volume.segments[self.volume.segment_index_at(span.start_bytes)];
        (span.end_bytes() <= segment.start_bytes + segment.len_bytes).then_some(segment)
    }

    /// Begins a request that a ring will move, and encrypts it if it writes: where its sectors lie
    /// in the file, and the claim to them. `None`, and nothing has happened, where it isn't whole
    /// sectors of one segment, may not be, or has to wait for another.
    pub(super) fn begin_in_ring(&self, request: &mut Request) -> Option<(u64, Option<EntryId>)> {
        let reads = request.operation == Operation::Read;
        // What must be durable is a worker's: its call says so where anybody can see it.
        let writes = request.operation == (Operation::Write { fua: false });
        if !(reads || writes && !self.read_only) {
            return None;
        }
        let span = self.span(request.offset_bytes, request.len_bytes);
        if writes && span.is_partial() {
            return None;
        }
        let segment = self.only_segment(span)?;
        let below_bytes = segment.storage_offset_bytes + (span.start_bytes - segment.start_bytes);
        let (_, file_offset_bytes) = self.storage.file_at(below_bytes, span.len_bytes)?;
        let entry = self.enter_if_free(request)?;
        self.begin();
        if writes {
            self.below().encrypt(request);
        }
        Some((file_offset_bytes, entry))
    }

    /// Ends what [`Self::begin_in_ring`] began, with what came of moving it.
    pub(super) fn end_in_ring(
        &self,
        request: &mut Request,
        entry: Option<EntryId>,
        result: io::Result<()>,
    ) -> io::Result<()> {
        let result = match (result, request.operation) {
            (Ok(()), Operation::Read) => guarded(|| {
                self.below().decrypt(request);
                Ok(())
            }),
            (result, _) => result,
        };
        self.leave(entry);
        self.count(request, result)
    }

    fn push(self: &Arc<Self>, request: Request, completions: Arc<dyn Completions>, helps: bool) {
        self.begin();
        let mut job = Job {
            device: Arc::clone(self),
            request,
            completions,
            entry: None,
            helps,
        };
        let mut overlaps = self.lock();
        if let Some((start, end, exclusive)) = self.claim(&job.request) {
            let (entry, running) = overlaps.order.enter(start, end, exclusive);
            job.entry = Some(entry);
            if !running {
                overlaps.parked.insert(entry, Parked::Job(job));
                Stats::add(&self.stats.backlog_events, 1);
                return;
            }
        }
        drop(overlaps);
        self.pool.push(job);
    }

    /// The extents of a range, in order and without gaps, at most `count_max` of them (so it may
    /// end early). Without discards everything is data: what nobody wrote then reads as noise,
    /// and its place is nobody's to know.
    pub fn extents(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        count_max: usize,
    ) -> io::Result<Vec<Extent>> {
        let end_bytes = offset_bytes + len_bytes;
        if !self.can_trim {
            return Ok(vec![Extent {
                end_bytes,
                hole: false,
            }]);
        }
        let mut extents: Vec<Extent> = Vec::new();
        let mut at_bytes = offset_bytes;
        while at_bytes < end_bytes {
            let segment = &self.volume.segments[self.volume.segment_index_at(at_bytes)];
            let shift = segment.storage_offset_bytes - segment.start_bytes;
            let piece_end = end_bytes.min(segment.start_bytes + segment.len_bytes);
            let below = self
                .storage
                .extent_at(at_bytes + shift, piece_end + shift)?;
            at_bytes = (below.end_bytes - shift).clamp(at_bytes + 1, piece_end);
            let extent = Extent {
                end_bytes: at_bytes,
                hole: below.hole,
            };
            if extents.last().is_some_and(|last| last.hole == extent.hole) {
                extents.pop();
            } else if extents.len() == count_max {
                break;
            }
            extents.push(extent);
        }
        Ok(extents)
    }

    fn below(&self) -> Below<'_> {
        Below {
            volume: &self.volume,
            storage: &*self.storage,
        }
    }

    fn span(&self, offset_bytes: u64, len_bytes: u32) -> Span {
        Span::around(offset_bytes, u64::from(len_bytes), self.volume.sector_size)
    }

    fn execute(&self, request: &mut Request) -> io::Result<()> {
        let writes = !matches!(request.operation, Operation::Read | Operation::Cache);
        let result = if writes && self.read_only && request.operation != Operation::Flush {
            Err(io::Error::from_raw_os_error(libc::EPERM))
        } else if request.operation == Operation::Flush {
            self.sync()
        } else {
            self.check_durable(request.operation, guarded(|| self.below().execute(request)))
        };
        self.count(request, result)
    }

    fn sync(&self) -> io::Result<()> {
        let result = if self.read_only {
            Ok(())
        } else {
            self.storage.sync()
        };
        self.check_durable(Operation::Flush, result)
    }

    /// Fails what claims durability once a sync has failed.
    fn check_durable(&self, operation: Operation, result: io::Result<()>) -> io::Result<()> {
        let durable = matches!(
            operation,
            Operation::Flush
                | Operation::Write { fua: true }
                | Operation::Trim { fua: true }
                | Operation::WriteZeroes { fua: true }
        );
        if !durable {
            return result;
        }
        if result.is_err() {
            self.sync_failed.store(true, Ordering::SeqCst);
        }
        if self.sync_failed.load(Ordering::SeqCst) {
            return result.and(Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        result
    }

    fn begin(&self) {
        let others = self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.stats.began_at(others + 1);
    }

    /// Counts a request that has ended.
    fn count(&self, request: &Request, result: io::Result<()>) -> io::Result<()> {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let stats = &self.stats;
        let len = u64::from(request.len_bytes);
        let counter = match request.operation {
            Operation::Read => &stats.reads,
            Operation::Write { .. } => &stats.writes,
            Operation::Flush => &stats.flushes,
            Operation::Trim { .. } => &stats.trims,
            Operation::WriteZeroes { .. } => &stats.zeroes,
            Operation::Cache => &stats.caches,
        };
        Stats::add(counter, 1);
        match (&result, request.operation) {
            (Err(_), _) => Stats::add(&stats.errors, 1),
            (Ok(()), Operation::Read) => Stats::add(&stats.bytes_read, len),
            (Ok(()), Operation::Write { .. }) => Stats::add(&stats.bytes_written, len),
            _ => {}
        }
        result
    }

    /// The sector range a request needs to itself, and whether it needs it exclusively. Flushes
    /// and hints need none.
    fn claim(&self, request: &Request) -> Option<(u64, u64, bool)> {
        let exclusive = match request.operation {
            Operation::Flush | Operation::Cache => return None,
            // Nothing is ever written: reads need no order.
            Operation::Read if self.read_only => return None,
            Operation::Read => false,
            Operation::Write { .. } | Operation::Trim { .. } | Operation::WriteZeroes { .. } => {
                true
            }
        };
        let span = self.span(request.offset_bytes, request.len_bytes);
        Some((span.start_bytes, span.end_bytes(), exclusive))
    }

    fn enter(&self, request: &Request, park: impl FnOnce() -> Parked) -> Entered {
        let Some((start, end, exclusive)) = self.claim(request) else {
            return Entered::Running(None);
        };
        let mut overlaps = self.lock();
        let (entry, running) = overlaps.order.enter(start, end, exclusive);
        if running {
            return Entered::Running(Some(entry));
        }
        overlaps.parked.insert(entry, park());
        Stats::add(&self.stats.backlog_events, 1);
        Entered::Parked(entry)
    }

    /// Enters a request only if it may run at once; `Some(None)` where it needs no range.
    fn enter_if_free(&self, request: &Request) -> Option<Option<EntryId>> {
        let Some((start, end, exclusive)) = self.claim(request) else {
            return Some(None);
        };
        let mut overlaps = self.lock();
        let (entry, running) = overlaps.order.enter(start, end, exclusive);
        if running {
            return Some(Some(entry));
        }
        overlaps.order.leave(entry, &mut Vec::new());
        None
    }

    fn leave(&self, entry: impl Into<Option<EntryId>>) {
        let Some(entry) = entry.into() else { return };
        let mut ready = Vec::new();
        let mut overlaps = self.lock();
        overlaps.order.leave(entry, &mut ready);
        let parked: Vec<_> = ready
            .iter()
            .filter_map(|entry| overlaps.parked.remove(entry))
            .collect();
        drop(overlaps);
        for parked in parked {
            match parked {
                Parked::Job(job) => self.pool.push(job),
                Parked::Thread(turn) => turn.set(),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Overlaps> {
        // Nothing panics while it holds this lock; a poisoned state is still consistent.
        self.overlaps.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A lane that is awake; see [`Device::awake`].
#[derive(Debug)]
pub struct Awake<'a>(&'a Device);

impl Awake<'_> {
    /// Whether there is a core for each of the device's threads that compute.
    pub fn has_a_core(&self) -> bool {
        self.0.cores > 1 && self.0.busy.load(Ordering::Relaxed) < self.0.cores
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The way to read and write `storage` where `wanted` was asked for.
fn io_of(storage: &dyn Storage, wanted: IoMode) -> IoMode {
    match wanted {
        // Nothing to wait for, and the kernel hands what a ring is asked for to its workers.
        IoMode::Auto if storage.is_in_memory() => IoMode::Plain,
        _ if storage.file_at(0, 0).is_none() => IoMode::Plain,
        wanted => wanted,
    }
}

enum Entered {
    Running(Option<EntryId>),
    Parked(EntryId),
}

impl Job {
    fn run(mut self) {
        let result = self.device.execute(&mut self.request);
        if let Some(entry) = self.entry {
            self.device.leave(entry);
        }
        self.completions.complete(self.request, result);
        if self.helps {
            self.device.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Turn {
    fn wait(&self) {
        let mut come = self.come.lock().unwrap_or_else(|e| e.into_inner());
        while !*come {
            come = self.changed.wait(come).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn set(&self) {
        *self.come.lock().unwrap_or_else(|e| e.into_inner()) = true;
        self.changed.notify_one();
    }
}

/// A panic in one request is that request's error: the range it holds must be left, and the
/// others must go on.
fn guarded<T>(run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(io::Error::other("a request ended in a panic")))
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("size_bytes", &self.size_bytes())
            .field("sector_size", &self.sector_size())
            .finish_non_exhaustive()
    }
}

//! Storage that fails, waits or remembers on purpose: for tests of everything above.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::{Extent, Storage};

/// What happened below, in the order it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These bytes were written there, and may not be durable yet.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Everything written before is durable.
    Sync,
    /// The range was freed.
    Discard(Range<u64>),
}

/// A wrapper that injects faults into another storage and records what is done to it.
#[derive(Debug)]
pub struct FaultyStorage {
    below: Arc<dyn Storage>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bad_reads: Vec<(Range<u64>, i32)>,
    bad_writes: Vec<(Range<u64>, i32)>,
    bad_syncs: usize,
    delay: Duration,
    recording: bool,
    events: Vec<Event>,
    in_flight: usize,
    in_flight_max: usize,
}

impl FaultyStorage {
    /// No faults yet, over `below`.
    pub fn new(below: Arc<dyn Storage>) -> Self {
        Self {
            below,
            state: Mutex::default(),
        }
    }

    /// Reads that touch `range` fail with `errno`.
    pub fn fail_reads(&self, range: Range<u64>, errno: i32) {
        self.lock().bad_reads.push((range, errno));
    }

    /// Writes that touch `range` fail with `errno`.
    pub fn fail_writes(&self, range: Range<u64>, errno: i32) {
        self.lock().bad_writes.push((range, errno));
    }

    /// The next `count` syncs fail with EIO.
    pub fn fail_syncs(&self, count: usize) {
        self.lock().bad_syncs = count;
    }

    /// Forgets all faults.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.bad_reads.clear();
        state.bad_writes.clear();
        state.bad_syncs = 0;
    }

    /// Every request takes at least this long.
    pub fn delay_each(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Starts to record.
    pub fn record(&self) {
        self.lock().recording = true;
    }

    /// What was recorded so far.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The most requests that were here at one time.
    pub fn in_flight_max(&self) -> usize {
        self.lock().in_flight_max
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs one request below between its delay and its record.
    fn request<T>(
        &self,
        fault: impl FnOnce(&mut State) -> Option<i32>,
        run: impl FnOnce() -> io::Result<T>,
        event: impl FnOnce() -> Option<Event>,
    ) -> io::Result<T> {
        let mut state = self.lock();
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        let (delay, errno) = (state.delay, fault(&mut state));
        drop(state);
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        let result = match errno {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => run(),
        };
        let mut state = self.lock();
        state.in_flight -= 1;
        if state.recording && result.is_ok() {
            state.events.extend(event());
        }
        result
    }
}

fn hit(faults: &[(Range<u64>, i32)], offset_bytes: u64, len: usize) -> Option<i32> {
    let end = offset_bytes + len as u64;
    faults
        .iter()
        .find(|(range, _)| range.start < end && offset_bytes < range.end)
        .map(|(_, errno)| *errno)
}

impl Storage for FaultyStorage {
    fn size_bytes(&self) -> io::Result<u64> {
        self.below.size_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let len = buf.len();
        self.request(
            |state| hit(&state.bad_reads, offset_bytes, len),
            || self.below.read_at(buf, offset_bytes),
            || None,
        )
    }

    fn read_without_waiting_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<bool> {
        let waits = {
            let state = self.lock();
            !state.delay.is_zero() || hit(&state.bad_reads, offset_bytes, buf.len()).is_some()
        };
        if waits {
            Ok(false)
        } else {
            self.below.read_without_waiting_at(buf, offset_bytes)
        }
    }

    fn write_at(&self, buf: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.request(
            |state| hit(&state.bad_writes, offset_bytes, buf.len()),
            || self.below.write_at(buf, offset_bytes),
            || {
                Some(Event::Write {
                    offset_bytes,
                    bytes: buf.to_vec(),
                })
            },
        )
    }

    fn sync(&self) -> io::Result<()> {
        self.request(
            |state| {
                let fails = state.bad_syncs > 0;
                state.bad_syncs = state.bad_syncs.saturating_sub(1);
                fails.then_some(libc::EIO)
            },
            || self.below.sync(),
            || Some(Event::Sync),
        )
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.request(
            |state| hit(&state.bad_writes, offset_bytes, len_bytes as usize),
            || self.below.discard(offset_bytes, len_bytes),
            || Some(Event::Discard(offset_bytes..offset_bytes + len_bytes)),
        )
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn extent_at(&self, offset_bytes: u64, end_bytes: u64) -> io::Result<Extent> {
        self.below.extent_at(offset_bytes, end_bytes)
    }
}

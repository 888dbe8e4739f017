//! A connection as its lane, the workers and the server share it: the socket, the replies that
//! wait for it, and what is still held on the client's behalf.
//!
//! Whoever has a reply queues it and, unless someone is sending already, sends all that is queued
//! until the socket takes no more. Nobody ever waits for the client here: what the socket doesn't
//! take is left to the lane, which waits for it to become writable.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};

use super::handshake::Terms;
use super::reply::Reply;
use crate::queue::{Completions, Request};

/// Slices of one send: half of them headers. The kernel takes 1024.
const SLICES_MAX: usize = 128;
/// Times in a row one thread sends what others have queued meanwhile, before it goes back to its
/// own work.
const ROUNDS_MAX: usize = 8;

/// The shared half of a connection.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    /// Wakes the lane (an eventfd).
    wake: OwnedFd,
    terms: OnceLock<Terms>,
    stopping: AtomicBool,
    requests: AtomicU64,
    state: Mutex<State>,
}

/// Requests and the payload bytes of their memory, counted up for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// What a lane that is about to sleep needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleep {
    /// Nothing is in flight and nothing waits to be sent.
    pub(super) idle: bool,
    /// The lane is to send once the socket is writable.
    pub(super) wants_writable: bool,
    /// The client is gone: replies are dropped.
    pub(super) broken: bool,
    /// Everything released so far.
    pub(super) released: Held,
    /// Bytes the socket has taken so far.
    pub(super) sent_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Reply>,
    /// The memory of an emptied queue.
    spare: VecDeque<Reply>,
    /// Someone is sending what was taken from the queue.
    sending: bool,
    /// The socket took no more, or the sender has other work: the lane sends from now on.
    left_to_lane: bool,
    broken: bool,
    /// Submitted to the device and not completed.
    in_flight: usize,
    released: Held,
    sent_bytes: u64,
    /// The lane sleeps until something is released.
    lane_waits: bool,
}

enum Sent {
    All,
    WouldBlock,
    Broken,
}

impl Link {
    /// The link of a connected stream socket, which must be in blocking mode.
    pub fn new(socket: OwnedFd) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            socket,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            terms: OnceLock::new(),
            stopping: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            state: Mutex::default(),
        }))
    }

    /// Tells the lane to take no more requests, to finish those in flight, and to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // An idle lane waits in a receive, which this ends; any other waits for `wake` too.
        let _ = shutdown(&self.socket, Shutdown::Read);
        self.wake();
    }

    /// Cuts the client off; replies not yet sent are dropped.
    pub fn cut(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.break_off();
        self.wake();
    }

    /// Whether the handshake is over.
    pub fn in_transmission(&self) -> bool {
        self.terms.get().is_some()
    }

    /// Requests received so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests that a worker has now.
    pub fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes back the wake-ups so far; they are levels, not counts.
    pub(super) fn take_wakes(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Starts transmission on these terms.
    pub(super) fn begin(&self, terms: Terms) {
        let _ = self.terms.set(terms);
    }

    pub(super) fn note_requests(&self, total: u64) {
        self.requests.store(total, Ordering::Relaxed);
    }

    /// Counts a request that is about to be submitted.
    pub(super) fn submitting(&self) {
        self.lock().in_flight += 1;
    }

    /// Queues the lane's replies and sends what the socket takes. Returns what has been released,
    /// and whether the socket takes no more.
    pub(super) fn send(&self, replies: &mut VecDeque<Reply>) -> (Held, bool) {
        let mut state = self.lock();
        if !replies.is_empty() {
            state.queue.append(replies);
            state = self.pump(state);
        }
        (state.released, state.left_to_lane)
    }

    /// Sends what was left to the lane, now that the socket is writable.
    pub(super) fn resume(&self) {
        let mut state = self.lock();
        state.left_to_lane = false;
        drop(self.pump(state));
    }

    /// Drops all replies, now and later.
    pub(super) fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.left_to_lane = false;
        drop(self.pump(state));
    }

    /// What the lane may sleep on. With `for_progress`, the lane is woken when something is
    /// released after this call.
    pub(super) fn sleep(&self, for_progress: bool) -> Sleep {
        let mut state = self.lock();
        state.lane_waits = for_progress;
        Sleep {
            idle: state.in_flight == 0 && state.queue.is_empty() && !state.sending,
            wants_writable: state.left_to_lane,
            broken: state.broken,
            released: state.released,
            sent_bytes: state.sent_bytes,
        }
    }

    /// Sends the queue, and what is queued meanwhile. One thread at a time does; the lock is not
    /// held during a send, nor while request memory is given back.
    fn pump<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.sending || state.left_to_lane {
            return state;
        }
        let mut rounds = 0;
        while !state.queue.is_empty() {
            if rounds == ROUNDS_MAX && !state.broken {
                state.left_to_lane = true;
                break;
            }
            rounds += 1;
            state.sending = true;
            let broken = state.broken;
            let spare = std::mem::take(&mut state.spare);
            let mut batch = std::mem::replace(&mut state.queue, spare);
            drop(state);
            let mut progress = Progress::default();
            let sent = match broken {
                true => Sent::Broken,
                false => progress.transmit(self.socket.as_fd(), &mut batch),
            };
            if let Sent::Broken = sent {
                progress.drop_all(&mut batch);
            }
            state = self.lock();
            state.sending = false;
            state.released.requests += progress.released.requests;
            state.released.bytes += progress.released.bytes;
            state.sent_bytes += progress.sent_bytes;
            state.broken |= matches!(sent, Sent::Broken);
            // What did not leave goes back to the front; then `batch` is the empty one.
            batch.append(&mut state.queue);
            std::mem::swap(&mut state.queue, &mut batch);
            state.spare = batch;
            if matches!(sent, Sent::WouldBlock) && !state.broken {
                state.left_to_lane = true;
                break;
            }
        }
        state
    }

    fn wake(&self) {
        // A full counter is a wake-up already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds this lock; a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Completions for Link {
    fn complete(&self, request: Request, result: io::Result<()>) {
        let terms = self.terms.get().copied().unwrap_or_default();
        let reply = Reply::to_request(request, result, terms);
        let mut state = self.lock();
        state.in_flight -= 1;
        state.queue.push_back(reply);
        let was_left = state.left_to_lane;
        state = self.pump(state);
        let newly_left = state.left_to_lane && !was_left;
        if state.lane_waits || newly_left {
            state.lane_waits = false;
            drop(state);
            self.wake();
        }
    }
}

/// What one round of sending achieved.
#[derive(Default)]
struct Progress {
    released: Held,
    sent_bytes: u64,
}

impl Progress {
    /// Sends replies off the front of `batch` without waiting.
    fn transmit(&mut self, socket: BorrowedFd<'_>, batch: &mut VecDeque<Reply>) -> Sent {
        while !batch.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let pairs = slices.as_chunks_mut::<2>().0.iter_mut();
            let mut offered_bytes = 0;
            let mut replies = 0;
            for (pair, reply) in pairs.zip(batch.iter()) {
                *pair = reply.slices();
                offered_bytes += reply.unsent_bytes();
                replies += 1;
            }
            let slices = slices.get(..2 * replies).unwrap_or_default();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let count = match sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Sent::WouldBlock,
                Err(_) => return Sent::Broken,
            };
            self.sent_bytes += count as u64;
            self.pop_sent(batch, count);
            if count < offered_bytes {
                return Sent::WouldBlock;
            }
        }
        Sent::All
    }

    fn pop_sent(&mut self, batch: &mut VecDeque<Reply>, mut count: usize) {
        while let Some(reply) = batch.front_mut() {
            count = reply.advance(count);
            if reply.unsent_bytes() > 0 {
                return;
            }
            self.release(reply.held_bytes());
            batch.pop_front();
        }
    }

    fn drop_all(&mut self, batch: &mut VecDeque<Reply>) {
        for reply in batch.drain(..) {
            self.release(reply.held_bytes());
        }
    }

    fn release(&mut self, bytes: u64) {
        self.released.requests += 1;
        self.released.bytes += bytes;
    }
}

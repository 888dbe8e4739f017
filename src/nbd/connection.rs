//! One connection's lane: a thread that receives requests in batches, runs what it can itself,
//! hands the rest to the device's workers, and sends the replies.
//!
//! It holds at most [`limits::CONNECTION_REQUESTS_MAX`] requests and
//! [`limits::CONNECTION_BYTES_MAX`] bytes on the client's behalf, replies that the client has not
//! taken included; over that it reads no more. It waits for request memory only while it holds
//! none, so lanes can't wait for each other.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::check::{Command, check};
use super::export::Export;
use super::handshake::{Outcome, Terms, handshake};
use super::input::Input;
use super::link::{Held, Link};
use super::reply::Reply;
use super::spin::Spin;
use super::wire::{REQUEST_HEADER_BYTES, RequestHeader, command};
use crate::limits;
use crate::queue::{Completions, Device, IoMode, Operation, Request, Ring, Stats};

/// A read at least this long is worth a worker's wake-up, if more requests wait behind it.
const SHARED_READ_BYTES_MIN: u32 = 64 << 10;
/// A write up to this long, of whole pages and without FUA, is run by the lane: the page cache
/// takes it without waiting for a device, sooner than a worker would wake up.
const INLINE_WRITE_BYTES_MAX: u32 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// CPU pauses between two looks at the socket while spinning: about a microsecond.
const SPIN_PAUSES: usize = 20;
/// How often a lane that waits while it holds memory looks whether its client is stalled.
const STALL_CHECK: Duration = Duration::from_secs(1);

/// What all connections of a server share.
#[derive(Debug)]
pub struct Shared {
    /// The device they serve.
    pub device: Arc<Device>,
    /// What they call it.
    pub export: Export,
    /// Lanes that wait for request memory now.
    pub memory_waiters: AtomicUsize,
}

/// Serves one client on this thread until it leaves, breaks the protocol, or is told to go.
pub fn serve(link: &Arc<Link>, shared: &Shared) {
    let timeout = Duration::from_secs(limits::HANDSHAKE_SECONDS_MAX);
    let mut stream = Deadlined {
        link,
        until: Instant::now() + timeout,
    };
    if let Ok(Outcome::Transmission(terms)) = handshake(&mut stream, &shared.export) {
        link.begin(terms);
        Lane::new(link, shared, terms).run();
    }
    let _ = shutdown(link.socket(), Shutdown::Both);
}

struct Lane<'a> {
    link: &'a Arc<Link>,
    shared: &'a Shared,
    terms: Terms,
    input: Input,
    pending: Pending,
    batch: VecDeque<Reply>,
    batch_bytes: usize,
    /// Everything taken on so far; what of it is held is this minus what was released.
    taken: Held,
    released: Held,
    received_bytes: u64,
    moved: (u64, Instant),
    /// When everything received before had been taken on.
    caught_up: Instant,
    /// Taking on a request may have waited for a device.
    waited: bool,
    /// The socket took less than it was offered, and has not become writable since.
    backed_up: bool,
    spin: Spin,
    /// What moves data while this lane does other things; made when it is first needed.
    ring: OnceCell<Option<Ring>>,
    ring_broke: bool,
}

/// What the next bytes of the stream are.
enum Pending {
    Header,
    /// The payload of a write, of which this much is here.
    Payload(Request, usize),
    /// The payload of a refused write, still to come, and the reply that then leaves.
    Refused(u32, Reply),
}

/// Why processing stopped.
enum Step {
    /// More bytes are needed.
    Receive,
    /// Nothing more can be taken on until something is released after this.
    Full(Held),
    /// The client left, or the stream is out of step.
    End,
}

impl<'a> Lane<'a> {
    fn new(link: &'a Arc<Link>, shared: &'a Shared, terms: Terms) -> Self {
        Self {
            link,
            shared,
            terms,
            input: Input::new(),
            pending: Pending::Header,
            batch: VecDeque::new(),
            batch_bytes: 0,
            taken: Held::default(),
            released: Held::default(),
            received_bytes: 0,
            moved: (0, Instant::now()),
            caught_up: Instant::now(),
            waited: false,
            backed_up: false,
            spin: Spin::default(),
            ring: OnceCell::new(),
            ring_broke: false,
        }
    }

    fn run(mut self) {
        while !self.is_given_up() {
            let awake = self.shared.device.awake();
            let step = self.process();
            self.flush();
            drop(awake);
            if self.link.stopping() || self.ring_broke {
                break;
            }
            let goes_on = match step {
                Step::Receive => self.receive_in_time(),
                Step::Full(released) => self.wait(Some(released)),
                Step::End => break,
            };
            if goes_on.is_err() {
                break;
            }
        }
        // A write that was not received whole is not done.
        self.pending = Pending::Header;
        while self.ring_in_flight() > 0 && !self.ring_broke {
            self.run_ring(true);
            (self.released, self.backed_up) = self.link.send(&mut self.batch);
        }
        while !self.link.sleep(true).idle {
            if self.wait(Some(self.released)).is_err() {
                self.link.break_off();
            }
        }
    }

    /// Whether what is here unread is no longer wanted: it had to wait for long, and the client
    /// has hung up. The kernel's nbd driver does so after its time-out, and sends its requests
    /// again on another connection. An old write done now could come after a newer one there.
    fn is_given_up(&self) -> bool {
        let limit = Duration::from_secs(limits::UNREAD_SECONDS_MAX);
        if self.caught_up.elapsed() < limit {
            return false;
        }
        let socket = self.link.socket();
        let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
    }

    fn receive_in_time(&mut self) -> Result<(), Gone> {
        let behind = self.caught_up.elapsed();
        self.receive()?;
        // Looked at after the bytes are here: the client may hang up at any time before.
        if behind.as_secs() >= limits::UNREAD_SECONDS_MAX && self.is_given_up() {
            return Err(Gone);
        }
        self.caught_up = Instant::now();
        Ok(())
    }

    /// Takes on every request that is here, as far as the limits allow.
    fn process(&mut self) -> Step {
        loop {
            if self.batch_bytes >= limits::SEND_BATCH_BYTES {
                self.flush();
            }
            match std::mem::replace(&mut self.pending, Pending::Header) {
                Pending::Header => {
                    if std::mem::take(&mut self.waited) && self.is_given_up() {
                        return Step::End;
                    }
                    let Some(header) = self.input.header() else {
                        return Step::Receive;
                    };
                    let Some(header) = RequestHeader::parse(header) else {
                        return Step::End;
                    };
                    if self.is_full(&header) {
                        return Step::Full(self.released);
                    }
                    match self.begin(&header) {
                        Begun::Yes => self.input.consume(REQUEST_HEADER_BYTES),
                        Begun::NoMemory => return Step::Full(self.released),
                        Begun::Left => return Step::End,
                    }
                }
                Pending::Payload(mut request, mut filled) => {
                    let rest = request.payload_mut().get_mut(filled..).unwrap_or_default();
                    let copied = self.input.copy_to(rest);
                    Stats::add(&self.shared.device.stats().copied_bytes, copied as u64);
                    filled += copied;
                    if filled < request.payload().len() {
                        self.pending = Pending::Payload(request, filled);
                        return Step::Receive;
                    }
                    self.dispatch(request);
                }
                Pending::Refused(rest, reply) => {
                    let here = u32::try_from(self.input.len())
                        .unwrap_or(u32::MAX)
                        .min(rest);
                    self.input.consume(here as usize);
                    if here < rest {
                        self.pending = Pending::Refused(rest - here, reply);
                        return Step::Receive;
                    }
                    self.reply(reply);
                }
            }
        }
    }

    /// Whether one more request would go over the client's share. One request always fits.
    fn is_full(&self, next: &RequestHeader) -> bool {
        let held = self.held();
        let bytes = held.bytes.saturating_add(u64::from(next.len_bytes));
        held.requests >= limits::CONNECTION_REQUESTS_MAX as u64
            || (self.backed_up && held.bytes >= limits::SEND_AHEAD_BYTES)
            || (held.bytes > 0 && bytes > limits::CONNECTION_BYTES_MAX)
    }

    fn held(&self) -> Held {
        Held {
            requests: self.taken.requests - self.released.requests,
            bytes: self.taken.bytes - self.released.bytes,
        }
    }

    /// Takes on one request.
    fn begin(&mut self, header: &RequestHeader) -> Begun {
        let cookie = header.cookie;
        let payload_bytes = if header.command == command::WRITE {
            header.len_bytes
        } else {
            0
        };
        match check(header, &self.shared.export, self.terms) {
            Ok(Command::Disconnect) => return Begun::Left,
            Ok(Command::Device(operation)) => {
                let Some(request) = self.prepare(operation, header) else {
                    return Begun::NoMemory;
                };
                self.taken.bytes += request.payload().len() as u64;
                match operation {
                    Operation::Write { .. } => self.pending = Pending::Payload(request, 0),
                    _ => self.dispatch(request),
                }
            }
            Ok(Command::BlockStatus { one }) => {
                let reply = self.block_status(header, one);
                self.reply(reply);
            }
            Ok(Command::Nothing) => {
                self.reply(Reply::nothing(
                    cookie,
                    header.command == command::READ,
                    self.terms,
                ));
            }
            Err(refusal) => {
                let reply = Reply::refused(cookie, refusal, self.terms);
                match payload_bytes {
                    0 => self.reply(reply),
                    _ => self.pending = Pending::Refused(payload_bytes, reply),
                }
            }
        }
        self.taken.requests += 1;
        // Payload that is read past goes through the receive buffer, as much at a time as fits.
        let refused = matches!(self.pending, Pending::Refused(..));
        self.input
            .expect_like(if refused { 0 } else { payload_bytes });
        Begun::Yes
    }

    /// The request with its memory, or `None` where that would wait while this lane holds some.
    fn prepare(&self, operation: Operation, header: &RequestHeader) -> Option<Request> {
        let device = &self.shared.device;
        let (offset_bytes, len_bytes) = (header.offset_bytes, header.len_bytes);
        let cookie = header.cookie;
        device
            .try_prepare(operation, offset_bytes, len_bytes, cookie)
            .or_else(|| {
                if self.held() != Held::default() {
                    return None;
                }
                let waiters = &self.shared.memory_waiters;
                waiters.fetch_add(1, Ordering::Relaxed);
                let request = device.prepare(operation, offset_bytes, len_bytes, cookie);
                waiters.fetch_sub(1, Ordering::Relaxed);
                // Given up meanwhile: the loop ends it.
                (!self.is_given_up()).then_some(request)
            })
    }

    /// Runs a request here where that needs no waiting and a worker has nothing to win, else hands
    /// it to a worker.
    fn dispatch(&mut self, request: Request) {
        let Some(mut request) = self.share(request) else {
            return;
        };
        let device = &self.shared.device;
        let result = match request.operation {
            _ if device.io() == IoMode::Uring => None,
            Operation::Read => device.run_without_waiting(&mut request),
            Operation::Write { fua: false } if is_inline_write(&request) => {
                self.waited = true;
                Some(device.run(&mut request))
            }
            _ => None,
        };
        match result {
            Some(result) => self.reply(Reply::to_request(request, result, self.terms)),
            None => self.hand_over(request),
        }
    }

    /// Leaves a request that may have to wait for a device to the ring, or else to the workers.
    fn hand_over(&mut self, mut request: Request) {
        let device = &self.shared.device;
        let by_ring = match device.io() {
            IoMode::Plain => false,
            IoMode::Uring => true,
            // The encryption of a large write is worth a worker.
            IoMode::Auto => {
                request.operation == Operation::Read || request.len_bytes <= INLINE_WRITE_BYTES_MAX
            }
        };
        if by_ring {
            self.ring.get_or_init(|| Ring::new(device));
            if let Some(Some(ring)) = self.ring.get_mut() {
                match ring.start(request) {
                    None => return,
                    Some(back) => request = back,
                }
            }
        }
        device.submit(request, self.submitting());
    }

    fn ring_in_flight(&self) -> usize {
        let ring = self.ring.get().and_then(Option::as_ref);
        ring.map_or(0, Ring::in_flight)
    }

    /// Submits what was left to the ring, and replies to what it has done.
    fn run_ring(&mut self, wait: bool) {
        let Some(Some(ring)) = self.ring.get_mut() else {
            return;
        };
        if ring.in_flight() == 0 {
            return;
        }
        let (terms, batch, batch_bytes) = (self.terms, &mut self.batch, &mut self.batch_bytes);
        let ran = ring.run(wait, |request, result| {
            let reply = Reply::to_request(request, result, terms);
            *batch_bytes += reply.unsent_bytes();
            batch.push_back(reply);
        });
        if ran.is_err() {
            self.ring_broke = true;
            self.link.break_off();
        }
    }

    /// Gives a large read to a worker if a core is free for it and this lane has more to do;
    /// gives it back if not.
    fn share(&self, request: Request) -> Option<Request> {
        let is_large = request.len_bytes >= SHARED_READ_BYTES_MIN;
        if !is_large || request.operation != Operation::Read || self.input.header().is_none() {
            return Some(request);
        }
        self.shared.device.share(request, || self.submitting())
    }

    /// Counts a request that is about to be submitted; where it ends.
    fn submitting(&self) -> Arc<dyn Completions> {
        self.link.submitting();
        Arc::clone(self.link) as Arc<dyn Completions>
    }

    fn block_status(&self, header: &RequestHeader, one: bool) -> Reply {
        let count_max = if one { 1 } else { limits::EXTENTS_MAX };
        let len_bytes = u64::from(header.len_bytes);
        let extents = self
            .shared
            .device
            .extents(header.offset_bytes, len_bytes, count_max);
        match extents {
            Ok(extents) => Reply::extents(header.cookie, header.offset_bytes, &extents),
            Err(e) => Reply::failed(header.cookie, &e, header.offset_bytes),
        }
    }

    fn reply(&mut self, reply: Reply) {
        self.batch_bytes += reply.unsent_bytes();
        self.batch.push_back(reply);
    }

    fn flush(&mut self) {
        self.run_ring(false);
        self.link.note_requests(self.taken.requests);
        (self.released, self.backed_up) = self.link.send(&mut self.batch);
        self.batch_bytes = 0;
    }

    /// Receives, or waits until that may be tried. `Err` ends the connection.
    fn receive(&mut self) -> Result<(), Gone> {
        // Holding nothing, nobody but the client (and `Link::stop`, which ends the receive) has
        // anything to say to this lane: the receive itself may wait.
        let idle = self.held() == Held::default();
        if !idle && self.input.drained {
            self.input.drained = false;
            return self.wait(None);
        }
        if !idle {
            return match self.receive_some(RecvFlags::DONTWAIT)? {
                true => Ok(()),
                false => self.wait(None),
            };
        }
        if let Some(budget) = self.spin.budget() {
            let awake = self.shared.device.awake();
            let begun = Instant::now();
            while awake.has_a_core() && begun.elapsed() < budget {
                if self.receive_some(RecvFlags::DONTWAIT)? {
                    self.spin.turned(Instant::now());
                    return Ok(());
                }
                (0..SPIN_PAUSES).for_each(|_| std::hint::spin_loop());
            }
        }
        self.receive_some(RecvFlags::empty())?;
        self.spin.turned(Instant::now());
        Ok(())
    }

    /// Receives once. `false` if there was nothing and the flags forbid to wait for it.
    fn receive_some(&mut self, flags: RecvFlags) -> Result<bool, Gone> {
        let payload = match &mut self.pending {
            Pending::Payload(request, filled) => {
                request.payload_mut().get_mut(*filled..).unwrap_or_default()
            }
            Pending::Header | Pending::Refused(..) => &mut [],
        };
        match self.input.receive(self.link.socket(), payload, flags) {
            Ok(received) if received.total_bytes == 0 => Err(Gone),
            Ok(received) => {
                self.received_bytes += received.total_bytes as u64;
                if let Pending::Payload(_, filled) = &mut self.pending {
                    *filled += received.payload_bytes;
                }
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(_) => {
                self.link.break_off();
                Err(Gone)
            }
        }
    }

    /// Sleeps until there is something to do: bytes to receive, or, where that is given, something
    /// released since. Sends what was left to the lane. `Err` ends the connection.
    fn wait(&mut self, progress_since: Option<Held>) -> Result<(), Gone> {
        let sleep = self.link.sleep(progress_since.is_some());
        self.released = sleep.released;
        self.backed_up = sleep.wants_writable;
        if progress_since.is_some_and(|since| since != sleep.released) {
            return Ok(());
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, progress_since.is_none());
        wanted.set(PollFlags::OUT, sleep.wants_writable);
        let ring = self.ring.get().and_then(Option::as_ref);
        let ring_fd = ring.map_or(self.link.wake_fd(), Ring::fd);
        let mut fds = [
            PollFd::from_borrowed_fd(self.link.wake_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(ring_fd, PollFlags::IN),
            PollFd::from_borrowed_fd(self.link.socket(), wanted),
        ];
        // A socket whose client is gone is always ready; with nothing wanted of it, it is left out.
        let count = if sleep.broken && wanted.is_empty() {
            2
        } else {
            3
        };
        let timeout = Timespec::try_from(STALL_CHECK).ok();
        let ready = match poll(fds.get_mut(..count).unwrap_or_default(), timeout.as_ref()) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(_) => return Err(Gone),
        };
        let [wake, _, socket] = fds.map(|fd| fd.revents());
        if ready == 0 {
            let moved = sleep.sent_bytes + self.received_bytes;
            let client_is_due =
                sleep.wants_writable || matches!(self.pending, Pending::Payload(..));
            return self.check_stall(moved, client_is_due);
        }
        if wake.contains(PollFlags::IN) {
            self.link.take_wakes();
        }
        if socket.contains(PollFlags::OUT) {
            self.link.resume();
        }
        if progress_since.is_some() && socket.intersects(PollFlags::HUP | PollFlags::ERR) {
            self.link.break_off();
        }
        Ok(())
    }

    /// Cuts off a client that keeps others from memory and moves no byte.
    fn check_stall(&mut self, moved_bytes: u64, client_is_due: bool) -> Result<(), Gone> {
        let (before, since) = self.moved;
        if moved_bytes != before || !client_is_due {
            self.moved = (moved_bytes, Instant::now());
            return Ok(());
        }
        let stalled = since.elapsed() >= Duration::from_secs(limits::STALL_SECONDS_MAX);
        if stalled && self.shared.memory_waiters.load(Ordering::Relaxed) > 0 {
            self.link.break_off();
            return Err(Gone);
        }
        Ok(())
    }
}

/// The client, or the connection to it, is no more.
struct Gone;

/// Whether a request was taken on.
enum Begun {
    Yes,
    NoMemory,
    Left,
}

fn is_inline_write(request: &Request) -> bool {
    request.len_bytes <= INLINE_WRITE_BYTES_MAX
        && request.offset_bytes.is_multiple_of(PAGE_BYTES)
        && u64::from(request.len_bytes).is_multiple_of(PAGE_BYTES)
}

/// The socket during the handshake: every read and write ends by the deadline, or when the
/// connection is told to stop.
struct Deadlined<'a> {
    link: &'a Link,
    until: Instant,
}

impl Deadlined<'_> {
    fn wait_for(&self, wanted: PollFlags) -> io::Result<()> {
        loop {
            let rest = self.until.saturating_duration_since(Instant::now());
            if rest.is_zero() || self.link.stopping() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.link.socket(), wanted),
                PollFd::from_borrowed_fd(self.link.wake_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, Timespec::try_from(rest).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let [socket, _] = fds;
            if !socket.revents().is_empty() {
                return Ok(());
            }
        }
    }
}

impl Read for Deadlined<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait_for(PollFlags::IN)?;
            match recv(self.link.socket(), &mut *buf, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Write for Deadlined<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            self.wait_for(PollFlags::OUT)?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.link.socket(), buf, flags) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::DeviceOptions;
    use crate::storage::MemoryStorage;
    use crate::units::SectorSize;
    use crate::volume::{Segment, SegmentKind, Volume, VolumeAbout};
    use std::os::unix::net::UnixStream;

    fn shared() -> Shared {
        let segment = Segment {
            start_bytes: 0,
            len_bytes: 4096,
            storage_offset_bytes: 0,
            kind: SegmentKind::Linear,
        };
        let volume = Volume {
            segments: vec![segment],
            size_bytes: 4096,
            sector_size: SectorSize::MIN,
            about: VolumeAbout::default(),
        };
        let storage = Arc::new(MemoryStorage::new(vec![0; 4096]));
        let device = Device::new(volume, storage, DeviceOptions::default());
        Shared {
            export: Export::new(&device, ""),
            device,
            memory_waiters: AtomicUsize::new(0),
        }
    }

    #[test]
    fn a_stalled_client_is_cut_off_only_for_the_sake_of_others() {
        let shared = shared();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let link = Link::new(ours.into()).unwrap();
        let mut lane = Lane::new(&link, &shared, Terms::default());
        let long_ago = Instant::now() - Duration::from_secs(limits::STALL_SECONDS_MAX + 1);
        let mut outcome = |moved_before, moved_now, client_is_due, waiters| {
            shared.memory_waiters.store(waiters, Ordering::Relaxed);
            lane.moved = (moved_before, long_ago);
            lane.check_stall(moved_now, client_is_due).is_err()
        };
        assert!(!outcome(5, 5, true, 0), "nobody waits");
        assert!(!outcome(5, 6, true, 1), "it moved a byte");
        assert!(!outcome(5, 5, false, 1), "it is not the client's turn");
        assert!(outcome(5, 5, true, 1));
        assert!(link.sleep(false).broken);
    }
}

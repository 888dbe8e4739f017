//! Reads and writes through an io_uring: one lane's own ring, so that a batch of requests costs
//! one system call, and a disk is as deep as the client asks without a thread for each request.
//!
//! The lane starts requests, and submits and reaps them between receiving and sending. A request
//! that the ring can't take (it reads around partial sectors, spans segments, or overlaps one that
//! is under way) is given back, and goes to the device's workers.
//! Source: io_uring(7), io_uring_enter(2), io_uring_register(2).
#![allow(unsafe_code)] // Submissions name memory that the kernel reads and writes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, types};

use super::device::Device;
use super::order::EntryId;
use super::{Operation, Request};
use crate::limits;

/// Requests under way in one ring: as many as a connection may have.
const ENTRIES: u32 = limits::CONNECTION_REQUESTS_MAX as u32;
/// Kernel threads for what a file system can't do asynchronously; as deep as our own workers.
const KERNEL_WORKERS_MAX: u32 = 64;
/// Times that one request is submitted again because the kernel asks for it.
const RETRIES_MAX: u32 = 16;

/// One lane's ring.
pub struct Ring {
    ring: IoUring,
    device: Arc<Device>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

/// A request under way. Its buffer is a mapping of its own that doesn't move.
struct Slot {
    request: Request,
    entry: Option<EntryId>,
    /// Where the request's whole sectors begin in the file.
    file_offset_bytes: u64,
    done_bytes: usize,
    retries: u32,
}

impl Ring {
    /// A ring for requests to `device`; `None` where the kernel gives none.
    pub fn new(device: &Arc<Device>) -> Option<Self> {
        // Completions are taken by the lane when it enters the kernel anyway; older kernels don't
        // know the flag.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(ENTRIES)
            .or_else(|_| IoUring::new(ENTRIES))
            .ok()?;
        let mut workers = [KERNEL_WORKERS_MAX, KERNEL_WORKERS_MAX];
        // Kernels before 5.15 choose by themselves.
        let _ = ring.submitter().register_iowq_max_workers(&mut workers);
        Some(Self {
            ring,
            device: Arc::clone(device),
            slots: (0..ENTRIES).map(|_| None).collect(),
            free: (0..ENTRIES as usize).rev().collect(),
        })
    }

    /// Takes a request on, to be submitted by [`Self::run`]; gives back what the ring can't do.
    pub fn start(&mut self, mut request: Request) -> Option<Request> {
        let Some(&index) = self.free.last() else {
            return Some(request);
        };
        let Some((file_offset_bytes, entry)) = self.device.begin_in_ring(&mut request) else {
            return Some(request);
        };
        self.free.pop();
        self.slots[index] = Some(Slot {
            request,
            entry,
            file_offset_bytes,
            done_bytes: 0,
            retries: 0,
        });
        self.push(index);
        None
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Becomes readable when a request has ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, and lives as long as it, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Submits what was started, waits for one to end if `wait` says so, and hands out those that
    /// have ended.
    pub fn run(
        &mut self,
        wait: bool,
        mut ended: impl FnMut(Request, io::Result<()>),
    ) -> io::Result<()> {
        loop {
            let want = usize::from(wait && self.in_flight() > 0);
            match self.ring.submit_and_wait(want) {
                Ok(_) => {}
                // The completion queue is to be emptied first.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            let mut again = false;
            while let Some(completion) = self.next_completion() {
                let (index, result) = (completion.user_data() as usize, completion.result());
                match self.complete(index, result) {
                    Some((request, result)) => ended(request, result),
                    None => again = true,
                }
            }
            if !again {
                return Ok(());
            }
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Notes what became of a slot's submission; `None` if there is more of it to do.
    fn complete(&mut self, index: usize, result: i32) -> Option<(Request, io::Result<()>)> {
        let slot = self.slots[index].as_mut().expect("a slot under way");
        let reads = slot.request.operation == Operation::Read;
        let len_bytes = slot.request.buffer.as_deref().map_or(0, <[u8]>::len);
        let retries_left = slot.retries < RETRIES_MAX;
        let result = match result {
            0 if reads => Err(io::ErrorKind::UnexpectedEof.into()),
            0 => Err(io::ErrorKind::WriteZero.into()),
            done @ 1.. => {
                slot.done_bytes += done as usize;
                if slot.done_bytes < len_bytes {
                    self.push(index);
                    return None;
                }
                Ok(())
            }
            error if matches!(-error, libc::EINTR | libc::EAGAIN) && retries_left => {
                slot.retries += 1;
                self.push(index);
                return None;
            }
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        let mut slot = self.slots[index].take().expect("a slot under way");
        self.free.push(index);
        let result = self
            .device
            .end_in_ring(&mut slot.request, slot.entry, result);
        Some((slot.request, result))
    }

    /// Puts what is left of a slot's request into the submission queue, which has an entry for
    /// each slot.
    fn push(&mut self, index: usize) {
        let slot = self.slots[index].as_mut().expect("a slot under way");
        let buffer = slot.request.buffer.as_deref_mut().expect("data to move");
        let rest = &mut buffer[slot.done_bytes..];
        let len = rest.len() as u32;
        let offset = slot.file_offset_bytes + slot.done_bytes as u64;
        let file = types::Fd(self.device.ring_file().expect("a file below").as_raw_fd());
        let entry = match slot.request.operation {
            Operation::Write { .. } => opcode::Write::new(file, rest.as_ptr(), len)
                .offset(offset)
                .build(),
            _ => opcode::Read::new(file, rest.as_mut_ptr(), len)
                .offset(offset)
                .build(),
        }
        .user_data(index as u64);
        // SAFETY: the buffer's mapping stays where it is, and the slot keeps it (and nobody else
        // touches it) until the kernel has completed the entry; `drop` waits for that. The file is
        // the device's, which this ring holds.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("an entry for each slot");
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to the buffers.
        while self.in_flight() > 0 {
            if self.run(true, |_, _| {}).is_err() {
                // Nothing else is sound: what can't be waited for keeps its memory.
                self.slots.drain(..).for_each(std::mem::forget);
                return;
            }
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} in flight)", self.in_flight())
    }
}

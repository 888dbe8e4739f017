//! The workers: threads that run requests which may wait for a device.
//!
//! They are many more than cores, because most of them sleep in the kernel: storage is then as
//! deep as the client asks.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::limits;

/// Most workers of one pool: the deepest queue that plain reads and writes keep on a disk.
pub(super) const WORKERS_MAX: usize = 64;

/// A queue of jobs and the threads that run them, started as they are needed.
pub(super) struct Pool<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    pushed: Condvar,
    work: fn(T),
}

struct State<T> {
    jobs: VecDeque<T>,
    idle: usize,
    workers: usize,
    closed: bool,
}

impl<T: Send + 'static> Pool<T> {
    /// A pool that runs each job by `work`.
    pub(super) fn new(work: fn(T)) -> Self {
        let state = State {
            jobs: VecDeque::new(),
            idle: 0,
            workers: 0,
            closed: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            pushed: Condvar::new(),
            work,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Queues a job; workers take jobs in the order of pushing.
    pub(super) fn push(&self, job: T) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle || state.workers == WORKERS_MAX {
            drop(state);
            self.shared.pushed.notify_one();
            return;
        }
        state.workers += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new()
            .name("luks-worker".into())
            .stack_size(limits::STACK_BYTES)
            .spawn(move || shared.run());
        if started.is_err() {
            // No more threads to be had: the others take it; where there are none, it runs here.
            let mut state = self.shared.lock();
            state.workers -= 1;
            let job = if state.workers == 0 {
                state.jobs.pop_front()
            } else {
                None
            };
            drop(state);
            if let Some(job) = job {
                (self.shared.work)(job);
            }
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                (self.work)(job);
                state = self.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.pushed.wait(state).unwrap_or_else(|e| e.into_inner());
                state.idle -= 1;
            }
        }
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.pushed.notify_all();
    }
}

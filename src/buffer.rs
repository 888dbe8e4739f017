//! Request buffers: page-aligned, pooled, bounded.
#![allow(unsafe_code)] // The page mapping below; nothing else.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Condvar, Mutex};

use rustix::mm;

use crate::limits;

/// Smallest buffer handed out, in bytes: a page.
const CLASS_BYTES_MIN: usize = 4096;
/// Size classes: 4 KiB times powers of two, up to 64 MiB.
const CLASSES: usize = 15;
/// Free buffers kept for the next request, in bytes over all classes; more are given back to the
/// system at once.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A pool of request buffers with a bound on the bytes that are out at a time.
#[derive(Debug)]
pub struct BufferPool {
    state: Mutex<PoolState>,
    returned: Condvar,
    limit_bytes: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    free: [Vec<Pages>; CLASSES],
    kept_bytes: usize,
    out_bytes: usize,
    /// Threads that wait for the limit: a wake-up is a system call, and nearly always for nobody.
    waiting: usize,
}

/// A page-aligned buffer of a pool; goes back to it when dropped.
#[derive(Debug)]
pub struct Buffer {
    pages: Option<Pages>,
    len_bytes: usize,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// A pool that lets at most `limit_bytes` be out at a time.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            returned: Condvar::new(),
            limit_bytes,
        })
    }

    /// A buffer of `len_bytes`, contents unspecified. Waits while the limit is reached, but for
    /// buffers up to `limits::BUFFER_BYTES_ALWAYS`: callers hold no other, and so are bounded in
    /// number. One buffer is always allowed, so that a request over the limit is served alone.
    ///
    /// # Panics
    /// Over 64 MiB; requests are checked against `limits::REQUEST_BYTES_MAX` first.
    pub fn take(self: &Arc<Self>, len_bytes: usize) -> Buffer {
        let class = class_of(len_bytes);
        let mut state = self.lock();
        // A sector more on either side, for requests off the sector grid.
        let always = len_bytes <= limits::BUFFER_BYTES_ALWAYS + 2 * 4096;
        let full = |out_bytes| out_bytes > 0 && out_bytes + class_bytes(class) > self.limit_bytes;
        while !always && full(state.out_bytes) {
            state.waiting += 1;
            state = self.returned.wait(state).unwrap_or_else(|e| e.into_inner());
            state.waiting -= 1;
        }
        self.hand_out(state, class, len_bytes)
    }

    /// As [`Self::take`], but `None` where it would wait.
    pub fn try_take(self: &Arc<Self>, len_bytes: usize) -> Option<Buffer> {
        let class = class_of(len_bytes);
        let state = self.lock();
        let full = state.out_bytes > 0 && state.out_bytes + class_bytes(class) > self.limit_bytes;
        (!full).then(|| self.hand_out(state, class, len_bytes))
    }

    /// Bytes in buffers that are out now.
    pub fn out_bytes(&self) -> usize {
        self.lock().out_bytes
    }

    fn hand_out(
        self: &Arc<Self>,
        mut state: std::sync::MutexGuard<'_, PoolState>,
        class: usize,
        len_bytes: usize,
    ) -> Buffer {
        state.out_bytes += class_bytes(class);
        let kept = state.free[class].pop();
        if kept.is_some() {
            state.kept_bytes -= class_bytes(class);
        }
        drop(state);
        let pages = kept.unwrap_or_else(|| Pages::map(class_bytes(class)));
        Buffer {
            pages: Some(pages),
            len_bytes,
            pool: Arc::clone(self),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        // No code panics while it holds this lock; a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn class_of(len_bytes: usize) -> usize {
    let bytes = len_bytes.max(CLASS_BYTES_MIN).next_power_of_two();
    let class = (bytes / CLASS_BYTES_MIN).trailing_zeros() as usize;
    assert!(
        class < CLASSES,
        "a request buffer of {len_bytes} bytes is over the largest class"
    );
    class
}

fn class_bytes(class: usize) -> usize {
    CLASS_BYTES_MIN << class
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let pages = self.pages.as_ref().expect("present until drop");
        // SAFETY: the mapping is at least `len_bytes` long, zero-filled by the kernel, and ours.
        unsafe { slice::from_raw_parts(pages.start.as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let pages = self.pages.as_ref().expect("present until drop");
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(pages.start.as_ptr(), self.len_bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let pages = self.pages.take().expect("present until drop");
        let bytes = pages.bytes;
        let mut state = self.pool.lock();
        state.out_bytes -= bytes;
        if state.kept_bytes + bytes <= KEPT_BYTES_MAX {
            state.kept_bytes += bytes;
            state.free[class_of(bytes)].push(pages);
        }
        let somebody_waits = state.waiting > 0;
        drop(state);
        if somebody_waits {
            self.pool.returned.notify_all();
        }
    }
}

/// An anonymous mapping; plaintext passes through it, so it stays out of core dumps.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned alone and is plain memory.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(bytes: usize) -> Self {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE,
            )
        }
        .expect("memory for a request buffer of bounded size");
        // SAFETY: the range is exactly the mapping just made.
        unsafe {
            let _ = mm::madvise(start, bytes, mm::Advice::LinuxDontDump);
        }
        Self {
            start: NonNull::new(start.cast()).expect("mmap never returns null"),
            bytes,
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and is used no more.
        unsafe {
            let _ = mm::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = BufferPool::new(64 << 10);
        let a = pool.take(5000);
        assert_eq!((a.as_ptr() as usize % 4096, a.len()), (0, 5000));
        assert_eq!(pool.out_bytes(), 8192);
        drop(a);
        assert_eq!(pool.out_bytes(), 0);
    }

    #[test]
    fn the_limit_holds_but_one_large_buffer_is_served() {
        let pool = BufferPool::new(8192);
        let large = pool.take(1 << 20);
        assert!(pool.try_take(1).is_none());
        // Who holds none is never kept waiting for a small one.
        drop(pool.take(1 << 20));
        drop(large);
        assert!(pool.try_take(1).is_some());
    }
}

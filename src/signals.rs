//! SIGTERM and SIGINT, turned into a write to an eventfd.
//!
//! A handler, not a blocked mask with a signalfd: it works whichever threads were started before,
//! and children start with the default again.
#![allow(unsafe_code)] // sigaction and the handler; nothing else.

use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The eventfd the handler writes to; it stays open for good.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// From now on, SIGTERM and SIGINT write 1 to `event` (an eventfd) and do nothing else, even where
/// they were ignored before.
///
/// Errors: the system's, when no descriptor can be had.
pub fn write_on_termination(event: BorrowedFd<'_>) -> io::Result<()> {
    let event = rustix::io::fcntl_dupfd_cloexec(event, 3)?;
    // The one before, if any, leaks: a handler may be about to use it.
    EVENT.store(event.into_raw_fd(), Ordering::SeqCst);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: all-zero is a valid sigaction: no flags, an empty mask, to be filled in below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: `action` is a valid sigaction whose handler is async-signal-safe (see there).
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Async-signal-safe: one atomic load and one `write`, with `errno` left as it was.
extern "C" fn on_signal(_signal: libc::c_int) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `write` is async-signal-safe, the buffer is 8 bytes of this frame, and the descriptor
    // was stored before the handler was installed and is never closed. errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(EVENT.load(Ordering::SeqCst), one.as_ptr().cast(), one.len());
        *errno = before;
    }
}

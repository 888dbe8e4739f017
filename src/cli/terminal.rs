//! Asking for a passphrase on the terminal, without echo, straight into a [`Secret`].
//!
//! The terminal is read a byte at a time outside line mode, so that no line buffer of the kernel's
//! or ours keeps a copy, and the keys that would raise signals arrive as bytes. Signals from
//! elsewhere are held back and looked at between bytes: whatever ends the prompt, the terminal is
//! put back first.
#![allow(unsafe_code)] // Signal masks and raising a signal; rustix has no safe call for either.

use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::error::{Error, Result};
use crate::limits::PASSPHRASE_BYTES_MAX;
use crate::secret::Secret;

/// Signals that end or stop a program that waits at a prompt.
const HELD_BACK: [i32; 5] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
];

/// Whether standard input is a terminal, so that a person can be asked.
pub(crate) fn is_interactive() -> bool {
    rustix::termios::isatty(io::stdin())
}

/// Asks for the passphrase of `image`; `None` is an end of input with nothing typed.
///
/// Errors: `Device` where the terminal can't be read; `Usage` where the passphrase is longer than
/// `PASSPHRASE_BYTES_MAX`. Signals that come meanwhile take their usual effect, with the terminal
/// put back.
pub(crate) fn ask_passphrase(image: &Path) -> Result<Option<Secret>> {
    let failed = |e: io::Error| Error::device("can't ask on the terminal").caused_by(e);
    let tty = File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .map_err(failed)?;
    loop {
        let prompt = format!("Enter passphrase for {}: ", image.display());
        let end = {
            let signals = HeldSignals::new().map_err(failed)?;
            let quiet = QuietTerminal::new(&tty).map_err(failed)?;
            (&tty).write_all(prompt.as_bytes()).map_err(failed)?;
            let end = read_line(&tty, &quiet, &signals).map_err(failed)?;
            (&tty).write_all(b"\n").map_err(failed)?;
            end
            // The terminal is put back here, then signals act again.
        };
        match end {
            LineEnd::Entered(passphrase) => return Ok(Some(passphrase)),
            LineEnd::Nothing => return Ok(None),
            LineEnd::TooLong => {
                return Err(Error::usage(format!(
                    "the passphrase is longer than {PASSPHRASE_BYTES_MAX} bytes"
                )));
            }
            // Fatal ones end the process here; after a stop and continue, ask again.
            LineEnd::Signal(signal) => raise(signal),
        }
    }
}

enum LineEnd {
    Entered(Secret),
    Nothing,
    TooLong,
    Signal(i32),
}

fn read_line(tty: &File, quiet: &QuietTerminal<'_>, signals: &HeldSignals) -> io::Result<LineEnd> {
    let mut line = Secret::zeroed(PASSPHRASE_BYTES_MAX);
    let mut byte = Secret::zeroed(1);
    let mut len = 0;
    let mut too_long = false;
    loop {
        if let Some(signal) = wait_for_input(tty, signals)? {
            return Ok(LineEnd::Signal(signal));
        }
        let count = match rustix::io::read(tty, &mut *byte) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(e) => return Err(e.into()),
        };
        let key = if count == 0 {
            quiet.code(SpecialCodeIndex::VEOF)
        } else {
            byte[0]
        };
        if count > 0 && (key == b'\n' || key == b'\r') {
            return Ok(match too_long {
                true => LineEnd::TooLong,
                false => LineEnd::Entered(Secret::copy_of(&line[..len])),
            });
        }
        // A code of 0 is a function that is switched off.
        let is = |index| key == quiet.code(index) && key != 0;
        if is(SpecialCodeIndex::VINTR) {
            return Ok(LineEnd::Signal(libc::SIGINT));
        } else if is(SpecialCodeIndex::VQUIT) {
            return Ok(LineEnd::Signal(libc::SIGQUIT));
        } else if is(SpecialCodeIndex::VSUSP) {
            return Ok(LineEnd::Signal(libc::SIGTSTP));
        } else if count == 0 || is(SpecialCodeIndex::VEOF) {
            return Ok(match len {
                0 => LineEnd::Nothing,
                _ => LineEnd::Entered(Secret::copy_of(&line[..len])),
            });
        } else if is(SpecialCodeIndex::VERASE) || key == 0x08 {
            // One character: its first byte and the UTF-8 continuation bytes after it.
            while len > 0 {
                len -= 1;
                if line[len] & 0xc0 != 0x80 {
                    break;
                }
            }
        } else if is(SpecialCodeIndex::VKILL) {
            len = 0;
            too_long = false;
        } else if len == PASSPHRASE_BYTES_MAX {
            too_long = true;
        } else {
            line[len] = key;
            len += 1;
        }
    }
}

/// Waits until the terminal can be read; a signal that came first is returned.
fn wait_for_input(tty: &File, signals: &HeldSignals) -> io::Result<Option<i32>> {
    loop {
        let mut fds = [
            PollFd::new(&signals.pending, PollFlags::IN),
            PollFd::new(tty, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        if fds[0].revents().contains(PollFlags::IN) {
            let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
            if rustix::io::read(&signals.pending, &mut info)? == info.len() {
                // The signal's number is the first field, 32 bits in the machine's order.
                let number = info.first_chunk().copied().map(u32::from_ne_bytes);
                return Ok(number.and_then(|n| i32::try_from(n).ok()));
            }
        }
        if !fds[1].revents().is_empty() {
            return Ok(None);
        }
    }
}

/// A terminal without echo, line mode and signal keys, put back when dropped.
struct QuietTerminal<'a> {
    tty: &'a File,
    before: Termios,
}

impl<'a> QuietTerminal<'a> {
    fn new(tty: &'a File) -> io::Result<Self> {
        let before = tcgetattr(tty)?;
        let mut quiet = before.clone();
        quiet.local_modes &= !(LocalModes::ECHO
            | LocalModes::ECHONL
            | LocalModes::ICANON
            | LocalModes::ISIG
            | LocalModes::IEXTEN);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        // What was typed ahead stays: scripts on a pty type before they are asked.
        tcsetattr(tty, OptionalActions::Now, &quiet)?;
        Ok(Self { tty, before })
    }

    /// The byte of a key with a function, as the person has it set.
    fn code(&self, index: SpecialCodeIndex) -> u8 {
        self.before.special_codes[index]
    }
}

impl Drop for QuietTerminal<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.tty, OptionalActions::Now, &self.before);
    }
}

/// Signals held back from this thread and readable from a descriptor, until dropped.
struct HeldSignals {
    pending: OwnedFd,
    before: libc::sigset_t,
}

impl HeldSignals {
    fn new() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid for writing; sigemptyset initialises the first before it is
        // read, pthread_sigmask the second; the descriptor is checked before it is owned.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in HELD_BACK {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let pending = OwnedFd::from_raw_fd(fd);
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self {
                    pending,
                    before: before.assume_init(),
                }),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut());
        }
    }
}

/// Gives the signal its usual effect on this process.
fn raise(signal: i32) {
    // SAFETY: raising a signal has no memory effects of ours.
    unsafe {
        libc::raise(signal);
    }
}

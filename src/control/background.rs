//! A process that does its work in the foreground until it is ready, and goes on in the background.
//!
//! It is forked off at once, while this process has a single thread and no secret: what comes
//! after (asking for the passphrase, keys, threads) happens in the process that stays. The caller
//! waits for its word.
#![allow(unsafe_code)] // fork, and closing file descriptors that nothing here owns.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, waitpid};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// How often the caller looks whether the other process was stopped from the terminal.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// Largest word of the other process, in bytes.
const WORD_BYTES_MAX: u64 = 64 << 10;

/// What the process says once it is ready.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// For stdout.
    pub line: String,
    /// For stderr, a line each.
    pub notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum Word {
    Ready(Ready),
    Failed { exit_code: u8, text: String },
}

/// Runs `start` in a new process, with the caller's terminal and streams. Once it succeeds, that
/// process leaves them all (stderr becomes the file `log`), this returns what it said, and the
/// process goes on with `stay`, which is told whether anybody was there to hear.
///
/// Errors: those of `start`; `Device` where the process can't be made or died. Where it died of a
/// signal, so does this process.
pub fn in_background<T>(
    log: &Path,
    start: impl FnOnce() -> Result<(Ready, T)>,
    stay: impl FnOnce(T, bool),
) -> Result<Ready> {
    let failed =
        |e: io::Error| Error::device("can't start a process in the background").caused_by(e);
    let inherited = inherited_descriptors();
    let (word_in, word_out) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    io::stdout()
        .flush()
        .and_then(|()| single_thread())
        .map_err(failed)?;
    let parent = getpid();
    // SAFETY: there is no other thread whose locks the child could find held.
    match unsafe { libc::fork() } {
        -1 => Err(failed(io::Error::last_os_error())),
        0 => {
            drop(word_in);
            let code = run_child(parent, log, word_out, &inherited, start, stay);
            std::process::exit(code.into())
        }
        child => {
            drop(word_out);
            hear(
                word_in,
                Pid::from_raw(child).expect("fork gives a process number"),
            )
        }
    }
}

fn run_child<T>(
    parent: Pid,
    log: &Path,
    word: OwnedFd,
    inherited: &[RawFd],
    start: impl FnOnce() -> Result<(Ready, T)>,
    stay: impl FnOnce(T, bool),
) -> u8 {
    // A caller that is killed while we ask and derive takes us with it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    if getppid() != Some(parent) {
        return ErrorKind::Device.exit_code();
    }
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let started = start().and_then(|started| {
        leave(log, inherited)
            .map(|()| started)
            .map_err(|e| Error::device("can't leave the terminal").caused_by(e))
    });
    match started {
        Ok((ready, work)) => {
            let heard = say(word, &Word::Ready(ready));
            stay(work, heard.is_ok());
            0
        }
        Err(e) => {
            let exit_code = e.kind().exit_code();
            let _ = say(
                word,
                &Word::Failed {
                    exit_code,
                    text: e.to_string(),
                },
            );
            exit_code
        }
    }
}

fn say(pipe: OwnedFd, word: &Word) -> io::Result<()> {
    let text = serde_json::to_vec(word)?;
    File::from(pipe).write_all(&text)
}

fn hear(pipe: OwnedFd, child: Pid) -> Result<Ready> {
    let mut text = Vec::new();
    let heard = wait_to_read(&pipe, child)
        .and_then(|()| File::from(pipe).take(WORD_BYTES_MAX).read_to_end(&mut text));
    let word = heard.and_then(|_| serde_json::from_slice(&text).map_err(Into::into));
    match word {
        Ok(Word::Ready(ready)) => Ok(ready),
        Ok(Word::Failed { exit_code, text }) => Err(Error::new(kind_of(exit_code), text)),
        Err(_) => {
            die_like(child);
            Err(Error::device(
                "the server's process ended before it was ready",
            ))
        }
    }
}

/// Waits for a word. A stop from the terminal (Ctrl-Z at the prompt) reaches the other process
/// alone; the shell waits for this one, so it stops, too.
fn wait_to_read(pipe: &OwnedFd, child: Pid) -> io::Result<()> {
    let pause = Timespec::try_from(STOP_CHECK).expect("a fifth of a second fits");
    loop {
        let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            result => return result.map(drop).map_err(Into::into),
        }
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        if let Ok(Some((_, status))) = waitpid(Some(child), options)
            && status.stopped()
        {
            let _ = rustix::process::kill_process(getpid(), Signal::STOP);
        }
    }
}

/// Ends this process by the signal that ended the other: the shell then knows (Ctrl-C).
fn die_like(child: Pid) {
    if let Ok(Some((_, status))) = waitpid(Some(child), WaitOptions::empty())
        && let Some(signal) = status.terminating_signal()
        && let Some(signal) = Signal::from_named_raw(signal)
    {
        let _ = rustix::process::kill_process(getpid(), signal);
    }
}

fn kind_of(exit_code: u8) -> ErrorKind {
    [
        ErrorKind::Usage,
        ErrorKind::Permission,
        ErrorKind::Memory,
        ErrorKind::Busy,
    ]
    .into_iter()
    .find(|kind| kind.exit_code() == exit_code)
    .unwrap_or(ErrorKind::Device)
}

fn single_thread() -> io::Result<()> {
    match fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(count) if count > 1 => Err(io::Error::other("this process has threads already")),
        _ => Ok(()),
    }
}

/// Leaves the session, the working directory and everything that the caller may wait for.
fn leave(log: &Path, inherited: &[RawFd]) -> io::Result<()> {
    let _ = rustix::process::set_parent_process_death_signal(None);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let log = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&log)?;
    for &fd in inherited {
        // SAFETY: it was open when this process began and nobody here has taken it over: what we
        // open ourselves gets other numbers as long as it is open.
        unsafe { libc::close(fd) };
    }
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Descriptors beyond the three streams that the caller passed on, knowingly or not: a test
/// runner's, a lock's, a pipe's. A key may be read from one, so they are closed later.
fn inherited_descriptors() -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok())
        // Ours are all close-on-exec, as are those of the standard library.
        .filter(|&fd| fd > 2 && !closes_on_exec(fd))
        .collect()
}

fn closes_on_exec(fd: RawFd) -> bool {
    // SAFETY: F_GETFD on a number that is no descriptor is an error, and nothing else.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags == -1 || flags & libc::FD_CLOEXEC != 0
}

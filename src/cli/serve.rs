//! `luks serve`: a device served in the foreground.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};

use super::DONE;
use crate::error::{Error, Result};
use crate::queue::Device;
use crate::server::{Server, ServerHandle, ServerOptions};
use crate::signals;

/// How long a command of `--run` that was told to end may take.
const COMMAND_END: Duration = Duration::from_millis(1500);

/// Where and how a volume is served.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Serve at this unix socket (may be given more than once)
    #[arg(long, value_name = "PATH")]
    pub socket: Vec<PathBuf>,

    /// Serve at this TCP address; port 0 takes a free one (may be given more than once)
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<String>,

    /// The export's name
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub export: String,

    /// Run this shell command with $uri, $socket and $nbd set, and end with it
    #[arg(long, value_name = "CMD")]
    pub run: Option<String>,
}

impl ServeArgs {
    /// Checks what can be checked before a passphrase is asked for.
    ///
    /// Errors: `Usage` where there is nothing to serve at.
    pub fn check(&self) -> Result<()> {
        if self.socket.is_empty() && self.listen.is_empty() && self.run.is_none() {
            return Err(Error::usage("nowhere to serve at")
                .hint("--socket PATH, --listen HOST:PORT, or --run CMD"));
        }
        Ok(())
    }
}

/// Serves `device` until SIGTERM, SIGINT or the end of the `--run` command, whose exit code it
/// returns.
///
/// Errors: those of the listeners; `Device` where the last flush fails or no shell can be run.
pub fn run(device: Arc<Device>, args: &ServeArgs) -> Result<u8> {
    args.check()?;
    let mut server = Server::new(
        device,
        &ServerOptions {
            export: args.export.clone(),
        },
    )?;
    for path in &args.socket {
        server.listen_unix(path)?;
    }
    for address in &args.listen {
        server.listen_tcp(address)?;
    }
    match &args.run {
        Some(command) => run_with_command(server, command),
        None => run_in_foreground(server),
    }
}

fn run_in_foreground(server: Server) -> Result<u8> {
    signals::write_on_termination(server.handle().stop_fd()).map_err(no_signals)?;
    raise_descriptor_limit();
    let mut lines = server.uris().join("\n");
    lines.push('\n');
    let mut stdout = io::stdout().lock();
    // Whoever started this may not care for the lines and have closed the pipe.
    let _ = stdout
        .write_all(lines.as_bytes())
        .and_then(|()| stdout.flush());
    drop(stdout);
    server.run()?;
    Ok(DONE)
}

/// Serves as long as the command runs, at a private socket unless one was given.
fn run_with_command(mut server: Server, command: &str) -> Result<u8> {
    let signalled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| no_signals(e.into()))?;
    let folder = match server.uris().is_empty() {
        true => Some(PrivateFolder::new()?),
        false => None,
    };
    if let Some(folder) = &folder {
        server.listen_unix(&folder.0.join("nbd"))?;
    }
    signals::write_on_termination(rustix::fd::AsFd::as_fd(&signalled)).map_err(no_signals)?;
    let mut child = shell(&server, command).spawn().map_err(|e| {
        Error::device("can't run a shell")
            .on("/bin/sh")
            .caused_by(e)
    })?;
    let handle = server.handle();
    let serving = thread::spawn(move || server.run());
    let code = wait_for_command(&mut child, &signalled, &handle);
    handle.stop();
    let served = serving
        .join()
        .unwrap_or_else(|_| Err(Error::device("the server panicked")));
    drop(folder);
    let code = code.map_err(|e| Error::device("can't wait for the command").caused_by(e))?;
    match code {
        0 => served.map(|()| DONE),
        code => Ok(code),
    }
}

fn shell(server: &Server, command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    let uri = server.uris().into_iter().next().unwrap_or_default();
    let socket = server.unix_path().map(Path::as_os_str).unwrap_or_default();
    // The older notation that qemu takes.
    let mut nbd = std::ffi::OsString::from("nbd:");
    match (server.unix_path(), server.tcp_address()) {
        (Some(path), _) => {
            nbd.push("unix:");
            nbd.push(path);
        }
        (None, Some(address)) => nbd.push(address.to_string()),
        (None, None) => {}
    }
    if !server.export().is_empty() {
        nbd.push(":exportname=");
        nbd.push(server.export());
    }
    let port = server
        .tcp_address()
        .map(|a| a.port().to_string())
        .unwrap_or_default();
    shell.arg("-c").arg(command);
    shell.env("uri", uri).env("socket", socket).env("nbd", nbd);
    shell.env("exportname", server.export()).env("port", port);
    shell
}

/// Waits for the command's end and returns its exit code, as a shell would tell it. A signal is
/// passed on to it; one that doesn't end then is killed.
fn wait_for_command(
    child: &mut Child,
    signalled: &std::os::fd::OwnedFd,
    handle: &ServerHandle,
) -> io::Result<u8> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a child has a process id"))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let grace = Timespec::try_from(COMMAND_END).ok();
    let mut told = false;
    loop {
        let mut fds = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(
                signalled,
                if told {
                    PollFlags::empty()
                } else {
                    PollFlags::IN
                },
            ),
        ];
        let ready = match poll(&mut fds, grace.as_ref().filter(|_| told)) {
            Ok(ready) => ready,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        let [process_ready, signal_ready] = fds.map(|fd| !fd.revents().is_empty());
        if process_ready {
            break;
        }
        if ready == 0 {
            let _ = pidfd_send_signal(&process, Signal::KILL);
            // What it started may go on; nothing is served to it any more.
            handle.stop();
            break;
        }
        if signal_ready {
            let _ = pidfd_send_signal(&process, Signal::TERM);
            told = true;
        }
    }
    let status = child.wait()?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A folder for one socket, for its owner alone, that goes when dropped.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    fn new() -> Result<Self> {
        let below = ["XDG_RUNTIME_DIR", "TMPDIR"]
            .into_iter()
            .filter_map(std::env::var_os)
            .map(PathBuf::from)
            .find(|path| path.is_absolute() && path.is_dir())
            .unwrap_or_else(|| PathBuf::from("/tmp"));
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|e| Error::device("no random numbers").caused_by(e.to_string()))?;
        let path = below.join(format!("luks-{:016x}", u64::from_ne_bytes(random)));
        // Fails where it exists: nobody can have laid it out for us.
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| {
            Error::device("can't make a folder for the socket")
                .on(path.display())
                .caused_by(e)
        })?;
        Ok(Self(path))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As many descriptors as the system allows, for as many clients. Not with `--run`: its command
/// would inherit the limit, and there are programs that take a high one badly.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

fn no_signals(e: io::Error) -> Error {
    Error::device("can't take signals").caused_by(e)
}

//! `luks serve`: a device served in the foreground.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
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
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process, setrlimit,
    waitid,
};

use super::DONE;
use super::engine::EngineArgs;
use super::unlock::{self, UnlockArgs};
use crate::error::{Error, Result};
use crate::queue::Device;
use crate::server::{Server, ServerOptions};
use crate::signals;

/// How long a command of `--run` that was told to end may take.
const COMMAND_END: Duration = Duration::from_secs(1);

/// Unlocks the volume on IMAGE once and serves it over NBD until SIGTERM or SIGINT
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  luks serve disk.img --socket /tmp/s\n  \
luks serve disk.img --key-file k --run 'nbdcopy \"$uri\" plain.img'\n\n\
Prints one line a listener when ready: its NBD URI. With --run, prints what the command prints and \
ends with its exit code.")]
pub(crate) struct ServeVerb {
    /// Disk image or block device
    image: PathBuf,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
}

impl ServeVerb {
    pub(crate) fn run(self) -> Result<u8> {
        self.serve.check()?;
        self.engine.force()?;
        let opened = unlock::open_volume(&self.unlock, &self.image)?;
        run(opened.device, &self.serve)
    }
}

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
    // Before there is a socket file that a signal could leave behind.
    signals::write_on_termination(server.handle().stop_fd()).map_err(no_signals)?;
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
    signals::write_on_termination(signalled.as_fd()).map_err(no_signals)?;
    let child = shell(&server, command).spawn().map_err(|e| {
        Error::device("can't run a shell")
            .on("/bin/sh")
            .caused_by(e)
    })?;
    let handle = server.handle();
    let serving = thread::spawn(move || server.run());
    let code = wait_for_command(child, &signalled);
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
    let mut nbd = OsString::from("nbd:");
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
/// passed on to it; if it doesn't end then, it is killed.
fn wait_for_command(mut child: Child, signalled: &OwnedFd) -> io::Result<u8> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a child has a process id"))?;
    let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let waiter = Arc::clone(&ended);
    // It leaves the child unreaped, so that its id stays its own as long as it may be signalled.
    thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        let _ = rustix::io::write(&*waiter, &1u64.to_ne_bytes());
    });
    let grace = Timespec::try_from(COMMAND_END).ok();
    let mut told = false;
    loop {
        let until_told = if told {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds = [
            PollFd::new(&*ended, PollFlags::IN),
            PollFd::new(signalled, until_told),
        ];
        match poll(&mut fds, grace.as_ref().filter(|_| told)) {
            Ok(0) => {
                let _ = kill_process(pid, Signal::KILL);
                break;
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        let [ended, signalled] = fds.map(|fd| !fd.revents().is_empty());
        if ended {
            break;
        }
        if signalled {
            let _ = kill_process(pid, Signal::TERM);
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
    /// A folder where the environment says that such things go, else in /tmp.
    fn new() -> Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|e| Error::device("no random numbers").caused_by(e.to_string()))?;
        let name = format!("luks-{:016x}", u64::from_ne_bytes(random));
        let told = ["XDG_RUNTIME_DIR", "TMPDIR"]
            .into_iter()
            .filter_map(std::env::var_os)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        let mut refusal = None;
        for below in told.chain([PathBuf::from("/tmp")]) {
            let path = below.join(&name);
            // Fails where it exists: nobody can have laid it out for us.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) => refusal = Some((path, e)),
            }
        }
        let (path, e) = refusal.expect("/tmp was tried");
        Err(Error::device("can't make a folder for the socket")
            .on(path.display())
            .caused_by(e))
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

//! One volume served in the background: its NBD server, its block device, and its control socket.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::folder::Held;
use super::socket::{Call, Request};
use super::state::State;
use crate::attach::{AttachMode, Attachment, survive};
use crate::cipher::CpuEngine;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Device;
use crate::server::{Server, ServerHandle, ServerOptions};
use crate::signals;

/// How often it looks whether somebody else took its device down.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often it looks while it waits for something: that the last user goes, or a connection.
const LOOK_EVERY_SOON: Duration = Duration::from_millis(250);
/// How long a client that has left may still be on the server's list.
const CLIENT_LEAVES: Duration = Duration::from_secs(1);

/// A volume that is served and attached.
#[derive(Debug)]
pub struct Service {
    device: Arc<Device>,
    server: ServerHandle,
    serving: Option<JoinHandle<Result<()>>>,
    uri: String,
    attachment: Attachment,
    state: State,
    control: UnixListener,
    terminated: OwnedFd,
    deferred: bool,
    /// Connections of the kernel's are missing.
    mending: bool,
    held: Held,
}

/// What happens after a round of the loop.
enum Next {
    GoOn,
    /// All is taken down; the result is what the last flush said.
    End(Result<()>),
}

impl Service {
    /// Serves the device of `image` in the folder that is `held`, and attaches it. `waiting` is
    /// the state of a dead server whose nbd device is to be taken over.
    ///
    /// Errors: `Device` where it can't be served, or attached as asked.
    pub fn start(
        held: Held,
        device: Arc<Device>,
        image: &Path,
        mode: AttachMode,
        waiting: Option<&State>,
    ) -> Result<Self> {
        let failed = |what: &str, e: std::io::Error| Error::device(what).caused_by(e);
        if mode != AttachMode::None {
            survive::before_threads();
        }
        let folder = &held.folder;
        let terminated = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Into::into)
            .and_then(|event| signals::write_on_termination(event.as_fd()).map(|()| event))
            .map_err(|e| failed("can't handle signals", e))?;
        let control = control_socket(&folder.control_socket())
            .map_err(|e| failed("can't make the control socket", e))?;
        let mut server = Server::new(Arc::clone(&device), &ServerOptions::default())?;
        server.listen_unix(&folder.nbd_socket())?;
        let uri = server.uris().into_iter().next().unwrap_or_default();
        let handle = server.handle();
        let serving = thread::Builder::new()
            .name("nbd-server".to_owned())
            .spawn(move || server.run())
            .map_err(|e| failed("can't start the server", e))?;
        let state = State {
            schema: 1,
            pid: std::process::id(),
            image: image.display().to_string(),
            uuid: device.about().uuid.clone(),
            read_only: device.read_only(),
            ..State::default()
        };
        let mut service = Self {
            uri,
            attachment: Attachment::default(),
            server: handle,
            serving: Some(serving),
            state,
            control,
            terminated,
            deferred: false,
            mending: false,
            held,
            device,
        };
        service.attach(mode, waiting)?;
        Ok(service)
    }

    fn attach(&mut self, mode: AttachMode, waiting: Option<&State>) -> Result<()> {
        let place = self.held.folder.place();
        let nbd_process = waiting.map_or(0, |state| state.nbd_process);
        let attached = Attachment::new(&self.device, mode, &place, nbd_process);
        match attached {
            Ok(attachment) => self.attachment = attachment,
            Err(e) => {
                self.end_server()?;
                return Err(e);
            }
        }
        if mode != AttachMode::None {
            survive::lock_memory(&self.device);
        }
        self.state.attach = self.attachment.kind().to_owned();
        self.state.device = self
            .attachment
            .path()
            .map(|path| path.display().to_string());
        self.state.nbd_process = self.attachment.nbd_process().unwrap_or_default();
        if let Err(e) = self.state.write(&self.held.folder) {
            let folder = self.held.folder.as_ref().display();
            let error = Error::device("can't write the volume's state")
                .on(folder)
                .caused_by(e);
            self.close()?;
            return Err(error);
        }
        Ok(())
    }

    /// What it is reached by: the block device or file, or the NBD URI.
    pub fn line(&self) -> String {
        self.state
            .device
            .clone()
            .unwrap_or_else(|| self.uri.clone())
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        matches!(self.attachment.kind(), "nbd" | "loop")
    }

    /// Why it isn't attached as something better, a line each.
    pub fn notes(&self) -> &[String] {
        &self.attachment.notes
    }

    /// Serves until it is told to close, by the control socket or a signal, or until somebody
    /// else takes its device down.
    ///
    /// Errors: `Device` where the last of what was written can't be made durable.
    pub fn run(mut self) -> Result<()> {
        loop {
            match self.round() {
                Next::GoOn => {}
                Next::End(result) => {
                    self.held.remove();
                    return result;
                }
            }
        }
    }

    /// Closes it at once, used or not.
    pub fn abandon(mut self) {
        let _ = self.close();
        self.held.remove();
    }

    fn round(&mut self) -> Next {
        let (told, called) = self.wait();
        if told {
            // Orderly if it can be; else as soon as it can be. Killing it outright is for kill -9.
            let _ = rustix::io::read(&self.terminated, &mut [0; 8]);
            self.deferred = true;
        }
        if called && let Next::End(result) = self.answer_call() {
            return Next::End(result);
        }
        self.mend();
        if !self.attachment.stands() || self.serving.as_ref().is_none_or(JoinHandle::is_finished) {
            eprintln!("somebody else took it down");
            let _ = self.attachment.detach();
            return Next::End(self.end_server());
        }
        if self.deferred && self.user().is_none() {
            match self.close() {
                Err(e) if e.kind() == ErrorKind::Busy => {}
                result => return Next::End(result),
            }
        }
        Next::GoOn
    }

    /// Replaces connections that the kernel has given up, once their lanes here have ended.
    fn mend(&mut self) {
        let missing = self.attachment.missing();
        let own = self.own_clients();
        self.mending = missing > 0;
        if missing == 0 || own + missing > self.attachment.own_connections() {
            return;
        }
        match self.attachment.mend() {
            Ok(()) => self.mending = false,
            Err(e) => eprintln!("can't replace a connection of the kernel's: {e}"),
        }
    }

    /// Waits for something to do: a signal or a caller (which of them it says), or news of the
    /// attachment.
    fn wait(&self) -> (bool, bool) {
        let every = if self.deferred || self.mending {
            LOOK_EVERY_SOON
        } else {
            LOOK_EVERY
        };
        let pause = Timespec::try_from(every).expect("seconds fit");
        let mut fds = vec![
            PollFd::new(&self.terminated, PollFlags::IN),
            PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            self.attachment
                .events()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let _ = poll(&mut fds, Some(&pause));
        let ready = |i: usize| fds.get(i).is_some_and(|fd| !fd.revents().is_empty());
        (ready(0), ready(1))
    }

    fn answer_call(&mut self) -> Next {
        let Ok(call) = Call::accept(&self.control) else {
            return Next::GoOn;
        };
        match call.request {
            Request::Status => drop(call.answer(Ok(self.status()))),
            Request::Close { deferred: true } => {
                self.deferred = true;
                let user = self.user();
                if user.is_some() {
                    drop(call.answer(Ok(json!({ "in_use": user }))));
                    return Next::GoOn;
                }
                return self.close_for(call);
            }
            Request::Close { deferred: false } => return self.close_for(call),
        }
        Next::GoOn
    }

    fn close_for(&mut self, call: Call) -> Next {
        let result = self.close();
        if let Err(e) = &result
            && e.kind() == ErrorKind::Busy
        {
            drop(call.answer(result.map(|()| Value::Null)));
            return Next::GoOn;
        }
        let text = result.as_ref().err().map(ToString::to_string);
        let caller = call.answer(result.map(|()| Value::Null));
        // The caller waits for the end of this process; it ends with it.
        std::mem::forget(caller);
        Next::End(text.map_or(Ok(()), |text| Err(Error::device(text))))
    }

    /// Takes everything down in order: the device, then the server.
    ///
    /// Errors: `Busy` while it is used; it then goes on. Others: it is down, but not all that was
    /// written is durable.
    fn close(&mut self) -> Result<()> {
        if let Some(user) = self.wait_for_clients() {
            return Err(Error::busy(format!("it is {user}"))
                .on(&self.uri)
                .hint("end that first, or --deferred to close it when the last user is gone"));
        }
        self.attachment.detach()?;
        self.end_server()
    }

    fn end_server(&mut self) -> Result<()> {
        self.server.stop();
        match self.serving.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::device("the server ended in a panic")),
            None => Ok(()),
        }
    }

    /// Who uses it, in words.
    fn user(&self) -> Option<String> {
        self.attachment.user().or_else(|| self.client())
    }

    /// Clients other than the attachment's own connections, in words.
    fn client(&self) -> Option<String> {
        let clients = self.server.clients();
        let count = clients.as_array().map_or(0, Vec::len);
        match count.saturating_sub(self.own_clients()) {
            0 => None,
            1 => Some("used by an NBD client".to_owned()),
            n => Some(format!("used by {n} NBD clients")),
        }
    }

    /// Clients that are the attachment's: this process connected them, and gave their sockets to
    /// the kernel.
    fn own_clients(&self) -> usize {
        let own = format!("unix:pid={},", std::process::id());
        let clients = self.server.clients();
        let peers = clients.as_array().into_iter().flatten();
        peers
            .filter(|client| {
                client["peer"]
                    .as_str()
                    .is_some_and(|peer| peer.starts_with(&own))
            })
            .count()
    }

    fn wait_for_clients(&self) -> Option<String> {
        let end = Instant::now() + CLIENT_LEAVES;
        loop {
            let client = self.client()?;
            if Instant::now() > end {
                return Some(client);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// `status --json` of this volume.
    fn status(&self) -> Value {
        let about = self.device.about();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let mut status = json!({
            "schema": 1,
            "name": self.held.folder.name(),
            "state": if self.deferred { "closing" } else { "open" },
            "device": self.state.device,
            "attach": self.state.attach,
            "uri": self.uri,
            "socket": self.held.folder.nbd_socket().display().to_string(),
            "image": self.state.image,
            "pid": self.state.pid,
            "format": about.format,
            "uuid": about.uuid,
            "label": about.label,
            "cipher": about.cipher,
            "key_bits": about.key_bits,
            "keyslot": about.keyslot,
            "flags": about.flags,
            "size_bytes": self.device.size_bytes(),
            "sector_size_bytes": self.device.sector_size().bytes(),
            "read_only": self.device.read_only(),
            "discards": self.device.can_trim(),
            "in_use": self.user(),
            "notes": self.attachment.notes,
            "clients": self.server.clients(),
            "engine": format!("cpu:{}", CpuEngine::in_use()),
            "cpu_us": cpu.tv_sec as u64 * 1_000_000 + cpu.tv_nsec as u64 / 1000,
        });
        // The device's own counters; what it says itself counts.
        let stats = self.device.stats().to_json();
        if let (Value::Object(status), Value::Object(stats)) = (&mut status, stats) {
            status.extend(stats);
        }
        status
    }
}

/// A control socket at `path`, for its owner alone. The folder's lock is held: what is there is
/// dead.
fn control_socket(path: &Path) -> std::io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

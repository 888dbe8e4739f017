//! Listeners and connections: a device served over NBD until it is told to end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::limits;
use crate::nbd::{Export, Link, Shared, serve};
use crate::queue::{Device, Operation};

mod clients;
mod listener;
mod uri;

use clients::Clients;
use listener::Listener;

/// Longest export name in bytes. Source: NBD protocol, "Conventions" (strings).
const EXPORT_NAME_BYTES_MAX: usize = 4096;
/// File descriptors a process needs for everything but its clients, generously.
const DESCRIPTORS_KEPT: u64 = 64;
/// File descriptors of one client: its socket and its lane's eventfd.
const DESCRIPTORS_PER_CLIENT: u64 = 2;
/// How long accepting rests when the system has no descriptors or memory for a client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a device is served.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The export's name; empty is the default export.
    pub export: String,
}

/// A device and the sockets it is served at.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    handle: ServerHandle,
}

/// Ends a server, and tells of it, from any thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    stop: Arc<OwnedFd>,
    clients: Arc<Clients>,
}

impl Server {
    /// A server of `device` that listens nowhere yet.
    ///
    /// Errors: `Usage` for an export name over 4096 bytes; `Device` where the system refuses an
    /// eventfd.
    pub fn new(device: Arc<Device>, options: &ServerOptions) -> Result<Self> {
        if options.export.len() > EXPORT_NAME_BYTES_MAX {
            return Err(Error::usage("an export's name has at most 4096 bytes"));
        }
        let handle = || -> io::Result<ServerHandle> {
            let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(ServerHandle {
                stop: Arc::new(stop),
                clients: Clients::new()?,
            })
        };
        let handle = handle().map_err(|e| Error::device("can't start a server").caused_by(e))?;
        let export = Export::new(&device, &options.export);
        let shared = Arc::new(Shared {
            device,
            export,
            memory_waiters: AtomicUsize::new(0),
        });
        Ok(Self {
            shared,
            listeners: Vec::new(),
            handle,
        })
    }

    /// Listens at a unix socket, for its owner alone (0600). A socket that a dead server left is
    /// replaced.
    ///
    /// Errors: `Busy` where a server lives there or something else is there; `Usage` for a path
    /// that can't be one; `Device` where it can't be made.
    pub fn listen_unix(&mut self, path: &Path) -> Result<()> {
        self.listeners.push(Listener::unix(path)?);
        Ok(())
    }

    /// Listens at `HOST:PORT`, and says where: port 0 lets the kernel choose.
    ///
    /// Errors: `Usage` for what is no address, `Busy` where the port is taken, `Device` where it
    /// can't be had.
    pub fn listen_tcp(&mut self, address: &str) -> Result<()> {
        self.listeners.push(Listener::tcp(address)?);
        Ok(())
    }

    /// One URI a listener, in the order they were added.
    pub fn uris(&self) -> Vec<String> {
        let export = &self.shared.export.name;
        self.listeners
            .iter()
            .map(|listener| listener.uri(export))
            .collect()
    }

    /// The path of the first unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        self.listeners.iter().find_map(Listener::path)
    }

    /// The address of the first TCP socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listeners.iter().find_map(Listener::tcp_address)
    }

    /// The export's name.
    pub fn export(&self) -> &str {
        &self.shared.export.name
    }

    /// What ends it, and tells of its clients.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until [`ServerHandle::stop`]. Then requests in flight are finished (for 3 s at
    /// most), connections closed, everything written made durable, and unix sockets removed.
    ///
    /// Errors: `Device` where accepting or the last flush fails.
    pub fn run(mut self) -> Result<()> {
        let accepted = self.accept_until_stopped();
        let listeners = std::mem::take(&mut self.listeners);
        self.handle
            .clients
            .end(Duration::from_secs(limits::DRAIN_SECONDS_MAX));
        let device = &self.shared.device;
        let flushed = device.run(&mut device.prepare(Operation::Flush, 0, 0, 0));
        // Removed last: as long as its socket is there, the volume is in use.
        drop(listeners);
        accepted.map_err(|e| Error::device("can't wait for clients").caused_by(e))?;
        flushed.map_err(|e| Error::device("can't make what was written durable").caused_by(e))
    }

    fn accept_until_stopped(&self) -> io::Result<()> {
        let clients = &self.handle.clients;
        let clients_max = clients_max();
        let pause = Timespec::try_from(ACCEPT_PAUSE).expect("a tenth of a second fits");
        let mut paused = false;
        loop {
            clients.take_room();
            let full = clients.count() >= clients_max;
            let stop = PollFd::new(&self.handle.stop, PollFlags::IN);
            let room = PollFd::from_borrowed_fd(clients.room_fd(), PollFlags::IN);
            let mut fds = vec![stop, room];
            if !full && !paused {
                fds.extend(self.listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)));
            }
            match poll(&mut fds, paused.then_some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.first() == Some(&true) {
                return Ok(());
            }
            let waiting = self.listeners.iter().zip(ready.iter().skip(2));
            paused = waiting
                .filter(|(_, ready)| **ready)
                .map(|(listener, _)| self.accept(listener))
                .fold(false, |paused, accepted| paused | accepted.is_err());
        }
    }

    /// Takes one client. `Err` where the system has nothing to take it with now.
    fn accept(&self, listener: &Listener) -> io::Result<()> {
        let (socket, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) => {
                // A client that left before it was accepted is no reason to rest.
                let gone = matches!(
                    Errno::from_io_error(&e),
                    Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::NOTCONN)
                );
                return if gone { Ok(()) } else { Err(e) };
            }
        };
        let link = Link::new(socket)?;
        let entry = self.handle.clients.enter(Arc::clone(&link), peer);
        let shared = Arc::clone(&self.shared);
        // Where no thread can be had, the closure is dropped, and the client with it.
        thread::Builder::new()
            .name("nbd-lane".to_owned())
            .stack_size(limits::STACK_BYTES)
            .spawn(move || {
                serve(&link, &shared);
                drop(entry);
            })
            .map(drop)
    }
}

impl ServerHandle {
    /// Tells the server to end; [`Server::run`] returns when it has.
    pub fn stop(&self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }

    /// An eventfd that ends the server when 1 is written to it, as a signal handler can.
    pub fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// One object a client: `id, peer, state, connected_s, requests, in_flight`.
    pub fn clients(&self) -> Value {
        self.clients.to_json()
    }
}

/// Clients that this process can have at a time.
fn clients_max() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let clients = descriptors.saturating_sub(DESCRIPTORS_KEPT) / DESCRIPTORS_PER_CLIENT;
    usize::try_from(clients)
        .unwrap_or(usize::MAX)
        .clamp(1, limits::CONNECTIONS_MAX)
}

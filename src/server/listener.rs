//! Listening sockets.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};

use super::uri;
use crate::error::{Error, Result};
use crate::limits;

/// Connections that may wait to be accepted; the kernel's own limit may be lower.
const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    address: Address,
}

#[derive(Debug)]
enum Address {
    /// A path, and the device and inode that show that it is still ours.
    Unix(PathBuf, (u64, u64)),
    Tcp(SocketAddr),
}

impl Listener {
    /// Listens at `path`, for the owner alone (0600). What a dead server left there is replaced.
    ///
    /// Errors: `Busy` where a server listens there, or something else is there; `Usage` for a path
    /// that is too long; `Device` where it can't be made.
    pub(super) fn unix(path: &Path) -> Result<Self> {
        let name = SocketAddrUnix::new(path).map_err(|_| {
            Error::usage("the path of a unix socket is too long or not a path")
                .on(path.display())
                .hint("a path of at most 107 bytes")
        })?;
        remove_dead(path)?;
        let made = || -> io::Result<(OwnedFd, (u64, u64))> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // Linux makes the file with the socket's own mode, so there is no moment in which
            // others could connect.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &name)?;
            let metadata = fs::symlink_metadata(path)?;
            listen(&socket, BACKLOG)?;
            Ok((socket, (metadata.dev(), metadata.ino())))
        };
        match made() {
            Ok((socket, inode)) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                Ok(Self {
                    socket,
                    address: Address::Unix(path, inode),
                })
            }
            Err(e) if Errno::from_io_error(&e) == Some(Errno::ADDRINUSE) => {
                Err(Error::busy("something is there already").on(path.display()))
            }
            Err(e) => Err(Error::device("can't listen")
                .on(path.display())
                .caused_by(e)),
        }
    }

    /// Listens at `HOST:PORT`; port 0 lets the kernel choose.
    ///
    /// Errors: `Usage` for an address that can't be read, `Busy` where the port is taken, `Device`
    /// where it can't be had.
    pub(super) fn tcp(address: &str) -> Result<Self> {
        let made = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            // The backlog that the standard library chose is too short for many clients at once.
            listen(&listener, BACKLOG)?;
            let address = listener.local_addr()?;
            Ok(Self {
                socket: listener.into(),
                address: Address::Tcp(address),
            })
        });
        made.map_err(|e| {
            match e.kind() {
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                    Error::usage("not an address to listen at").hint("HOST:PORT")
                }
                io::ErrorKind::AddrInUse => Error::busy("can't listen"),
                _ => Error::device("can't listen"),
            }
            .on(address)
            .caused_by(e)
        })
    }

    /// Where clients find `export`.
    pub(super) fn uri(&self, export: &str) -> String {
        match &self.address {
            Address::Unix(path, _) => uri::unix(path, export),
            Address::Tcp(address) => uri::tcp(*address, export),
        }
    }

    /// The path, if it is a unix socket.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path, _) => Some(path),
            Address::Tcp(_) => None,
        }
    }

    /// The address, if it is a TCP socket.
    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.address {
            Address::Unix(..) => None,
            Address::Tcp(address) => Some(*address),
        }
    }

    /// Takes a waiting client: its socket, in blocking mode, and who it is.
    pub(super) fn accept(&self) -> io::Result<(OwnedFd, String)> {
        let client = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        match &self.address {
            Address::Unix(..) => {
                // More replies leave by one call; where it is refused, fewer do.
                let _ = sockopt::set_socket_send_buffer_size(&client, limits::SOCKET_SEND_BYTES);
                let peer = sockopt::socket_peercred(&client).map_or_else(
                    |_| "unix".to_owned(),
                    |who| format!("unix:pid={},uid={}", who.pid.as_raw_pid(), who.uid.as_raw()),
                );
                Ok((client, peer))
            }
            Address::Tcp(_) => {
                sockopt::set_tcp_nodelay(&client, true)?;
                let client = TcpStream::from(client);
                let peer = client.peer_addr()?.to_string();
                Ok((client.into(), peer))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path, inode) = &self.address
            && fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == *inode)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a server that is no more.
///
/// Errors: `Busy` where a server lives, or what is there is no socket.
fn remove_dead(path: &Path) -> Result<()> {
    let Ok(before) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !before.file_type().is_socket() {
        return Err(Error::busy("a file that is no socket is there").on(path.display()));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
        // Accepted, or refused for another reason than that nobody listens.
        _ => {
            return Err(Error::busy("a server listens there already")
                .on(path.display())
                .hint("another path, or end that server"));
        }
    }
    // Another server may have done the same meanwhile: only what was found dead is removed.
    match fs::symlink_metadata(path) {
        Ok(now) if (now.dev(), now.ino()) == (before.dev(), before.ino()) => fs::remove_file(path)
            .map_err(|e| {
                Error::device("can't replace a dead socket")
                    .on(path.display())
                    .caused_by(e)
            }),
        _ => Ok(()),
    }
}

//! The kernel's nbd driver, told by netlink to use our own NBD socket.
//!
//! Source: linux/nbd-netlink.h. A device stays configured when its sockets die, and its requests
//! wait: a server that was killed is started again with the same command and goes on with them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::block::{BlockDevice, devices, load_module};
use super::nbd_client;
use super::netlink::{Attributes, Family, Listener};
use crate::limits;
use crate::units::SectorSize;

const CMD_CONNECT: u8 = 1;
const CMD_DISCONNECT: u8 = 2;
const CMD_RECONFIGURE: u8 = 3;
const CMD_LINK_DEAD: u8 = 4;
const ATTR_INDEX: u16 = 1;
const ATTR_SIZE_BYTES: u16 = 2;
const ATTR_BLOCK_SIZE_BYTES: u16 = 3;
const ATTR_TIMEOUT: u16 = 4;
const ATTR_SERVER_FLAGS: u16 = 5;
const ATTR_SOCKETS: u16 = 7;
const ATTR_DEAD_CONN_TIMEOUT: u16 = 8;
const ATTR_BACKEND_IDENTIFIER: u16 = 10;
const SOCK_ITEM: u16 = 1;
const SOCK_FD: u16 = 1;

/// Connections a device: requests go out on as many sockets, and each is read by its own thread
/// in the kernel and in the server.
pub(crate) const CONNECTIONS: usize = 4;

/// A configured nbd device of ours.
#[derive(Debug)]
pub(crate) struct NbdDevice {
    pub(crate) block: BlockDevice,
    index: u32,
    owner: Owner,
    socket: PathBuf,
    events: Option<Listener>,
    /// Connections that the kernel has given up.
    missing: usize,
}

/// By what a configured device is known to be ours.
#[derive(Clone, Debug)]
struct Owner {
    /// What it was configured with; kernels since 5.14 show it.
    identifier: String,
    /// Which process configured it, where they don't.
    process: u32,
}

impl Owner {
    /// Whether the device is configured, and by this owner.
    fn has(&self, block: &BlockDevice) -> bool {
        let Ok(process) = block.fact("pid") else {
            return false;
        };
        match block.fact("backend") {
            Ok(backend) => backend == self.identifier,
            Err(_) => process == self.process.to_string(),
        }
    }
}

/// What a device is to be.
#[derive(Clone, Debug)]
pub(crate) struct NbdOptions {
    /// The server's socket.
    pub(crate) socket: PathBuf,
    /// Says whose it is, for whoever finds it configured. Shown by sysfs as `backend`.
    pub(crate) identifier: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_size: SectorSize,
}

impl NbdDevice {
    /// A free device over the server at `options.socket`.
    pub(crate) fn attach(options: &NbdOptions) -> io::Result<Self> {
        let mut family = family()?;
        let (streams, flags) = connect(options)?;
        let request = Attributes::default()
            .number64(ATTR_SIZE_BYTES, options.size_bytes)
            .number64(ATTR_BLOCK_SIZE_BYTES, options.block_size.bytes_u64())
            .number64(ATTR_TIMEOUT, limits::NBD_REQUEST_SECONDS)
            .number64(ATTR_DEAD_CONN_TIMEOUT, limits::NBD_RECONNECT_SECONDS)
            .number64(ATTR_SERVER_FLAGS, flags.into())
            .text(ATTR_BACKEND_IDENTIFIER, &options.identifier)
            .list(ATTR_SOCKETS, &sockets(&streams));
        let answer = family.call(CMD_CONNECT, &request)?;
        let index = answer
            .and_then(|answer| answer.attributes.u32(ATTR_INDEX))
            .ok_or_else(|| io::Error::other("the kernel named no nbd device"))?;
        let device = Self::configured(&family, index, options);
        match device.finish(options) {
            Ok(()) => Ok(device),
            Err(e) => {
                let _ = device.detach();
                Err(e)
            }
        }
    }

    /// Gives a device that a dead server left configured its sockets back. Its waiting requests go
    /// on.
    pub(crate) fn attach_again(self, options: &NbdOptions) -> io::Result<Self> {
        let mut family = family()?;
        let size_bytes = self
            .block
            .fact("size")?
            .parse::<u64>()
            .unwrap_or(0)
            .saturating_mul(512);
        if size_bytes != options.size_bytes {
            return Err(io::Error::other(format!(
                "{} is {size_bytes} bytes large and the volume {}",
                self.block.path().display(),
                options.size_bytes
            )));
        }
        let (streams, _) = connect(options)?;
        family.call(
            CMD_RECONFIGURE,
            &self.named().list(ATTR_SOCKETS, &sockets(&streams)),
        )?;
        let device = Self::configured(&family, self.index, options);
        device.finish(options)?;
        Ok(device)
    }

    /// The device that the server with this identifier has configured, if there is one. Where the
    /// kernel shows no identifiers, it is the one that `process` configured.
    pub(crate) fn find(identifier: &str, process: u32) -> Option<Self> {
        let owner = Owner {
            identifier: identifier.to_owned(),
            process,
        };
        let block = devices("nbd").into_iter().find(|block| owner.has(block))?;
        Some(Self {
            index: block.number()?,
            block,
            owner,
            socket: PathBuf::new(),
            events: None,
            missing: 0,
        })
    }

    fn configured(family: &Family, index: u32, options: &NbdOptions) -> Self {
        let block = BlockDevice::new(format!("nbd{index}"));
        let process = block.fact("pid").ok().and_then(|pid| pid.parse().ok());
        Self {
            block,
            index,
            owner: Owner {
                identifier: options.identifier.clone(),
                process: process.unwrap_or_default(),
            },
            socket: options.socket.clone(),
            events: family.listen("nbd_mc_group").ok(),
            missing: 0,
        }
    }

    fn finish(&self, options: &NbdOptions) -> io::Result<()> {
        self.block.check_block_size(options.block_size)?;
        self.block.wait_for_node()?;
        self.block.scan_partitions()?;
        self.block.wait_for_node()
    }

    /// Which process it was configured by.
    pub(crate) fn process(&self) -> u32 {
        self.owner.process
    }

    /// Whether it is configured still, and as ours.
    pub(crate) fn is_attached(&self) -> bool {
        self.owner.has(&self.block)
    }

    /// How many connections the kernel has given up, because a request took too long.
    pub(crate) fn missing(&mut self) -> usize {
        let events = self.events.as_ref();
        let messages = events.map(Listener::messages).unwrap_or_default();
        let dead = messages.iter().filter(|message| {
            message.command == CMD_LINK_DEAD
                && message.attributes.u32(ATTR_INDEX) == Some(self.index)
        });
        self.missing = (self.missing + dead.count()).min(CONNECTIONS);
        self.missing
    }

    /// Replaces the connections that are missing.
    pub(crate) fn mend(&mut self) -> io::Result<()> {
        while self.missing > 0 {
            let (stream, _) = nbd_client::connect(&self.socket)?;
            // Open until the kernel has taken it over.
            let streams = [stream];
            let request = self.named().list(ATTR_SOCKETS, &sockets(&streams));
            family()?.call(CMD_RECONFIGURE, &request)?;
            self.missing -= 1;
        }
        Ok(())
    }

    /// Where news of dead connections come in.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// Disconnects it at once. Whoever uses it gets errors from now on.
    pub(crate) fn detach(&self) -> io::Result<()> {
        if !self.is_attached() {
            return Ok(());
        }
        family()?.call(
            CMD_DISCONNECT,
            &Attributes::default().number32(ATTR_INDEX, self.index),
        )?;
        Ok(())
    }

    fn named(&self) -> Attributes {
        let named = Attributes::default().number32(ATTR_INDEX, self.index);
        // The kernel then refuses if the device has become somebody else's. Kernels that don't
        // know the attribute ignore it.
        named.text(ATTR_BACKEND_IDENTIFIER, &self.owner.identifier)
    }
}

fn family() -> io::Result<Family> {
    let find = || Family::find("nbd", 1);
    find()
        .or_else(|_| {
            load_module("nbd");
            find()
        })
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::NotFound,
                "this kernel has no nbd driver loaded",
            ),
            _ => e,
        })
}

fn connect(options: &NbdOptions) -> io::Result<(Vec<UnixStream>, u16)> {
    let mut streams = Vec::with_capacity(CONNECTIONS);
    let mut flags = 0;
    for _ in 0..CONNECTIONS {
        let (stream, export) = nbd_client::connect(&options.socket)?;
        if export.size_bytes != options.size_bytes {
            return Err(io::Error::other("the server's export has another size"));
        }
        flags = export.flags;
        streams.push(stream);
    }
    Ok((streams, flags))
}

fn sockets(streams: &[UnixStream]) -> Attributes {
    streams.iter().fold(Attributes::default(), |list, stream| {
        let fd = Attributes::default().number32(SOCK_FD, stream.as_raw_fd() as u32);
        list.list(SOCK_ITEM, &fd)
    })
}

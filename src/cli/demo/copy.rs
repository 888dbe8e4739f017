//! The least of NBD's transmission phase: copies a file in and the volume out, a request at a
//! time, so that the demo needs no tool. Source: the NBD protocol, `doc/proto.md` of the
//! NetworkBlockDevice project.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::attach::nbd_client;
use crate::error::{Error, Result};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const CHUNK_BYTES: usize = 1 << 20;
/// A server on this machine answers sooner, or never.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the default export.
pub(super) struct Client {
    stream: UnixStream,
    socket: PathBuf,
    size_bytes: u64,
    cookie: u64,
}

impl Client {
    /// Connects to the default export.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let connect = || {
            let (stream, export) = nbd_client::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok((stream, export.size_bytes))
        };
        let (stream, size_bytes) =
            connect().map_err(|e| failed("connect to the volume", e, socket))?;
        Ok(Self {
            stream,
            socket: socket.to_owned(),
            size_bytes,
            cookie: 0,
        })
    }

    /// The volume's size.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Writes the file to the volume's start and flushes.
    pub(super) fn copy_in(mut self, from: &Path) -> Result<()> {
        self.try_copy_in(from)
            .map_err(|e| failed("write to the volume", e, &self.socket))
    }

    fn try_copy_in(&mut self, from: &Path) -> io::Result<()> {
        let file = File::open(from)?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let mut offset_bytes = 0;
        loop {
            chunk.clear();
            let count = (&file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
            if count == 0 {
                break;
            }
            self.request(WRITE, offset_bytes, &chunk, count as u32)?;
            self.reply()?;
            offset_bytes += count as u64;
        }
        self.request(FLUSH, 0, &[], 0)?;
        self.reply()?;
        self.request(DISCONNECT, 0, &[], 0)
    }

    /// Reads the whole volume into a new file.
    pub(super) fn copy_out(mut self, to: &Path) -> Result<()> {
        self.try_copy_out(to)
            .map_err(|e| failed("read the volume", e, &self.socket))
    }

    fn try_copy_out(&mut self, to: &Path) -> io::Result<()> {
        let mut file = File::create_new(to)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset_bytes = 0;
        while offset_bytes < self.size_bytes {
            let count = (self.size_bytes - offset_bytes).min(CHUNK_BYTES as u64) as usize;
            self.request(READ, offset_bytes, &[], count as u32)?;
            self.reply()?;
            self.stream.read_exact(&mut chunk[..count])?;
            file.write_all(&chunk[..count])?;
            offset_bytes += count as u64;
        }
        self.request(DISCONNECT, 0, &[], 0)
    }

    fn request(&mut self, kind: u16, offset: u64, payload: &[u8], len: u32) -> io::Result<()> {
        self.cookie += 1;
        let header = [
            &REQUEST_MAGIC.to_be_bytes()[..],
            &[0, 0],
            &kind.to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
        ]
        .concat();
        self.stream.write_all(&header)?;
        self.stream.write_all(payload)
    }

    fn reply(&mut self) -> io::Result<()> {
        let magic = read_u32(&mut self.stream)?;
        let error = read_u32(&mut self.stream)?;
        let cookie = read_u64(&mut self.stream)?;
        match (magic, error) {
            (SIMPLE_REPLY_MAGIC, 0) if cookie == self.cookie => Ok(()),
            (SIMPLE_REPLY_MAGIC, error) if error != 0 => {
                Err(io::Error::from_raw_os_error(error.cast_signed()))
            }
            _ => Err(io::Error::other("an answer that isn't NBD's")),
        }
    }
}

fn read_u32(stream: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_u64(stream: &mut UnixStream) -> io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

fn failed(what: &str, error: io::Error, socket: &Path) -> Error {
    Error::device(format!("can't {what}"))
        .caused_by(error)
        .on(socket.display())
}

//! A raw NBD client that sends what it is told to, right or wrong, and a server to talk to. It
//! shares no code and no constants with the server: the numbers are written out from the
//! specification.
#![allow(dead_code, unreachable_pub)] // Each test binary includes it and uses a part of it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nbdcrypt::queue::{Device, DeviceOptions};
use nbdcrypt::server::{Server, ServerHandle, ServerOptions};
use nbdcrypt::storage::Storage;
use nbdcrypt::units::SectorSize;
use nbdcrypt::volume::{Segment, SegmentKind, Volume, VolumeAbout};

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_LIST_META_CONTEXT: u32 = 9;
pub const OPT_SET_META_CONTEXT: u32 = 10;
pub const REP_ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META_CONTEXT: u32 = 4;
pub const REP_ERR_UNSUP: u32 = 0x8000_0001;
pub const REP_ERR_INVALID: u32 = 0x8000_0003;
pub const REP_ERR_UNKNOWN: u32 = 0x8000_0006;
pub const REP_ERR_TOO_BIG: u32 = 0x8000_0009;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;
pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

/// A plaintext volume that is all of `storage`.
pub fn linear_device(storage: Arc<dyn Storage>, options: DeviceOptions) -> Arc<Device> {
    let size_bytes = storage.size_bytes().unwrap();
    device_of(
        storage,
        SegmentKind::Linear,
        size_bytes,
        SectorSize::MIN,
        options,
    )
}

/// A volume of one segment over all of `storage`.
pub fn device_of(
    storage: Arc<dyn Storage>,
    kind: SegmentKind,
    size_bytes: u64,
    sector_size: SectorSize,
    options: DeviceOptions,
) -> Arc<Device> {
    let segment = Segment {
        start_bytes: 0,
        len_bytes: size_bytes,
        storage_offset_bytes: 0,
        kind,
    };
    let volume = Volume {
        segments: vec![segment],
        size_bytes,
        sector_size,
        about: VolumeAbout {
            format: "plain",
            ..VolumeAbout::default()
        },
    };
    Device::new(volume, storage, options)
}

/// A server on a unix socket in a folder of its own; ends when dropped.
pub struct Served {
    pub socket: PathBuf,
    pub handle: ServerHandle,
    thread: Option<JoinHandle<nbdcrypt::error::Result<()>>>,
    _folder: tempfile::TempDir,
}

impl Served {
    pub fn new(device: Arc<Device>, export: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nbd");
        let options = ServerOptions {
            export: export.to_owned(),
        };
        let mut server = Server::new(device, &options).unwrap();
        server.listen_unix(&socket).unwrap();
        let handle = server.handle();
        let thread = Some(thread::spawn(move || server.run()));
        Self {
            socket,
            handle,
            thread,
            _folder: folder,
        }
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.socket)
    }

    /// A client in the transmission phase, with structured replies or simple ones.
    pub fn client(&self, structured: bool) -> Client {
        let mut client = self.connect();
        client.hello(3);
        if structured {
            client.option(OPT_STRUCTURED_REPLY, &[]);
            assert_eq!(client.option_reply().1, REP_ACK);
            client.option(OPT_SET_META_CONTEXT, &meta(b"", &[b"base:allocation"]));
            assert_eq!(client.option_reply().1, REP_META_CONTEXT);
            assert_eq!(client.option_reply().1, REP_ACK);
        }
        client.go(b"");
        client.structured = structured;
        client
    }

    /// Stops the server and says how its run ended.
    pub fn stop(mut self) -> nbdcrypt::error::Result<()> {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The data of INFO and GO.
pub fn info(name: &[u8], items: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((items.len() as u16).to_be_bytes());
    items
        .iter()
        .for_each(|item| data.extend(item.to_be_bytes()));
    data
}

/// The data of LIST and SET_META_CONTEXT.
pub fn meta(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(*query);
    }
    data
}

/// A reply to a request, of either kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub errno: u32,
    /// A read's data.
    pub data: Vec<u8>,
    /// BLOCK_STATUS: lengths and flags.
    pub extents: Vec<(u32, u32)>,
    /// The type of its structured chunk; `None` for a simple reply.
    pub chunk: Option<u16>,
}

pub struct Client {
    pub stream: UnixStream,
    pub structured: bool,
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        // A test that waits for what never comes fails rather than hangs.
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            stream,
            structured: false,
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn take_vec(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    /// The server has closed the connection: whatever it sent before is read past.
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
            Err(e) => panic!("the connection did not end: {e}"),
        }
    }

    /// Reads the server's hello and answers with these client flags.
    pub fn hello(&mut self, flags: u32) {
        assert_eq!(&self.take::<16>(), b"NBDMAGICIHAVEOPT");
        assert_eq!(self.u16(), 3);
        self.send(&flags.to_be_bytes());
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        self.option_header(option, data.len() as u32);
        self.send(data);
    }

    pub fn option_header(&mut self, option: u32, len: u32) {
        let mut header = b"IHAVEOPT".to_vec();
        header.extend(option.to_be_bytes());
        header.extend(len.to_be_bytes());
        self.send(&header);
    }

    /// Option, type, data.
    pub fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        assert_eq!(self.u64(), 0x3_e889_0455_65a9);
        let (option, kind, len) = (self.u32(), self.u32(), self.u32());
        (option, kind, self.take_vec(len as usize))
    }

    /// GO; returns size and transmission flags.
    pub fn go(&mut self, name: &[u8]) -> (u64, u16) {
        self.option(OPT_GO, &info(name, &[]));
        let (_, kind, data) = self.option_reply();
        assert_eq!((kind, data.len(), &data[..2]), (REP_INFO, 12, &[0, 0][..]));
        assert_eq!(self.option_reply().1, REP_ACK);
        let size = u64::from_be_bytes(data[2..10].try_into().unwrap());
        (size, u16::from_be_bytes(data[10..].try_into().unwrap()))
    }

    pub fn request(&mut self, flags: u16, command: u16, cookie: u64, offset: u64, len: u32) {
        self.send(&request(flags, command, cookie, offset, len));
    }

    /// The next reply. A simple reply carries `data_len` bytes if it is no error.
    pub fn reply(&mut self, data_len: usize) -> Reply {
        match self.u32() {
            0x6744_6698 => {
                let (errno, cookie) = (self.u32(), self.u64());
                let data = self.take_vec(if errno == 0 { data_len } else { 0 });
                Reply {
                    cookie,
                    errno,
                    data,
                    extents: Vec::new(),
                    chunk: None,
                }
            }
            0x668e_33ef => {
                let (flags, kind, cookie, len) = (self.u16(), self.u16(), self.u64(), self.u32());
                assert!(
                    self.structured,
                    "a structured reply that was not negotiated"
                );
                assert_eq!(flags, 1, "one chunk, the last");
                let payload = self.take_vec(len as usize);
                structured_reply(kind, cookie, &payload)
            }
            magic => panic!("no reply begins with {magic:#x}"),
        }
    }

    /// One request and its reply; nothing else may be in flight.
    pub fn ask(&mut self, flags: u16, command: u16, offset: u64, len: u32) -> Reply {
        self.request(flags, command, 0x1122_3344_5566_7788, offset, len);
        self.own_reply(if command == READ { len as usize } else { 0 })
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Reply {
        let mut message = request(
            flags,
            WRITE,
            0x1122_3344_5566_7788,
            offset,
            data.len() as u32,
        )
        .to_vec();
        message.extend(data);
        self.send(&message);
        self.own_reply(0)
    }

    fn own_reply(&mut self, data_len: usize) -> Reply {
        let reply = self.reply(data_len);
        assert_eq!(reply.cookie, 0x1122_3344_5566_7788);
        reply
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let reply = self.ask(0, READ, offset, len);
        assert_eq!(reply.errno, 0);
        reply.data
    }
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> [u8; 28] {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.try_into().unwrap()
}

fn structured_reply(kind: u16, cookie: u64, payload: &[u8]) -> Reply {
    let u32_at = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    let mut reply = Reply {
        cookie,
        errno: 0,
        data: Vec::new(),
        extents: Vec::new(),
        chunk: Some(kind),
    };
    match kind {
        0 => assert!(payload.is_empty()),
        1 => reply.data = payload[8..].to_vec(),
        5 => {
            assert_eq!(u32_at(0), 1, "the id that SET_META_CONTEXT gave");
            assert!(payload.len() > 4 && payload.len() % 8 == 4);
            reply.extents = (4..payload.len())
                .step_by(8)
                .map(|at| (u32_at(at), u32_at(at + 4)))
                .collect();
        }
        0x8001 | 0x8002 => {
            reply.errno = u32_at(0);
            let text = usize::from(u16::from_be_bytes(payload[4..6].try_into().unwrap()));
            assert_eq!(payload.len(), 6 + text + if kind == 0x8002 { 8 } else { 0 });
        }
        _ => panic!("unknown chunk {kind:#x}"),
    }
    reply
}

//! The protocol's numbers, each once, and the reading and writing of its fields.
//!
//! Source of every value: the NBD protocol description (`doc/proto.md` of the NetworkBlockDevice
//! project), section "Values" and the message layouts before it. All fields are big-endian.

/// First eight bytes a server sends (`NBDMAGIC`).
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle server, and the start of every option (`IHAVEOPT`).
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request of the transmission phase.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag: option replies exist.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: the 124 zero bytes after EXPORT_NAME may be left out.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Transmission flags.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works, with NO_HOLE.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// READ takes the DF flag (structured replies only).
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// WRITE_ZEROES takes the FAST_ZERO flag.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options.
pub mod option {
    /// Choose an export, with no way to answer an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End politely.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Go on under TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start transmission.
    pub const GO: u32 = 7;
    /// Structured replies from now on.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Which metadata contexts there are.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Which metadata contexts BLOCK_STATUS shall tell of.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export's name.
    pub const SERVER: u32 = 2;
    /// One information item.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// Malformed option, or one that may not be sent now.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// Option too large.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Information items of INFO and GO.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's name.
    pub const NAME: u16 = 1;
    /// A line for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum and preferred block size, maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands of the transmission phase.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows the header.
    pub const WRITE: u16 = 1;
    /// The client leaves; no reply.
    pub const DISC: u16 = 2;
    /// Make answered writes durable.
    pub const FLUSH: u16 = 3;
    /// Contents no longer needed.
    pub const TRIM: u16 = 4;
    /// Will be read soon.
    pub const CACHE: u16 = 5;
    /// Write zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask for extents.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES: leave no hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ: one content chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS: one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES: fail unless faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply flag: the last chunk of its reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Types of structured reply chunks.
pub mod chunk {
    /// Nothing more to say.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error, with a line for people.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// The one metadata context there is.
pub const BASE_ALLOCATION: &[u8] = b"base:allocation";
/// The id it is given by SET_META_CONTEXT.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// `base:allocation` state: nothing is allocated here.
pub const STATE_HOLE: u32 = 1 << 0;

/// Error numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Out of memory.
    NoMem = 12,
    /// Invalid request.
    Inval = 22,
    /// No space, or a write past the end.
    NoSpc = 28,
    /// Too long.
    Overflow = 75,
    /// Not supported.
    NotSup = 95,
    /// The server is ending.
    Shutdown = 108,
}

impl Errno {
    /// The wire's number for an error of the storage below; what has none is EIO, and so is
    /// EINVAL: the client's request was found valid. Source: "Error values".
    pub fn of(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EROFS | libc::EACCES) => Self::Perm,
            Some(libc::ENOMEM) => Self::NoMem,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoSpc,
            Some(libc::EOPNOTSUPP) => Self::NotSup,
            Some(libc::ESHUTDOWN) => Self::Shutdown,
            Some(_) => Self::Io,
            None => match error.kind() {
                std::io::ErrorKind::Unsupported => Self::NotSup,
                std::io::ErrorKind::OutOfMemory => Self::NoMem,
                std::io::ErrorKind::StorageFull => Self::NoSpc,
                _ => Self::Io,
            },
        }
    }
}

/// Bytes of a request header.
pub const REQUEST_HEADER_BYTES: usize = 28;

/// A request header as the client sent it; nothing in it is checked but the magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Command flags.
    pub flags: u16,
    /// Command.
    pub command: u16,
    /// The client's name for the request, echoed in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u32,
}

impl RequestHeader {
    /// Reads a header; `None` where the magic is wrong: the stream is then out of step for good.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset_bytes: fields.u64()?,
            len_bytes: fields.u32()?,
        })
    }
}

/// Takes big-endian fields off the front of a message; `None` where it is too short.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: u32) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A length of four bytes and as many bytes.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example values are written out by hand from the message layout.
    const READ_REQUEST: [u8; REQUEST_HEADER_BYTES] = [
        0x25, 0x60, 0x95, 0x13, 0x00, 0x04, 0x00, 0x00, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0,
        0x10, 0, 0, 0, 2, 0,
    ];

    #[test]
    fn a_request_header_is_read_field_by_field() {
        assert_eq!(
            RequestHeader::parse(&READ_REQUEST),
            Some(RequestHeader {
                flags: command_flag::DF,
                command: command::READ,
                cookie: 0x0102_0304_0506_0708,
                offset_bytes: 0x1_0000_1000,
                len_bytes: 512,
            })
        );
    }

    #[test]
    fn a_wrong_magic_is_no_request() {
        for at in 0..4 {
            let mut bytes = READ_REQUEST;
            bytes[at] ^= 1;
            assert_eq!(RequestHeader::parse(&bytes), None);
        }
    }

    #[test]
    fn errors_map_to_the_specification_s_numbers() {
        let of = |errno| Errno::of(&std::io::Error::from_raw_os_error(errno)) as u32;
        assert_eq!(of(libc::EIO), 5);
        assert_eq!(
            [of(libc::ENOSPC), of(libc::EDQUOT), of(libc::EFBIG)],
            [28; 3]
        );
        assert_eq!([of(libc::EPERM), of(libc::EROFS)], [1; 2]);
        assert_eq!(of(libc::ENOMEM), 12);
        assert_eq!(of(libc::EOPNOTSUPP), 95);
        assert_eq!(of(libc::ESHUTDOWN), 108);
        assert_eq!([of(libc::EBADF), of(libc::EINVAL)], [5; 2]);
        assert_eq!(
            Errno::of(&std::io::ErrorKind::UnexpectedEof.into()) as u32,
            5
        );
    }

    proptest! {
        #[test]
        fn fields_never_read_past_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut fields = Fields(&bytes);
            let mut taken = 0;
            while let Some(string) = fields.string() {
                taken += 4 + string.len();
            }
            prop_assert!(taken <= bytes.len());
        }
    }
}

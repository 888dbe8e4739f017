//! The handshake that a client does before it hands its socket to the kernel's nbd driver, which
//! knows the transmission phase only. Source: the NBD protocol, "Fixed newstyle negotiation".

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::limits;

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 2;
const OPT_EXPORT_NAME: u32 = 1;

/// An export as the server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// Size in bytes.
    pub(crate) size_bytes: u64,
    /// Transmission flags, as the kernel takes them too.
    pub(crate) flags: u16,
}

/// Connects to the server at `socket` and goes to the transmission phase of its default export.
pub(crate) fn connect(socket: &Path) -> io::Result<(UnixStream, Export)> {
    let mut stream = UnixStream::connect(socket)?;
    let timeout = Some(Duration::from_secs(limits::HANDSHAKE_SECONDS_MAX));
    stream.set_read_timeout(timeout)?;
    stream.set_write_timeout(timeout)?;
    let export = handshake(&mut stream)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok((stream, export))
}

fn handshake(stream: &mut (impl Read + Write)) -> io::Result<Export> {
    let greeting: [u8; 18] = read(stream)?;
    let [magic @ .., f0, f1] = greeting;
    let wanted = [NBDMAGIC.to_be_bytes(), IHAVEOPT.to_be_bytes()].concat();
    let flags = u16::from_be_bytes([f0, f1]) & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    if magic[..] != wanted || flags & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "no fixed newstyle NBD server",
        ));
    }
    let mut option = Vec::from(u32::from(flags).to_be_bytes());
    option.extend(IHAVEOPT.to_be_bytes());
    option.extend(OPT_EXPORT_NAME.to_be_bytes());
    option.extend(0_u32.to_be_bytes());
    stream.write_all(&option)?;
    let size_bytes = u64::from_be_bytes(read(stream)?);
    let transmission = u16::from_be_bytes(read(stream)?);
    if flags & FLAG_NO_ZEROES == 0 {
        read::<124>(stream)?;
    }
    Ok(Export {
        size_bytes,
        flags: transmission,
    })
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's side of the talk, and what the client said.
    struct Script(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read(buf)
        }
    }

    impl Write for Script {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.1.write(buf)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn server(flags: u16, zeroes: usize) -> Script {
        let mut says = b"NBDMAGICIHAVEOPT".to_vec();
        says.extend(flags.to_be_bytes());
        says.extend(4096_u64.to_be_bytes());
        says.extend(0x12d_u16.to_be_bytes());
        says.resize(says.len() + zeroes, 0);
        Script(io::Cursor::new(says), Vec::new())
    }

    #[test]
    fn the_export_is_read_with_and_without_zeroes() {
        for (flags, zeroes) in [(3, 0), (1, 124)] {
            let mut script = server(flags, zeroes);
            let export = handshake(&mut script).unwrap();
            assert_eq!(
                export,
                Export {
                    size_bytes: 4096,
                    flags: 0x12d
                }
            );
            assert_eq!(script.1[..4], u32::from(flags).to_be_bytes());
            assert_eq!(script.1[4..], *b"IHAVEOPT\0\0\0\x01\0\0\0\0");
            assert_eq!(script.0.position() as usize, script.0.get_ref().len());
        }
    }

    #[test]
    fn another_protocol_is_refused() {
        let mut script = Script(
            io::Cursor::new(b"SSH-2.0-OpenSSH_9.2p1\r\n".to_vec()),
            Vec::new(),
        );
        assert_eq!(
            handshake(&mut script).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let mut script = server(0, 124);
        assert!(handshake(&mut script).is_err());
    }
}

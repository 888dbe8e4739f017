//! `luks dump`: the header in words or as JSON, the raw LUKS2 JSON area, the volume key.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::unlock::{self, HeaderArgs, KeyArgs};
use super::{DONE, print};
use crate::error::{Error, Result};
use crate::luks::{Header, UnlockOptions};
use crate::secret::Secret;

/// Shows IMAGE's header: ciphers, key slots, sizes; no secrets unless --volume-key asks for one
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  luks dump disk.img\n  luks dump --json disk.img | jq .uuid\n  \
luks dump --volume-key --volume-key-file vk --key-file k disk.img"
)]
pub(crate) struct DumpArgs {
    /// Disk image or block device
    image: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print the LUKS2 JSON area exactly as it is stored
    #[arg(long, alias = "dump-json-metadata", conflicts_with = "json")]
    json_metadata: bool,

    /// Unlock it and print the volume key in hexadecimal. Whoever has it has the volume, whatever
    /// becomes of the passphrases
    #[arg(long, aliases = ["dump-volume-key", "dump-master-key"])]
    #[arg(conflicts_with_all = ["json", "json_metadata"])]
    volume_key: bool,

    /// Write the volume key to this new file, as raw bytes, instead of printing it
    #[arg(
        long,
        value_name = "PATH",
        alias = "master-key-file",
        requires = "volume_key"
    )]
    volume_key_file: Option<PathBuf>,

    #[command(flatten)]
    header: HeaderArgs,

    #[command(flatten)]
    key: KeyArgs,
}

impl DumpArgs {
    pub(crate) fn run(self) -> Result<u8> {
        let header = unlock::read_header(&self.header, &self.image)?;
        if self.volume_key {
            self.give_volume_key(&header)?;
        } else if self.json_metadata {
            let area = header.json_area().ok_or_else(|| {
                Error::device("a LUKS1 header has no JSON").on(self.image.display())
            })?;
            print(area)?;
        } else if self.json {
            print(format_args!("{:#}", header.description()))?;
        } else {
            print(header.description_in_words().trim_end())?;
        }
        Ok(DONE)
    }

    fn give_volume_key(&self, header: &Header) -> Result<()> {
        let options = UnlockOptions {
            keyslot: self.key.key_slot,
            ..UnlockOptions::default()
        };
        let found = unlock::unlock_with_passphrase(header, &self.key, &options, &self.image)?;
        match &self.volume_key_file {
            Some(path) => write_new(path, &found.key),
            // Not through the buffer of standard output, which would keep a copy.
            None => write_to_stdout(&hexadecimal(&found.key)),
        }
    }
}

fn write_new(path: &Path, key: &Secret) -> Result<()> {
    let open = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match open.and_then(|mut file| file.write_all(key).and_then(|()| file.sync_all())) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::busy("the file for the volume key is there already").on(path.display()))
        }
        Err(e) => Err(Error::device("can't write the volume key")
            .caused_by(e)
            .on(path.display())),
    }
}

fn write_to_stdout(text: &Secret) -> Result<()> {
    let stdout = io::stdout();
    let mut rest: &[u8] = text;
    while !rest.is_empty() {
        match rustix::io::write(stdout.as_fd(), rest) {
            Ok(count) => rest = &rest[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                let e = io::Error::from(e);
                return Err(Error::device("can't write to standard output").caused_by(e));
            }
        }
    }
    Ok(())
}

/// Two digits a byte, and a newline.
fn hexadecimal(key: &Secret) -> Secret {
    let mut text = Secret::zeroed(2 * key.len() + 1);
    let digit = |value: u8| {
        if value < 10 {
            b'0' + value
        } else {
            b'a' + value - 10
        }
    };
    for (pair, &byte) in text.chunks_exact_mut(2).zip(key.iter()) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    if let Some(last) = text.last_mut() {
        *last = b'\n';
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_two_digits_a_byte() {
        let text = hexadecimal(&Secret::copy_of(&[0x00, 0x9a, 0xff, 0x10]));
        assert_eq!(&*text, b"009aff10\n");
    }
}

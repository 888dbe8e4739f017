//! Flags of plain dm-crypt, which has no header that could tell.

use std::path::Path;

use clap::Args;

use super::unlock::{KeyArgs, UnlockArgs};
use super::{keyfile, terminal, warn};
use crate::cipher::CipherSpec;
use crate::error::{Error, Result};
use crate::formats::plain::{PassphraseHash, Plain};
use crate::limits::PLAIN_KEY_BYTES_MAX;
use crate::secret::Secret;
use crate::units::SectorSize;
use crate::volume::Volume;

/// What is told of a plain volume.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Plain dm-crypt (--type plain)")]
pub struct PlainArgs {
    /// The cipher, as dm-crypt spells it: aes-xts-plain64, aes-cbc-essiv:sha256
    #[arg(long, short = 'c', value_name = "SPEC")]
    pub cipher: Option<String>,

    /// Length of the volume key in bits (for XTS both keys together)
    #[arg(long, short = 's', value_name = "BITS")]
    pub key_size: Option<u64>,

    /// Hash that makes the key of a passphrase; with LEN, LEN bytes of it and zeros. `plain`: the
    /// passphrase itself. A key file is never hashed
    #[arg(long, value_name = "NAME[:LEN]")]
    pub hash: Option<String>,

    /// The volume begins this many 512-byte sectors into IMAGE
    #[arg(long, short = 'o', value_name = "SECTORS")]
    pub offset: Option<u64>,

    /// The number of the first 512-byte sector, for its IV
    #[arg(long, short = 'p', value_name = "SECTORS")]
    pub skip: Option<u64>,

    /// Length of the volume in 512-byte sectors [default: to IMAGE's end]
    #[arg(long, short = 'b', value_name = "SECTORS")]
    pub size: Option<u64>,

    /// The encryption sector: 512, 1024, 2048 or 4096 [default: 512]
    #[arg(long, value_name = "BYTES")]
    pub sector_size: Option<u64>,

    /// IVs count sectors of --sector-size instead of 512 bytes
    #[arg(long)]
    pub iv_large_sectors: bool,
}

impl PlainArgs {
    /// Errors: `Usage` where one of these flags is given, for volumes of other types.
    pub(crate) fn refuse(&self) -> Result<()> {
        let given = [
            ("--cipher", self.cipher.is_some()),
            ("--key-size", self.key_size.is_some()),
            ("--hash", self.hash.is_some()),
            ("--offset", self.offset.is_some()),
            ("--skip", self.skip.is_some()),
            ("--size", self.size.is_some()),
            ("--sector-size", self.sector_size.is_some()),
            ("--iv-large-sectors", self.iv_large_sectors),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Error::usage(format!("{flag} is for plain volumes only"))
                .hint("--type plain; a LUKS header tells it by itself")),
        }
    }

    /// What is told, checked as far as that goes without a key and the device.
    fn plain(&self, allow_null_cipher: bool) -> Result<Plain> {
        let cipher = self.cipher.as_deref().unwrap_or_default();
        let cipher = match cipher {
            // cryptsetup's names for it.
            "null" | "cipher_null" => "cipher_null-ecb",
            cipher => cipher,
        };
        let cipher = CipherSpec::parse(cipher).map_err(|e| Error::usage(e.what().to_owned()))?;
        let bits = self.key_size.unwrap_or_default();
        let key_bytes = usize::try_from(bits / 8).unwrap_or(usize::MAX);
        if !cipher.is_null()
            && (!bits.is_multiple_of(8) || !(1..=PLAIN_KEY_BYTES_MAX).contains(&key_bytes))
        {
            return Err(Error::usage(format!(
                "a key of {bits} bits: --key-size is a multiple of 8, up to {}",
                PLAIN_KEY_BYTES_MAX * 8
            )));
        }
        let sector_bytes = self.sector_size.unwrap_or(512);
        let sector_size = SectorSize::new(sector_bytes).ok_or_else(|| {
            Error::usage(format!(
                "a sector size of {sector_bytes} bytes: it is 512, 1024, 2048 or 4096"
            ))
        })?;
        if self.iv_large_sectors && sector_size == SectorSize::MIN {
            return Err(Error::usage(
                "--iv-large-sectors needs a --sector-size over 512",
            ));
        }
        let plain = Plain {
            key_bytes: if cipher.is_null() { 0 } else { key_bytes },
            cipher,
            offset_sectors: self.offset.unwrap_or(0),
            skip_sectors: self.skip.unwrap_or(0),
            size_sectors: self.size,
            sector_size,
            large_sectors: self.iv_large_sectors,
            allow_null_cipher,
        };
        plain.check().map(|()| plain)
    }

    /// There are no defaults: cryptsetup's changed over time, and a wrong guess destroys data with
    /// the first write.
    fn refuse_defaults(&self, hash_needed: bool) -> Result<()> {
        let null = self.cipher.as_deref().is_some_and(|c| c.contains("null"));
        let missing: Vec<_> = [
            ("--cipher", self.cipher.is_none()),
            ("--key-size", self.key_size.is_none() && !null),
            ("--hash", self.hash.is_none() && hash_needed && !null),
        ]
        .into_iter()
        .filter_map(|(flag, missing)| missing.then_some(flag))
        .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::usage(format!(
            "a plain volume has no header, and there are no safe defaults: {} must be given",
            missing.join(", ")
        ))
        .hint(
            "cryptsetup's were aes-cbc-essiv:sha256, 256, ripemd160 up to 2.6; aes-xts-plain64, \
             256, sha256 since 2.7; aes-cbc-plain, 256, ripemd160 up to 1.0",
        ))
    }
}

/// What a plain volume is, and where its key comes from; checked before anything is asked for.
#[derive(Debug)]
pub(super) struct PlainVolume<'a> {
    plain: Plain,
    hash: Option<PassphraseHash>,
    args: &'a UnlockArgs,
}

impl<'a> PlainVolume<'a> {
    /// Errors: `Usage` where something is missing or doesn't go together; `Device` where the
    /// cipher isn't supported.
    pub(super) fn new(args: &'a UnlockArgs) -> Result<Self> {
        let from_file = args.key.key_file.is_some() || args.volume_key_file.is_some();
        for (flag, given) in [
            ("--header", args.header.header.is_some()),
            ("--key-slot", args.key.key_slot.is_some()),
        ] {
            if given {
                let what = format!("a plain volume has no header, so {flag} makes no sense");
                return Err(Error::usage(what));
            }
        }
        args.plain.refuse_defaults(!from_file)?;
        let plain = args.plain.plain(args.allow_null_cipher)?;
        let hash = args.plain.hash.as_deref();
        let hash = hash.map(PassphraseHash::parse).transpose()?;
        if let (Some(path), Some(_)) = (&args.key.key_file, hash) {
            if path == Path::new("-") {
                // cryptsetup hashes this one.
                return Err(
                    Error::usage("--hash with a key on standard input is ambiguous")
                        .hint("for a passphrase leave --key-file out, for a key leave --hash out"),
                );
            }
            warn("warning: --hash has no effect: a key file is never hashed");
        }
        Ok(Self { plain, hash, args })
    }

    /// The volume on a device of `data_bytes`, with a key asked for where it must be, and that key.
    pub(super) fn open(&self, image: &Path, data_bytes: u64) -> Result<(Volume, Secret)> {
        let key_bytes = self.plain.key_bytes;
        let key = match (&self.args.volume_key_file, &self.args.key.key_file) {
            _ if self.plain.is_null() => Secret::zeroed(0),
            (Some(path), _) => whole_key(path, key_bytes)?,
            (None, Some(path)) => first_of_key_file(path, &self.args.key, key_bytes)?,
            (None, None) => self.passphrase_key(image)?,
        };
        let volume = self.plain.volume(&key, data_bytes);
        Ok((volume.map_err(|e| e.on(image.display()))?, key))
    }

    fn passphrase_key(&self, image: &Path) -> Result<Secret> {
        let passphrase = match terminal::is_interactive() {
            true => terminal::ask_passphrase(image)?,
            false => keyfile::read_line_of_stdin()?,
        };
        let passphrase = passphrase.ok_or_else(|| {
            Error::usage("no passphrase given")
                .on(image.display())
                .hint("a key file: --key-file PATH")
        })?;
        let hash = self.hash.expect("checked: a passphrase has a hash");
        hash.key(&passphrase, self.plain.key_bytes)
    }
}

/// A file that is the volume key and nothing else.
fn whole_key(path: &Path, key_bytes: usize) -> Result<Secret> {
    let key = keyfile::read(path, 0, None)?;
    match key.len() == key_bytes {
        true => Ok(key),
        false => Err(Error::usage(format!(
            "the volume key has {} bytes, not the {key_bytes} of --key-size",
            key.len()
        ))
        .on(path.display())),
    }
}

/// A key file's first bytes; it may be longer.
fn first_of_key_file(path: &Path, args: &KeyArgs, key_bytes: usize) -> Result<Secret> {
    let wanted = key_bytes as u64;
    match args.keyfile_size {
        Some(size) if size < wanted => Err(Error::usage(format!(
            "--keyfile-size {size} is less than the key's {key_bytes} bytes"
        ))),
        _ => keyfile::read(path, args.keyfile_offset, Some(wanted)),
    }
}

//! From an image and the flags about keys to an unlocked volume: shared by every verb that needs
//! a header or a key.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;

use super::plain::{PlainArgs, PlainVolume};
use super::{keyfile, terminal, warn};
use crate::cipher::{CipherSpec, SectorCipher};
use crate::error::{Error, ErrorKind, Result};
use crate::image::{self, Place};
use crate::luks::{Credential, Header, UnlockOptions, VolumeKey};
use crate::queue::{Device, DeviceOptions, IoMode};
use crate::secret::Secret;
use crate::storage::{FileStorage, OpenMode, Storage};
use crate::volume::Volume;

/// Passphrases asked for on a terminal before giving up: cryptsetup's number.
const TRIES_ON_A_TERMINAL: u32 = 3;

/// Where a header and its data are. Flatten it beside a positional `image`.
#[derive(Args, Debug, Clone, Default)]
pub struct HeaderArgs {
    /// The header is in this file; IMAGE holds the data alone
    #[arg(long, value_name = "PATH", help_heading = "Where the volume is")]
    pub header: Option<PathBuf>,

    /// The volume begins this many bytes into IMAGE
    #[arg(long, value_name = "BYTES", help_heading = "Where the volume is")]
    #[arg(conflicts_with = "partition")]
    pub image_offset: Option<u64>,

    /// The volume is in this partition of IMAGE (MBR or GPT), counted from 1
    #[arg(long, value_name = "N", help_heading = "Where the volume is")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub partition: Option<u32>,

    /// The volume's type: auto (never plain), luks1, luks2 or plain
    #[arg(long = "type", value_name = "TYPE", default_value = "auto")]
    #[arg(help_heading = "Where the volume is")]
    pub volume_type: VolumeType,
}

/// Where a passphrase comes from.
#[derive(Args, Debug, Clone, Default)]
pub struct KeyArgs {
    /// Read the key from a file: raw bytes to its end, no newline removed (`-`: standard input).
    /// Without it a passphrase is asked for on the terminal, or is the first line of standard
    /// input without its newline
    #[arg(long, short = 'd', value_name = "PATH", help_heading = "Keys")]
    pub key_file: Option<PathBuf>,

    /// Skip this many bytes of the key file
    #[arg(long, value_name = "BYTES", default_value_t = 0, help_heading = "Keys")]
    #[arg(requires = "key_file")]
    pub keyfile_offset: u64,

    /// Use this many bytes of the key file
    #[arg(long, short = 'l', value_name = "BYTES", help_heading = "Keys")]
    #[arg(requires = "key_file", value_parser = clap::value_parser!(u64).range(1..))]
    pub keyfile_size: Option<u64>,

    /// Try this key slot only
    #[arg(long, short = 'S', value_name = "N", help_heading = "Keys")]
    pub key_slot: Option<u32>,

    /// How many passphrases may be tried [default: 3 on a terminal, else 1]
    #[arg(long, short = 'T', value_name = "N", help_heading = "Keys")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub tries: Option<u32>,
}

/// Everything about opening a volume. Flatten it beside a positional `image`.
#[derive(Args, Debug, Clone, Default)]
pub struct UnlockArgs {
    /// Where the header and the data are.
    #[command(flatten)]
    pub header: HeaderArgs,

    /// Where the passphrase comes from.
    #[command(flatten)]
    pub key: KeyArgs,

    /// Use the volume key in this file instead of a passphrase
    #[arg(
        long,
        alias = "master-key-file",
        value_name = "PATH",
        help_heading = "Keys"
    )]
    #[arg(conflicts_with = "key_file")]
    pub volume_key_file: Option<PathBuf>,

    /// Refuse writes; IMAGE is opened for reading only
    #[arg(
        long,
        short = 'r',
        alias = "readonly",
        help_heading = "How it is opened"
    )]
    pub read_only: bool,

    /// Pass discards (TRIM) down to IMAGE: saves space, and shows which sectors are unused
    #[arg(long, help_heading = "How it is opened")]
    pub allow_discards: bool,

    /// Accept a volume whose cipher is null, that is to say in clear
    #[arg(long, help_heading = "How it is opened")]
    pub allow_null_cipher: bool,

    /// Read and write IMAGE by: auto, uring (io_uring), or plain (pread and pwrite)
    #[arg(
        long,
        value_name = "IO",
        default_value = "auto",
        help_heading = "How it is opened"
    )]
    #[arg(value_parser = io_mode)]
    pub io: IoMode,

    /// What is told of a plain volume.
    #[command(flatten)]
    pub plain: PlainArgs,
}

/// What `--type` may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeType {
    /// Whatever the header says; never plain.
    #[default]
    Auto,
    /// LUKS1.
    Luks1,
    /// LUKS2.
    Luks2,
    /// Plain dm-crypt.
    Plain,
    /// A type that cryptsetup opens and this version doesn't.
    Unsupported(&'static str),
}

fn io_mode(name: &str) -> std::result::Result<IoMode, String> {
    match name {
        "auto" => Ok(IoMode::Auto),
        "uring" => Ok(IoMode::Uring),
        "plain" => Ok(IoMode::Plain),
        _ => Err("must be auto, uring or plain".to_owned()),
    }
}

impl FromStr for VolumeType {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        const UNSUPPORTED: [&str; 7] = [
            "loopaes",
            "tcrypt",
            "truecrypt",
            "veracrypt",
            "bitlk",
            "fvault2",
            "verity",
        ];
        match name {
            "auto" | "luks" => Ok(Self::Auto),
            "luks1" => Ok(Self::Luks1),
            "luks2" => Ok(Self::Luks2),
            "plain" => Ok(Self::Plain),
            _ => UNSUPPORTED
                .into_iter()
                .find(|&known| known == name)
                .map(Self::Unsupported)
                .ok_or_else(|| "must be auto, luks1, luks2 or plain".to_owned()),
        }
    }
}

/// An unlocked volume, ready to be served.
#[derive(Debug)]
pub struct Opened {
    /// The device.
    pub device: Arc<Device>,
    /// Whether trims are allowed, by flag or by the header.
    pub allow_discards: bool,
}

/// Unlocks the volume on `image`: finds and reads the header, gets the key (asking where it must),
/// and derives once. Warnings go to stderr.
///
/// Errors: as the exit codes say; a wrong passphrase is `Permission`.
pub fn open_volume(args: &UnlockArgs, image: &Path) -> Result<Opened> {
    refuse_unsupported_type(&args.header, image)?;
    let (volume, data) = match args.header.volume_type {
        VolumeType::Plain => open_plain(args, image)?,
        _ => open_luks(args, image)?,
    };
    let allow_discards = args.allow_discards
        || volume
            .about
            .flags
            .iter()
            .any(|flag| flag == "allow-discards");
    let options = DeviceOptions {
        read_only: args.read_only,
        allow_discards,
        io: args.io,
    };
    let device = Device::new(volume, data, options);
    if args.io == IoMode::Uring && !device.has_ring() {
        return Err(Error::device("io_uring can't be had here")
            .on(image.display())
            .hint("--io auto, which does without; `luks engines` says why"));
    }
    Ok(Opened {
        device,
        allow_discards,
    })
}

fn open_plain(args: &UnlockArgs, image: &Path) -> Result<(Volume, Arc<dyn Storage>)> {
    let plain = PlainVolume::new(args)?;
    let data = open_image(&args.header, image, open_mode(args))?;
    let (volume, key) = plain.open(image, size_bytes(&*data, image)?)?;
    warn_of_weak_key(&volume, &key, image);
    Ok((volume, data))
}

fn open_luks(args: &UnlockArgs, image: &Path) -> Result<(Volume, Arc<dyn Storage>)> {
    args.plain.refuse()?;
    let data = open_image(&args.header, image, open_mode(args))?;
    let header_storage = match &args.header.header {
        Some(path) => open_file(path, OpenMode::ReadOnly)?,
        None => Arc::clone(&data),
    };
    let header = load_header(&args.header, image, header_storage)?;
    let data_size_bytes = size_bytes(&*data, image)?;
    if args.header.header.is_none() {
        refuse_header_alone(&header, image, data_size_bytes)?;
    }
    let key = unlock(&header, args, image)?;
    let volume = header
        .volume(&key, data_size_bytes, &unlock_options(args))
        .map_err(|e| e.on(image.display()))?;
    warn_of_weak_key(&volume, &key.key, image);
    Ok((volume, data))
}

fn open_mode(args: &UnlockArgs) -> OpenMode {
    match args.read_only {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    }
}

fn size_bytes(data: &dyn Storage, image: &Path) -> Result<u64> {
    data.size_bytes().map_err(|e| {
        Error::device("can't find its size")
            .caused_by(e)
            .on(image.display())
    })
}

/// dm-crypt opens such volumes, so they are opened; but nobody should go on writing to one.
fn warn_of_weak_key(volume: &Volume, key: &[u8], image: &Path) {
    let spec = CipherSpec::parse(&volume.about.cipher);
    let is_xts = spec.is_ok_and(|spec| spec.mode() == Some("xts"));
    if is_xts && SectorCipher::weak_xts_key(key) {
        warn(format_args!(
            "warning: {}: the two halves of its XTS key are equal, which makes the encryption weak",
            image.display()
        ));
    }
}

/// Finds the volume key and keeps it to itself; returns the key slot it came from. What
/// `open --test-passphrase` does.
///
/// Errors: as [`open_volume`].
pub fn test_passphrase(args: &UnlockArgs, image: &Path) -> Result<Option<u32>> {
    if args.header.volume_type == VolumeType::Plain {
        return Err(
            Error::usage("nothing tells whether a passphrase is right for a plain volume")
                .hint("leave --test-passphrase out, and look at what opens"),
        );
    }
    args.plain.refuse()?;
    let header = read_header(&args.header, image)?;
    unlock(&header, args, image).map(|key| key.keyslot)
}

/// Reads and checks the header of the volume on `image`, for verbs that only look. Warnings go to
/// stderr.
///
/// Errors: `Device` (exit 4).
pub fn read_header(args: &HeaderArgs, image: &Path) -> Result<Header> {
    refuse_unsupported_type(args, image)?;
    if args.volume_type == VolumeType::Plain {
        return Err(Error::device("a plain volume has no header").on(image.display()));
    }
    let storage = open_header_storage(args, image)?;
    load_header(args, image, storage)
}

/// The storage that holds the header of the volume on `image`, opened for reading only.
///
/// Errors: `Device` (exit 4).
pub(crate) fn open_header_storage(args: &HeaderArgs, image: &Path) -> Result<Arc<dyn Storage>> {
    match &args.header {
        Some(path) => open_file(path, OpenMode::ReadOnly),
        None => open_image(args, image, OpenMode::ReadOnly),
    }
}

/// Reads and checks the header in `storage`; where there is none, the error says what there is
/// instead. Warnings go to stderr.
pub(crate) fn load_header(
    args: &HeaderArgs,
    image: &Path,
    storage: Arc<dyn Storage>,
) -> Result<Header> {
    let path = args.header.as_deref().unwrap_or(image);
    let named = |e: Error| e.on(path.display());
    if !Header::probe(&*storage).map_err(named)? {
        return Err(image::explain_no_header(
            &storage,
            path,
            args.header.is_some(),
        ));
    }
    let header = Header::load(storage, args.header.is_some()).map_err(named)?;
    for warning in header.warnings() {
        warn(format_args!("warning: {}: {warning}", path.display()));
    }
    let found = header.format();
    match args.volume_type {
        VolumeType::Luks1 if found != "luks1" => Err(other_type(found, "luks1", path)),
        VolumeType::Luks2 if found != "luks2" => Err(other_type(found, "luks2", path)),
        _ => Ok(header),
    }
}

fn other_type(found: &str, asked: &str, path: &Path) -> Error {
    Error::device(format!("the volume is {found}, not {asked}"))
        .on(path.display())
        .hint(format!("--type {found}"))
}

fn refuse_unsupported_type(args: &HeaderArgs, image: &Path) -> Result<()> {
    match args.volume_type {
        VolumeType::Unsupported(name) => Err(Error::device(format!(
            "volumes of type {name} aren't supported by this version"
        ))
        .on(image.display())
        .hint("--type auto, luks1, luks2 or plain")),
        _ => Ok(()),
    }
}

/// A header file without its data: the data would begin at its end or beyond, or in the header
/// itself. Found before a passphrase is asked for.
fn refuse_header_alone(header: &Header, image: &Path, size_bytes: u64) -> Result<()> {
    let description = header.description();
    let payload = description["payload_offset_bytes"].as_u64();
    if payload.is_none_or(|offset| offset > 0 && offset < size_bytes) {
        return Ok(());
    }
    Err(Error::device("it holds a LUKS header only, no data")
        .on(image.display())
        .hint(format!(
            "give the data as IMAGE and --header {}",
            image.display()
        )))
}

fn open_file(path: &Path, mode: OpenMode) -> Result<Arc<dyn Storage>> {
    Ok(Arc::new(FileStorage::open(path, mode)?))
}

fn open_image(args: &HeaderArgs, image: &Path, mode: OpenMode) -> Result<Arc<dyn Storage>> {
    let file = open_file(image, mode)?;
    let place = match (args.partition, args.image_offset) {
        (Some(number), _) => Place::Partition(number),
        (None, Some(offset_bytes)) => Place::Offset(offset_bytes),
        (None, None) => Place::Whole,
    };
    image::window(file, place).map_err(|e| e.on(image.display()))
}

pub(crate) fn unlock_options(args: &UnlockArgs) -> UnlockOptions {
    UnlockOptions {
        keyslot: args.key.key_slot,
        allow_null_cipher: args.allow_null_cipher,
    }
}

/// The volume key of `header`, by whatever the flags say.
fn unlock(header: &Header, args: &UnlockArgs, image: &Path) -> Result<VolumeKey> {
    let options = unlock_options(args);
    if let Some(path) = &args.volume_key_file {
        let key = keyfile::read(path, 0, None)?;
        return header
            .unlock(&Credential::VolumeKey(key), &options)
            .map_err(|e| e.on(image.display()));
    }
    unlock_with_passphrase(header, &args.key, &options, image)
}

/// The volume key of `header`, by a passphrase: from a key file, the terminal, or standard input.
///
/// Errors: `Permission` (exit 2) once all tries failed, saying how many.
pub(crate) fn unlock_with_passphrase(
    header: &Header,
    args: &KeyArgs,
    options: &UnlockOptions,
    image: &Path,
) -> Result<VolumeKey> {
    let try_one = |passphrase: Secret| {
        header
            .unlock(&Credential::Passphrase(passphrase), options)
            .map_err(|e| e.on(image.display()))
    };
    if let Some(path) = &args.key_file {
        let key = keyfile::read(path, args.keyfile_offset, args.keyfile_size)?;
        let shorter = without_newline(&key);
        return try_one(key).map_err(|e| hint_on_key_file(e, path, shorter, &try_one));
    }
    let interactive = terminal::is_interactive();
    let tries = args
        .tries
        .unwrap_or(if interactive { TRIES_ON_A_TERMINAL } else { 1 });
    for failed in 0..tries {
        let passphrase = match interactive {
            true => terminal::ask_passphrase(image)?,
            false => keyfile::read_line_of_stdin()?,
        };
        let Some(passphrase) = passphrase else {
            return Err(no_more_passphrases(failed).on(image.display()));
        };
        match try_one(passphrase) {
            Err(e) if e.kind() == ErrorKind::Permission => {
                if tries == 1 {
                    return Err(if interactive { e } else { e.hint(STDIN_RULE) });
                }
                warn(format_args!("{} (try {} of {tries})", e.what(), failed + 1));
            }
            other => return other,
        }
    }
    Err(Error::permission(format!("{tries} of {tries} tries failed")).on(image.display()))
}

const STDIN_RULE: &str = "the first line of standard input, without its newline, was tried; \
--key-file - takes all of it as it is";

fn no_more_passphrases(failed: u32) -> Error {
    match failed {
        0 => Error::usage("no passphrase given").hint("a key file: --key-file PATH"),
        1 => Error::permission("1 try failed, and no other passphrase was given"),
        n => Error::permission(format!(
            "{n} tries failed, and no other passphrase was given"
        )),
    }
}

/// The key without the newline it ends in, if it does.
fn without_newline(key: &Secret) -> Option<Secret> {
    let shorter = key.strip_suffix(b"\n")?;
    Some(Secret::copy_of(
        shorter.strip_suffix(b"\r").unwrap_or(shorter),
    ))
}

/// Key files are raw bytes, so a newline that an editor or `echo` left makes them another key. It
/// is never removed, but where it is what's wrong, the error says so.
fn hint_on_key_file(
    error: Error,
    path: &Path,
    shorter: Option<Secret>,
    try_one: &dyn Fn(Secret) -> Result<VolumeKey>,
) -> Error {
    if error.kind() != ErrorKind::Permission {
        return error;
    }
    match shorter.map(try_one) {
        Some(Ok(_)) => error.hint(
            "the key ends in a newline, and without it would open the volume: write it without \
             one (printf, not echo)",
        ),
        _ if path == Path::new("-") => error.hint(
            "all of standard input was tried as it is; without --key-file its first line is taken",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_are_not_built_are_known_by_name() {
        assert_eq!("luks".parse(), Ok(VolumeType::Auto));
        assert_eq!("bitlk".parse(), Ok(VolumeType::Unsupported("bitlk")));
        assert!("plane".parse::<VolumeType>().is_err());
        let args = HeaderArgs {
            volume_type: VolumeType::Unsupported("bitlk"),
            ..HeaderArgs::default()
        };
        let error = read_header(&args, Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.what().contains("bitlk"));
    }

    #[test]
    fn only_a_last_newline_is_taken_off() {
        let cut = |key: &[u8]| without_newline(&Secret::copy_of(key)).map(|key| key.to_vec());
        assert_eq!(cut(b"abc\n"), Some(b"abc".to_vec()));
        assert_eq!(cut(b"a\nbc\r\n"), Some(b"a\nbc".to_vec()));
        assert_eq!(cut(b"a\nbc"), None);
        assert_eq!(cut(b""), None);
    }
}

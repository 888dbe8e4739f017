//! Plain dm-crypt: no header, so that everything about a volume is told by whoever opens it, and
//! nothing can tell whether the key is right.
//! Source: cryptsetup(8), "PLAIN DM-CRYPT" and "NOTES ON PASSPHRASE PROCESSING FOR PLAIN MODE".

use std::sync::Arc;

use crate::cipher::{CipherSpec, IvOptions, SectorCipher};
use crate::error::{Error, Result};
use crate::kdf::{DIGEST_BYTES_MAX, HashAlgorithm};
use crate::luks::is_null_cipher;
use crate::secret::{Secret, wipe_stack};
use crate::units::{IV_UNIT_BYTES, SectorSize};
use crate::volume::{Segment, SegmentKind, Volume, VolumeAbout};

/// What is told of a plain volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Its cipher.
    pub cipher: CipherSpec,
    /// Length of the volume key in bytes; 0 for a null cipher.
    pub key_bytes: usize,
    /// Where it begins, in 512-byte sectors.
    pub offset_sectors: u64,
    /// Added to its sectors' numbers for their IVs, in 512-byte sectors.
    pub skip_sectors: u64,
    /// Its length in 512-byte sectors; `None`: to the end of the device.
    pub size_sectors: Option<u64>,
    /// The encryption sector.
    pub sector_size: SectorSize,
    /// Whether IVs count encryption sectors, instead of 512-byte sectors.
    pub large_sectors: bool,
    /// Whether a null cipher is accepted.
    pub allow_null_cipher: bool,
}

impl Plain {
    /// Checks what can be checked without key and device.
    ///
    /// Errors: `Device` where the cipher isn't supported, doesn't take a key of this length, or is
    /// null and not allowed.
    pub fn check(&self) -> Result<()> {
        self.kind(&Secret::zeroed(self.key_bytes)).map(|_| ())
    }

    /// Whether it is in clear, so that there is no key.
    pub fn is_null(&self) -> bool {
        self.cipher.is_null()
    }

    /// The volume that `key` opens on a device of `data_bytes`; any key does.
    ///
    /// Errors: `Device` as [`Self::check`], and where it doesn't fit the device or the sector grid.
    pub fn volume(&self, key: &Secret, data_bytes: u64) -> Result<Volume> {
        let kind = self.kind(key)?;
        let start_bytes = self.offset_sectors.checked_mul(IV_UNIT_BYTES);
        let rest_bytes = start_bytes.and_then(|start| data_bytes.checked_sub(start));
        let (Some(start_bytes), Some(rest_bytes)) = (start_bytes, rest_bytes) else {
            return Err(Error::device(format!(
                "an offset of {} sectors lies beyond the device's end at {data_bytes} bytes",
                self.offset_sectors
            )));
        };
        let size_bytes = match self.size_sectors {
            None => rest_bytes - rest_bytes % IV_UNIT_BYTES,
            Some(sectors) => sectors
                .checked_mul(IV_UNIT_BYTES)
                .filter(|&bytes| bytes <= rest_bytes)
                .ok_or_else(|| {
                    Error::device(format!(
                        "{sectors} sectors don't fit: the device has {rest_bytes} bytes after the \
                         offset"
                    ))
                })?,
        };
        if size_bytes == 0 {
            return Err(Error::device(format!(
                "there are no data: the device ends at {data_bytes}, the volume begins at \
                 {start_bytes}"
            )));
        }
        if !size_bytes.is_multiple_of(self.sector_size.bytes_u64()) {
            return Err(Error::device(format!(
                "the volume is {size_bytes} bytes long, not a multiple of its sector size ({:?})",
                self.sector_size
            ))
            .hint("--size SECTORS, or another --sector-size"));
        }
        Ok(Volume {
            segments: vec![Segment {
                start_bytes: 0,
                len_bytes: size_bytes,
                storage_offset_bytes: start_bytes,
                kind,
            }],
            size_bytes,
            sector_size: self.sector_size,
            about: VolumeAbout {
                format: "plain",
                cipher: self.cipher.to_string(),
                key_bits: key.len() as u32 * 8,
                ..VolumeAbout::default()
            },
        })
    }

    fn kind(&self, key: &Secret) -> Result<SegmentKind> {
        let cipher = self.cipher.to_string();
        if is_null_cipher("the volume", &cipher, self.allow_null_cipher)? {
            return Ok(SegmentKind::Linear);
        }
        let iv = IvOptions {
            offset_iv_units: self.skip_sectors,
            large_sectors: self.large_sectors,
        };
        let cipher = SectorCipher::new(&self.cipher, key, self.sector_size, iv)?;
        Ok(SegmentKind::Crypt(Arc::new(cipher)))
    }
}

/// How a passphrase becomes a volume key: `--hash NAME[:LEN]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseHash {
    /// `None`: the passphrase itself (`plain`).
    hash: Option<HashAlgorithm>,
    /// How many bytes of the key it makes; the rest is zeros.
    len_bytes: Option<usize>,
}

impl PassphraseHash {
    /// Reads `NAME` or `NAME:LEN`, LEN in bytes.
    ///
    /// Errors: `Usage` for a hash that isn't known, or a length that is no number.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, len) = match text.split_once(':') {
            Some((name, len)) => (name, Some(len)),
            None => (text, None),
        };
        let shown = name.escape_default();
        let hash = match name {
            "plain" => None,
            _ => Some(HashAlgorithm::parse(name).ok_or_else(|| {
                Error::usage(format!("hash \"{shown}\" is not known"))
                    .hint("sha256, sha512, ripemd160, …, or plain for the passphrase itself")
            })?),
        };
        let len_bytes = match len.map(str::parse) {
            None => None,
            Some(Ok(len @ 1..)) => Some(len),
            Some(_) => {
                return Err(Error::usage(
                    "the length of a hash is a number of bytes: --hash NAME:LEN",
                ));
            }
        };
        Ok(Self { hash, len_bytes })
    }

    /// The key of `key_bytes` that `passphrase` makes: its hash; where that is too short, the
    /// hashes of `A` and the passphrase, `AA` and the passphrase, and so on after it. With a
    /// length, that many bytes of it and zeros.
    ///
    /// Errors: `Usage` for a length over the key's, or (of `plain`) over the passphrase's.
    pub fn key(self, passphrase: &[u8], key_bytes: usize) -> Result<Secret> {
        let len = self.len_bytes.unwrap_or(key_bytes);
        if len > key_bytes {
            return Err(Error::usage(format!(
                "a hash of {len} bytes is longer than the key of {key_bytes}"
            )));
        }
        let mut key = Secret::zeroed(key_bytes);
        match self.hash {
            Some(hash) => fill_with_hashes(hash, passphrase, &mut key[..len]),
            None if self.len_bytes.is_some() && passphrase.len() < len => {
                return Err(Error::usage(format!(
                    "the passphrase is shorter than the {len} bytes to be taken of it"
                )));
            }
            None => {
                let used = passphrase.len().min(len);
                key[..used].copy_from_slice(&passphrase[..used]);
            }
        }
        Ok(key)
    }
}

fn fill_with_hashes(hash: HashAlgorithm, passphrase: &[u8], key: &mut [u8]) {
    let mut digest = zeroize::Zeroizing::new([0; DIGEST_BYTES_MAX]);
    let digest = &mut digest[..hash.output_bytes()];
    let mut prefix = Vec::new();
    for part in key.chunks_mut(hash.output_bytes()) {
        hash.digest(&[&prefix, passphrase], digest);
        part.copy_from_slice(&digest[..part.len()]);
        prefix.push(b'A');
    }
    wipe_stack();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hash: &str, passphrase: &str, key_bytes: usize) -> String {
        let hash = PassphraseHash::parse(hash).expect(hash);
        hex::encode(&*hash.key(passphrase.as_bytes(), key_bytes).expect("a key"))
    }

    /// The keys of the kernel's tables after `cryptsetup open --type plain`, version 2.6.1.
    #[test]
    fn passphrases_become_the_keys_that_cryptsetup_makes() {
        assert_eq!(
            key("ripemd160", "pw-plainhash", 64),
            "e714cdb216077739b6421625e5e56154be38ec53fc8d397ac69bf9521fa5869a\
             b309aadced0d8569f3eb63b6185a2a4e77f7e9890ec1737f15347f2c5eca3031"
        );
        assert_eq!(
            key("plain", "pw-plainhash", 32),
            "70772d706c61696e686173680000000000000000000000000000000000000000"
        );
        assert_eq!(
            key("SHA1", "pw-plainhash", 32),
            "9538532483e3bca19cd62ee61c43b7ab03b612f3ec61266d884289ee11eab622"
        );
        assert_eq!(
            key("sha1:16", "pw-plainhash", 32),
            "9538532483e3bca19cd62ee61c43b7ab00000000000000000000000000000000"
        );
        assert_eq!(key("plain", "pw-plainhash", 4), "70772d70");
        assert_eq!(key("plain:2", "pw", 4), "70770000");
    }

    #[test]
    fn lengths_that_do_not_fit_are_usage_errors() {
        for text in [
            "sha256:",
            "sha256:0",
            "sha256:-1",
            "sha256:1x",
            "sha257",
            "",
            ":5",
        ] {
            assert!(PassphraseHash::parse(text).is_err(), "{text}");
        }
        let long = PassphraseHash::parse("sha256:33").unwrap();
        assert!(long.key(b"pw", 32).is_err());
        assert!(long.key(b"pw", 33).is_ok());
        assert!(
            PassphraseHash::parse("plain:3")
                .unwrap()
                .key(b"pw", 32)
                .is_err()
        );
    }

    fn plain(cipher: &str) -> Plain {
        Plain {
            cipher: CipherSpec::parse(cipher).unwrap(),
            key_bytes: 32,
            offset_sectors: 0,
            skip_sectors: 0,
            size_sectors: None,
            sector_size: SectorSize::MIN,
            large_sectors: false,
            allow_null_cipher: false,
        }
    }

    #[test]
    fn a_volume_lies_where_it_is_told_and_inside_the_device() {
        let key = Secret::zeroed(32);
        let told = |offset_sectors, size_sectors, sector_bytes| Plain {
            offset_sectors,
            size_sectors,
            sector_size: SectorSize::new(sector_bytes).unwrap(),
            ..plain("aes-xts-plain64")
        };
        let volume = told(3, None, 512).volume(&key, 8192 + 100).unwrap();
        assert_eq!(
            (volume.size_bytes, volume.segments[0].storage_offset_bytes),
            (8192 - 1536, 1536)
        );
        let volume = told(0, Some(8), 4096).volume(&key, 8192).unwrap();
        assert_eq!(
            (volume.size_bytes, volume.sector_size.bytes()),
            (4096, 4096)
        );
        for (offset, size, sector) in [
            (0, None, 4096),
            (0, Some(9), 4096),
            (0, Some(0), 512),
            (0, Some(17), 512),
            (0, Some(u64::MAX), 512),
            (16, None, 512),
            (17, None, 512),
            (u64::MAX, None, 512),
        ] {
            let data_bytes = if size.is_none() && sector == 4096 {
                8704
            } else {
                8192
            };
            let refused = told(offset, size, sector).volume(&key, data_bytes);
            assert!(refused.is_err(), "{offset} {size:?} {sector}");
        }
    }

    #[test]
    fn a_null_cipher_is_refused_or_plaintext() {
        let mut null = plain("cipher_null-ecb");
        null.key_bytes = 0;
        assert!(
            null.check()
                .unwrap_err()
                .to_string()
                .contains("--allow-null-cipher")
        );
        null.allow_null_cipher = true;
        let volume = null.volume(&Secret::zeroed(0), 512).unwrap();
        assert!(matches!(volume.segments[0].kind, SegmentKind::Linear));
    }
}

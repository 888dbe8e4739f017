//! IV generators: from sector numbers to IVs, many sectors at once.
//! Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst`, the list of IV modes.

use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use cipher::KeyInit;
use zeroize::Zeroize;

use super::CipherSpec;
use super::batch::encrypt_blocks;
use super::run::{Block, IvNumbers};
use crate::error::{Error, Result};
use crate::kdf::{DIGEST_BYTES_MAX, HashAlgorithm};

/// A rule that makes a sector's 16-byte IV from its number.
#[allow(clippy::large_enum_variant)] // One a volume, in a box with the other keys.
pub(super) enum IvRule {
    /// The number's low 32 bits, little-endian.
    Plain,
    /// The number in 64 bits, little-endian.
    Plain64,
    /// The number in 64 bits, big-endian, at the IV's end.
    Plain64Be,
    /// `plain64`, encrypted under the hash of the volume key.
    Essiv(EssivCipher),
}

pub(super) enum EssivCipher {
    Aes128(Aes128Enc),
    Aes192(Aes192Enc),
    Aes256(Aes256Enc),
}

impl IvRule {
    /// The rule that `spec` names, for AES and the whole volume key `key`.
    ///
    /// Errors: `Device`, naming the cipher, for rules that aren't supported.
    pub(super) fn new(spec: &CipherSpec, key: &[u8]) -> Result<Self> {
        match (spec.iv(), spec.iv_options()) {
            (Some("plain"), None) => Ok(Self::Plain),
            (Some("plain64"), None) => Ok(Self::Plain64),
            (Some("plain64be"), None) => Ok(Self::Plain64Be),
            (Some("essiv"), Some(hash)) => EssivCipher::new(spec, hash, key).map(Self::Essiv),
            _ => Err(super::sector::unsupported(spec)),
        }
    }

    /// The IVs of the first `ivs.len()` sectors of a run.
    pub(super) fn fill(&self, numbers: IvNumbers, ivs: &mut [Block]) {
        for (index, iv) in ivs.iter_mut().enumerate() {
            let number = numbers.at(index);
            *iv = match self {
                Self::Plain => u128::from(number as u32).to_le_bytes(),
                Self::Plain64 | Self::Essiv(_) => u128::from(number).to_le_bytes(),
                Self::Plain64Be => u128::from(number).to_be_bytes(),
            }
            .into();
        }
        match self {
            Self::Plain | Self::Plain64 | Self::Plain64Be => {}
            Self::Essiv(EssivCipher::Aes128(cipher)) => encrypt_blocks(cipher, ivs),
            Self::Essiv(EssivCipher::Aes192(cipher)) => encrypt_blocks(cipher, ivs),
            Self::Essiv(EssivCipher::Aes256(cipher)) => encrypt_blocks(cipher, ivs),
        }
    }
}

impl EssivCipher {
    /// The salt is the hash of the whole volume key, XTS's two halves too; it must be a key that
    /// AES takes.
    fn new(spec: &CipherSpec, hash_name: &str, key: &[u8]) -> Result<Self> {
        let (hash, salt_bytes) = essiv_hash(hash_name).ok_or_else(|| {
            Error::device(format!(
                "cipher {spec} is not supported: hash {hash_name} is not known"
            ))
        })?;
        let mut salt = [0; DIGEST_BYTES_MAX];
        hash.digest(&[key], &mut salt[..hash.output_bytes()]);
        let cipher = match salt_bytes {
            16 => Aes128Enc::new_from_slice(&salt[..16]).map(Self::Aes128),
            24 => Aes192Enc::new_from_slice(&salt[..24]).map(Self::Aes192),
            32 => Aes256Enc::new_from_slice(&salt[..32]).map(Self::Aes256),
            _ => Err(cipher::InvalidLength),
        };
        salt.zeroize();
        cipher.map_err(|_| {
            Error::device(format!(
                "cipher {spec} is not possible: {hash_name} gives a key of {} bits, which AES \
                 doesn't take",
                salt_bytes * 8
            ))
        })
    }
}

/// The hash and how much of it is used. These names go to the kernel's crypto API, which spells
/// some otherwise than cryptsetup does elsewhere, and tells upper from lower case.
fn essiv_hash(name: &str) -> Option<(HashAlgorithm, usize)> {
    let cut = match name {
        "rmd160" => return Some((HashAlgorithm::Ripemd160, 20)),
        "wp256" => 32,
        "wp384" => 48,
        "wp512" => 64,
        _ => {
            let hash = HashAlgorithm::parse(name).filter(|hash| hash.name() == name)?;
            return Some((hash, hash.output_bytes()));
        }
    };
    Some((HashAlgorithm::Whirlpool, cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ivs(iv: &str, first_unit: u64) -> Vec<String> {
        let spec = CipherSpec::parse(&format!("aes-cbc-{iv}")).expect(iv);
        let rule = IvRule::new(&spec, &[0; 16]).expect(iv);
        let mut ivs = [Block::default(); 2];
        rule.fill(
            IvNumbers {
                first_unit,
                sector_units: 1,
                large_sectors: false,
            },
            &mut ivs,
        );
        ivs.iter().map(hex::encode).collect()
    }

    #[test]
    fn plain_rules() {
        let first = 0x0001_0203_ffff_ffff;
        assert_eq!(
            ivs("plain", first),
            [
                "ffffffff000000000000000000000000",
                "00000000000000000000000000000000"
            ]
        );
        assert_eq!(
            ivs("plain64", first),
            [
                "ffffffff030201000000000000000000",
                "00000000040201000000000000000000"
            ]
        );
        assert_eq!(
            ivs("plain64be", first),
            [
                "000000000000000000010203ffffffff",
                "00000000000000000001020400000000"
            ]
        );
    }

    #[test]
    fn essiv_takes_only_hashes_whose_length_aes_takes() {
        for (hash, fits) in [
            ("sha256", true),
            ("wp256", true),
            ("sm3", true),
            ("blake2s-256", true),
            ("blake2s-128", true),
            ("sha1", false),
            ("rmd160", false),
            ("sha512", false),
            ("wp512", false),
            ("SHA256", false),
            ("nonesuch", false),
        ] {
            let spec = CipherSpec::parse(&format!("aes-cbc-essiv:{hash}")).expect(hash);
            let rule = IvRule::new(&spec, &[0; 16]);
            assert_eq!(rule.is_ok(), fits, "{hash}");
            if let Err(error) = rule {
                assert!(error.what().contains(&spec.to_string()), "{error}");
            }
        }
    }
}

//! IV generators: from sector numbers to IVs, many sectors at once.
//! Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst`, the list of IV modes.

use zeroize::{Zeroize, Zeroizing};

use super::CipherSpec;
use super::block::{self, Blocks, NoCipher};
use super::cpu::CpuEngine;
use super::run::{Block, IvNumbers};
use crate::error::{Error, Result};
use crate::kdf::{DIGEST_BYTES_MAX, HashAlgorithm};

/// A rule that makes a sector's IV from its number.
pub(super) struct IvRule {
    kind: Kind,
    /// Length of an IV in bytes: a block of the cipher (16 or 8), but 0 for ECB.
    iv_bytes: usize,
}

enum Kind {
    /// Zeros.
    Null,
    /// The number's low 32 bits, little-endian.
    Plain,
    /// The number in 64 bits, little-endian.
    Plain64,
    /// The number in 64 bits, big-endian, at the IV's end.
    Plain64Be,
    /// The number of the sector's first block, counted from 1, in 64 bits, big-endian, at the
    /// IV's end. A sector is taken as 512 bytes, `1 << shift` blocks, whatever its size.
    Benbi { shift: u32 },
    /// `plain64`, encrypted under the hash of the volume key.
    Essiv(Box<dyn Blocks>),
    /// The sector's offset in bytes, little-endian, encrypted as the mode encrypts a block of
    /// zeros: with the data's cipher, and between two tweaks of this one where there is one.
    Eboiv {
        cipher: Box<dyn Blocks>,
        tweak: Option<Box<dyn Blocks>>,
    },
    /// A part of the volume key, each half xored with the number.
    Tcw(Zeroizing<[u8; 16]>),
}

impl IvRule {
    /// The rule that `spec` names, for the key `key` of its cipher and mode, encrypting on `engine`.
    ///
    /// Errors: `Device`, naming the cipher, for rules that aren't supported.
    pub(super) fn new(engine: CpuEngine, spec: &CipherSpec, key: &[u8]) -> Result<Self> {
        let iv_bytes = iv_bytes(spec)?;
        let kind = match (spec.iv(), spec.iv_options()) {
            // ECB has no use for one, and dm-crypt none for its name, but where a hash must be made.
            (iv, _) if iv_bytes == 0 && iv != Some("essiv") => Kind::Null,
            (Some("null"), None) => Kind::Null,
            (Some("plain"), None) => Kind::Plain,
            (Some("plain64"), None) => Kind::Plain64,
            (Some("plain64be"), None) => Kind::Plain64Be,
            (Some("benbi"), None) => Kind::Benbi {
                shift: benbi_shift(spec)?,
            },
            (Some("essiv"), Some(hash)) if iv_bytes > 0 => {
                Kind::Essiv(essiv_cipher(engine, spec, hash, key)?)
            }
            (Some("eboiv"), None) if spec.key_count() == 1 => {
                return Self::eboiv(engine, spec, key);
            }
            _ => return Err(super::sector::unsupported(spec)),
        };
        Ok(Self { kind, iv_bytes })
    }

    /// Zeros, as long as the mode takes them.
    ///
    /// Errors: `Device`, naming the cipher, where that isn't supported.
    pub(super) fn null(spec: &CipherSpec) -> Result<Self> {
        Ok(Self {
            kind: Kind::Null,
            iv_bytes: iv_bytes(spec)?,
        })
    }

    /// BitLocker's rule. Source: N. Ferguson, "AES-CBC + Elephant diffuser" (2006), section 4.1;
    /// for other modes than CBC, what dm-crypt's way of computing it comes to.
    ///
    /// Errors: `Device`, naming the cipher, where that isn't supported.
    pub(super) fn eboiv(engine: CpuEngine, spec: &CipherSpec, key: &[u8]) -> Result<Self> {
        let (data, tweak) = match spec.mode() {
            Some("cbc" | "pcbc") => (key, None),
            Some("xts") => {
                let (data, tweak) = key.split_at(key.len() / 2);
                (data, Some(tweak))
            }
            _ => return Err(super::sector::unsupported(spec)),
        };
        let cipher = |part| {
            block::new(engine, spec.cipher(), part)
                .map_err(|e| super::legacy::no_cipher(spec, e, key))
        };
        let kind = Kind::Eboiv {
            cipher: cipher(data)?,
            tweak: tweak.map(cipher).transpose()?,
        };
        Ok(Self {
            kind,
            iv_bytes: iv_bytes(spec)?,
        })
    }

    /// TrueCrypt's rule, from its part of the volume key: as long as a block of the cipher.
    pub(super) fn tcw(seed: &[u8]) -> Self {
        let mut padded = Zeroizing::new([0; 16]);
        padded[..seed.len()].copy_from_slice(seed);
        Self {
            kind: Kind::Tcw(padded),
            iv_bytes: seed.len(),
        }
    }

    /// Length of an IV in bytes.
    pub(super) fn iv_bytes(&self) -> usize {
        self.iv_bytes
    }

    /// The IVs of the first `ivs.len()` sectors of a run, for modes whose IVs are 16 bytes long.
    pub(super) fn fill(&self, numbers: IvNumbers, ivs: &mut [Block]) {
        debug_assert_eq!(self.iv_bytes, 16);
        self.fill_bytes(
            numbers,
            Block::cast_slice_to_core_mut(ivs).as_flattened_mut(),
        );
    }

    /// The IVs of the first sectors of a run, one after another: as many as `ivs` has room for.
    pub(super) fn fill_bytes(&self, numbers: IvNumbers, ivs: &mut [u8]) {
        if self.iv_bytes == 0 {
            return;
        }
        let len = self.iv_bytes;
        match len {
            16 => self.fill_numbers::<16>(numbers, ivs.as_chunks_mut().0),
            _ => self.fill_numbers::<8>(numbers, ivs.as_chunks_mut().0),
        }
        match &self.kind {
            Kind::Essiv(cipher)
            | Kind::Eboiv {
                cipher,
                tweak: None,
            } => cipher.encrypt(ivs),
            Kind::Eboiv {
                cipher,
                tweak: Some(tweak),
            } => {
                tweak.encrypt(ivs);
                for iv in ivs.chunks_exact_mut(len) {
                    let mut sealed = [0; 16];
                    sealed[..len].copy_from_slice(iv);
                    cipher.encrypt(&mut sealed[..len]);
                    xor(iv, &sealed[..len]);
                }
            }
            _ => {}
        }
    }

    /// What goes into each IV before encryption. The length is a constant, so that an IV is a
    /// store or two and not some calls: at 512 bytes a sector, these took a twentieth of the time.
    fn fill_numbers<const LEN: usize>(&self, numbers: IvNumbers, ivs: &mut [[u8; LEN]]) {
        for (index, iv) in ivs.iter_mut().enumerate() {
            let number = numbers.at(index);
            *iv = [0; LEN];
            match &self.kind {
                Kind::Null => {}
                Kind::Plain => iv[..4].copy_from_slice(&(number as u32).to_le_bytes()),
                Kind::Plain64 | Kind::Essiv(_) => iv[..8].copy_from_slice(&number.to_le_bytes()),
                Kind::Plain64Be => iv[LEN - 8..].copy_from_slice(&number.to_be_bytes()),
                Kind::Benbi { shift } => {
                    let block = (number << shift).wrapping_add(1);
                    iv[LEN - 8..].copy_from_slice(&block.to_be_bytes());
                }
                Kind::Eboiv { .. } => {
                    let offset_bytes = number.wrapping_mul(numbers.sector_units * 512);
                    iv[..8].copy_from_slice(&offset_bytes.to_le_bytes());
                }
                Kind::Tcw(seed) => {
                    for half in iv.chunks_exact_mut(8) {
                        half.copy_from_slice(&number.to_le_bytes());
                    }
                    xor(iv, &seed[..LEN]);
                }
            }
        }
    }
}

fn xor(a: &mut [u8], b: &[u8]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
}

/// The length of the IV that the mode takes, as the kernel's crypto API states it.
fn iv_bytes(spec: &CipherSpec) -> Result<usize> {
    let unsupported = || super::sector::unsupported(spec);
    match spec.mode().ok_or_else(unsupported)? {
        "ecb" => Ok(0),
        _ => block::block_bytes(spec.cipher()).ok_or_else(unsupported),
    }
}

/// How many blocks a sector of 512 bytes has, as a power of two: CTR counts as a stream cipher,
/// whose blocks are bytes.
fn benbi_shift(spec: &CipherSpec) -> Result<u32> {
    let block_bytes = match (spec.mode(), block::block_bytes(spec.cipher())) {
        (Some("ctr"), _) => 1,
        (_, Some(bytes)) => bytes,
        _ => return Err(super::sector::unsupported(spec)),
    };
    Ok(9 - block_bytes.trailing_zeros())
}

/// The salt is the hash of the whole key, XTS's two halves too; it must be a key that the cipher
/// takes.
fn essiv_cipher(
    engine: CpuEngine,
    spec: &CipherSpec,
    hash_name: &str,
    key: &[u8],
) -> Result<Box<dyn Blocks>> {
    let (hash, salt_bytes) = essiv_hash(hash_name).ok_or_else(|| {
        Error::device(format!(
            "cipher {spec} is not supported: hash {hash_name} is not known"
        ))
    })?;
    let mut salt = [0; DIGEST_BYTES_MAX];
    hash.digest(&[key], &mut salt[..hash.output_bytes()]);
    let cipher = block::new(engine, spec.cipher(), &salt[..salt_bytes]);
    salt.zeroize();
    let cipher = cipher.map_err(|e| match e {
        NoCipher::Unknown => super::sector::unsupported(spec),
        NoCipher::KeyLength(_) => Error::device(format!(
            "cipher {spec} is not possible: {hash_name} gives a key of {} bits, which {} doesn't \
             take",
            salt_bytes * 8,
            spec.cipher()
        )),
    })?;
    if Some(cipher.block_bytes()) != iv_bytes(spec).ok() {
        return Err(super::sector::unsupported(spec));
    }
    Ok(cipher)
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
        let rule = IvRule::new(CpuEngine::in_use(), &spec, &[0; 16]).expect(iv);
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
            let rule = IvRule::new(CpuEngine::in_use(), &spec, &[0; 16]);
            assert_eq!(rule.is_ok(), fits, "{hash}");
            if let Err(error) = rule {
                assert!(error.what().contains(&spec.to_string()), "{error}");
            }
        }
    }
}

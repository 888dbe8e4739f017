//! One volume's data cipher: keys, mode and IV rule together.

use aes::{Aes128, Aes128Enc, Aes192, Aes192Enc, Aes256, Aes256Enc};
use cipher::consts::U16;
use cipher::inout::InOutBuf;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use subtle::ConstantTimeEq;

use super::adiantum::Adiantum;
use super::block;
use super::cbc::Cbc;
use super::cpu::CpuEngine;
use super::hctr2::Hctr2;
use super::iv::IvRule;
use super::legacy;
use super::many_blocks::{ManyBlocks, ManyBlocksXts, Registers};
use super::run::{IvNumbers, Run, RunCipher};
use super::soft_aes::SoftAes;
use super::wide_iv::WideIv;
#[cfg(target_arch = "x86_64")]
use super::x86::{self, AesCbc, AesXts};
use super::xts::Xts;
use super::{Camellia, CipherSpec, Serpent, Twofish};
use crate::error::{Error, Result};
use crate::secret::wipe_stack;
use crate::units::SectorSize;

/// How sector numbers become IV numbers. Source: dm-crypt.rst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IvOptions {
    /// Added (wrapping) to every sector number, in 512-byte units (`iv_offset`); a multiple of the
    /// sector size.
    pub offset_iv_units: u64,
    /// `iv_large_sectors`: count IVs in units of the sector size.
    pub large_sectors: bool,
}

/// A keyed sector cipher. Immutable; shared by every thread. Its keys are wiped when it is dropped.
pub struct SectorCipher {
    cipher: Box<dyn RunCipher>,
    spec: CipherSpec,
    sector_size: SectorSize,
    iv: IvOptions,
}

impl SectorCipher {
    /// Errors: `Device` (exit 4), naming the cipher, where it isn't supported, the key's length
    /// doesn't fit it, or the IV offset isn't on the sector grid (dm-crypt refuses that, too).
    pub fn new(
        spec: &CipherSpec,
        key: &[u8],
        sector_size: SectorSize,
        iv: IvOptions,
    ) -> Result<Self> {
        Self::with_engine(CpuEngine::in_use(), spec, key, sector_size, iv)
    }

    /// As [`Self::new`], on an engine of the caller's choice. One that the CPU doesn't have is
    /// replaced by the portable ciphers.
    pub fn with_engine(
        engine: CpuEngine,
        spec: &CipherSpec,
        key: &[u8],
        sector_size: SectorSize,
        iv: IvOptions,
    ) -> Result<Self> {
        let engine = match engine.is_here() {
            true => engine,
            false => CpuEngine::Soft,
        };
        let cipher = if legacy::is_needed(spec) {
            legacy::keyed(engine, spec, key, sector_size)
        } else {
            keyed(engine, spec, key, sector_size)
        };
        wipe_stack();
        let cipher = cipher?;
        if !iv.offset_iv_units.is_multiple_of(sector_size.iv_units()) {
            return Err(Error::device(format!(
                "an IV offset of {} sectors of 512 bytes is no multiple of the sector size, {} bytes",
                iv.offset_iv_units,
                sector_size.bytes()
            )));
        }
        Ok(Self {
            cipher,
            spec: spec.clone(),
            sector_size,
            iv,
        })
    }

    /// Encrypts `data`, a run of whole sectors, in place. `first_iv_unit` is the number of the
    /// first sector in 512-byte units from the segment's start, on the sector grid.
    ///
    /// # Panics
    /// Where `data` isn't whole sectors.
    pub fn encrypt(&self, data: &mut [u8], first_iv_unit: u64) {
        self.cipher.encrypt(self.run(data.into(), first_iv_unit));
    }

    /// Decrypts, as [`Self::encrypt`].
    ///
    /// # Panics
    /// Where `data` isn't whole sectors.
    pub fn decrypt(&self, data: &mut [u8], first_iv_unit: u64) {
        self.cipher.decrypt(self.run(data.into(), first_iv_unit));
    }

    /// Encrypts `source` into `target`, otherwise as [`Self::encrypt`].
    ///
    /// # Panics
    /// Where they aren't whole sectors of one length.
    pub fn encrypt_to(&self, source: &[u8], target: &mut [u8], first_iv_unit: u64) {
        self.cipher
            .encrypt(self.run(pair(source, target), first_iv_unit));
    }

    /// Decrypts `source` into `target`, otherwise as [`Self::encrypt`].
    ///
    /// # Panics
    /// Where they aren't whole sectors of one length.
    pub fn decrypt_to(&self, source: &[u8], target: &mut [u8], first_iv_unit: u64) {
        self.cipher
            .decrypt(self.run(pair(source, target), first_iv_unit));
    }

    /// The specification it was made of.
    pub fn spec(&self) -> &CipherSpec {
        &self.spec
    }

    /// The size of its sectors.
    pub fn sector_size(&self) -> SectorSize {
        self.sector_size
    }

    /// Whether an XTS key's halves are equal, which makes XTS weak. dm-crypt opens such volumes
    /// (outside FIPS mode), and so do we; a person should be warned. Constant time.
    pub fn weak_xts_key(key: &[u8]) -> bool {
        let (data, tweak) = key.split_at(key.len() / 2);
        data.ct_eq(tweak).into()
    }

    fn run<'inp, 'out>(
        &self,
        data: InOutBuf<'inp, 'out, u8>,
        first_iv_unit: u64,
    ) -> Run<'inp, 'out> {
        let sector_bytes = self.sector_size.bytes();
        let sector_units = self.sector_size.iv_units();
        assert!(
            data.len().is_multiple_of(sector_bytes),
            "a run is whole sectors"
        );
        debug_assert!(
            first_iv_unit.is_multiple_of(sector_units),
            "a run begins at a sector"
        );
        let numbers = IvNumbers {
            first_unit: first_iv_unit.wrapping_add(self.iv.offset_iv_units),
            sector_units,
            large_sectors: self.iv.large_sectors,
        };
        Run {
            data,
            sector_bytes,
            numbers,
        }
    }
}

impl std::fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SectorCipher({}, {:?}, {:?})",
            self.spec, self.sector_size, self.iv
        )
    }
}

fn pair<'inp, 'out>(source: &'inp [u8], target: &'out mut [u8]) -> InOutBuf<'inp, 'out, u8> {
    InOutBuf::new(source, target).expect("source and target have one length")
}

/// "Not supported", by name and with the part that isn't: what every cipher says that dm-crypt may
/// know and we don't.
pub(super) fn unsupported(spec: &CipherSpec) -> Error {
    const MODES: [&str; 8] = [
        "cbc", "xts", "ecb", "ctr", "lrw", "pcbc", "adiantum", "hctr2",
    ];
    const IVS: [&str; 9] = [
        "plain",
        "plain64",
        "plain64be",
        "essiv",
        "benbi",
        "null",
        "lmk",
        "tcw",
        "eboiv",
    ];
    let ciphers = ["xchacha12,aes", "xchacha20,aes", "cipher_null"];
    let cipher = spec.cipher();
    let mode = spec.mode();
    let iv = spec.iv();
    let why = if mode.is_none() {
        "it isn't one cipher in one mode".to_owned()
    } else if block::block_bytes(cipher).is_none() && !ciphers.contains(&cipher) {
        format!("there is no cipher {cipher} here")
    } else if let Some(mode) = mode.filter(|mode| !MODES.contains(mode)) {
        format!("there is no mode {mode} here")
    } else if let Some(iv) = iv.filter(|iv| !IVS.contains(iv) && *iv != "elephant") {
        format!("there is no IV {iv} here")
    } else if iv == Some("essiv") && spec.iv_options().is_none() {
        "essiv needs a hash, as in essiv:sha256".to_owned()
    } else {
        "its parts don't go together".to_owned()
    };
    Error::device(format!("cipher {spec} is not supported: {why}"))
        .hint("a spelling as in aes-xts-plain64, in small letters")
}

/// What turns `spec` and `key` into a cipher on `engine`, which is here.
fn keyed(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    sector_size: SectorSize,
) -> Result<Box<dyn RunCipher>> {
    match (spec.cipher(), spec.mode(), spec.key_count()) {
        ("aes", Some("xts"), 1) => {
            let iv = IvRule::new(engine, spec, key)?;
            #[cfg(target_arch = "x86_64")]
            if x86::has(engine) && matches!(key.len(), 32 | 48 | 64) {
                return Ok(Box::new(AesXts::new(engine, key, iv)));
            }
            match key.len() {
                32 | 48 | 64 if engine == CpuEngine::Soft => Ok(xts::<SoftAes, SoftAes>(key, iv)),
                32 => Ok(xts::<Aes128, Aes128Enc>(key, iv)),
                48 => Ok(xts::<Aes192, Aes192Enc>(key, iv)),
                64 => Ok(xts::<Aes256, Aes256Enc>(key, iv)),
                bytes => Err(wrong_key_length(spec, bytes, "256, 384 or 512")),
            }
        }
        ("aes", Some("cbc"), 1) => {
            let iv = IvRule::new(engine, spec, key)?;
            #[cfg(target_arch = "x86_64")]
            if x86::has(engine) && matches!(key.len(), 16 | 24 | 32) {
                return Ok(Box::new(AesCbc::new(engine, key, iv)));
            }
            match key.len() {
                16 | 24 | 32 if engine == CpuEngine::Soft => Ok(cbc::<SoftAes>(key, iv)),
                16 => Ok(cbc::<Aes128>(key, iv)),
                24 => Ok(cbc::<Aes192>(key, iv)),
                32 => Ok(cbc::<Aes256>(key, iv)),
                bytes => Err(wrong_key_length(spec, bytes, "128, 192 or 256")),
            }
        }
        ("serpent", _, 1) => several(Serpent::up_to, engine, spec, key, sector_size),
        ("twofish", _, 1) => several(Twofish::up_to, engine, spec, key, sector_size),
        ("camellia", _, 1) => several(Camellia::up_to, engine, spec, key, sector_size),
        ("xchacha12,aes", Some("adiantum"), 1) => adiantum::<12>(engine, spec, key),
        ("xchacha20,aes", Some("adiantum"), 1) => adiantum::<20>(engine, spec, key),
        ("aes", Some("hctr2"), 1) => {
            let iv = WideIv::new(spec)?;
            match key.len() {
                16 | 24 | 32 if engine == CpuEngine::Soft => Ok(hctr2::<SoftAes>(key, iv)),
                16 => Ok(hctr2::<Aes128>(key, iv)),
                24 => Ok(hctr2::<Aes192>(key, iv)),
                32 => Ok(hctr2::<Aes256>(key, iv)),
                bytes => Err(wrong_key_length(spec, bytes, "128, 192 or 256")),
            }
        }
        _ => legacy::keyed(engine, spec, key, sector_size),
    }
}

/// XTS or CBC with a cipher that takes several blocks at a time, on registers that go with `engine`.
/// Other modes, and what is to say of a key that doesn't fit, are with all the other ciphers.
fn several<C>(
    cipher: fn(Registers, &[u8]) -> Option<C>,
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    sector_size: SectorSize,
) -> Result<Box<dyn RunCipher>>
where
    C: ManyBlocks + BlockCipherDecrypt + Send + Sync + 'static,
{
    let cipher = |key| cipher(Registers::of(engine), key);
    match spec.mode() {
        Some("xts") if key.len().is_multiple_of(2) => {
            let (data, tweak) = key.split_at(key.len() / 2);
            if let (Some(data), Some(tweak)) = (cipher(data), cipher(tweak)) {
                let iv = IvRule::new(engine, spec, key)?;
                return Ok(Box::new(ManyBlocksXts(Xts { data, tweak, iv })));
            }
        }
        Some("cbc") => {
            if let Some(cipher) = cipher(key) {
                let iv = IvRule::new(engine, spec, key)?;
                return Ok(Box::new(Cbc { cipher, iv }));
            }
        }
        _ => {}
    }
    legacy::keyed(engine, spec, key, sector_size)
}

/// HCTR2 with `key`, as long as `C` takes.
fn hctr2<C>(key: &[u8], iv: WideIv) -> Box<dyn RunCipher>
where
    C: KeyInit + BlockCipherEncrypt<BlockSize = U16>,
    Hctr2<C>: RunCipher + 'static,
{
    let cipher = C::new_from_slice(key).expect("the caller chose C by the length");
    Box::new(Hctr2::new(cipher, iv))
}

/// Adiantum over XChaCha with `ROUNDS` rounds.
fn adiantum<const ROUNDS: usize>(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
) -> Result<Box<dyn RunCipher>> {
    let iv = WideIv::new(spec)?;
    let key = key
        .try_into()
        .map_err(|_| wrong_key_length(spec, key.len(), "256"))?;
    Ok(Box::new(Adiantum::<ROUNDS>::new(engine, key, iv)))
}

/// XTS with the first half of `key` for the data and the second for the tweaks, each as long as
/// `D` and `T` take.
fn xts<D: KeyInit, T: KeyInit>(key: &[u8], iv: IvRule) -> Box<dyn RunCipher>
where
    Xts<D, T>: RunCipher + 'static,
{
    let (data, tweak) = key.split_at(key.len() / 2);
    Box::new(Xts {
        data: D::new_from_slice(data).expect("the caller chose D by the length"),
        tweak: T::new_from_slice(tweak).expect("the caller chose T by the length"),
        iv,
    })
}

/// CBC with `key`, as long as `C` takes.
fn cbc<C: KeyInit>(key: &[u8], iv: IvRule) -> Box<dyn RunCipher>
where
    Cbc<C>: RunCipher + 'static,
{
    let cipher = C::new_from_slice(key).expect("the caller chose C by the length");
    Box::new(Cbc { cipher, iv })
}

/// "A key of that length doesn't fit", by name.
pub(super) fn wrong_key_length(spec: &CipherSpec, key_bytes: usize, takes_bits: &str) -> Error {
    let bits = key_bytes.saturating_mul(8);
    Error::device(format!(
        "cipher {spec} takes a key of {takes_bits} bits, not {bits}"
    ))
}

//! Ciphers of old volumes, and of few: every block cipher in every mode, several keys in turn, what
//! other systems put around a mode. Right first, and then as fast as that allows.

use zeroize::Zeroizing;

use super::CipherSpec;
use super::block::{self, NoCipher};
use super::cpu::CpuEngine;
use super::extras::{self, Elephant, Lmk, MultiKey, Tcw, Wrap, Wrapped};
use super::iv::IvRule;
use super::modes::{LrwSecret, Masks, Mode, Modes};
use super::run::RunCipher;
use super::sector::{unsupported, wrong_key_length};
use crate::error::{Error, Result};
use crate::units::SectorSize;

/// Whether a faster cipher's code mustn't be used for `spec`, though it is of that cipher and mode.
pub(super) fn is_needed(spec: &CipherSpec) -> bool {
    spec.key_count() != 1 || matches!(spec.iv(), Some("lmk" | "tcw" | "elephant"))
}

/// The cipher that `spec` names, under `key`, on `engine`.
///
/// Errors: `Device`, naming the cipher, where it isn't supported or doesn't take the key.
pub(super) fn keyed(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    sector_size: SectorSize,
) -> Result<Box<dyn RunCipher>> {
    match (spec.iv(), spec.mode()) {
        (Some("lmk"), Some("cbc")) => lmk(engine, spec, key, sector_size),
        (Some("tcw"), Some("cbc")) => tcw(engine, spec, key, sector_size),
        (Some("elephant"), Some("cbc")) => elephant(engine, spec, key),
        _ => in_turn(engine, spec, key, &|key| IvRule::new(engine, spec, key)),
    }
}

/// Loop-AES: 64 keys, or 65 where the last is no key but seeds the IVs.
fn lmk(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    sector_size: SectorSize,
) -> Result<Box<dyn RunCipher>> {
    refuse_large_sectors(spec, sector_size)?;
    let iv = || IvRule::null(spec);
    let count = spec.key_count() as usize;
    let (key, seed) = match (key.len().is_multiple_of(count), key.len() / (count + 1)) {
        (false, part) if part * (count + 1) == key.len() => {
            let (key, last) = key.split_at(part * count);
            let mut seed = Zeroizing::new([0; 64]);
            let used = last.len().min(16);
            seed[..used].copy_from_slice(&last[..used]);
            (key, Some(seed))
        }
        _ => (key, None),
    };
    let iv_bytes = iv()?.iv_bytes();
    Ok(wrapped(
        in_turn(engine, spec, key, &|_| iv())?,
        Lmk { seed, iv_bytes },
    ))
}

/// Old TrueCrypt: a key, a seed for the IVs as long as a block, and 16 bytes for the whitening.
fn tcw(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    sector_size: SectorSize,
) -> Result<Box<dyn RunCipher>> {
    refuse_large_sectors(spec, sector_size)?;
    let iv_bytes = IvRule::null(spec)?.iv_bytes();
    let split = key.len().checked_sub(iv_bytes + 16).filter(|&at| at > 0);
    let split = split.ok_or_else(|| {
        Error::device(format!(
            "cipher {spec} takes a key with {} bits more for its IVs, not {} bits in all",
            (iv_bytes + 16) * 8,
            key.len() * 8
        ))
    })?;
    let (key, rest) = key.split_at(split);
    let (seed, whitening) = rest.split_at(iv_bytes);
    let whitening = Zeroizing::new(whitening.try_into().expect("the 16 bytes that are left"));
    let inner = in_turn(engine, spec, key, &|_| Ok(IvRule::tcw(seed)))?;
    Ok(wrapped(inner, Tcw { whitening }))
}

/// BitLocker: a key, and another as long for the diffuser, which uses AES whatever the cipher is.
fn elephant(engine: CpuEngine, spec: &CipherSpec, key: &[u8]) -> Result<Box<dyn RunCipher>> {
    if spec.key_count() != 1 {
        return Err(unsupported(spec));
    }
    let (data, sector) = key.split_at(key.len() / 2);
    let sector_key = block::new(engine, "aes", sector).map_err(|_| {
        let bits = key.len().saturating_mul(8);
        Error::device(format!(
            "cipher {spec} takes two keys of 128, 192 or 256 bits each, not {bits} bits in all"
        ))
    })?;
    let inner = in_turn(engine, spec, data, &|key| IvRule::eboiv(engine, spec, key))?;
    Ok(wrapped(inner, Elephant { sector_key }))
}

fn wrapped<W: Wrap + 'static>(inner: Box<dyn RunCipher>, wrap: W) -> Box<dyn RunCipher> {
    Box::new(Wrapped { inner, wrap })
}

fn refuse_large_sectors(spec: &CipherSpec, sector_size: SectorSize) -> Result<()> {
    if sector_size.bytes() == extras::SECTOR_BYTES {
        return Ok(());
    }
    Err(Error::device(format!(
        "cipher {spec} is not possible with sectors of {}, only of {} bytes",
        sector_size.bytes(),
        extras::SECTOR_BYTES
    )))
}

/// The ciphers of all keys in `key`, used in turn; mostly there is one.
fn in_turn(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    iv: &dyn Fn(&[u8]) -> Result<IvRule>,
) -> Result<Box<dyn RunCipher>> {
    let count = spec.key_count() as usize;
    if count == 1 {
        return in_mode(engine, spec, key, iv(key)?);
    }
    if key.is_empty() || !key.len().is_multiple_of(count) {
        let bits = key.len().saturating_mul(8);
        return Err(Error::device(format!(
            "cipher {spec} takes {count} keys of one length, not {bits} bits in all"
        )));
    }
    let keys = key.chunks_exact(key.len() / count);
    let ciphers = keys.map(|key| in_mode(engine, spec, key, iv(key)?));
    Ok(Box::new(MultiKey {
        ciphers: ciphers.collect::<Result<_>>()?,
    }))
}

/// Any block cipher in any mode, under one key.
fn in_mode(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    iv: IvRule,
) -> Result<Box<dyn RunCipher>> {
    let wide = block::block_bytes(spec.cipher()) == Some(16);
    let cipher = |key| block::new(engine, spec.cipher(), key);
    let (cipher, mode) = match spec.mode().unwrap_or_default() {
        "ecb" => (cipher(key), Mode::Ecb),
        "cbc" => (cipher(key), Mode::Cbc),
        "pcbc" => (cipher(key), Mode::Pcbc),
        "ctr" => (cipher(key), Mode::Ctr),
        "xts" if wide => {
            let (data, tweak) = key.split_at(key.len() / 2);
            let two = |takes| {
                let bits = key.len().saturating_mul(8);
                Error::device(format!(
                    "cipher {spec} takes two keys of {takes} bits each, not {bits} bits in all"
                ))
            };
            match (cipher(data), cipher(tweak)) {
                (Ok(data), Ok(tweak)) if key.len().is_multiple_of(2) => {
                    (Ok(data), Mode::Masked(Masks::Xts(tweak)))
                }
                (Err(NoCipher::KeyLength(takes)), _) | (_, Err(NoCipher::KeyLength(takes))) => {
                    return Err(two(takes));
                }
                (Ok(_), Ok(_)) => return Err(two("the same number of")),
                _ => return Err(unsupported(spec)),
            }
        }
        "lrw" if wide => {
            let Some((key, secret)) = key.split_last_chunk() else {
                return Err(wrong_key_length(spec, key.len(), "at least 128"));
            };
            let secret = Box::new(LrwSecret::new(secret));
            (cipher(key), Mode::Masked(Masks::Lrw(secret)))
        }
        _ => return Err(unsupported(spec)),
    };
    let cipher = cipher.map_err(|e| no_cipher(spec, e, key))?;
    Ok(Box::new(Modes { cipher, mode, iv }))
}

/// Why there is no such cipher, in words.
pub(super) fn no_cipher(spec: &CipherSpec, why: NoCipher, key: &[u8]) -> Error {
    match why {
        NoCipher::Unknown => unsupported(spec),
        NoCipher::KeyLength(takes) if spec.mode() == Some("lrw") => {
            let takes = format!("{takes} bits and 128 more for LRW: not");
            let bits = key.len().saturating_mul(8);
            Error::device(format!("cipher {spec} takes a key of {takes} {bits} bits"))
        }
        NoCipher::KeyLength(takes) => wrong_key_length(spec, key.len(), takes),
    }
}

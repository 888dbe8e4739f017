//! `luks bench ciphers`: the sector ciphers as the server calls them, a request at a time.

use serde_json::json;

use super::clock::{Measured, measure};
use super::engine;
use crate::buffer::BufferPool;
use crate::cipher::{CipherSpec, CpuEngine, IvOptions, SectorCipher};
use crate::cli::{DONE, print};
use crate::error::{Error, Result};
use crate::limits;
use crate::units::SectorSize;

/// Measured where no cipher is named: what volumes are made with, and a mode and an IV of every
/// kind.
const USUAL: &[(&str, &[usize])] = &[
    ("aes-xts-plain64", &[256, 384, 512]),
    ("aes-xts-essiv:sha256", &[512]),
    ("aes-cbc-essiv:sha256", &[128, 256]),
    ("aes-cbc-plain64", &[256]),
    ("aes-ecb", &[256]),
    ("aes-ctr-plain64", &[256]),
    ("aes-lrw-benbi", &[384]),
    ("aes-pcbc-plain64", &[256]),
    ("aes:64-cbc-lmk", &[16_384]),
    ("aes-cbc-tcw", &[512]),
    ("aes-cbc-eboiv", &[256]),
    ("aes-cbc-elephant", &[512]),
    ("xchacha12,aes-adiantum-plain64", &[256]),
    ("xchacha20,aes-adiantum-plain64", &[256]),
    ("aes-hctr2-plain64", &[256]),
    ("serpent-xts-plain64", &[512]),
    ("serpent-cbc-essiv:sha256", &[256]),
    ("twofish-xts-plain64", &[512]),
    ("twofish-cbc-essiv:sha256", &[256]),
    ("camellia-xts-plain64", &[512]),
    ("camellia-cbc-essiv:sha256", &[256]),
    ("sm4-xts-plain64", &[256]),
    ("aria-xts-plain64", &[512]),
    ("cast6-xts-plain64", &[512]),
    ("cast5-cbc-plain64", &[128]),
    ("blowfish-cbc-plain64", &[256]),
    ("des3_ede-cbc-plain64", &[192]),
    ("des-cbc-plain64", &[64]),
];

/// Sizes of keys that are tried for a cipher that is named without one.
const KEY_BITS: &[usize] = &[128, 192, 256, 384, 512, 640, 768, 16_384];

/// The largest size of key that is tried, in bits: a plain volume's.
const KEY_BITS_MAX: usize = limits::PLAIN_KEY_BYTES_MAX * 8;

const SECTOR_SIZES: [SectorSize; 2] = [SectorSize::MIN, SectorSize::MAX];
const REQUEST_BYTES: [usize; 3] = [4096, 65_536, 1_048_576];

/// Measures the ciphers: sectors of 512 and 4096 bytes, both directions, requests of 4 KiB to 1 MiB
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  \
luks bench ciphers --cipher aes-xts-plain64 --key-size 512 --json")]
pub(super) struct CiphersArgs {
    /// Measure this cipher only (may be repeated)
    #[arg(long, value_name = "SPEC")]
    cipher: Vec<String>,
    /// Size of the key in bits, as cryptsetup counts [default: each that the named cipher takes]
    #[arg(long, value_name = "BITS", requires = "cipher")]
    key_size: Option<usize>,
    /// What to run them on: cpu, or cpu: and one of vaes512, vaes256, aesni, crate, soft
    /// [default: the best there is]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Print a JSON object a row
    #[arg(long)]
    json: bool,
}

/// A cipher and a size of key that fit.
struct Candidate {
    spec: CipherSpec,
    key: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

struct Row<'a> {
    candidate: &'a Candidate,
    sector_size: SectorSize,
    request_bytes: usize,
    direction: Direction,
    engine: CpuEngine,
}

impl CiphersArgs {
    pub(super) fn run(self) -> Result<u8> {
        let engine = engine(self.engine.as_deref())?;
        let candidates = self.candidates(engine)?;
        if !self.json {
            print(format_args!(
                "# cpu:{engine}, one thread, in memory; medians. c/B: cycles of the time stamp counter \
                 a byte.\n#{:>30}  {:>9}  {:>6}  {:>8}  {:>18}  {:>18}",
                "cipher", "key", "sector", "request", "encryption", "decryption"
            ))?;
        }
        for candidate in &candidates {
            // Some old modes have sectors of 512 bytes only.
            let takes =
                |size: &SectorSize| cipher(engine, &candidate.spec, &candidate.key, *size).is_ok();
            for sector_size in SECTOR_SIZES.into_iter().filter(takes) {
                for request_bytes in REQUEST_BYTES {
                    let row = |direction| Row {
                        candidate,
                        sector_size,
                        request_bytes,
                        direction,
                        engine,
                    };
                    self.show(row(Direction::Encrypt), row(Direction::Decrypt))?;
                }
            }
        }
        Ok(DONE)
    }

    fn show(&self, encrypt: Row<'_>, decrypt: Row<'_>) -> Result<()> {
        if self.json {
            for row in [encrypt, decrypt] {
                print(row.json(row.measure()?))?;
            }
            return Ok(());
        }
        let (encrypted, decrypted) = (encrypt.measure()?, decrypt.measure()?);
        print(format_args!(
            "{:>31}  {:>5} bit  {:>6}  {:>8}  {}  {}",
            encrypt.candidate.spec.to_string(),
            encrypt.candidate.key.len() * 8,
            encrypt.sector_size.bytes(),
            encrypt.request_bytes,
            encrypt.words(encrypted),
            decrypt.words(decrypted),
        ))
    }

    fn candidates(&self, engine: CpuEngine) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        if self.cipher.is_empty() {
            for (spec, sizes) in USUAL {
                let spec = CipherSpec::parse(spec)?;
                candidates.extend(sizes.iter().map(|bits| Candidate {
                    spec: spec.clone(),
                    key: key(*bits),
                }));
            }
            return Ok(candidates);
        }
        for text in &self.cipher {
            let spec = CipherSpec::parse(text).map_err(|e| Error::usage(e.what().to_owned()))?;
            let sizes = match self.key_size {
                Some(bits) if bits == 0 || bits % 8 != 0 || bits > KEY_BITS_MAX => {
                    return Err(Error::usage(format!(
                        "a key of {bits} bits is out of range (8 to {KEY_BITS_MAX}, by 8)"
                    )));
                }
                Some(bits) => vec![bits],
                None => KEY_BITS.to_vec(),
            };
            let before = candidates.len();
            let mut refused = None;
            for bits in sizes {
                let key = key(bits);
                match cipher(engine, &spec, &key, SectorSize::MIN) {
                    Ok(_) => candidates.push(Candidate {
                        spec: spec.clone(),
                        key,
                    }),
                    Err(error) => refused = Some(error),
                }
            }
            if let Some(error) = refused.filter(|_| candidates.len() == before) {
                return Err(error);
            }
        }
        Ok(candidates)
    }
}

impl Row<'_> {
    fn measure(&self) -> Result<Measured> {
        let cipher = cipher(
            self.engine,
            &self.candidate.spec,
            &self.candidate.key,
            self.sector_size,
        )?;
        // A buffer as the server has it: where the data starts matters to the vector units.
        let mut data = BufferPool::new(self.request_bytes).take(self.request_bytes);
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = (i * 7) as u8;
        }
        let mut unit = 0;
        let units = data.len() as u64 / crate::units::IV_UNIT_BYTES;
        Ok(measure(|| {
            match self.direction {
                Direction::Encrypt => cipher.encrypt(&mut data, unit),
                Direction::Decrypt => cipher.decrypt(&mut data, unit),
            }
            unit += units;
        }))
    }

    fn json(&self, measured: Measured) -> serde_json::Value {
        let bytes = self.request_bytes as f64;
        let mut row = json!({
            "schema": 1,
            "bench": "ciphers",
            "cipher": self.candidate.spec.to_string(),
            "key_bits": self.candidate.key.len() * 8,
            "sector_size_bytes": self.sector_size.bytes(),
            "request_bytes": self.request_bytes,
            "direction": self.direction.name(),
            "engine": format!("cpu:{}", self.engine),
            "threads": 1,
            "bytes_per_s": (measured.calls_per_s * bytes).round(),
            "cpu_s": measured.cpu_s,
            "measured_bytes": measured.calls * self.request_bytes as u64,
            "label": "measured",
        });
        if let Some(ticks) = measured.ticks_per_call {
            row["cycles_per_byte"] = json!(ticks / bytes);
        }
        row
    }

    fn words(&self, measured: Measured) -> String {
        let bytes = self.request_bytes as f64;
        let mib_per_s = measured.calls_per_s * bytes / f64::from(1 << 20);
        let cycles = match measured.ticks_per_call {
            Some(ticks) => format!("{:>5.2} c/B", ticks / bytes),
            None => String::new(),
        };
        format!("{mib_per_s:>8.1} MiB/s {cycles}")
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
        }
    }
}

fn cipher(
    engine: CpuEngine,
    spec: &CipherSpec,
    key: &[u8],
    sector_size: SectorSize,
) -> Result<SectorCipher> {
    SectorCipher::with_engine(engine, spec, key, sector_size, IvOptions::default())
}

/// Some key; no two parts of it are equal.
fn key(bits: usize) -> Vec<u8> {
    (0..bits / 8)
        .map(|i| (i * 31 + i / 256 * 7 + 1) as u8)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_unasked_exists() {
        for (spec, sizes) in USUAL {
            let spec = CipherSpec::parse(spec).expect("good");
            for bits in *sizes {
                let made = cipher(CpuEngine::Soft, &spec, &key(*bits), SectorSize::MIN);
                assert!(made.is_ok(), "{spec} with {bits} bits");
            }
        }
    }
}

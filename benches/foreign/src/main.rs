//! The ciphers of other libraries beside ours, in one run: the table of targets, with ratios.

#[cfg(target_arch = "x86_64")]
mod bound;
mod duel;
mod evp;
mod gcrypt;

use std::fs::File;
use std::io::Write;
use std::ops::{Deref, DerefMut};

use aes::{Aes128, Aes256};
use cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use serde_json::json;
use sha2::{Digest, Sha256};

use duel::{Outcome, duel};

/// What stays in the second-level cache.
const DATA_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Encrypt,
    Decrypt,
}

const DIRECTIONS: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];
const SECTOR_SIZES: [SectorSize; 2] = [SectorSize::MIN, SectorSize::MAX];

/// One comparison's side of ours, and what it is for.
struct Ours {
    spec: &'static str,
    key: Vec<u8>,
    sector_size: SectorSize,
    direction: Direction,
    request_bytes: usize,
}

impl Ours {
    /// The work, or `None` where this build doesn't support the cipher.
    fn cipher(&self) -> Option<SectorCipher> {
        let spec = CipherSpec::parse(self.spec).expect("a good one");
        SectorCipher::new(&spec, &self.key, self.sector_size, IvOptions::default()).ok()
    }

    fn run(&self, cipher: &SectorCipher, data: &mut [u8]) {
        match self.direction {
            Direction::Encrypt => cipher.encrypt(data, 0),
            Direction::Decrypt => cipher.decrypt(data, 0),
        }
    }
}

/// What a row has to reach, for sectors of 512 and of 4096 bytes.
#[derive(Clone, Copy)]
enum Target {
    /// Times as fast as the other.
    Ratio([f64; 2]),
    /// Bytes a second of ours.
    Rate([f64; 2]),
    /// None: for a scale.
    None,
}

struct Table {
    json: Option<File>,
}

impl Table {
    /// Times ours beside `sector`, which does one sector of the other library's with an IV.
    fn sectors(
        &mut self,
        ours: &Ours,
        library: &str,
        ivs: &[[u8; 16]],
        mut sector: impl FnMut(&[u8; 16], &mut [u8]),
        target: Target,
    ) {
        let Some(cipher) = ours.cipher() else {
            return self.unsupported(ours);
        };
        let sector_bytes = ours.sector_size.bytes();
        let mut theirs = |data: &mut [u8]| {
            for (iv, data) in ivs.iter().zip(data.chunks_exact_mut(sector_bytes)) {
                sector(iv, data);
            }
        };
        let (mut our_data, mut their_data) = (plain(), plain());
        ours.run(&cipher, &mut our_data);
        theirs(&mut their_data);
        assert!(our_data == their_data, "{} and {library} differ", ours.spec);
        let outcome = duel(
            || ours.run(&cipher, &mut our_data),
            DATA_BYTES,
            || theirs(&mut their_data),
            DATA_BYTES,
        );
        self.row(ours, library, outcome, target);
    }

    /// Times ours beside the `aes` crate's ECB over all the data in one call, and beside the
    /// CPU's AES instructions alone, where these can be had: nothing that does AES is faster.
    fn bound<C>(&mut self, ours: &Ours, aes: &C, target: Target)
    where
        C: BlockCipherEncrypt<BlockSize = cipher::consts::U16> + BlockCipherDecrypt,
    {
        let Some(cipher) = ours.cipher() else {
            return self.unsupported(ours);
        };
        let (mut our_data, mut their_data) = (plain(), plain());
        let request = &mut our_data[..ours.request_bytes];
        let outcome = duel(
            || ours.run(&cipher, request),
            ours.request_bytes,
            || {
                let (blocks, _) = Array::slice_as_chunks_mut(&mut their_data);
                match ours.direction {
                    Direction::Encrypt => aes.encrypt_blocks(blocks),
                    Direction::Decrypt => aes.decrypt_blocks(blocks),
                }
            },
            DATA_BYTES,
        );
        self.row(ours, "aes ECB", outcome, target);

        #[cfg(target_arch = "x86_64")]
        if bound::is_here() {
            let rounds = if ours.key.len() == 32 && ours.spec.contains("xts") {
                10
            } else {
                14
            };
            let request = &mut our_data[..ours.request_bytes];
            let outcome = duel(
                || ours.run(&cipher, request),
                ours.request_bytes,
                || {
                    bound::ecb(
                        ours.direction == Direction::Encrypt,
                        rounds,
                        &mut their_data,
                    )
                },
                DATA_BYTES,
            );
            self.row(ours, "instructions", outcome, Target::None);
        }
    }

    fn row(&mut self, ours: &Ours, library: &str, outcome: Outcome, target: Target) {
        let size = usize::from(ours.sector_size == SectorSize::MAX);
        let (target, reached) = match target {
            Target::Ratio(least) => (Some(least[size]), outcome.ratio),
            Target::Rate(least) => (Some(least[size] / 1e9), outcome.ours_bytes_per_s / 1e9),
            Target::None => (None, 0.0),
        };
        let (shown, verdict) = match target {
            Some(least) if reached >= least => (format!("{least:.2}"), "met"),
            Some(least) => (format!("{least:.2}"), "MISSED"),
            None => ("-".to_owned(), ""),
        };
        println!(
            "{:<32} {:>4} {:>5} {:>6} {:<8} {:>7.2} {:>6.3} {:<11} {:>7.2} {:>7.2} {shown:>6} {verdict}",
            ours.spec,
            ours.key.len() * 8,
            ours.sector_size.bytes(),
            ours.request_bytes,
            ours.direction.name(),
            outcome.ours_bytes_per_s / 1e9,
            outcome.ours_cycles_per_byte,
            library,
            outcome.theirs_bytes_per_s / 1e9,
            outcome.ratio,
        );
        let Some(file) = &mut self.json else { return };
        let row = json!({
            "bench": "foreign",
            "cipher": ours.spec,
            "key_bits": ours.key.len() * 8,
            "sector_size_bytes": ours.sector_size.bytes(),
            "request_bytes": ours.request_bytes,
            "direction": ours.direction.name(),
            "threads": 1,
            "engine_asked": std::env::var("LUKS_CPU_ENGINE").ok(),
            "ours_bytes_per_s": outcome.ours_bytes_per_s.round(),
            "ours_cycles_per_byte": outcome.ours_cycles_per_byte,
            "beside": library,
            "beside_bytes_per_s": outcome.theirs_bytes_per_s.round(),
            "ratio": outcome.ratio,
            "target": target,
            "met": target.map(|least| reached >= least),
            "label": "measured",
        });
        writeln!(file, "{row}").expect("the file of rows can be written");
    }

    fn unsupported(&self, ours: &Ours) {
        println!(
            "{:<32} {:>4} isn't supported by this build",
            ours.spec,
            ours.key.len() * 8
        );
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

fn main() {
    let mut args = std::env::args().skip(1);
    let json = match (args.next().as_deref(), args.next()) {
        (None, _) => None,
        (Some("--json"), Some(path)) => Some(File::create(path).expect("a file for the rows")),
        _ => panic!("usage: foreign-bench [--json FILE]"),
    };
    let mut table = Table { json };
    println!(
        "{:<32} {:>4} {:>5} {:>6} {:<8} {:>7} {:>6} {:<11} {:>7} {:>7} {:>6}",
        "cipher", "key", "sect", "bytes", "way", "GB/s", "c/B", "beside", "GB/s", "ratio", "target"
    );
    for sector_size in SECTOR_SIZES {
        for direction in DIRECTIONS {
            aes_xts(&mut table, sector_size, direction);
            aes_cbc(&mut table, sector_size, direction);
            others(&mut table, sector_size, direction);
            adiantum(&mut table, sector_size, direction);
        }
    }
}

fn aes_xts(table: &mut Table, sector_size: SectorSize, direction: Direction) {
    let ours = |key_bytes: usize, request_bytes| Ours {
        spec: "aes-xts-plain64",
        key: key(key_bytes),
        sector_size,
        direction,
        request_bytes,
    };
    // What is forced isn't what the bound and AWS-LC are beaten with.
    let forced = std::env::var_os("LUKS_CPU_ENGINE").is_some();
    let unless_forced = |least| match forced {
        true => Target::None,
        false => Target::Ratio(least),
    };
    let (bound, lone) = (unless_forced([0.76, 0.87]), unless_forced([0.6, 0.75]));
    let aws = unless_forced([2.5, 1.35]);
    // What is to be beaten by AES-NI is beaten by the others all the more.
    let openssl = Target::Ratio([1.3, 1.1]);
    let ivs = plain64_ivs(sector_size);

    let short = ours(32, DATA_BYTES);
    table.bound(&short, &Aes128::new(&[3; 16].into()), bound);
    let mut theirs = evp::OpenSsl::new(evp::Algorithm::Aes128Xts, direction, &short.key);
    let sector = |iv: &[u8; 16], data: &mut [u8]| theirs.sector(iv, data);
    table.sectors(&short, "OpenSSL", &ivs, sector, openssl);

    // AWS-LC has XTS with AES-256 only.
    let long = ours(64, DATA_BYTES);
    table.bound(&long, &Aes256::new(&[3; 32].into()), bound);
    let mut theirs = evp::OpenSsl::new(evp::Algorithm::Aes256Xts, direction, &long.key);
    let sector = |iv: &[u8; 16], data: &mut [u8]| theirs.sector(iv, data);
    table.sectors(&long, "OpenSSL", &ivs, sector, openssl);
    let mut theirs = evp::AwsLc::new(direction, &long.key);
    let sector = |iv: &[u8; 16], data: &mut [u8]| theirs.sector(iv, data);
    table.sectors(&long, "AWS-LC", &ivs, sector, aws);
    table.bound(&ours(64, 4096), &Aes256::new(&[3; 32].into()), lone);
}

fn aes_cbc(table: &mut Table, sector_size: SectorSize, direction: Direction) {
    let ours = Ours {
        spec: "aes-cbc-essiv:sha256",
        key: key(32),
        sector_size,
        direction,
        request_bytes: DATA_BYTES,
    };
    let essiv = Aes256::new_from_slice(&Sha256::digest(&ours.key)).expect("256 bits");
    let mut ivs = plain64_ivs(sector_size);
    for iv in &mut ivs {
        essiv.encrypt_block(iv.into());
    }
    let target = match direction {
        Direction::Encrypt => Target::Ratio([10.0; 2]),
        Direction::Decrypt => Target::Ratio([2.5; 2]),
    };
    let mut theirs = evp::OpenSsl::new(evp::Algorithm::Aes256Cbc, direction, &ours.key);
    table.sectors(
        &ours,
        "OpenSSL",
        &ivs,
        |iv, data| theirs.sector(iv, data),
        target,
    );
}

fn others(table: &mut Table, sector_size: SectorSize, direction: Direction) {
    use gcrypt::Algorithm;
    for (spec, algorithm, target) in [
        ("serpent-xts-plain64", Algorithm::Serpent256, 8.0),
        ("twofish-xts-plain64", Algorithm::Twofish256, 1.2),
        ("camellia-xts-plain64", Algorithm::Camellia256, 6.0),
    ] {
        let ours = Ours {
            spec,
            key: key(64),
            sector_size,
            direction,
            request_bytes: DATA_BYTES,
        };
        let mut theirs = gcrypt::Xts::new(algorithm, &ours.key);
        let sector = |iv: &[u8; 16], data: &mut [u8]| theirs.sector(direction, iv, data);
        table.sectors(
            &ours,
            "libgcrypt",
            &plain64_ivs(sector_size),
            sector,
            Target::Ratio([target; 2]),
        );
    }
}

/// None of the others has it: what counts is the rate, and AES is there for a scale.
fn adiantum(table: &mut Table, sector_size: SectorSize, direction: Direction) {
    let ours = Ours {
        spec: "xchacha12,aes-adiantum-plain64",
        key: key(32),
        sector_size,
        direction,
        request_bytes: DATA_BYTES,
    };
    table.bound(
        &ours,
        &Aes256::new(&[3; 32].into()),
        Target::Rate([1.5e9, 3e9]),
    );
}

/// What is worked on, at the start of a page, as the buffers of a block device are. Across cache
/// lines, each side would be measured with a handicap of its own.
#[derive(PartialEq)]
#[repr(align(4096))]
struct Pages([u8; DATA_BYTES]);

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

fn plain() -> Box<Pages> {
    let byte = |i| (i * 7 + i / 512) as u8;
    Box::new(Pages(std::array::from_fn(byte)))
}

/// Some key; its halves differ.
fn key(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + 1) as u8).collect()
}

fn plain64_ivs(sector_size: SectorSize) -> Vec<[u8; 16]> {
    (0..DATA_BYTES / sector_size.bytes())
        .map(|sector| (sector as u128 * u128::from(sector_size.iv_units())).to_le_bytes())
        .collect()
}

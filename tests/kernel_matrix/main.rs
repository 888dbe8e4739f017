//! The kernel's dm-crypt and us, on every combination of cipher, key size, mode, IV, sector size
//! and IV offset that either takes: what dm-crypt writes we read, and what we write it reads. Where
//! one takes what the other refuses, `exceptions` says so and why, or the test fails.
//!
//! It needs device-mapper, and the kernel's crypto modules loaded: `tests/vm/cipher_matrix.sh` runs
//! it in a virtual machine.

mod combinations;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod exceptions;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use combinations::Combination;
use common::skipped;
use device::{Backing, Mapper, Pages};
use nbdcrypt::cipher::{CipherSpec, CpuEngine, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;

/// Two of the largest sectors on each side of a number's wrap.
const VOLUME_BYTES: usize = 16384;
const VOLUME_SECTORS: u64 = VOLUME_BYTES as u64 / 512;

/// Bytes without a pattern: xorshift64*, by Marsaglia and Vigna.
fn fill(data: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for bytes in data.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// What both make of a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Both take it, and agree on every byte, both ways.
    Equal,
    /// Both take it, and don't agree.
    Differs,
    /// Neither takes it.
    BothRefuse,
    /// The kernel takes it, and we don't.
    KernelOnly,
    /// We take it, and the kernel has it and doesn't.
    OursOnly,
    /// We take it, and this kernel is built without it.
    NotInThisKernel,
}

/// The number of combinations in which [`Outcome::Equal`] is an achievement, and the rest by name.
#[derive(Default)]
struct Findings {
    count: BTreeMap<Outcome, usize>,
    /// Equal ones by cipher and mode.
    equal: BTreeMap<(String, String), usize>,
    specs_equal: BTreeSet<String>,
    /// Why one is an exception, and which are.
    excepted: BTreeMap<(Outcome, &'static str), BTreeSet<String>>,
    /// How the kernel said no.
    refusals: BTreeMap<String, usize>,
    surprises: BTreeMap<(Outcome, String), usize>,
}

#[test]
fn the_kernel_and_we_agree() {
    let Some(mapper) = Mapper::new("matrix") else {
        return skipped("device-mapper with dm-crypt (tests/vm/cipher_matrix.sh)");
    };
    let Some(backing) = Backing::new(VOLUME_BYTES as u64) else {
        return skipped("a loop device");
    };
    let start = Instant::now();
    let absent = absent_ciphers(&mapper, &backing);
    println!("not in this kernel: {}", absent.join(" "));
    println!("our engine: {}", CpuEngine::in_use().name());
    let mut findings = Findings::default();
    let combinations = combinations::all(VOLUME_SECTORS, &absent);
    for (index, combination) in combinations.into_iter().enumerate() {
        if index.is_multiple_of(500) {
            println!("{index} combinations after {} s", start.elapsed().as_secs());
        }
        let kernel = mapper.load(VOLUME_SECTORS, &table(&combination, &backing.device));
        if let Err(e) = &kernel {
            *findings
                .refusals
                .entry(refusal(e, &combination))
                .or_default() += 1;
        }
        let outcome = ask(kernel, &mapper, &backing, &combination);
        findings.note(&combination, outcome);
    }
    findings.print(start.elapsed().as_secs());
    assert!(findings.surprises.is_empty(), "see above");
    // So many are there even without the ciphers that few kernels have.
    assert!(findings.specs_equal.len() > 1000);
}

/// The block ciphers that this kernel is built without.
fn absent_ciphers(mapper: &Mapper, backing: &Backing) -> Vec<&'static str> {
    let mut absent = Vec::new();
    for (cipher, key) in combinations::ciphers() {
        let combination = Combination {
            spec: format!("{cipher}-ecb"),
            key,
            sector_bytes: 512,
            large_sectors: false,
            iv_offset: 0,
        };
        let loaded = mapper.load(VOLUME_SECTORS, &table(&combination, &backing.device));
        if loaded.is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            absent.push(cipher);
        }
    }
    absent
}

/// How the kernel said no. One that can't just now has refused nothing, and would hide what should
/// have been compared.
fn refusal(error: &io::Error, combination: &Combination) -> String {
    let code = error.raw_os_error();
    let failures = [
        libc::ENOMEM,
        libc::EBUSY,
        libc::EAGAIN,
        libc::EINTR,
        libc::EIO,
        libc::ENXIO,
        libc::EPERM,
        libc::ENOTTY,
    ];
    assert!(
        code.is_some_and(|code| !failures.contains(&code)),
        "{} wasn't refused, it failed: {error}",
        combination.spec
    );
    error.to_string()
}

fn ask(
    kernel: io::Result<()>,
    mapper: &Mapper,
    backing: &Backing,
    combination: &Combination,
) -> Outcome {
    let ours = cipher(combination);
    match (kernel, &ours) {
        (Ok(()), _) => {}
        (Err(_), None) => return Outcome::BothRefuse,
        (Err(e), Some(_)) if e.kind() == io::ErrorKind::NotFound => {
            return Outcome::NotInThisKernel;
        }
        (Err(_), Some(_)) => return Outcome::OursOnly,
    }
    let Some(ours) = ours else {
        return Outcome::KernelOnly;
    };
    let mapped = mapper.resume();
    let (mut plain, mut read) = (Pages::new(VOLUME_BYTES), Pages::new(VOLUME_BYTES));
    fill(plain.bytes_mut(), 1);
    mapped.write(&plain);
    let mut sealed = vec![0; VOLUME_BYTES];
    backing.read(&mut sealed, 0);
    ours.decrypt(&mut sealed);
    if sealed != plain.bytes() {
        return Outcome::Differs;
    }
    fill(plain.bytes_mut(), 2);
    sealed.copy_from_slice(plain.bytes());
    ours.encrypt(&mut sealed);
    backing.write(&sealed, 0);
    mapped.read(&mut read);
    match read.bytes() == plain.bytes() {
        true => Outcome::Equal,
        false => Outcome::Differs,
    }
}

/// The parameters of dm-crypt's table.
fn table(combination: &Combination, device: &str) -> String {
    let Combination {
        spec,
        key,
        sector_bytes,
        large_sectors,
        iv_offset,
    } = combination;
    let key = match key.as_slice() {
        [] => "-".to_owned(),
        key => hex::encode(key),
    };
    let options = match large_sectors {
        true => format!("2 sector_size:{sector_bytes} iv_large_sectors"),
        false => format!("1 sector_size:{sector_bytes}"),
    };
    format!("{spec} {key} {iv_offset} {device} 0 {options}")
}

/// Our side: a cipher, or what the null cipher is.
enum Ours {
    Cipher(Box<SectorCipher>),
    Identity,
}

impl Ours {
    fn encrypt(&self, data: &mut [u8]) {
        if let Self::Cipher(cipher) = self {
            cipher.encrypt(data, 0);
        }
    }

    fn decrypt(&self, data: &mut [u8]) {
        if let Self::Cipher(cipher) = self {
            cipher.decrypt(data, 0);
        }
    }
}

fn cipher(combination: &Combination) -> Option<Ours> {
    let spec = CipherSpec::parse(&combination.spec).ok()?;
    // What every format makes of it, where it is allowed.
    if spec.is_null() && spec.mode() == Some("ecb") && combination.key.is_empty() {
        return Some(Ours::Identity);
    }
    let iv = IvOptions {
        offset_iv_units: combination.iv_offset,
        large_sectors: combination.large_sectors,
    };
    let size = SectorSize::new(combination.sector_bytes).expect("a sector size");
    let cipher = SectorCipher::new(&spec, &combination.key, size, iv).ok()?;
    Some(Ours::Cipher(Box::new(cipher)))
}

impl Findings {
    fn note(&mut self, combination: &Combination, outcome: Outcome) {
        *self.count.entry(outcome).or_default() += 1;
        let Combination { spec, key, .. } = combination;
        match outcome {
            Outcome::BothRefuse => {}
            Outcome::Equal => {
                let parsed = CipherSpec::parse(spec).expect("we took it");
                let mode = parsed.mode().unwrap_or_default().to_owned();
                let of = (parsed.cipher().to_owned(), mode);
                *self.equal.entry(of).or_default() += 1;
                self.specs_equal.insert(format!("{spec} {}", key.len() * 8));
            }
            _ => match exceptions::why(combination, outcome) {
                Some(why) => {
                    let specs = self.excepted.entry((outcome, why)).or_default();
                    specs.insert(spec.clone());
                }
                None => {
                    let what = format!(
                        "{spec} with {} bits, sectors of {}{}",
                        key.len() * 8,
                        combination.sector_bytes,
                        if combination.large_sectors {
                            ", large"
                        } else {
                            ""
                        },
                    );
                    *self.surprises.entry((outcome, what)).or_default() += 1;
                }
            },
        }
    }

    /// The table that `docs/ciphers.md` was written from.
    fn print(&self, seconds: u64) {
        let of = |outcome| self.count.get(&outcome).copied().unwrap_or_default();
        println!("combinations equal both ways, by cipher and mode:");
        for ((cipher, mode), count) in &self.equal {
            println!("  {cipher} {mode}: {count}");
        }
        for (why, count) in &self.refusals {
            println!("refused by the kernel: {why}: {count}");
        }
        for ((outcome, why), specs) in &self.excepted {
            let specs = specs.iter().map(String::as_str).collect::<Vec<_>>();
            println!("{outcome:?}: {why}: {}", specs.join(" "));
        }
        for ((outcome, what), count) in &self.surprises {
            println!("SURPRISE: {outcome:?}: {what} ({count} times)");
        }
        println!(
            "verified: {} combinations equal both ways ({} of cipher, mode, IV and key size), {} \
             differ; refused by both {}, by us alone {}, by the kernel alone {}, for want of it in \
             this kernel {}; {seconds} s",
            of(Outcome::Equal),
            self.specs_equal.len(),
            of(Outcome::Differs),
            of(Outcome::BothRefuse),
            of(Outcome::KernelOnly),
            of(Outcome::OursOnly),
            of(Outcome::NotInThisKernel),
        );
    }
}

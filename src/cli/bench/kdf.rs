//! `luks bench kdf`: what a guess at a passphrase costs here.

use std::time::Instant;

use serde_json::json;

use super::clock::thread_cpu_s;
use crate::cli::{DONE, print};
use crate::error::{Error, Result};
use crate::kdf::{HashAlgorithm, Kdf};

/// As long as cryptsetup's: a key of 256 bits and a salt of 32 bytes.
const KEY_BYTES: usize = 32;
const SALT: [u8; 32] = [0x5a; 32];

/// A measurement of PBKDF2 lasts at least this long.
const PBKDF2_S: f64 = 0.25;

/// Measures key derivation: iterations a second of PBKDF2, time of Argon2
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  luks bench kdf --hash sha256 --pbkdf-memory 65536")]
pub(super) struct KdfArgs {
    /// Measure PBKDF2 with this hash only (may be repeated)
    #[arg(long, value_name = "NAME")]
    hash: Vec<String>,
    /// Memory of Argon2, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 65_536)]
    pbkdf_memory: u32,
    /// Lanes of Argon2, each a thread [default: as many as there are CPUs, at most 4]
    #[arg(long, value_name = "N")]
    pbkdf_parallel: Option<u32>,
    /// Passes of Argon2
    #[arg(long, value_name = "N", default_value_t = 4)]
    pbkdf_force_iterations: u32,
    /// Print a JSON object a row
    #[arg(long)]
    json: bool,
}

impl KdfArgs {
    pub(super) fn run(self) -> Result<u8> {
        for hash in self.hashes()? {
            self.pbkdf2(hash)?;
        }
        for id in [false, true] {
            self.argon2(id)?;
        }
        Ok(DONE)
    }

    fn hashes(&self) -> Result<Vec<HashAlgorithm>> {
        if self.hash.is_empty() {
            return Ok(HashAlgorithm::ALL.to_vec());
        }
        let known = |name: &String| {
            HashAlgorithm::parse(name)
                .ok_or_else(|| Error::usage(format!("hash {name} is not known")))
        };
        self.hash.iter().map(known).collect()
    }

    fn pbkdf2(&self, hash: HashAlgorithm) -> Result<()> {
        let mut iterations = 1000_u32;
        let (seconds, cpu_s) = loop {
            let kdf = Kdf::Pbkdf2 {
                hash,
                iterations,
                salt: SALT.to_vec(),
            };
            let (seconds, cpu_s) = time(&kdf)?;
            // The ceiling is out of reach of any hash here in that time.
            if seconds >= PBKDF2_S || iterations >= 1 << 27 {
                break (seconds, cpu_s);
            }
            // At least twice as many, and no more than ten times.
            let wanted = f64::from(iterations) * 1.2 * PBKDF2_S / seconds.max(1e-6);
            iterations = (wanted as u32).clamp(iterations * 2, iterations * 10);
        };
        let iterations_per_s = (f64::from(iterations) / seconds).round();
        let name = hash.name();
        if self.json {
            return print(json!({
                "schema": 1,
                "bench": "kdf",
                "kdf": "pbkdf2",
                "hash": name,
                "key_bits": KEY_BYTES * 8,
                "iterations": iterations,
                "iterations_per_s": iterations_per_s,
                "threads": 1,
                "seconds": seconds,
                "cpu_s": cpu_s,
                "label": "measured",
            }));
        }
        print(format_args!(
            "PBKDF2-{name:<12}{iterations_per_s:>10} iterations a second for a {}-bit key",
            KEY_BYTES * 8
        ))
    }

    fn argon2(&self, id: bool) -> Result<()> {
        let lanes = self.pbkdf_parallel.unwrap_or_else(|| {
            let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
            cpus.min(4) as u32
        });
        let (time_cost, memory_kib) = (self.pbkdf_force_iterations, self.pbkdf_memory);
        let kdf = Kdf::Argon2 {
            id,
            time: time_cost,
            memory_kib,
            cpus: lanes,
            salt: SALT.to_vec(),
        };
        let (seconds, _) = time(&kdf)?;
        let name = if id { "argon2id" } else { "argon2i" };
        if self.json {
            return print(json!({
                "schema": 1,
                "bench": "kdf",
                "kdf": name,
                "key_bits": KEY_BYTES * 8,
                "time": time_cost,
                "memory_kib": memory_kib,
                "cpus": lanes,
                "threads": lanes,
                "seconds": seconds,
                "label": "measured",
            }));
        }
        print(format_args!(
            "{name:<19}{:>10.0} ms for {time_cost} passes over {memory_kib} KiB on {lanes} lanes, \
             for a {}-bit key",
            seconds * 1000.0,
            KEY_BYTES * 8
        ))
    }
}

/// Seconds by the wall clock, and of this thread's CPU time.
fn time(kdf: &Kdf) -> Result<(f64, f64)> {
    let (started, cpu_before) = (Instant::now(), thread_cpu_s());
    kdf.derive(b"a passphrase", KEY_BYTES)?;
    Ok((started.elapsed().as_secs_f64(), thread_cpu_s() - cpu_before))
}

//! Key derivation: PBKDF2, Argon2, and the anti-forensic split.

mod af;
mod argon2;
mod hash;
mod memory;

pub use af::{af_merge, af_split};
pub use hash::{DIGEST_BYTES_MAX, HashAlgorithm};

use crate::error::{Error, Result};
use crate::limits;
use crate::secret::{Secret, wipe_stack};

/// A key derivation function with its parameters, as a key slot states them. Debug is safe: a
/// salt is no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kdf {
    /// PBKDF2 with HMAC. Source: RFC 8018.
    Pbkdf2 {
        /// The HMAC's hash.
        hash: HashAlgorithm,
        /// Iterations, at least 1.
        iterations: u32,
        /// Salt.
        salt: Vec<u8>,
    },
    /// Argon2i or Argon2id, version 0x13. Source: RFC 9106.
    Argon2 {
        /// Argon2id where true, else Argon2i.
        id: bool,
        /// Passes, at least 1.
        time: u32,
        /// Memory in KiB.
        memory_kib: u32,
        /// Parallel lanes, at least 1.
        cpus: u32,
        /// Salt.
        salt: Vec<u8>,
    },
}

impl Kdf {
    /// Memory that deriving needs, in bytes (0 for PBKDF2).
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Pbkdf2 { .. } => 0,
            Self::Argon2 { memory_kib, .. } => u64::from(*memory_kib) << 10,
        }
    }

    /// Derives `out_bytes` bytes from the passphrase. Takes as long as the parameters ask for,
    /// within `limits`; Argon2 uses threads of its own, one a lane.
    ///
    /// Errors: `Memory` (exit 3), naming the need and what is available, before anything is
    /// allocated, where it can't be had; `Device` (exit 4) for parameters out of range.
    pub fn derive(&self, passphrase: &[u8], out_bytes: usize) -> Result<Secret> {
        if out_bytes == 0 || out_bytes > limits::KDF_OUTPUT_BYTES_MAX {
            return Err(Error::device(format!(
                "a derived key of {out_bytes} bytes is out of range (1 to {})",
                limits::KDF_OUTPUT_BYTES_MAX
            )));
        }
        let mut out = Secret::zeroed(out_bytes);
        let derived = match self {
            Self::Pbkdf2 {
                hash,
                iterations,
                salt,
            } => pbkdf2(*hash, passphrase, salt, *iterations, &mut out),
            Self::Argon2 {
                id,
                time,
                memory_kib,
                cpus,
                salt,
            } => {
                let cost = argon2::Cost {
                    time: *time,
                    memory_kib: *memory_kib,
                    lanes: *cpus,
                };
                argon2::derive(*id, cost, passphrase, salt, &mut out)
            }
        };
        wipe_stack();
        derived.map(|()| out)
    }
}

fn pbkdf2(
    hash: HashAlgorithm,
    passphrase: &[u8],
    salt: &[u8],
    iterations: u32,
    out: &mut [u8],
) -> Result<()> {
    let blocks = out.len().div_ceil(hash.output_bytes()) as u64;
    if iterations == 0 {
        return Err(Error::device("PBKDF2 with 0 iterations is out of range"));
    }
    if u64::from(iterations) * blocks > limits::PBKDF2_ITERATIONS_MAX {
        return Err(Error::device(format!(
            "PBKDF2 with {iterations} iterations of {} for {} bytes is over the limit of {} in all",
            hash.name(),
            out.len(),
            limits::PBKDF2_ITERATIONS_MAX
        )));
    }
    hash.pbkdf2(passphrase, salt, iterations, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn pbkdf2_hex(
        hash: HashAlgorithm,
        passphrase: &[u8],
        salt: &[u8],
        iterations: u32,
        out_bytes: usize,
    ) -> String {
        let kdf = Kdf::Pbkdf2 {
            hash,
            iterations,
            salt: salt.to_vec(),
        };
        hex::encode(
            &*kdf
                .derive(passphrase, out_bytes)
                .expect("parameters in range"),
        )
    }

    /// RFC 6070, all but the one of 16 777 216 iterations.
    #[test]
    fn pbkdf2_rfc_6070() {
        let sha1 = HashAlgorithm::Sha1;
        for (iterations, expected) in [
            (1, "0c60c80f961f0e71f3a9b524af6012062fe037a6"),
            (2, "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"),
            (4096, "4b007901b765489abead49d926f721d065a429c1"),
        ] {
            assert_eq!(
                pbkdf2_hex(sha1, b"password", b"salt", iterations, 20),
                expected
            );
        }
        assert_eq!(
            pbkdf2_hex(
                sha1,
                b"passwordPASSWORDpassword",
                b"saltSALTsaltSALTsaltSALTsaltSALTsalt",
                4096,
                25
            ),
            "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038"
        );
        assert_eq!(
            pbkdf2_hex(sha1, b"pass\0word", b"sa\0lt", 4096, 16),
            "56fa6aa75548099dcc37d7f03425e0c3"
        );
    }

    /// RFC 7914, section 11 (HMAC-SHA-256).
    #[test]
    fn pbkdf2_rfc_7914() {
        assert_eq!(
            pbkdf2_hex(HashAlgorithm::Sha256, b"passwd", b"salt", 1, 64),
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
             49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783"
        );
        assert_eq!(
            pbkdf2_hex(HashAlgorithm::Sha256, b"Password", b"NaCl", 80_000, 64),
            "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56\
             a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d"
        );
    }

    #[test]
    fn absurd_parameters_are_refused_at_once_and_name_the_figure() {
        let started = std::time::Instant::now();
        let salt = vec![7; 32];
        let pbkdf2 = |iterations| Kdf::Pbkdf2 {
            hash: HashAlgorithm::Sha256,
            iterations,
            salt: salt.clone(),
        };
        let argon2 = |time, memory_kib, cpus| Kdf::Argon2 {
            id: true,
            time,
            memory_kib,
            cpus,
            salt: salt.clone(),
        };
        for (kdf, figure) in [
            (pbkdf2(0), "0 iterations"),
            (pbkdf2(u32::MAX), "4294967295 iterations"),
            (argon2(0, 32, 1), "0 passes"),
            (argon2(u32::MAX, 32, 1), "4294967295 passes"),
            (argon2(1 << 12, 4 << 20, 1), "4096 passes"),
            (argon2(4, 0, 1), "0 KiB"),
            (argon2(4, 31, 4), "31 KiB"),
            (argon2(4, u32::MAX, 4), "4294967295 KiB"),
            (argon2(4, 32, 0), "0 lanes"),
            (argon2(4, 4 << 20, u32::MAX), "4294967295 lanes"),
        ] {
            let error = kdf.derive(b"", 64).expect_err("out of range");
            assert_eq!(error.kind(), ErrorKind::Device, "{error}");
            assert!(
                error.what().contains(figure),
                "{error} should name {figure}"
            );
        }
        for out_bytes in [0, limits::KDF_OUTPUT_BYTES_MAX + 1, usize::MAX] {
            let error = pbkdf2(1).derive(b"", out_bytes).expect_err("out of range");
            assert_eq!(error.kind(), ErrorKind::Device);
        }
        assert!(started.elapsed().as_secs() < 5);
    }
}

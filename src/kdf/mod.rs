//! Key derivation: PBKDF2, Argon2, and the anti-forensic split.

mod af;
mod hash;

pub use af::{af_merge, af_split};
pub use hash::HashAlgorithm;

use crate::error::Result;
use crate::secret::Secret;

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
        todo!()
    }

    /// Derives `out_bytes` bytes from the passphrase.
    ///
    /// Errors: `Memory` (exit 3), naming the need and what is available, before anything is
    /// allocated, where it can't be had; `Device` for parameters out of range.
    pub fn derive(&self, _passphrase: &[u8], _out_bytes: usize) -> Result<Secret> {
        todo!()
    }
}

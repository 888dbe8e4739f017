//! Twofish, many blocks side by side. Source: Schneier and others, "Twofish: A 128-Bit Block
//! Cipher" (1998).
//!
//! The cipher's S-boxes depend on the key; all four are tables of 256 bytes, made at key set-up.
//! That, single blocks, and CPUs without AVX-512 VBMI and GFNI look up in memory, so they are
//! **not** constant-time. The AVX-512 kernel takes 64 blocks at a time and looks up in registers:
//! neither memory addresses nor branches depend on keys or data there.

mod portable;
mod schedule;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use super::many_blocks::{Kernel, block_cipher};
use schedule::Keys;

/// Twofish with a key. The keys are wiped when it is dropped.
#[derive(Clone)]
pub struct Twofish {
    keys: Keys,
    kernel: KernelChoice,
}

block_cipher!(
    Twofish,
    Keys::new,
    "16, 24 or 32",
    [Bits512: x86::Avx512]
);

//! Camellia, many blocks side by side. Source: RFC 3713.
//!
//! The AVX2 and AVX-512 kernels hold byte `i` of 32 or 64 blocks in register `i`. Every S-box is an
//! inversion in GF(2^8) between affine maps, which GFNI has as two instructions; without GFNI the
//! S-box of AES-NI inverts. These kernels are constant-time: neither memory addresses nor branches
//! depend on keys or data.
//!
//! Key set-up, single blocks, and CPUs without any of these go by tables, and are **not**
//! constant-time.

mod portable;
mod sboxes;
mod schedule;
#[cfg(target_arch = "x86_64")]
mod slices;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use super::many_blocks::{Kernel, block_cipher};
use schedule::Keys;

/// Camellia with a key. The keys are wiped when it is dropped.
#[derive(Clone)]
pub struct Camellia {
    keys: Keys,
    kernel: KernelChoice,
}

block_cipher!(
    Camellia,
    Keys::new,
    "16, 24 or 32",
    [Bits256: x86::Avx2, Bits256Gfni: x86::Avx2Gfni, Bits512: x86::Avx512]
);

//! Serpent, many blocks side by side, and in constant time: neither memory addresses nor branches
//! depend on keys or data, on any kind of register.
//!
//! The kernels run the cipher's bitslice form, with a word of as many blocks in a register as it
//! has lanes: 32 blocks at a time with AVX-512, where every S-box is seven or eight three-input
//! functions; 16 with AVX2; 4 elsewhere. Source: Anderson, Biham and Knudsen, "Serpent: A Proposal
//! for the Advanced Encryption Standard"; bytes in the order of NESSIE and the Linux kernel.

mod portable;
mod rounds;
mod sboxes;
mod schedule;
#[cfg(target_arch = "x86_64")]
mod ternary;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use zeroize::Zeroize;

use super::many_blocks::{Kernel, block_cipher};
use schedule::RoundKeys;

/// Serpent with a key. The keys are wiped when it is dropped.
#[derive(Clone)]
pub struct Serpent {
    keys: RoundKeys,
    kernel: KernelChoice,
}

block_cipher!(
    Serpent,
    schedule::round_keys,
    "0 to 32",
    [Bits256: x86::Avx2, Bits512: x86::Avx512]
);

impl Drop for Serpent {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

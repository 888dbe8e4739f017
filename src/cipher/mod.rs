//! Sector encryption, byte-identical with dm-crypt: cipher specifications, IV generators, modes.
//!
//! No I/O, no threads, no allocation once a [`SectorCipher`] stands.
//!
//! Everything works on *runs*: whole sectors one after another, under one IV rule. Wide CPU
//! backends take 64 blocks at a time and a sector may have 32, so a mode sees the whole run with
//! its IV rule (`run`), and batches across the sectors in it.

mod adiantum;
mod batch;
mod block;
mod camellia;
mod cbc;
mod cpu;
mod extras;
mod hctr2;
mod iv;
mod legacy;
mod many_blocks;
mod modes;
mod run;
mod sector;
mod serpent;
mod soft_aes;
mod spec;
mod twofish;
mod wide_iv;
#[cfg(target_arch = "x86_64")]
mod x86;
mod xts;

pub use camellia::Camellia;
pub use cpu::CpuEngine;
pub use many_blocks::Registers;
pub use sector::{IvOptions, SectorCipher};
pub use serpent::Serpent;
pub use spec::CipherSpec;
pub use twofish::Twofish;

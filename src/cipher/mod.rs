//! Sector encryption, byte-identical with dm-crypt: cipher specifications, IV generators, modes.
//!
//! No I/O, no threads, no allocation once a [`SectorCipher`] stands.

mod sector;
mod spec;

pub use sector::{IvOptions, SectorCipher};
pub use spec::CipherSpec;

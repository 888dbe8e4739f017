//! The path of a request: planned on the sector grid, ordered, read or written, and encrypted or
//! decrypted in place.
//!
//! [`Device`] is the face that [`crate::nbd`] and [`crate::attach`] see.

mod device;
mod execute;
mod order;
mod plan;
mod pool;
mod request;
mod ring;
mod stats;

pub use device::{Awake, Device, DeviceOptions, IoMode};
pub use request::{Completions, Operation, Request};
pub use ring::Ring;
pub use stats::Stats;

pub use crate::storage::Extent;

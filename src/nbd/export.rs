//! What a server offers: one volume under one name.

use super::wire::{command, transmission};
use crate::limits;
use crate::queue::Device;

/// The export, as the handshake describes it and as requests are checked against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name; empty is the default export.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Preferred block size in bytes.
    pub preferred_block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether TRIM is offered.
    pub can_trim: bool,
}

impl Export {
    /// The export of `device` under `name`.
    pub fn new(device: &Device, name: &str) -> Self {
        let about = device.about();
        let description = [about.format, &about.cipher, &about.label];
        let description: Vec<&str> = description.into_iter().filter(|s| !s.is_empty()).collect();
        Self {
            name: name.to_owned(),
            description: description.join(" "),
            size_bytes: device.size_bytes(),
            preferred_block_bytes: (device.sector_size().bytes() as u32).max(4096),
            read_only: device.read_only(),
            can_trim: device.can_trim(),
        }
    }

    /// Whether a client's name for an export means this one.
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_bytes() == name
    }

    /// The transmission flags.
    pub fn flags(&self, structured_replies: bool) -> u16 {
        use transmission::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        let writable = SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        let when = |condition: bool, flags: u16| if condition { flags } else { 0 };
        always
            | when(self.read_only, READ_ONLY)
            | when(!self.read_only, writable)
            | when(self.can_trim, SEND_TRIM)
            | when(structured_replies, SEND_DF)
    }

    /// Most bytes one request may move.
    pub const fn payload_bytes_max() -> u32 {
        limits::REQUEST_BYTES_MAX
    }

    /// Whether `command` writes.
    pub(super) fn writes(command: u16) -> bool {
        matches!(
            command,
            command::WRITE | command::TRIM | command::WRITE_ZEROES
        )
    }
}

//! The NBD server's side of the protocol: fixed newstyle handshake, simple and structured
//! replies, `base:allocation`.
//!
//! A connection is one thread, its lane (`connection`); what it shares with the device's
//! workers is its [`Link`]. Listeners, signals and the life of it all are [`crate::server`]'s.
//! Source of the protocol: `doc/proto.md` of the NetworkBlockDevice project.
//!
//! | feature | here |
//! | --- | --- |
//! | EXPORT_NAME, ABORT, LIST, INFO, GO, STRUCTURED_REPLY, LIST/SET_META_CONTEXT | yes |
//! | STARTTLS, EXTENDED_HEADERS, what is not known | ERR_UNSUP, and the handshake goes on |
//! | READ (DF), WRITE, FLUSH, DISC, TRIM, CACHE, WRITE_ZEROES (NO_HOLE), BLOCK_STATUS (REQ_ONE) | yes |
//! | FAST_ZERO | known, and always ENOTSUP: zeros are encrypted like any data |
//! | FUA | on every command; CAN_MULTI_CONN holds, since a flush covers all connections |
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod check;
mod connection;
mod export;
mod handshake;
mod input;
mod link;
mod options;
mod reply;
mod spin;
pub mod wire;

pub use connection::{Shared, serve};
pub use export::Export;
pub use handshake::{Outcome, Terms, handshake};
pub use link::Link;

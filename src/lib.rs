//! nbdcrypt: a dm-crypt compatible block encryption layer in userspace.
//!
//! Data walks one way: an NBD (or FUSE) client's requests are checked and planned in [`queue`],
//! read from or written to [`storage`], run through [`cipher`] in place, and answered. Control
//! happens once: [`cli`] asks [`luks`] (or [`formats`]) for a [`volume::Volume`], [`kdf`] derives
//! its key, [`server`] serves it. `ARCHITECTURE.md` has the map and the walls between the rooms.

pub mod attach;
pub mod buffer;
pub mod cipher;
pub mod cli;
pub mod control;
pub mod engines;
pub mod error;
pub mod formats;
pub mod image;
pub mod kdf;
pub mod limits;
pub mod luks;
pub mod nbd;
pub mod queue;
pub mod secret;
pub mod server;
pub mod signals;
pub mod storage;
pub mod units;
pub mod volume;

//! Volumes served in the background: the folder of their state, the process that serves one, and
//! how others talk to it.
//!
//! Each open volume has a folder of its own, and its server holds a lock on a file in it for as
//! long as it lives. A folder whose lock is free belongs to a server that is gone, however it
//! went; what it left is cleared by whoever finds it.

mod background;
mod folder;
mod service;
mod socket;
mod state;
mod sweep;

pub use background::{Ready, in_background};
pub use folder::{Held, StateFolder, VolumeFolder, find};
pub use service::Service;
pub use socket::{Request, call};
pub use state::State;
pub use sweep::{Cleared, Condition, clear, look};

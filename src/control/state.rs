//! What is known of an open volume without asking its server: for when it is gone.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::folder::VolumeFolder;

/// `state.json` of a volume's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The version of this file, 1.
    pub schema: u32,
    /// The server's process.
    pub pid: u32,
    /// The image, as an absolute path.
    pub image: String,
    /// The volume's UUID, or empty.
    pub uuid: String,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// `nbd`, `loop`, `fuse`, `none`; empty while it is attached.
    pub attach: String,
    /// The block device, or the file.
    pub device: Option<String>,
    /// The process that configured the kernel's nbd device: this server's, or an earlier one's.
    pub nbd_process: u32,
}

impl State {
    /// The state that a volume's server wrote down; the default where it hadn't come to that.
    pub fn read(folder: &VolumeFolder) -> Self {
        let text = fs::read(folder.state()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes it down, whole or not at all.
    pub fn write(&self, folder: &VolumeFolder) -> io::Result<()> {
        let path = folder.state();
        let new = path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, path)
    }
}

//! `luks is-luks`: says by its exit code whether an image holds a LUKS volume.

use std::path::PathBuf;

use super::DONE;
use super::unlock::{self, HeaderArgs};
use crate::error::{ErrorKind, Result};

/// Says by the exit code whether IMAGE holds a LUKS volume: 0 it does, 4 it doesn't
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  luks is-luks disk.img && echo encrypted")]
pub(crate) struct IsLuksArgs {
    /// Disk image or block device
    image: PathBuf,
    #[command(flatten)]
    header: HeaderArgs,
}

impl IsLuksArgs {
    pub(crate) fn run(self) -> Result<u8> {
        let storage = unlock::open_header_storage(&self.header, &self.image)?;
        match unlock::load_header(&self.header, &self.image, storage) {
            Ok(_) => Ok(DONE),
            // Quiet, as cryptsetup's isLuks: the code is the answer.
            Err(error) if error.kind() == ErrorKind::Device => Ok(error.kind().exit_code()),
            Err(error) => Err(error),
        }
    }
}

//! `luks uuid`: prints the volume's UUID.

use std::path::PathBuf;

use super::unlock::{self, HeaderArgs};
use super::{DONE, print};
use crate::error::Result;

/// Prints the UUID in IMAGE's header
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  luks uuid disk.img")]
pub(crate) struct UuidArgs {
    /// Disk image or block device
    image: PathBuf,
    #[command(flatten)]
    header: HeaderArgs,
}

impl UuidArgs {
    pub(crate) fn run(self) -> Result<u8> {
        let header = unlock::read_header(&self.header, &self.image)?;
        print(header.uuid())?;
        Ok(DONE)
    }
}

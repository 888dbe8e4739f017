//! `luks close`: takes a volume down that `luks open` brought up.

use super::DONE;
use crate::control::{Cleared, Request, call, clear, find};
use crate::error::{Error, Result};

/// Writes everything out, detaches NAME and ends its server
///
/// Refuses (exit 5) while the volume is mounted or used otherwise.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  umount /mnt && luks close data")]
pub(crate) struct CloseArgs {
    /// The volume's name
    name: String,
    /// If it is in use, close it when the last user is gone
    #[arg(long)]
    deferred: bool,
}

impl CloseArgs {
    pub(crate) fn run(self) -> Result<u8> {
        let folder = find(&self.name)?;
        let Some(held) = folder.take_if_dead() else {
            call(
                &folder,
                &Request::Close {
                    deferred: self.deferred,
                },
            )?;
            return Ok(DONE);
        };
        match clear(held)? {
            Cleared::All(held) => held.remove(),
            Cleared::Waits(_, state, user) => {
                return Err(Error::busy(format!("its server was killed and {user}"))
                    .on(&self.name)
                    .hint(format!(
                        "end that; or go on: luks open {} {}",
                        state.image, self.name
                    )));
            }
        }
        Ok(DONE)
    }
}

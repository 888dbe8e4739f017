//! `luks engines`: what is here, what was probed, and why not.

use super::{DONE, print};
use crate::engines;
use crate::error::Result;

/// Lists what this machine offers (crypto, I/O, ways to show a volume), and why not
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  luks engines --json")]
pub(crate) struct EnginesArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl EnginesArgs {
    pub(crate) fn run(self) -> Result<u8> {
        let parts = engines::report();
        if self.json {
            print(format_args!("{:#}", engines::to_json(&parts)))?;
            return Ok(DONE);
        }
        for part in parts {
            let usable = if part.usable { "yes" } else { "no" };
            let purpose = part.purpose.name();
            print(format_args!(
                "{purpose:<8}{:<12}{usable:<5}{}",
                part.name, part.detail
            ))?;
        }
        Ok(DONE)
    }
}

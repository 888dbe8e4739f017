//! `luks bench`: what this machine does, in the words of the tools that people know.

mod ciphers;
mod clock;
mod kdf;

use clap::Subcommand;

use crate::cipher;
use crate::error::{Error, Result};

/// Measures this machine, on one thread
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
luks bench ciphers --cipher aes-xts-plain64 --json\n  luks bench kdf")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Ciphers(ciphers::CiphersArgs),
    Kdf(kdf::KdfArgs),
}

impl BenchArgs {
    pub(crate) fn run(self) -> Result<u8> {
        match self.what {
            What::Ciphers(args) => args.run(),
            What::Kdf(args) => args.run(),
        }
    }
}

/// The name of the engine that `asked` is, or of the one in use.
///
/// Errors: `Device` (exit 4) for one that this machine doesn't have.
fn engine(asked: Option<&str>) -> Result<String> {
    let here = format!("cpu:{}", cipher::backend_name());
    match asked {
        None | Some("cpu") => Ok(here),
        Some(name) if name == here => Ok(here),
        Some(name) => Err(Error::device(format!("engine {name} can't be had"))
            .hint(format!("{here} is here; luks engines tells more"))),
    }
}

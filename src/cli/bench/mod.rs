//! `luks bench`: what this machine does, in the words of the tools that people know.

mod ciphers;
mod clock;
mod kdf;

use clap::Subcommand;

use crate::cipher::CpuEngine;
use crate::cli::engine::parse;
use crate::error::Result;

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

/// The engine that `asked` names, or the one in use.
///
/// Errors: as [`parse`].
fn engine(asked: Option<&str>) -> Result<CpuEngine> {
    let engine = asked.map(parse).transpose()?.flatten();
    Ok(engine.unwrap_or_else(CpuEngine::in_use))
}

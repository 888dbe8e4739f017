//! `luks bench`: what this machine does, in the words of the tools that people know.

mod ciphers;
mod clock;
mod kdf;

use clap::Subcommand;

use crate::cipher::CpuEngine;
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

/// The engine that `asked` names, or the one in use.
///
/// Errors: `Device` (exit 4) for one that this machine doesn't have.
fn engine(asked: Option<&str>) -> Result<CpuEngine> {
    let here = |engine: &CpuEngine| engine.is_here();
    match asked {
        None | Some("cpu") => Ok(CpuEngine::in_use()),
        Some(name) => name
            .strip_prefix("cpu:")
            .and_then(CpuEngine::parse)
            .filter(here)
            .ok_or_else(|| {
                let usable: Vec<String> = CpuEngine::ALL
                    .iter()
                    .filter(|engine| here(engine))
                    .map(|engine| format!("cpu:{engine}"))
                    .collect();
                Error::device(format!("engine {name} can't be had here"))
                    .hint(format!("one of {}", usable.join(", ")))
            }),
    }
}

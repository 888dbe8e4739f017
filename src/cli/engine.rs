//! `--engine`: what the ciphers run on.

use crate::cipher::CpuEngine;
use crate::error::{Error, Result};

/// The engine to encrypt with.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct EngineArgs {
    /// Encrypt on this: auto, cpu, or one of cpu:vaes512, cpu:vaes256, cpu:aesni, cpu:crate, cpu:soft
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    engine: String,
}

impl EngineArgs {
    /// The engine as it was asked for.
    pub(crate) fn name(&self) -> &str {
        &self.engine
    }

    /// Makes the engine that of all ciphers in this process; before there are any.
    ///
    /// Errors: as [`parse`].
    pub(crate) fn force(&self) -> Result<()> {
        match parse(&self.engine)? {
            Some(engine) if !engine.force() => Err(Error::device(format!(
                "engine cpu:{engine} can't be had: cpu:{} is in use already",
                CpuEngine::in_use()
            ))),
            _ => Ok(()),
        }
    }
}

/// The engine that is asked for by `name`; `None` for `auto` and `cpu`, which leave the choice.
///
/// Errors: `Usage` (exit 1) for a name that isn't known, `Device` (exit 4) for an engine that this
/// CPU doesn't have; both list those that it has.
pub(crate) fn parse(name: &str) -> Result<Option<CpuEngine>> {
    if matches!(name, "auto" | "cpu") {
        return Ok(None);
    }
    let error = match name.strip_prefix("cpu:").and_then(CpuEngine::parse) {
        Some(engine) if engine.is_here() => return Ok(Some(engine)),
        Some(_) => Error::device(format!("engine {name} is not on this CPU")),
        None => Error::usage(format!("engine {} is not known", name.escape_debug())),
    };
    let here = CpuEngine::ALL.into_iter().filter(|engine| engine.is_here());
    let here: Vec<_> = here.map(|engine| format!("cpu:{engine}")).collect();
    Err(error.hint(format!("one of auto, cpu, {}", here.join(", "))))
}

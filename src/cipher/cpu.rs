//! Which instructions the ciphers run on: found once, and each can be forced.

use std::fmt;
use std::sync::OnceLock;

/// The CPU's ways to encrypt, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuEngine {
    /// AES on four blocks an instruction (VAES and AVX-512).
    Vaes512,
    /// AES on two blocks an instruction (VAES and AVX2).
    Vaes256,
    /// AES on one block an instruction (AES-NI and AVX).
    AesNi,
    /// AES of the `aes` crate, where that finds the CPU's instructions for it: ARMv8, and x86 with
    /// AES-NI but no AVX.
    Crate,
    /// No instructions for AES: bitsliced, portable, in constant time.
    Soft,
}

static FORCED: OnceLock<CpuEngine> = OnceLock::new();

/// Names an engine for a whole process; for tests of every engine with the same binary.
const ENVIRONMENT: &str = "LUKS_CPU_ENGINE";

impl CpuEngine {
    /// All, the fastest first.
    pub const ALL: [Self; 5] = [
        Self::Vaes512,
        Self::Vaes256,
        Self::AesNi,
        Self::Crate,
        Self::Soft,
    ];

    /// The engine named so, as `--engine cpu:NAME` does: `vaes512`, `vaes256`, `aesni`, `crate`,
    /// `soft`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vaes512 => "vaes512",
            Self::Vaes256 => "vaes256",
            Self::AesNi => "aesni",
            Self::Crate => "crate",
            Self::Soft => "soft",
        }
    }

    /// Whether this CPU has it.
    pub fn is_here(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if super::x86::has(self) {
            return true;
        }
        match self {
            Self::Crate => aes::hardware_accelerated(),
            other => other == Self::Soft,
        }
    }

    /// The fastest that this CPU has.
    pub fn best() -> Self {
        Self::ALL
            .into_iter()
            .find(|engine| engine.is_here())
            .unwrap_or(Self::Soft)
    }

    /// Uses this engine from now on, for every cipher that isn't told otherwise. `false` where the
    /// CPU doesn't have it, or another is in use already.
    pub fn force(self) -> bool {
        self.is_here() && *FORCED.get_or_init(|| self) == self
    }

    /// The engine of ciphers that aren't told otherwise: the forced one (by [`Self::force`], or by
    /// the environment variable `LUKS_CPU_ENGINE`), else the best.
    pub fn in_use() -> Self {
        *FORCED.get_or_init(|| {
            std::env::var(ENVIRONMENT)
                .ok()
                .and_then(|name| Self::parse(&name))
                .filter(|engine| engine.is_here())
                .unwrap_or_else(Self::best)
        })
    }
}

impl fmt::Display for CpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

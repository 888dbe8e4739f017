//! The CPU kernels of NH and XChaCha, chosen at run time.
#![allow(unsafe_code)] // Calls of kernels that need CPU features.

use cipher::inout::InOutBuf;

use super::{chacha, nh};
#[cfg(target_arch = "x86_64")]
use super::{chacha_x86, nh_x86};
use crate::cipher::cpu::CpuEngine;

/// What NH and XChaCha run on. Made by [`Self::of`] or found [`Self::available`], no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Kernel {
    /// From the fastest.
    pub(super) const ALL: &'static [Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        Self::Portable,
    ];

    /// The fastest that this CPU has and that belongs to `engine`. The engine that is this CPU's
    /// best takes any: vectors and AES instructions don't always come together.
    pub(super) fn of(engine: CpuEngine) -> Self {
        let belongs = |kernel: Self| match kernel {
            _ if engine == CpuEngine::best() => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => engine == CpuEngine::Vaes512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => engine != CpuEngine::Soft,
            Self::Portable => true,
        };
        let mut usable = Self::ALL.iter().copied();
        usable
            .find(|kernel| kernel.available() && belongs(*kernel))
            .expect("the portable one always is")
    }

    /// Whether this CPU has it.
    pub(super) fn available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512dq")
                    && std::is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::is_x86_feature_detected!("avx2"),
            Self::Portable => true,
        }
    }

    /// Sectors whose subkeys fit its registers: what [`Self::xor_stream`] takes.
    pub(super) fn sectors_max(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 8,
            Self::Portable => 4,
        }
    }

    /// NH of a chunk, as [`nh::portable`].
    #[inline(always)]
    pub(super) fn nh(self, key: &nh::Key, chunk: &[u8], but_last: bool) -> nh::Digest {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the kernel is one that was found available.
            Self::Avx512 => unsafe { nh_x86::avx512(key, chunk, but_last) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx2 => unsafe { nh_x86::avx2(key, chunk, but_last) },
            Self::Portable => nh::portable(key, chunk, but_last),
        }
    }

    /// The stream over sectors, as [`chacha::xor_sectors`].
    pub(super) fn xor_stream<const ROUNDS: usize>(
        self,
        key: &chacha::Key,
        nonces: &[u128],
        data: InOutBuf<'_, '_, u8>,
        sector_bytes: usize,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the kernel is one that was found available.
            Self::Avx512 => unsafe {
                chacha_x86::avx512::<ROUNDS>(key, nonces, data, sector_bytes);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx2 => unsafe {
                chacha_x86::avx2::<ROUNDS>(key, nonces, data, sector_bytes);
            },
            Self::Portable => chacha::portable::<ROUNDS>(key, nonces, data, sector_bytes),
        }
    }
}

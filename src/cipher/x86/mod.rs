//! AES-XTS and AES-CBC on x86-64: kernels of our own that span sectors, in three widths.
//!
//! The `aes` crate takes 1 KiB of one stream at a time and leaves the rest to single blocks; a
//! mode on top of it pays for tweaks and passes over memory of its own. These kernels see a run of
//! sectors with its IVs, and keep the AES units busy from the first byte to the last.
#![allow(unsafe_code)] // Calls of kernels whose CPU features were found.

mod kernel;
mod schedule;
mod vector;

use std::arch::x86_64::{__m128i, __m256i, __m512i};

use kernel::{Ivs, RoundKeys, SECTORS_MAX, Sectors};
use schedule::Schedule;

use super::cpu::CpuEngine;
use super::iv::IvRule;
use super::run::{Run, RunCipher};

/// The kernels of one width and key size.
#[derive(Clone, Copy)]
struct Kernels {
    ecb: unsafe fn(RoundKeys, &mut Ivs, usize),
    xts_encrypt: unsafe fn(RoundKeys, &Ivs, Sectors),
    xts_decrypt: unsafe fn(RoundKeys, &Ivs, Sectors),
    cbc_encrypt: unsafe fn(RoundKeys, &Ivs, Sectors),
    cbc_decrypt: unsafe fn(RoundKeys, &Ivs, Sectors),
}

macro_rules! kernels {
    ($module:ident, $vector:ty, $features:literal) => {
        /// Entry points compiled for one width's instructions.
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            unsafe fn ecb<const R: usize>(keys: RoundKeys, blocks: &mut Ivs, count: usize) {
                // SAFETY: the features are enabled here; the rest is the caller's promise.
                unsafe { kernel::ecb::<$vector, R>(keys, blocks, count) }
            }

            #[target_feature(enable = $features)]
            unsafe fn xts<const R: usize, const E: bool>(keys: RoundKeys, ivs: &Ivs, s: Sectors) {
                // SAFETY: as above.
                unsafe { kernel::xts::<$vector, R, E>(keys, ivs, s) }
            }

            #[target_feature(enable = $features)]
            unsafe fn cbc_encrypt<const R: usize>(keys: RoundKeys, ivs: &Ivs, s: Sectors) {
                // SAFETY: as above.
                unsafe { kernel::cbc_encrypt::<$vector, R>(keys, ivs, s) }
            }

            #[target_feature(enable = $features)]
            unsafe fn cbc_decrypt<const R: usize>(keys: RoundKeys, ivs: &Ivs, s: Sectors) {
                // SAFETY: as above.
                unsafe { kernel::cbc_decrypt::<$vector, R>(keys, ivs, s) }
            }

            const fn of<const R: usize>() -> Kernels {
                Kernels {
                    ecb: ecb::<R>,
                    xts_encrypt: xts::<R, true>,
                    xts_decrypt: xts::<R, false>,
                    cbc_encrypt: cbc_encrypt::<R>,
                    cbc_decrypt: cbc_decrypt::<R>,
                }
            }

            pub(super) fn for_rounds(rounds: usize) -> Kernels {
                match rounds {
                    10 => of::<10>(),
                    12 => of::<12>(),
                    _ => of::<14>(),
                }
            }
        }
    };
}

kernels!(aesni, __m128i, "avx,aes,pclmulqdq");
kernels!(vaes256, __m256i, "avx2,vaes,vpclmulqdq,aes,pclmulqdq");
kernels!(
    vaes512,
    __m512i,
    "avx512f,avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq,avx2,aes,pclmulqdq"
);

/// What an engine needs of the CPU; what its kernels are compiled with.
pub(super) fn has(engine: CpuEngine) -> bool {
    use std::is_x86_feature_detected as has;
    let aesni = has!("avx") && has!("aes") && has!("pclmulqdq");
    let vaes256 = aesni && has!("avx2") && has!("vaes") && has!("vpclmulqdq");
    match engine {
        CpuEngine::AesNi => aesni,
        CpuEngine::Vaes256 => vaes256,
        CpuEngine::Vaes512 => {
            vaes256 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")
        }
        CpuEngine::Crate | CpuEngine::Soft => false,
    }
}

impl Kernels {
    /// # Panics
    /// Where the CPU lacks what the engine needs: the caller has asked [`has`].
    fn new(engine: CpuEngine, rounds: usize) -> Self {
        assert!(has(engine), "{engine} is not on this CPU");
        match engine {
            CpuEngine::Vaes512 => vaes512::for_rounds(rounds),
            CpuEngine::Vaes256 => vaes256::for_rounds(rounds),
            CpuEngine::AesNi | CpuEngine::Crate | CpuEngine::Soft => aesni::for_rounds(rounds),
        }
    }
}

/// AES-XTS on the kernels.
pub(super) struct AesXts {
    kernels: Kernels,
    data: Schedule,
    tweak: Schedule,
    iv: IvRule,
}

impl AesXts {
    /// XTS with a key of twice 16, 24 or 32 bytes.
    ///
    /// # Panics
    /// Where the CPU lacks what the engine needs: the caller has asked [`has`].
    pub(super) fn new(engine: CpuEngine, key: &[u8], iv: IvRule) -> Self {
        let (data, tweak) = key.split_at(key.len() / 2);
        let kernels = Kernels::new(engine, data.len() / 4 + 6);
        // SAFETY: `Kernels::new` found the engine's features, AES among them.
        let (data, tweak) = unsafe { (Schedule::new(data), Schedule::new(tweak)) };
        Self {
            kernels,
            data,
            tweak,
            iv,
        }
    }

    fn through(
        &self,
        kernel: unsafe fn(RoundKeys, &Ivs, Sectors),
        keys: RoundKeys,
        run: Run<'_, '_>,
    ) {
        for_pieces(&self.iv, run, |ivs, sectors| {
            // SAFETY: `new` found the CPU's features; the schedules have the kernels' rounds; the
            // sectors are a run's own.
            unsafe {
                (self.kernels.ecb)(self.tweak.encrypting(), ivs, sectors.count);
                kernel(keys, ivs, sectors);
            }
        });
    }
}

impl RunCipher for AesXts {
    fn encrypt(&self, run: Run<'_, '_>) {
        self.through(self.kernels.xts_encrypt, self.data.encrypting(), run);
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.through(self.kernels.xts_decrypt, self.data.decrypting(), run);
    }
}

/// AES-CBC on the kernels.
pub(super) struct AesCbc {
    kernels: Kernels,
    key: Schedule,
    iv: IvRule,
}

impl AesCbc {
    /// CBC with a key of 16, 24 or 32 bytes.
    ///
    /// # Panics
    /// Where the CPU lacks what the engine needs: the caller has asked [`has`].
    pub(super) fn new(engine: CpuEngine, key: &[u8], iv: IvRule) -> Self {
        let kernels = Kernels::new(engine, key.len() / 4 + 6);
        // SAFETY: `Kernels::new` found the engine's features, AES among them.
        let key = unsafe { Schedule::new(key) };
        Self { kernels, key, iv }
    }
}

impl RunCipher for AesCbc {
    fn encrypt(&self, run: Run<'_, '_>) {
        for_pieces(&self.iv, run, |ivs, sectors| {
            // SAFETY: as in `AesXts::through`.
            unsafe { (self.kernels.cbc_encrypt)(self.key.encrypting(), ivs, sectors) }
        });
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        for_pieces(&self.iv, run, |ivs, sectors| {
            // SAFETY: as in `AesXts::through`.
            unsafe { (self.kernels.cbc_decrypt)(self.key.decrypting(), ivs, sectors) }
        });
    }
}

/// Cuts a run into pieces of as many sectors as a kernel takes, with their IVs.
fn for_pieces(iv: &IvRule, mut run: Run<'_, '_>, mut each: impl FnMut(&mut Ivs, Sectors)) {
    let mut ivs = [[0; 16]; SECTORS_MAX];
    while !run.data.is_empty() {
        let (piece, rest) = run.split(SECTORS_MAX);
        run = rest;
        let (count, sector_bytes) = (piece.sectors(), piece.sector_bytes);
        let blocks = cipher::Array::cast_slice_from_core_mut(&mut ivs[..count]);
        iv.fill(piece.numbers, blocks);
        let (source, target) = piece.data.into_raw();
        each(
            &mut ivs,
            Sectors {
                source,
                target,
                sector_bytes,
                count,
            },
        );
    }
}

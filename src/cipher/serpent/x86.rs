//! Serpent's lanes in AVX2 and AVX-512 registers.

#![allow(unsafe_code)] // the CPU's vector instructions

use std::arch::x86_64::*;
use std::ops::{BitAnd, BitOr, BitXor, Not};

use cipher::consts::{U16, U32};
use cipher::inout::{InOut, InOutBuf};

use super::portable::Portable;
use super::rounds::{self, Lanes};
use super::schedule::RoundKeys;
use super::ternary;
use crate::cipher::many_blocks::{Kernel, kernel, unrolled};
use crate::cipher::run::Block;

/// The kernel of CPUs with AVX2. Only [`Self::here`] makes one.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The kernel of CPUs with AVX-512. Only [`Self::here`] makes one.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

kernel!(
    Avx2: RoundKeys, U16, "avx2" = ["avx2"],
    rounds::encrypt::<Ymm, 2>, rounds::decrypt::<Ymm, 2>, Portable
);
kernel!(
    Avx512: RoundKeys, U32, "avx512f" = ["avx512f"],
    rounds::encrypt::<Zmm, 2>, rounds::decrypt::<Zmm, 2>, Portable
);

/// Instructions of [`Ymm`] or [`Zmm`].
macro_rules! cpu {
    ($value:expr) => {
        // SAFETY: the register types are only named by the kernels above, whose values only exist
        // on CPUs with their instructions. Loads and stores need no alignment and stay in the
        // blocks, whose number is checked before.
        unsafe { $value }
    };
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512i);

macro_rules! operators {
    ($register:ident, $and:ident, $or:ident, $xor:ident, $ones:expr) => {
        impl BitAnd for $register {
            type Output = Self;
            #[inline(always)]
            fn bitand(self, other: Self) -> Self {
                Self(cpu!($and(self.0, other.0)))
            }
        }

        impl BitOr for $register {
            type Output = Self;
            #[inline(always)]
            fn bitor(self, other: Self) -> Self {
                Self(cpu!($or(self.0, other.0)))
            }
        }

        impl BitXor for $register {
            type Output = Self;
            #[inline(always)]
            fn bitxor(self, other: Self) -> Self {
                Self(cpu!($xor(self.0, other.0)))
            }
        }

        impl Not for $register {
            type Output = Self;
            #[inline(always)]
            fn not(self) -> Self {
                Self(cpu!($xor(self.0, $ones)))
            }
        }
    };
}

operators!(
    Ymm,
    _mm256_and_si256,
    _mm256_or_si256,
    _mm256_xor_si256,
    _mm256_set1_epi32(-1)
);
operators!(
    Zmm,
    _mm512_and_si512,
    _mm512_or_si512,
    _mm512_xor_si512,
    _mm512_set1_epi32(-1)
);

impl Lanes for Ymm {
    const COUNT: usize = 8;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        Self(cpu!(_mm256_set1_epi32(word as i32)))
    }

    #[inline(always)]
    fn rotate_left<const BITS: i32, const REST: i32>(self) -> Self {
        Self(cpu!(_mm256_or_si256(
            _mm256_slli_epi32::<BITS>(self.0),
            _mm256_srli_epi32::<REST>(self.0)
        )))
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        Self(cpu!(_mm256_slli_epi32::<BITS>(self.0)))
    }

    #[inline(always)]
    fn load(blocks: &[Block]) -> [Self; 4] {
        assert_eq!(blocks.len(), Self::COUNT);
        let source = blocks.as_ptr().cast::<__m256i>();
        unrolled!(4, i => Self(cpu!(_mm256_loadu_si256(source.add(i)))))
    }

    #[inline(always)]
    fn store(rows: [Self; 4], blocks: &mut [Block]) {
        assert_eq!(blocks.len(), Self::COUNT);
        let target = blocks.as_mut_ptr().cast::<__m256i>();
        for (i, row) in rows.into_iter().enumerate() {
            cpu!(_mm256_storeu_si256(target.add(i), row.0));
        }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 4]) -> [Self; 4] {
        transpose_256(rows)
    }
}

impl Lanes for Zmm {
    const COUNT: usize = 16;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        Self(cpu!(_mm512_set1_epi32(word as i32)))
    }

    #[inline(always)]
    fn rotate_left<const BITS: i32, const REST: i32>(self) -> Self {
        Self(cpu!(_mm512_rol_epi32::<BITS>(self.0)))
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        // The compiler makes it a shift by an immediate.
        Self(cpu!(_mm512_sllv_epi32(self.0, _mm512_set1_epi32(BITS))))
    }

    #[inline(always)]
    fn load(blocks: &[Block]) -> [Self; 4] {
        assert_eq!(blocks.len(), Self::COUNT);
        let source = blocks.as_ptr().cast::<__m512i>();
        unrolled!(4, i => Self(cpu!(_mm512_loadu_si512(source.add(i)))))
    }

    #[inline(always)]
    fn store(rows: [Self; 4], blocks: &mut [Block]) {
        assert_eq!(blocks.len(), Self::COUNT);
        let target = blocks.as_mut_ptr().cast::<__m512i>();
        for (i, row) in rows.into_iter().enumerate() {
            cpu!(_mm512_storeu_si512(target.add(i), row.0));
        }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 4]) -> [Self; 4] {
        transpose_512(rows)
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        self.any3::<0x96>(b, c)
    }

    #[inline(always)]
    fn sbox<const BOX: usize>(words: [Self; 4]) -> [Self; 4] {
        ternary::forward::<BOX>(words)
    }

    #[inline(always)]
    fn sbox_inverse<const BOX: usize>(words: [Self; 4]) -> [Self; 4] {
        ternary::inverse::<BOX>(words)
    }
}

impl Zmm {
    /// Any function of three bits: bit `4a + 2b + c` of `TABLE`, with `a` of `self`.
    #[inline(always)]
    pub(super) fn any3<const TABLE: i32>(self, b: Self, c: Self) -> Self {
        Self(cpu!(_mm512_ternarylogic_epi32::<TABLE>(self.0, b.0, c.0)))
    }
}

/// Four by four words in each 128-bit part; it undoes itself.
#[inline(always)]
fn transpose_256([a, b, c, d]: [Ymm; 4]) -> [Ymm; 4] {
    cpu!({
        let ab_low = _mm256_unpacklo_epi32(a.0, b.0);
        let ab_high = _mm256_unpackhi_epi32(a.0, b.0);
        let cd_low = _mm256_unpacklo_epi32(c.0, d.0);
        let cd_high = _mm256_unpackhi_epi32(c.0, d.0);
        [
            Ymm(_mm256_unpacklo_epi64(ab_low, cd_low)),
            Ymm(_mm256_unpackhi_epi64(ab_low, cd_low)),
            Ymm(_mm256_unpacklo_epi64(ab_high, cd_high)),
            Ymm(_mm256_unpackhi_epi64(ab_high, cd_high)),
        ]
    })
}

/// As [`transpose_256`].
#[inline(always)]
fn transpose_512([a, b, c, d]: [Zmm; 4]) -> [Zmm; 4] {
    cpu!({
        let ab_low = _mm512_unpacklo_epi32(a.0, b.0);
        let ab_high = _mm512_unpackhi_epi32(a.0, b.0);
        let cd_low = _mm512_unpacklo_epi32(c.0, d.0);
        let cd_high = _mm512_unpackhi_epi32(c.0, d.0);
        [
            Zmm(_mm512_unpacklo_epi64(ab_low, cd_low)),
            Zmm(_mm512_unpackhi_epi64(ab_low, cd_low)),
            Zmm(_mm512_unpacklo_epi64(ab_high, cd_high)),
            Zmm(_mm512_unpackhi_epi64(ab_high, cd_high)),
        ]
    })
}

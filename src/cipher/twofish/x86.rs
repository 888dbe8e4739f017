//! Twofish on 64 blocks in AVX-512 registers.
//!
//! A word of 16 blocks is a register. For the S-boxes the bytes of a word of all 64 blocks, four
//! registers, are sorted into one register for each place in the word. The table of a place, 256
//! bytes, is four registers, too, which `vpermi2b` looks up in (AVX-512 VBMI); the MDS matrix is
//! linear over bits, so its products are `gf2p8affineqb` (GFNI). Then the bytes go back.

#![allow(unsafe_code)] // the CPU's vector instructions

use std::arch::x86_64::*;

use cipher::consts::U64;
use cipher::inout::{InOut, InOutBuf};

use super::portable::{Portable, parts};
use super::schedule::{Keys, MDS_POLYNOMIAL, multiply};
use crate::cipher::many_blocks::{Kernel, kernel, unrolled};
use crate::cipher::run::Block;

/// The kernel of CPUs with AVX-512, VBMI and GFNI. Only [`Self::here`] makes one.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

kernel!(
    Avx512: Keys, U64,
    "avx512f,avx512bw,avx512vbmi,gfni" = ["avx512f", "avx512bw", "avx512vbmi", "gfni"],
    encrypt, decrypt, Portable
);

/// Registers that a word of all blocks takes.
const GROUPS: usize = 4;

/// A word of all blocks.
type Words = [Zmm; GROUPS];

#[inline(always)]
fn encrypt(keys: &Keys, mut blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
    let (before, after, rounds) = parts(keys);
    let tables = Tables::load(keys);
    let [mut a, mut b, mut c, mut d] = read(blocks.get_in(), before, masks);
    for &[first, second, third, fourth] in rounds {
        let [e, f] = function(&tables, a, b, [first, second]);
        for i in 0..GROUPS {
            c[i] = c[i].xor(e[i]).rotate_left::<31>();
            d[i] = d[i].rotate_left::<1>().xor(f[i]);
        }
        let [e, f] = function(&tables, c, d, [third, fourth]);
        for i in 0..GROUPS {
            a[i] = a[i].xor(e[i]).rotate_left::<31>();
            b[i] = b[i].rotate_left::<1>().xor(f[i]);
        }
    }
    write([c, d, a, b], after, blocks.get_out(), masks);
}

/// Undoes [`encrypt`].
#[inline(always)]
fn decrypt(keys: &Keys, mut blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
    let (before, after, rounds) = parts(keys);
    let tables = Tables::load(keys);
    let [mut c, mut d, mut a, mut b] = read(blocks.get_in(), after, masks);
    for &[first, second, third, fourth] in rounds.iter().rev() {
        let [e, f] = function(&tables, c, d, [third, fourth]);
        for i in 0..GROUPS {
            a[i] = a[i].rotate_left::<1>().xor(e[i]);
            b[i] = b[i].xor(f[i]).rotate_left::<31>();
        }
        let [e, f] = function(&tables, a, b, [first, second]);
        for i in 0..GROUPS {
            c[i] = c[i].rotate_left::<1>().xor(e[i]);
            d[i] = d[i].xor(f[i]).rotate_left::<31>();
        }
    }
    write([a, b, c, d], before, blocks.get_out(), masks);
}

/// The F function of two words of all blocks.
#[inline(always)]
fn function(tables: &Tables, a: Words, b: Words, [even, odd]: [u32; 2]) -> [Words; 2] {
    let a = g(tables, transpose_bytes(a));
    // Rotated left by a byte.
    let [b0, b1, b2, b3] = transpose_bytes(b);
    let b = g(tables, [b3, b0, b1, b2]);
    let (even, odd) = (Zmm::splat(even), Zmm::splat(odd));
    let sum: Words = unrolled!(4, i => a[i].add(b[i]));
    [
        unrolled!(4, i => sum[i].add(even)),
        unrolled!(4, i => sum[i].add(b[i].add(odd))),
    ]
}

/// The g function of words sorted by place: S-boxes, then the MDS matrix. Its rows are 01 EF 5B 5B,
/// 5B EF EF 01, EF 5B 01 EF, EF 01 EF 5B.
#[inline(always)]
fn g(tables: &Tables, places: [Zmm; 4]) -> Words {
    let [a, b, c, d] = unrolled!(4, i => tables.look_up(i, places[i]));
    transpose_bytes([
        a.xor3(b.times_ef(), c.xor(d).times_5b()),
        d.xor3(a.times_5b(), b.xor(c).times_ef()),
        c.xor3(b.times_5b(), a.xor(d).times_ef()),
        b.xor3(d.times_5b(), a.xor(c).times_ef()),
    ])
}

/// Instructions of [`Zmm`].
macro_rules! cpu {
    ($value:expr) => {
        // SAFETY: the register type is only named by the kernel above, whose value only exists on
        // CPUs with its instructions. Loads and stores need no alignment and stay in the blocks or
        // tables, which is checked before or known from their types.
        unsafe { $value }
    };
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Zmm {
    #[inline(always)]
    fn splat(word: u32) -> Self {
        Self(cpu!(_mm512_set1_epi32(word as i32)))
    }

    /// The four blocks of number `index`.
    #[inline(always)]
    fn load(blocks: &[Block], index: usize) -> Self {
        let source = blocks[4 * index..][..4].as_ptr();
        Self(cpu!(_mm512_loadu_si512(source.cast())))
    }

    #[inline(always)]
    fn store(self, blocks: &mut [Block], index: usize) {
        let target = blocks[4 * index..][..4].as_mut_ptr();
        cpu!(_mm512_storeu_si512(target.cast(), self.0));
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(cpu!(_mm512_add_epi32(self.0, other.0)))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(cpu!(_mm512_xor_si512(self.0, other.0)))
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        Self(cpu!(_mm512_ternarylogic_epi32::<0x96>(self.0, b.0, c.0)))
    }

    #[inline(always)]
    fn rotate_left<const BITS: i32>(self) -> Self {
        Self(cpu!(_mm512_rol_epi32::<BITS>(self.0)))
    }

    /// Every byte times 5B in the field of the MDS matrix.
    #[inline(always)]
    fn times_5b(self) -> Self {
        const MATRIX: u64 = multiplication(0x5b);
        Self(cpu!(_mm512_gf2p8affine_epi64_epi8::<0>(
            self.0,
            _mm512_set1_epi64(MATRIX as i64)
        )))
    }

    #[inline(always)]
    fn times_ef(self) -> Self {
        const MATRIX: u64 = multiplication(0xef);
        Self(cpu!(_mm512_gf2p8affine_epi64_epi8::<0>(
            self.0,
            _mm512_set1_epi64(MATRIX as i64)
        )))
    }
}

/// The matrix that multiplies by `factor`: the row of output bit `i` is byte `7 - i`.
const fn multiplication(factor: u8) -> u64 {
    let mut matrix = 0;
    let mut input = 0;
    while input < 8 {
        let product = multiply(1 << input, factor, MDS_POLYNOMIAL);
        let mut output = 0;
        while output < 8 {
            matrix |= (product as u64 >> output & 1) << (8 * (7 - output) + input);
            output += 1;
        }
        input += 1;
    }
    matrix
}

/// The S-boxes.
struct Tables([[Zmm; 4]; 4]);

impl Tables {
    #[inline(always)]
    fn load(keys: &Keys) -> Self {
        Self(unrolled!(4, place => {
            let (quarters, _) = keys.sboxes[place].as_chunks::<64>();
            unrolled!(4, i => Zmm(cpu!(_mm512_loadu_si512(quarters[i].as_ptr().cast()))))
        }))
    }

    /// The S-box of `place`, of all bytes.
    #[inline(always)]
    fn look_up(&self, place: usize, x: Zmm) -> Zmm {
        let [a, b, c, d] = self.0[place];
        Zmm(cpu!({
            // Either looks at the lower seven bits.
            let low = _mm512_permutex2var_epi8(a.0, x.0, b.0);
            let high = _mm512_permutex2var_epi8(c.0, x.0, d.0);
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(x.0), low, high)
        }))
    }
}

/// Byte `i` of every word of register `j` becomes byte `j` of register `i`; it undoes itself.
#[inline(always)]
fn transpose_bytes([a, b, c, d]: [Zmm; 4]) -> [Zmm; 4] {
    cpu!({
        // Halves of words change places between registers two apart, then bytes between
        // neighbours: shuffled to their places, and merged with what stays.
        let halves = _mm512_set4_epi32(0x0d0c_0f0e, 0x0908_0b0a, 0x0504_0706, 0x0100_0302);
        let bytes = _mm512_set4_epi32(0x0e0f_0c0d, 0x0a0b_0809, 0x0607_0405, 0x0203_0001);
        const HIGH_HALVES: u64 = 0xcccc_cccc_cccc_cccc;
        const ODD_BYTES: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        macro_rules! swap {
            ($low:expr, $high:expr, $order:expr, $mask:expr) => {
                [
                    _mm512_mask_shuffle_epi8($low, $mask, $high, $order),
                    _mm512_mask_shuffle_epi8($high, !$mask, $low, $order),
                ]
            };
        }
        let [a, c] = swap!(a.0, c.0, halves, HIGH_HALVES);
        let [b, d] = swap!(b.0, d.0, halves, HIGH_HALVES);
        let [a, b] = swap!(a, b, bytes, ODD_BYTES);
        let [c, d] = swap!(c, d, bytes, ODD_BYTES);
        [Zmm(a), Zmm(b), Zmm(c), Zmm(d)]
    })
}

/// The blocks, with masks added, as their four words, with `added`.
#[inline(always)]
fn read(blocks: &[Block], added: &[u32; 4], masks: Option<&[Block]>) -> [Words; 4] {
    let groups: [[Zmm; 4]; GROUPS] = unrolled!(4, group => {
        let mut rows = unrolled!(4, i => Zmm::load(blocks, 4 * group + i));
        add_masks(&mut rows, masks, group);
        transpose_words(rows)
    });
    unrolled!(4, i => unrolled!(4, group => groups[group][i].xor(Zmm::splat(added[i]))))
}

/// Undoes [`read`].
#[inline(always)]
fn write(words: [Words; 4], added: &[u32; 4], blocks: &mut [Block], masks: Option<&[Block]>) {
    let groups: [[Zmm; 4]; GROUPS] =
        unrolled!(4, group => unrolled!(4, i => words[i][group].xor(Zmm::splat(added[i]))));
    for (group, rows) in groups.into_iter().enumerate() {
        let mut rows = transpose_words(rows);
        add_masks(&mut rows, masks, group);
        for (i, row) in rows.into_iter().enumerate() {
            row.store(blocks, 4 * group + i);
        }
    }
}

#[inline(always)]
fn add_masks(rows: &mut [Zmm; 4], masks: Option<&[Block]>, group: usize) {
    if let Some(masks) = masks {
        for (i, row) in rows.iter_mut().enumerate() {
            *row = row.xor(Zmm::load(masks, 4 * group + i));
        }
    }
}

/// Four by four words in each 128-bit part; it undoes itself.
#[inline(always)]
fn transpose_words([a, b, c, d]: [Zmm; 4]) -> [Zmm; 4] {
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

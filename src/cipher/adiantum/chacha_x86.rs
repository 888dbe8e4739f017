//! XChaCha on AVX2 and AVX-512.
#![allow(unsafe_code)] // Vector instructions behind a trait, whose users have the feature.

use std::arch::x86_64::*;

use cipher::inout::InOutBuf;

use super::chacha::{BLOCK_BYTES, Key, SECTORS_MAX, Words, xor_sectors};

/// Up to 16 sectors. As [`xor_sectors`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn avx512<const ROUNDS: usize>(
    key: &Key,
    nonces: &[u128],
    data: InOutBuf<'_, '_, u8>,
    sector_bytes: usize,
) {
    xor_sectors::<Sixteen, ROUNDS>(key, nonces, data, sector_bytes);
}

/// Up to 8 sectors. As [`xor_sectors`].
#[target_feature(enable = "avx2")]
pub(super) fn avx2<const ROUNDS: usize>(
    key: &Key,
    nonces: &[u128],
    data: InOutBuf<'_, '_, u8>,
    sector_bytes: usize,
) {
    xor_sectors::<Eight, ROUNDS>(key, nonces, data, sector_bytes);
}

/// Only made and used inside [`avx512`], into which everything here is inlined.
#[derive(Clone, Copy)]
struct Sixteen(__m512i);

// SAFETY, of every block here: AVX-512 is there, as `avx512`, the only user, requires it; loads
// and stores are of arrays that are long enough.
impl Words for Sixteen {
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm512_set1_epi32(word.cast_signed()) })
    }

    #[inline(always)]
    fn load(words: &[u32; SECTORS_MAX]) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm512_loadu_si512(words.as_ptr().cast()) })
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm512_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm512_rol_epi32::<LEFT>(self.0) })
    }

    #[inline(always)]
    fn pick(self, lanes: Self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm512_permutexvar_epi32(lanes.0, self.0) })
    }

    #[inline(always)]
    fn xor_blocks(blocks: [Self; 16], data: InOutBuf<'_, '_, u8>) {
        let count = data.len() / BLOCK_BYTES;
        let (source, target) = data.into_raw();
        // SAFETY: above.
        let rows = unsafe { transposed(blocks) };
        for (index, row) in rows.into_iter().enumerate().take(count) {
            // SAFETY: `source` and `target` have `count` blocks of 64 bytes; they are the same
            // or apart, and a block is read before it is written.
            unsafe {
                let data = _mm512_loadu_si512(source.add(index * BLOCK_BYTES).cast());
                let data = _mm512_xor_si512(data, row);
                _mm512_storeu_si512(target.add(index * BLOCK_BYTES).cast(), data);
            }
        }
    }
}

/// From 16 words of which each lane is another block's, to 16 blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(words: [Sixteen; 16]) -> [__m512i; 16] {
    // Within 128-bit lanes first: after this, `quads[4 * j + i]` has in its lane `l` the words
    // 4j..4j+4 of block 4l + i.
    let mut quads = [_mm512_setzero_si512(); 16];
    for (quad, words) in quads.chunks_exact_mut(4).zip(words.chunks_exact(4)) {
        let low = _mm512_unpacklo_epi32(words[0].0, words[1].0);
        let high = _mm512_unpackhi_epi32(words[0].0, words[1].0);
        let low_too = _mm512_unpacklo_epi32(words[2].0, words[3].0);
        let high_too = _mm512_unpackhi_epi32(words[2].0, words[3].0);
        quad[0] = _mm512_unpacklo_epi64(low, low_too);
        quad[1] = _mm512_unpackhi_epi64(low, low_too);
        quad[2] = _mm512_unpacklo_epi64(high, high_too);
        quad[3] = _mm512_unpackhi_epi64(high, high_too);
    }
    let mut blocks = [_mm512_setzero_si512(); 16];
    for index in 0..4 {
        let [a, b, c, d] = [
            quads[index],
            quads[index + 4],
            quads[index + 8],
            quads[index + 12],
        ];
        // Lanes 0 and 1 of two, then lanes 2 and 3.
        let front = _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b);
        let back = _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b);
        let front_too = _mm512_shuffle_i32x4::<0b01_00_01_00>(c, d);
        let back_too = _mm512_shuffle_i32x4::<0b11_10_11_10>(c, d);
        blocks[index] = _mm512_shuffle_i32x4::<0b10_00_10_00>(front, front_too);
        blocks[index + 4] = _mm512_shuffle_i32x4::<0b11_01_11_01>(front, front_too);
        blocks[index + 8] = _mm512_shuffle_i32x4::<0b10_00_10_00>(back, back_too);
        blocks[index + 12] = _mm512_shuffle_i32x4::<0b11_01_11_01>(back, back_too);
    }
    blocks
}

/// Only made and used inside [`avx2`], into which everything here is inlined.
#[derive(Clone, Copy)]
struct Eight(__m256i);

// SAFETY, of every block here: AVX2 is there, as `avx2`, the only user, requires it; loads and
// stores are of arrays that are long enough.
impl Words for Eight {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm256_set1_epi32(word.cast_signed()) })
    }

    #[inline(always)]
    fn load(words: &[u32; SECTORS_MAX]) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm256_loadu_si256(words.as_ptr().cast()) })
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm256_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: above.
        unsafe {
            // By whole bytes a shuffle does it, in one instruction for three.
            let bytes = match LEFT {
                8 => 0x0e0d_0c0f_0a09_080b_0605_0407_0201_0003_u128,
                16 => 0x0d0c_0f0e_0908_0b0a_0504_0706_0100_0302_u128,
                _ => {
                    return Self(_mm256_or_si256(
                        _mm256_slli_epi32::<LEFT>(self.0),
                        _mm256_srli_epi32::<RIGHT>(self.0),
                    ));
                }
            };
            let bytes = _mm_set_epi64x((bytes >> 64) as i64, bytes as i64);
            Self(_mm256_shuffle_epi8(
                self.0,
                _mm256_broadcastsi128_si256(bytes),
            ))
        }
    }

    #[inline(always)]
    fn pick(self, lanes: Self) -> Self {
        // SAFETY: above.
        Self(unsafe { _mm256_permutevar8x32_epi32(self.0, lanes.0) })
    }

    #[inline(always)]
    fn xor_blocks(blocks: [Self; 16], data: InOutBuf<'_, '_, u8>) {
        let count = data.len() / BLOCK_BYTES;
        let (source, target) = data.into_raw();
        for half in 0..2 {
            // SAFETY: above.
            let rows = unsafe { halves(&blocks[8 * half..8 * half + 8]) };
            for (index, row) in rows.into_iter().enumerate().take(count) {
                // SAFETY: `source` and `target` have `count` blocks of 64 bytes; they are the
                // same or apart, and each half of a block is read before it is written.
                unsafe {
                    let at = index * BLOCK_BYTES + 32 * half;
                    let data = _mm256_loadu_si256(source.add(at).cast());
                    let data = _mm256_xor_si256(data, row);
                    _mm256_storeu_si256(target.add(at).cast(), data);
                }
            }
        }
    }
}

/// From 8 words of which each lane is another block's, to the halves of 8 blocks that these
/// words are.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(words: &[Eight]) -> [__m256i; 8] {
    let mut quads = [_mm256_setzero_si256(); 8];
    for (quad, words) in quads.chunks_exact_mut(4).zip(words.chunks_exact(4)) {
        let low = _mm256_unpacklo_epi32(words[0].0, words[1].0);
        let high = _mm256_unpackhi_epi32(words[0].0, words[1].0);
        let low_too = _mm256_unpacklo_epi32(words[2].0, words[3].0);
        let high_too = _mm256_unpackhi_epi32(words[2].0, words[3].0);
        quad[0] = _mm256_unpacklo_epi64(low, low_too);
        quad[1] = _mm256_unpackhi_epi64(low, low_too);
        quad[2] = _mm256_unpacklo_epi64(high, high_too);
        quad[3] = _mm256_unpackhi_epi64(high, high_too);
    }
    let mut halves = [_mm256_setzero_si256(); 8];
    for index in 0..4 {
        let (a, b) = (quads[index], quads[index + 4]);
        halves[index] = _mm256_permute2x128_si256::<0x20>(a, b);
        halves[index + 4] = _mm256_permute2x128_si256::<0x31>(a, b);
    }
    halves
}

//! NH on AVX2 and AVX-512.
#![allow(unsafe_code)] // Vector loads and stores, of arrays whose lengths are in their types.

use std::arch::x86_64::*;

use super::nh::{Digest, GROUP_BYTES, Key, PASSES, digest};

/// As [`portable`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn avx512(key: &Key, chunk: &[u8], but_last: bool) -> Digest {
    let mut sums = [_mm512_setzero_si512(); PASSES];
    let (groups, _) = chunk.as_chunks::<GROUP_BYTES>();
    for (index, (group, keys)) in groups.iter().zip(&key.0).enumerate() {
        // SAFETY: a group is 128 bytes; so is a group's key, in two halves.
        let (first, second) = unsafe {
            let group = group.as_ptr();
            (
                _mm512_loadu_si512(group.cast()),
                _mm512_loadu_si512(group.add(64).cast()),
            )
        };
        let low = _mm512_unpacklo_epi64(first, second);
        let high = _mm512_unpackhi_epi64(first, second);
        let kept = if but_last && index + 1 == groups.len() {
            0x7f
        } else {
            0xff
        };
        for (sum, key) in sums.iter_mut().zip(keys) {
            // SAFETY: `low` and `high` are 64 bytes each.
            let (key_low, key_high) = unsafe {
                (
                    _mm512_load_si512(key.low.as_ptr().cast()),
                    _mm512_load_si512(key.high.as_ptr().cast()),
                )
            };
            let low = _mm512_add_epi32(low, key_low);
            let high = _mm512_add_epi32(high, key_high);
            let even = _mm512_mul_epu32(low, high);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64(low, 32), _mm512_srli_epi64(high, 32));
            *sum = _mm512_mask_add_epi64(*sum, kept, *sum, _mm512_add_epi64(even, odd));
        }
    }
    // From four registers of eight to one of four.
    let pairs = |a, b| _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let (first, second) = (pairs(sums[0], sums[1]), pairs(sums[2], sums[3]));
    let halves = |a| _mm256_add_epi64(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64::<1>(a));
    quarters(halves(first), halves(second))
}

/// As [`portable`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn avx2(key: &Key, chunk: &[u8], but_last: bool) -> Digest {
    let mut sums = [_mm256_setzero_si256(); PASSES];
    let (groups, _) = chunk.as_chunks::<GROUP_BYTES>();
    for (index, (group, keys)) in groups.iter().zip(&key.0).enumerate() {
        let last = but_last && index + 1 == groups.len();
        for half in 0..2 {
            // SAFETY: a group is 128 bytes; so is a group's key, in two halves.
            let (first, second) = unsafe {
                let group = group.as_ptr().add(32 * half);
                (
                    _mm256_loadu_si256(group.cast()),
                    _mm256_loadu_si256(group.add(64).cast()),
                )
            };
            let low = _mm256_unpacklo_epi64(first, second);
            let high = _mm256_unpackhi_epi64(first, second);
            let last = if last && half == 1 { 0 } else { -1 };
            let kept = _mm256_set_epi64x(last, -1, -1, -1);
            for (sum, key) in sums.iter_mut().zip(keys) {
                // SAFETY: `low` and `high` are 64 bytes each.
                let (key_low, key_high) = unsafe {
                    (
                        _mm256_load_si256(key.low.as_ptr().cast::<__m256i>().add(half)),
                        _mm256_load_si256(key.high.as_ptr().cast::<__m256i>().add(half)),
                    )
                };
                let low = _mm256_add_epi32(low, key_low);
                let high = _mm256_add_epi32(high, key_high);
                let even = _mm256_mul_epu32(low, high);
                let odd = _mm256_mul_epu32(_mm256_srli_epi64(low, 32), _mm256_srli_epi64(high, 32));
                let both = _mm256_and_si256(_mm256_add_epi64(even, odd), kept);
                *sum = _mm256_add_epi64(*sum, both);
            }
        }
    }
    let pairs = |a, b| _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    quarters(pairs(sums[0], sums[1]), pairs(sums[2], sums[3]))
}

/// The two 128-bit lanes of each added.
#[inline]
#[target_feature(enable = "avx2")]
fn quarters(first: __m256i, second: __m256i) -> Digest {
    let sums = _mm256_add_epi64(
        _mm256_permute2x128_si256::<0x20>(first, second),
        _mm256_permute2x128_si256::<0x31>(first, second),
    );
    let mut lanes = [0; PASSES];
    // SAFETY: four numbers of 64 bits.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sums) };
    digest(lanes)
}

//! What the CPU's AES instructions can do at most: AES-256-ECB's loads, rounds and stores, and
//! nothing else. The round keys are any; only the time matters.
#![allow(unsafe_code)] // Vector instructions.

use std::arch::x86_64::*;

/// Registers in flight; with the 15 round keys they fit the 32 there are.
const WIDE: usize = 8;

/// Whether this CPU has the instructions.
pub fn is_here() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("vaes")
}

/// Encrypts (or decrypts) in place, as far as `data` is whole groups of 512 bytes.
///
/// # Panics
/// Where the CPU doesn't have the instructions.
pub fn ecb(encrypt: bool, rounds: usize, data: &mut [u8]) {
    assert!(is_here());
    // SAFETY: just checked.
    unsafe {
        match (encrypt, rounds) {
            (true, 10) => vaes512::<true, 10>(data),
            (false, 10) => vaes512::<false, 10>(data),
            (true, 14) => vaes512::<true, 14>(data),
            (false, 14) => vaes512::<false, 14>(data),
            other => unreachable!("{other:?}"),
        }
    }
}

#[target_feature(enable = "avx512f,vaes")]
fn vaes512<const ENCRYPT: bool, const ROUNDS: usize>(data: &mut [u8]) {
    let mut keys = [_mm512_setzero_si512(); 15];
    for (index, key) in keys.iter_mut().enumerate() {
        *key = std::hint::black_box(_mm512_set1_epi32(0x0107_0b0d + index as i32));
    }
    for group in data.chunks_exact_mut(64 * WIDE) {
        let group: *mut __m512i = group.as_mut_ptr().cast();
        let mut blocks = [_mm512_setzero_si512(); WIDE];
        for (index, block) in blocks.iter_mut().enumerate() {
            // SAFETY: a group is 64 * WIDE bytes.
            *block = _mm512_xor_si512(unsafe { _mm512_loadu_si512(group.add(index)) }, keys[0]);
        }
        for key in &keys[1..ROUNDS] {
            for block in &mut blocks {
                *block = match ENCRYPT {
                    true => _mm512_aesenc_epi128(*block, *key),
                    false => _mm512_aesdec_epi128(*block, *key),
                };
            }
        }
        for (index, block) in blocks.iter().enumerate() {
            let block = match ENCRYPT {
                true => _mm512_aesenclast_epi128(*block, keys[ROUNDS]),
                false => _mm512_aesdeclast_epi128(*block, keys[ROUNDS]),
            };
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(group.add(index), block) };
        }
    }
}

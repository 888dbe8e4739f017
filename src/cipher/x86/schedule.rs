//! AES key schedules, by the AES instructions themselves. Source: FIPS 197, section 5.2; the
//! equivalent inverse cipher, section 5.3.5.
#![allow(unsafe_code)] // AES instructions.

use std::arch::x86_64::*;

use crate::secret::Secret;

/// Most rounds of AES: 14, with 256-bit keys.
const ROUNDS_MAX: usize = 14;
/// Room for one schedule: whole cache lines.
pub(super) const SCHEDULE_BYTES: usize = 16 * (ROUNDS_MAX + 2);

/// Both directions' round keys of one AES key, in locked memory.
pub(super) struct Schedule {
    keys: Secret,
}

impl Schedule {
    /// The schedule of a key of 16, 24 or 32 bytes.
    ///
    /// # Safety
    /// The CPU has the AES instructions.
    pub(super) unsafe fn new(key: &[u8]) -> Self {
        let mut keys = Secret::zeroed(2 * SCHEDULE_BYTES);
        let (encrypt, decrypt) = keys.split_at_mut(SCHEDULE_BYTES);
        // SAFETY: as the caller promises.
        unsafe { expand(key, encrypt, decrypt) };
        Self { keys }
    }

    pub(super) fn encrypting(&self) -> *const u8 {
        self.keys.as_ptr()
    }

    pub(super) fn decrypting(&self) -> *const u8 {
        self.keys[SCHEDULE_BYTES..].as_ptr()
    }
}

#[target_feature(enable = "sse2,aes")]
fn expand(key: &[u8], encrypt: &mut [u8], decrypt: &mut [u8]) {
    let key_words = key.len() / 4;
    let rounds = key_words + 6;
    encrypt[..key.len()].copy_from_slice(key);
    let mut constant = 1u32;
    for i in key_words..4 * (rounds + 1) {
        let mut word = word_at(encrypt, i - 1);
        if i % key_words == 0 {
            word = substitute(word).rotate_right(8) ^ constant;
            constant = (constant << 1) ^ if constant & 0x80 != 0 { 0x11b } else { 0 };
        } else if key_words > 6 && i % key_words == 4 {
            word = substitute(word);
        }
        let word = word ^ word_at(encrypt, i - key_words);
        encrypt[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
    }
    for round in 0..=rounds {
        let from = &encrypt[16 * (rounds - round)..][..16];
        let to = &mut decrypt[16 * round..][..16];
        // SAFETY: both slices are 16 bytes long.
        unsafe {
            let key = _mm_loadu_si128(from.as_ptr().cast());
            let outer = round == 0 || round == rounds;
            let key = if outer { key } else { _mm_aesimc_si128(key) };
            _mm_storeu_si128(to.as_mut_ptr().cast(), key);
        }
    }
}

fn word_at(words: &[u8], index: usize) -> u32 {
    let bytes = &words[4 * index..4 * index + 4];
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

/// The S-box on each byte: with four equal columns, a last round's row shift changes nothing.
#[target_feature(enable = "sse2,aes")]
fn substitute(word: u32) -> u32 {
    let columns = _mm_set1_epi32(word as i32);
    _mm_cvtsi128_si32(_mm_aesenclast_si128(columns, _mm_setzero_si128())) as u32
}

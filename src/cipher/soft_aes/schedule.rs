//! The round keys. Source: FIPS 197, section 5.2.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::sbox::sub_bytes;
use super::slices::{RoundKey, round_key, transpose};
use crate::cipher::run::Block;

/// Round keys of AES-256, which has the most.
const ROUND_KEYS_MAX: usize = 15;

/// A key's schedule, the same for both directions.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Schedule {
    round_keys: [RoundKey; ROUND_KEYS_MAX],
    count: usize,
}

impl Schedule {
    /// `None` where the key isn't of 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        let key_words = key.len() / 4;
        let count = key_words + 7;
        let mut words = Zeroizing::new([0_u32; 4 * ROUND_KEYS_MAX]);
        for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let mut constant = 1_u8;
        for index in key_words..4 * count {
            let before = words[index - 1];
            let mixed = match index % key_words {
                0 => {
                    let mixed = substituted(before.rotate_right(8)) ^ u32::from(constant);
                    constant = (constant << 1) ^ ((constant >> 7) * 0x1b);
                    mixed
                }
                4 if key_words == 8 => substituted(before),
                _ => before,
            };
            words[index] = words[index - key_words] ^ mixed;
        }
        let mut round_keys = [[0; 8]; ROUND_KEYS_MAX];
        for (round, words) in round_keys.iter_mut().zip(words.as_chunks::<4>().0) {
            let mut bytes = Block::default();
            for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            *round = round_key(&bytes);
            bytes.zeroize();
        }
        Some(Self { round_keys, count })
    }

    /// The first key and one a round.
    pub(super) fn rounds(&self) -> &[RoundKey] {
        &self.round_keys[..self.count]
    }
}

/// The S-box on each byte.
fn substituted(word: u32) -> u32 {
    let mut slices = [0; 8];
    slices[0] = u64::from(word);
    transpose(&mut slices);
    sub_bytes(&mut slices);
    transpose(&mut slices);
    slices[0] as u32
}

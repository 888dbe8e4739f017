//! Serpent's round keys. Source: as of `rounds`, section 4.

use zeroize::Zeroize;

use super::rounds::Lanes;

/// The keys of the 32 rounds, and the one after them.
pub(super) type RoundKeys = [[u32; 4]; 33];

/// The fraction of the golden ratio, in the recurrence of the prekeys.
const PHI: u32 = 0x9e37_79b9;

/// `None` where the key is of more than 32 bytes. Any less are a key, for the Linux kernel too.
pub(super) fn round_keys(key: &[u8]) -> Option<RoundKeys> {
    if key.len() > 32 {
        return None;
    }
    // A shorter key is padded: a one bit, then zero bits.
    let mut padded = [0_u8; 33];
    padded[..key.len()].copy_from_slice(key);
    padded[key.len()] = 1;

    let mut words = [0_u32; 8 + 132];
    for (word, bytes) in words.iter_mut().zip(padded.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    for i in 0..132 {
        words[i + 8] = (words[i] ^ words[i + 3] ^ words[i + 5] ^ words[i + 7] ^ PHI ^ i as u32)
            .rotate_left(11);
    }

    let mut keys = [[0; 4]; 33];
    let (prekeys, _) = words[8..].as_chunks();
    for (round, (key, &prekey)) in keys.iter_mut().zip(prekeys).enumerate() {
        *key = match round % 8 {
            0 => u32::sbox::<3>(prekey),
            1 => u32::sbox::<2>(prekey),
            2 => u32::sbox::<1>(prekey),
            3 => u32::sbox::<0>(prekey),
            4 => u32::sbox::<7>(prekey),
            5 => u32::sbox::<6>(prekey),
            6 => u32::sbox::<5>(prekey),
            _ => u32::sbox::<4>(prekey),
        };
    }
    padded.zeroize();
    words.zeroize();
    Some(keys)
}

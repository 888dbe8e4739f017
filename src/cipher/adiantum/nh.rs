//! NH, the first level of Adiantum's hash: up to 1 KiB of message to 32 bytes.
//! Source: Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level
//! processors", section 2.
//!
//! A unit is 16 bytes, four words m0..m3; a pass adds the key's words k0..k3 to them and sums
//! (m0 + k0)(m2 + k2) + (m1 + k1)(m3 + k3) over all units, modulo 2^64. The four passes differ in
//! where in the key they begin, one unit further each.

use zeroize::{Zeroize, ZeroizeOnDrop};

const UNIT_BYTES: usize = 16;
pub(super) const PASSES: usize = 4;
/// A chunk is hashed by itself.
pub(super) const CHUNK_BYTES: usize = 1024;
/// Units that stand in two full registers of AVX-512.
pub(super) const GROUP_BYTES: usize = 128;
const GROUPS: usize = CHUNK_BYTES / GROUP_BYTES;
pub(super) const KEY_BYTES: usize = CHUNK_BYTES + UNIT_BYTES * (PASSES - 1);

/// The hash of one chunk, as the two blocks that go on to Poly1305.
pub(super) type Digest = [u128; 2];

/// NH's key, for every group and pass as the vector units want it: of the group's units `i` and
/// `i + 4`, words 0 and 1 of both side by side in `low[i]`, words 2 and 3 of both in `high[i]`.
/// A message's units get there by one `punpcklqdq` and one `punpckhqdq`.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Key(pub(super) [[GroupKey; PASSES]; GROUPS]);

#[derive(Clone, Copy, Zeroize)]
#[repr(C, align(64))]
pub(super) struct GroupKey {
    pub(super) low: [[u32; 4]; 4],
    pub(super) high: [[u32; 4]; 4],
}

impl Key {
    pub(super) fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let word = |unit: usize, word: usize| {
            let at = unit * UNIT_BYTES + word * 4;
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        let side = |unit: usize, first: usize| {
            [
                word(unit, first),
                word(unit, first + 1),
                word(unit + 4, first),
                word(unit + 4, first + 1),
            ]
        };
        Self(std::array::from_fn(|group| {
            std::array::from_fn(|pass| {
                let unit = group * 8 + pass;
                GroupKey {
                    low: std::array::from_fn(|lane| side(unit + lane, 0)),
                    high: std::array::from_fn(|lane| side(unit + lane, 2)),
                }
            })
        }))
    }
}

/// Hashes a chunk without its last 16 bytes where `but_last` says so. The chunk is whole groups.
pub(super) fn portable(key: &Key, chunk: &[u8], but_last: bool) -> Digest {
    let mut sums = [0_u64; PASSES];
    let (groups, _) = chunk.as_chunks::<GROUP_BYTES>();
    for (index, (group, keys)) in groups.iter().zip(&key.0).enumerate() {
        let last_unit = if but_last && index + 1 == groups.len() {
            7
        } else {
            8
        };
        let (units, _) = group.as_chunks::<UNIT_BYTES>();
        for (unit, bytes) in units.iter().enumerate().take(last_unit) {
            let (words, _) = bytes.as_chunks::<4>();
            let message: [u32; 4] = std::array::from_fn(|word| u32::from_le_bytes(words[word]));
            let (lane, side) = (unit % 4, unit / 4 * 2);
            for (sum, GroupKey { low, high }) in sums.iter_mut().zip(keys) {
                let product = |word: usize| {
                    let low = message[word].wrapping_add(low[lane][side + word]);
                    let high = message[word + 2].wrapping_add(high[lane][side + word]);
                    u64::from(low) * u64::from(high)
                };
                *sum = sum.wrapping_add(product(0)).wrapping_add(product(1));
            }
        }
    }
    digest(sums)
}

#[inline(always)]
pub(super) fn digest(sums: [u64; PASSES]) -> Digest {
    let pair = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
    [pair(sums[0], sums[1]), pair(sums[2], sums[3])]
}

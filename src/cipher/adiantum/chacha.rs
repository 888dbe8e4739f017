//! XChaCha with 12 or 20 rounds over whole sectors, as many ChaCha blocks at once as a register has
//! words. Source: D. J. Bernstein, "ChaCha, a variant of Salsa20"; draft-irtf-cfrg-xchacha, section
//! 2.2 (HChaCha); the 64-bit block counter is the original's.
//!
//! The lanes of a register belong to different blocks, and where a sector is short, to blocks of
//! different sectors with different keys. Subkeys of many sectors are derived at once for the same
//! reason.

use cipher::inout::InOutBuf;

const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
pub(super) const BLOCK_BYTES: usize = 64;
/// The widest kernel's lanes: sectors that can be streamed in one go.
pub(super) const SECTORS_MAX: usize = 16;

/// A key as words.
pub(super) type Key = [u32; 8];

/// A register of 32-bit words, one a lane.
pub(super) trait Words: Copy {
    const LANES: usize;

    fn splat(word: u32) -> Self;
    /// The first [`Self::LANES`] of them.
    fn load(words: &[u32; SECTORS_MAX]) -> Self;
    fn add(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self;
    /// Lane `i` of the result is the lane that `lanes` names in its lane `i`.
    fn pick(self, lanes: Self) -> Self;
    /// XORs the blocks in which lane `i` is block `i` to as many blocks of data.
    fn xor_blocks(blocks: [Self; 16], data: InOutBuf<'_, '_, u8>);
}

/// XORs to `data`, sectors of `sector_bytes`, the stream that `key` and each sector's nonce give:
/// the sector's own 16 bytes, then a 1, then zeros. At most `SECTORS_MAX` sectors, and no more than
/// the kernel has lanes.
#[inline(always)]
pub(super) fn xor_sectors<W: Words, const ROUNDS: usize>(
    key: &Key,
    nonces: &[u128],
    mut data: InOutBuf<'_, '_, u8>,
    sector_bytes: usize,
) {
    debug_assert!(nonces.len() <= W::LANES && data.len() == nonces.len() * sector_bytes);
    let subkeys = subkeys::<W, ROUNDS>(key, nonces);
    let sector_blocks = (sector_bytes / BLOCK_BYTES) as u32;
    let shift = sector_blocks.trailing_zeros();
    let mut first = 0;
    while !data.is_empty() {
        let block = |lane: usize| first + lane as u32;
        let sectors = W::load(&std::array::from_fn(|lane| block(lane) >> shift));
        let counters = W::load(&std::array::from_fn(|lane| {
            block(lane) & (sector_blocks - 1)
        }));
        let keys = subkeys.map(|words| words.pick(sectors));

        let mut state = [W::splat(0); 16];
        for (word, constant) in state.iter_mut().zip(CONSTANTS) {
            *word = W::splat(constant);
        }
        state[4..12].copy_from_slice(&keys);
        state[12] = counters;
        state[14] = W::splat(1);
        rounds::<W, ROUNDS>(&mut state);
        for (word, constant) in state.iter_mut().zip(CONSTANTS) {
            *word = word.add(W::splat(constant));
        }
        for (word, key) in state[4..].iter_mut().zip(keys) {
            *word = word.add(key);
        }
        state[12] = state[12].add(counters);
        state[14] = state[14].add(W::splat(1));

        let bytes = data.len().min(W::LANES * BLOCK_BYTES);
        let (piece, rest) = data.split_at(bytes);
        W::xor_blocks(state, piece);
        data = rest;
        first += W::LANES as u32;
    }
}

/// HChaCha of each nonce; lane `i` of the words is the subkey of nonce `i`.
#[inline(always)]
fn subkeys<W: Words, const ROUNDS: usize>(key: &Key, nonces: &[u128]) -> [W; 8] {
    let mut words = [[0_u32; SECTORS_MAX]; 4];
    for (lane, nonce) in nonces.iter().enumerate() {
        for (index, word) in words.iter_mut().enumerate() {
            word[lane] = (nonce >> (32 * index)) as u32;
        }
    }
    let mut state = [W::splat(0); 16];
    for (word, constant) in state.iter_mut().zip(CONSTANTS.iter().chain(key)) {
        *word = W::splat(*constant);
    }
    for (word, nonce) in state[12..].iter_mut().zip(&words) {
        *word = W::load(nonce);
    }
    rounds::<W, ROUNDS>(&mut state);
    std::array::from_fn(|index| state[if index < 4 { index } else { index + 8 }])
}

#[inline(always)]
fn rounds<W: Words, const ROUNDS: usize>(x: &mut [W; 16]) {
    for _ in 0..ROUNDS / 2 {
        for (a, b, c, d) in [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)] {
            quarter(x, a, b, c, d);
        }
        for (a, b, c, d) in [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)] {
            quarter(x, a, b, c, d);
        }
    }
}

#[inline(always)]
fn quarter<W: Words>(x: &mut [W; 16], a: usize, b: usize, c: usize, d: usize) {
    x[a] = x[a].add(x[b]);
    x[d] = x[d].xor(x[a]).rotate::<16, 16>();
    x[c] = x[c].add(x[d]);
    x[b] = x[b].xor(x[c]).rotate::<12, 20>();
    x[a] = x[a].add(x[b]);
    x[d] = x[d].xor(x[a]).rotate::<8, 24>();
    x[c] = x[c].add(x[d]);
    x[b] = x[b].xor(x[c]).rotate::<7, 25>();
}

/// As many words as SSE2 and NEON registers have; compilers know what to do with them.
#[derive(Clone, Copy)]
struct Four([u32; 4]);

impl Words for Four {
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        Self([word; 4])
    }

    #[inline(always)]
    fn load(words: &[u32; SECTORS_MAX]) -> Self {
        Self(std::array::from_fn(|lane| words[lane]))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| {
            self.0[lane].wrapping_add(other.0[lane])
        }))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] ^ other.0[lane]))
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        Self(self.0.map(|word| word.rotate_left(LEFT as u32)))
    }

    #[inline(always)]
    fn pick(self, lanes: Self) -> Self {
        Self(lanes.0.map(|lane| self.0[lane as usize & 3]))
    }

    #[inline(always)]
    fn xor_blocks(blocks: [Self; 16], mut data: InOutBuf<'_, '_, u8>) {
        let mut stream = [0; 4 * BLOCK_BYTES];
        for (lane, block) in stream.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            for (bytes, word) in block.chunks_exact_mut(4).zip(&blocks) {
                bytes.copy_from_slice(&word.0[lane].to_le_bytes());
            }
        }
        let bytes = data.len();
        data.xor_in2out(&stream[..bytes]);
    }
}

/// The portable kernel: up to 4 sectors.
pub(super) fn portable<const ROUNDS: usize>(
    key: &Key,
    nonces: &[u128],
    data: InOutBuf<'_, '_, u8>,
    sector_bytes: usize,
) {
    xor_sectors::<Four, ROUNDS>(key, nonces, data, sector_bytes);
}

/// The key's words.
pub(super) fn key_words(bytes: &[u8; 32]) -> Key {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|word| u32::from_le_bytes(words[word]))
}

/// The first bytes of the stream under `key` and the nonce that is a 1 and then zeros: where
/// Adiantum's other keys come from.
pub(super) fn derive<const ROUNDS: usize>(key: &Key, out: &mut [u8]) {
    // The nonce's 1 is in its first 16 bytes here, so what follows them are zeros.
    let subkey = subkeys::<Four, ROUNDS>(key, &[1]).map(|word| word.0[0]);
    for (counter, out) in out.chunks_mut(BLOCK_BYTES).enumerate() {
        let mut first = [0; 16];
        first[..4].copy_from_slice(&CONSTANTS);
        first[4..12].copy_from_slice(&subkey);
        first[12] = counter as u32;
        let mut state = first.map(Four::splat);
        rounds::<Four, ROUNDS>(&mut state);
        for (bytes, (word, first)) in out.chunks_mut(4).zip(state.iter().zip(first)) {
            let word = word.0[0].wrapping_add(first).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}

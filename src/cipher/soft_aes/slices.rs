//! Blocks as slices of bits, and AES's rounds on them.
//!
//! Four blocks are eight words of 64 bits. Word `b` has bit `b` of every byte: 16 bits a row of the
//! state, in them 4 bits a column, in them a bit a block. Rows then turn by shifts in groups of 16
//! bits, and columns mix by rotations of whole words. Sixteen blocks are four such sets side by
//! side, which compilers put into vector registers.

use std::ops::{BitAnd, BitOr, BitXor, Not};

use cipher::inout::InOutBuf;

use super::sbox::{inverse_sub_bytes, sub_bytes};
use crate::cipher::run::Block;

/// A round's key: its bits as those of a block, the same for all blocks.
pub(super) type RoundKey = [u64; 8];

/// One or several words of 64 bits, worked on alike.
pub(super) trait Word:
    Copy + BitXor<Output = Self> + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
    /// Words of 64 bits in it; each has bits of four blocks.
    const LANES: usize;
    /// The same in each lane.
    fn splat(word: u64) -> Self;
    fn left(self, bits: u32) -> Self;
    fn right(self, bits: u32) -> Self;
    fn lane(&mut self, index: usize) -> &mut u64;
}

impl Word for u64 {
    const LANES: usize = 1;

    #[inline(always)]
    fn splat(word: u64) -> Self {
        word
    }

    #[inline(always)]
    fn left(self, bits: u32) -> Self {
        self << bits
    }

    #[inline(always)]
    fn right(self, bits: u32) -> Self {
        self >> bits
    }

    #[inline(always)]
    fn lane(&mut self, _: usize) -> &mut u64 {
        self
    }
}

/// Four words.
#[derive(Clone, Copy)]
pub(super) struct Wide([u64; 4]);

impl BitXor for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a ^ e, b ^ f, c ^ g, d ^ h])
    }
}

impl BitAnd for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a & e, b & f, c & g, d & h])
    }
}

impl BitOr for Wide {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a | e, b | f, c | g, d | h])
    }
}

impl Not for Wide {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        let [a, b, c, d] = self.0;
        Self([!a, !b, !c, !d])
    }
}

impl Word for Wide {
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(word: u64) -> Self {
        Self([word; 4])
    }

    #[inline(always)]
    fn left(self, bits: u32) -> Self {
        let [a, b, c, d] = self.0;
        Self([a << bits, b << bits, c << bits, d << bits])
    }

    #[inline(always)]
    fn right(self, bits: u32) -> Self {
        let [a, b, c, d] = self.0;
        Self([a >> bits, b >> bits, c >> bits, d >> bits])
    }

    #[inline(always)]
    fn lane(&mut self, index: usize) -> &mut u64 {
        &mut self.0[index]
    }
}

/// Encrypts up to four blocks a lane of `W`. `keys` are the rounds' and the first.
#[inline(never)]
pub(super) fn encrypt<W: Word>(keys: &[RoundKey], mut blocks: InOutBuf<'_, '_, Block>) {
    let [first, middle @ .., last] = keys else {
        unreachable!("a schedule has 11 round keys and more");
    };
    let mut state = sliced::<W>(blocks.get_in());
    add(&mut state, first);
    for key in middle {
        sub_bytes(&mut state);
        shift_rows(&mut state);
        mix_columns(&mut state);
        add(&mut state, key);
    }
    sub_bytes(&mut state);
    shift_rows(&mut state);
    add(&mut state, last);
    joined(state, blocks.get_out());
}

/// Decrypts, as [`encrypt`], with the same keys.
#[inline(never)]
pub(super) fn decrypt<W: Word>(keys: &[RoundKey], mut blocks: InOutBuf<'_, '_, Block>) {
    let [first, middle @ .., last] = keys else {
        unreachable!("a schedule has 11 round keys and more");
    };
    let mut state = sliced::<W>(blocks.get_in());
    add(&mut state, last);
    for key in middle.iter().rev() {
        inverse_shift_rows(&mut state);
        inverse_sub_bytes(&mut state);
        add(&mut state, key);
        inverse_mix_columns(&mut state);
    }
    inverse_shift_rows(&mut state);
    inverse_sub_bytes(&mut state);
    add(&mut state, first);
    joined(state, blocks.get_out());
}

/// The key of a round, from its 16 bytes.
pub(super) fn round_key(bytes: &Block) -> RoundKey {
    sliced::<u64>(&[*bytes; 4])
}

/// Blocks as slices, those that are missing as zeros.
#[inline(always)]
fn sliced<W: Word>(blocks: &[Block]) -> [W; 8] {
    assert!(blocks.len() <= 4 * W::LANES);
    let mut state = [W::splat(0); 8];
    for (index, block) in blocks.iter().enumerate() {
        let number = u128::from_le_bytes((*block).into());
        let (low, high) = (number as u64, (number >> 64) as u64);
        // Columns 0 and 2 in one word, 1 and 3 in another.
        let even = spread(low as u32) | spread(high as u32) << 8;
        let odd = spread((low >> 32) as u32) | spread((high >> 32) as u32) << 8;
        *state[index % 4].lane(index / 4) = even;
        *state[index % 4 + 4].lane(index / 4) = odd;
    }
    transpose(&mut state);
    state
}

/// The reverse of [`sliced`].
#[inline(always)]
fn joined<W: Word>(mut state: [W; 8], blocks: &mut [Block]) {
    transpose(&mut state);
    for (index, block) in blocks.iter_mut().enumerate() {
        let even = *state[index % 4].lane(index / 4);
        let odd = *state[index % 4 + 4].lane(index / 4);
        let low = u64::from(gather(even)) | u64::from(gather(odd)) << 32;
        let high = u64::from(gather(even >> 8)) | u64::from(gather(odd >> 8)) << 32;
        let number = u128::from(low) | u128::from(high) << 64;
        *block = number.to_le_bytes().into();
    }
}

/// Four bytes, each with a byte of zeros above it.
#[inline(always)]
fn spread(column: u32) -> u64 {
    let pairs = (u64::from(column) | u64::from(column) << 16) & 0x0000_ffff_0000_ffff;
    (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff
}

/// The lower byte of each two.
#[inline(always)]
fn gather(word: u64) -> u32 {
    let bytes = word & 0x00ff_00ff_00ff_00ff;
    let pairs = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff;
    (pairs | pairs >> 16) as u32
}

/// Bit `b` of a byte of word `w` changes places with bit `w` of that byte of word `b`.
#[inline(always)]
pub(super) fn transpose<W: Word>(words: &mut [W; 8]) {
    for (distance, mask) in [
        (1, 0x5555_5555_5555_5555),
        (2, 0x3333_3333_3333_3333),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
    ] {
        let low = W::splat(mask);
        for index in (0..8).filter(|index| index & distance == 0) {
            let (a, b) = (words[index], words[index + distance]);
            let bits = distance as u32;
            words[index] = (a & low) | (b & low).left(bits);
            words[index + distance] = (a & !low).right(bits) | (b & !low);
        }
    }
}

#[inline(always)]
fn add<W: Word>(state: &mut [W; 8], key: &RoundKey) {
    for (bits, key) in state.iter_mut().zip(key) {
        *bits = *bits ^ W::splat(*key);
    }
}

/// Row `r` turns left by `r` columns.
#[inline(always)]
fn shift_rows<W: Word>(state: &mut [W; 8]) {
    for bits in state {
        let part = |mask| *bits & W::splat(mask);
        *bits = part(0x0000_0000_0000_ffff)
            | part(0x0000_0000_fff0_0000).right(4)
            | part(0x0000_0000_000f_0000).left(12)
            | part(0x0000_ff00_0000_0000).right(8)
            | part(0x0000_00ff_0000_0000).left(8)
            | part(0xf000_0000_0000_0000).right(12)
            | part(0x0fff_0000_0000_0000).left(4);
    }
}

#[inline(always)]
fn inverse_shift_rows<W: Word>(state: &mut [W; 8]) {
    for bits in state {
        let part = |mask| *bits & W::splat(mask);
        *bits = part(0x0000_0000_0000_ffff)
            | part(0x0000_0000_0fff_0000).left(4)
            | part(0x0000_0000_f000_0000).right(12)
            | part(0x0000_00ff_0000_0000).left(8)
            | part(0x0000_ff00_0000_0000).right(8)
            | part(0x000f_0000_0000_0000).left(12)
            | part(0xfff0_0000_0000_0000).right(4);
    }
}

/// Each row's bits with those of the row `rows` below it in their place.
#[inline(always)]
fn from_below<W: Word>(bits: W, rows: u32) -> W {
    bits.right(16 * rows) | bits.left(64 - 16 * rows)
}

/// Twice each byte, in AES's field.
#[inline(always)]
fn doubled<W: Word>([b0, b1, b2, b3, b4, b5, b6, b7]: [W; 8]) -> [W; 8] {
    [b7, b0 ^ b7, b1, b2 ^ b7, b3 ^ b7, b4, b5, b6]
}

/// Row `r` becomes 2·(r + next) + next + the two after it.
#[inline(always)]
fn mix_columns<W: Word>(state: &mut [W; 8]) {
    let next = state.map(|bits| from_below(bits, 1));
    let mut sum = next;
    for (sum, bits) in sum.iter_mut().zip(&*state) {
        *sum = *sum ^ *bits;
    }
    let twice = doubled(sum);
    for index in 0..8 {
        state[index] = twice[index] ^ next[index] ^ from_below(sum[index], 2);
    }
}

/// The inverse's matrix is that of [`mix_columns`] times one that adds 4·(r + the row 2 below) to
/// row `r`.
#[inline(always)]
fn inverse_mix_columns<W: Word>(state: &mut [W; 8]) {
    let four_times = doubled(doubled(state.map(|bits| bits ^ from_below(bits, 2))));
    for (bits, more) in state.iter_mut().zip(four_times) {
        *bits = *bits ^ more;
    }
    mix_columns(state);
}

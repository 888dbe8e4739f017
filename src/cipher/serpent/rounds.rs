//! Serpent on four words at a time, each a register with one block's word in every lane.
//!
//! In the bitslice form of the cipher a block is four 32-bit words, an S-box is a Boolean circuit
//! over them, and the rest is rotations, shifts and exclusive or. Source: Anderson, Biham and
//! Knudsen, "Serpent: A Proposal for the Advanced Encryption Standard", sections 3 and 5.

use std::ops::{BitAnd, BitOr, BitXor, Not};

use cipher::inout::InOutBuf;

use super::sboxes;
use super::schedule::RoundKeys;
use crate::cipher::run::Block;

/// 32-bit words of as many blocks, one a lane. Everything is `inline(always)`, so that it is
/// compiled for the CPU features of the kernel that calls it.
pub(super) trait Lanes:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// Lanes, and blocks that [`Self::load`] takes.
    const COUNT: usize;

    /// The word in every lane.
    fn splat(word: u32) -> Self;
    fn rotate_left<const BITS: i32, const REST: i32>(self) -> Self;
    fn shift_left<const BITS: i32>(self) -> Self;

    /// `COUNT` blocks as they come.
    fn load(blocks: &[Block]) -> [Self; 4];
    fn store(rows: [Self; 4], blocks: &mut [Block]);
    /// Blocks as they come to their first, second, third and fourth words, in any order of blocks,
    /// and back.
    fn transpose(rows: [Self; 4]) -> [Self; 4];

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        self ^ b ^ c
    }

    /// S-box `BOX`, 0 to 7.
    #[inline(always)]
    fn sbox<const BOX: usize>(words: [Self; 4]) -> [Self; 4] {
        sboxes::forward::<BOX, _>(words)
    }

    /// What undoes S-box `BOX`.
    #[inline(always)]
    fn sbox_inverse<const BOX: usize>(words: [Self; 4]) -> [Self; 4] {
        sboxes::inverse::<BOX, _>(words)
    }
}

/// Encrypts `GROUPS` times `W::COUNT` blocks, with masks, as many, added before and after. The
/// groups hide one another's latencies.
#[inline(always)]
pub(super) fn encrypt<W: Lanes, const GROUPS: usize>(
    keys: &RoundKeys,
    mut blocks: InOutBuf<'_, '_, Block>,
    masks: Option<&[Block]>,
) {
    let mut state = read::<W, GROUPS>(blocks.get_in(), masks);
    macro_rules! round {
        ($round:expr, $sbox:literal) => {
            add_key(&mut state, &keys[$round]);
            for words in &mut state {
                *words = W::sbox::<$sbox>(*words);
            }
        };
    }
    for octet in 0..4 {
        let first = 8 * octet;
        round!(first, 0);
        mix(&mut state);
        round!(first + 1, 1);
        mix(&mut state);
        round!(first + 2, 2);
        mix(&mut state);
        round!(first + 3, 3);
        mix(&mut state);
        round!(first + 4, 4);
        mix(&mut state);
        round!(first + 5, 5);
        mix(&mut state);
        round!(first + 6, 6);
        mix(&mut state);
        round!(first + 7, 7);
        // The last round has a key instead.
        if octet < 3 {
            mix(&mut state);
        }
    }
    add_key(&mut state, &keys[32]);
    write(state, blocks.get_out(), masks);
}

/// Undoes [`encrypt`].
#[inline(always)]
pub(super) fn decrypt<W: Lanes, const GROUPS: usize>(
    keys: &RoundKeys,
    mut blocks: InOutBuf<'_, '_, Block>,
    masks: Option<&[Block]>,
) {
    let mut state = read::<W, GROUPS>(blocks.get_in(), masks);
    macro_rules! round {
        ($round:expr, $sbox:literal) => {
            for words in &mut state {
                *words = W::sbox_inverse::<$sbox>(*words);
            }
            add_key(&mut state, &keys[$round]);
        };
    }
    add_key(&mut state, &keys[32]);
    for octet in (0..4).rev() {
        let first = 8 * octet;
        if octet < 3 {
            unmix(&mut state);
        }
        round!(first + 7, 7);
        unmix(&mut state);
        round!(first + 6, 6);
        unmix(&mut state);
        round!(first + 5, 5);
        unmix(&mut state);
        round!(first + 4, 4);
        unmix(&mut state);
        round!(first + 3, 3);
        unmix(&mut state);
        round!(first + 2, 2);
        unmix(&mut state);
        round!(first + 1, 1);
        unmix(&mut state);
        round!(first, 0);
    }
    write(state, blocks.get_out(), masks);
}

#[inline(always)]
fn read<W: Lanes, const GROUPS: usize>(
    blocks: &[Block],
    masks: Option<&[Block]>,
) -> [[W; 4]; GROUPS] {
    assert_eq!(blocks.len(), GROUPS * W::COUNT);
    let mut state = [[W::splat(0); 4]; GROUPS];
    for (rows, blocks) in state.iter_mut().zip(blocks.chunks_exact(W::COUNT)) {
        *rows = W::load(blocks);
    }
    add_masks(&mut state, masks);
    for rows in &mut state {
        *rows = W::transpose(*rows);
    }
    state
}

#[inline(always)]
fn write<W: Lanes, const GROUPS: usize>(
    mut state: [[W; 4]; GROUPS],
    blocks: &mut [Block],
    masks: Option<&[Block]>,
) {
    assert_eq!(blocks.len(), GROUPS * W::COUNT);
    for words in &mut state {
        *words = W::transpose(*words);
    }
    add_masks(&mut state, masks);
    for (rows, blocks) in state.into_iter().zip(blocks.chunks_exact_mut(W::COUNT)) {
        W::store(rows, blocks);
    }
}

#[inline(always)]
fn add_masks<W: Lanes, const GROUPS: usize>(state: &mut [[W; 4]; GROUPS], masks: Option<&[Block]>) {
    if let Some(masks) = masks {
        assert_eq!(masks.len(), GROUPS * W::COUNT);
        for (rows, masks) in state.iter_mut().zip(masks.chunks_exact(W::COUNT)) {
            let masks = W::load(masks);
            for (row, mask) in rows.iter_mut().zip(masks) {
                *row = *row ^ mask;
            }
        }
    }
}

#[inline(always)]
fn add_key<W: Lanes, const GROUPS: usize>(state: &mut [[W; 4]; GROUPS], key: &[u32; 4]) {
    for (index, &key) in key.iter().enumerate() {
        let key = W::splat(key);
        for words in &mut *state {
            words[index] = words[index] ^ key;
        }
    }
}

/// The linear transformation of every round but the last.
#[inline(always)]
fn mix<W: Lanes, const GROUPS: usize>(state: &mut [[W; 4]; GROUPS]) {
    for [a, b, c, d] in state {
        *a = a.rotate_left::<13, 19>();
        *c = c.rotate_left::<3, 29>();
        *b = b.xor3(*a, *c);
        *d = d.xor3(*c, a.shift_left::<3>());
        *b = b.rotate_left::<1, 31>();
        *d = d.rotate_left::<7, 25>();
        *a = a.xor3(*b, *d);
        *c = c.xor3(*d, b.shift_left::<7>());
        *a = a.rotate_left::<5, 27>();
        *c = c.rotate_left::<22, 10>();
    }
}

#[inline(always)]
fn unmix<W: Lanes, const GROUPS: usize>(state: &mut [[W; 4]; GROUPS]) {
    for [a, b, c, d] in state {
        *c = c.rotate_left::<10, 22>();
        *a = a.rotate_left::<27, 5>();
        *c = c.xor3(*d, b.shift_left::<7>());
        *a = a.xor3(*b, *d);
        *d = d.rotate_left::<25, 7>();
        *b = b.rotate_left::<31, 1>();
        *d = d.xor3(*c, a.shift_left::<3>());
        *b = b.xor3(*a, *c);
        *c = c.rotate_left::<29, 3>();
        *a = a.rotate_left::<19, 13>();
    }
}

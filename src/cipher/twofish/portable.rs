//! Twofish a few blocks at a time, by key-dependent tables. Not constant-time: the addresses of
//! table entries depend on keys and data.

use cipher::consts::U4;
use cipher::inout::{InOut, InOutBuf};

use super::schedule::Keys;
use crate::cipher::many_blocks::Kernel;
use crate::cipher::run::Block;

/// The kernel of every CPU.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Kernel for Portable {
    type Keys = Keys;
    /// Four blocks hide one another's latencies.
    type Width = U4;

    fn encrypt(self, keys: &Keys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
        encrypt::<4>(keys, blocks, masks);
    }

    fn decrypt(self, keys: &Keys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
        decrypt::<4>(keys, blocks, masks);
    }

    fn encrypt_one(self, keys: &Keys, mut block: InOut<'_, '_, Block>) {
        let mut blocks = [*block.get_in()];
        encrypt::<1>(keys, blocks.as_mut_slice().into(), None);
        [*block.get_out()] = blocks;
    }

    fn decrypt_one(self, keys: &Keys, mut block: InOut<'_, '_, Block>) {
        let mut blocks = [*block.get_in()];
        decrypt::<1>(keys, blocks.as_mut_slice().into(), None);
        [*block.get_out()] = blocks;
    }
}

/// `COUNT` blocks, with masks, as many, added before and after. Source: "Twofish: A 128-Bit Block
/// Cipher", section 4.
#[inline(always)]
fn encrypt<const COUNT: usize>(
    keys: &Keys,
    mut blocks: InOutBuf<'_, '_, Block>,
    masks: Option<&[Block]>,
) {
    let (before, after, rounds) = parts(keys);
    let mut state: [[u32; 4]; COUNT] = read(blocks.get_in(), before, masks);
    for &[first, second, third, fourth] in rounds {
        for [a, b, c, d] in &mut state {
            let [e, f] = function(keys, *a, *b, [first, second]);
            *c = (*c ^ e).rotate_right(1);
            *d = d.rotate_left(1) ^ f;
        }
        for [a, b, c, d] in &mut state {
            let [e, f] = function(keys, *c, *d, [third, fourth]);
            *a = (*a ^ e).rotate_right(1);
            *b = b.rotate_left(1) ^ f;
        }
    }
    write(state, after, blocks.get_out(), masks);
}

/// Undoes [`encrypt`].
#[inline(always)]
fn decrypt<const COUNT: usize>(
    keys: &Keys,
    mut blocks: InOutBuf<'_, '_, Block>,
    masks: Option<&[Block]>,
) {
    let (before, after, rounds) = parts(keys);
    let mut state: [[u32; 4]; COUNT] = read(blocks.get_in(), after, masks);
    // The halves have changed sides; in the rounds here they keep the sides they came on.
    for &[first, second, third, fourth] in rounds.iter().rev() {
        for [c, d, a, b] in &mut state {
            let [e, f] = function(keys, *c, *d, [third, fourth]);
            *a = a.rotate_left(1) ^ e;
            *b = (*b ^ f).rotate_right(1);
        }
        for [c, d, a, b] in &mut state {
            let [e, f] = function(keys, *a, *b, [first, second]);
            *c = c.rotate_left(1) ^ e;
            *d = (*d ^ f).rotate_right(1);
        }
    }
    write(state, before, blocks.get_out(), masks);
}

/// What is added before, what is added after, and the words of every two rounds.
#[inline(always)]
pub(super) fn parts(keys: &Keys) -> (&[u32; 4], &[u32; 4], &[[u32; 4]]) {
    let (words, _) = keys.words.as_chunks();
    (&words[0], &words[1], &words[2..])
}

#[inline(always)]
fn read<const COUNT: usize>(
    blocks: &[Block],
    added: &[u32; 4],
    masks: Option<&[Block]>,
) -> [[u32; 4]; COUNT] {
    assert_eq!(blocks.len(), COUNT);
    let mut state = [*added; COUNT];
    for (i, state) in state.iter_mut().enumerate() {
        add_words(state, &blocks[i]);
        if let Some(masks) = masks {
            add_words(state, &masks[i]);
        }
    }
    state
}

/// The halves change sides.
#[inline(always)]
fn write<const COUNT: usize>(
    state: [[u32; 4]; COUNT],
    added: &[u32; 4],
    blocks: &mut [Block],
    masks: Option<&[Block]>,
) {
    assert_eq!(blocks.len(), COUNT);
    for (i, [a, b, c, d]) in state.into_iter().enumerate() {
        let mut words = [c ^ added[0], d ^ added[1], a ^ added[2], b ^ added[3]];
        if let Some(masks) = masks {
            add_words(&mut words, &masks[i]);
        }
        let (bytes, _) = blocks[i].as_chunks_mut();
        for (bytes, word) in bytes.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }
}

#[inline(always)]
fn add_words(words: &mut [u32; 4], block: &Block) {
    let (bytes, _) = block.as_chunks();
    for (word, &bytes) in words.iter_mut().zip(bytes) {
        *word ^= u32::from_le_bytes(bytes);
    }
}

/// The F function of two words.
#[inline(always)]
fn function(keys: &Keys, a: u32, b: u32, [even, odd]: [u32; 2]) -> [u32; 2] {
    let a = a.to_le_bytes();
    // Rotated left by a byte.
    let [b0, b1, b2, b3] = b.to_le_bytes();
    let a = g(keys, a);
    let b = g(keys, [b3, b0, b1, b2]);
    let sum = a.wrapping_add(b);
    [
        sum.wrapping_add(even),
        sum.wrapping_add(b).wrapping_add(odd),
    ]
}

#[inline(always)]
fn g(keys: &Keys, [a, b, c, d]: [u8; 4]) -> u32 {
    let [first, second, third, fourth] = &keys.columns;
    first[usize::from(a)] ^ second[usize::from(b)] ^ third[usize::from(c)] ^ fourth[usize::from(d)]
}

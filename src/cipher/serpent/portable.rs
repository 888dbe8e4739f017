//! Serpent's lanes without instructions of one CPU's own: one block, or four side by side.

use std::ops::{BitAnd, BitOr, BitXor, Not};

use cipher::consts::U4;
use cipher::inout::{InOut, InOutBuf};

use super::rounds::{self, Lanes};
use super::schedule::RoundKeys;
use crate::cipher::many_blocks::Kernel;
use crate::cipher::run::Block;

/// The kernel of every CPU.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Kernel for Portable {
    type Keys = RoundKeys;
    type Width = U4;

    fn encrypt(self, keys: &RoundKeys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
        rounds::encrypt::<Quad, 1>(keys, blocks, masks);
    }

    fn decrypt(self, keys: &RoundKeys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
        rounds::decrypt::<Quad, 1>(keys, blocks, masks);
    }

    fn encrypt_one(self, keys: &RoundKeys, mut block: InOut<'_, '_, Block>) {
        let mut blocks = [*block.get_in()];
        rounds::encrypt::<u32, 1>(keys, blocks.as_mut_slice().into(), None);
        [*block.get_out()] = blocks;
    }

    fn decrypt_one(self, keys: &RoundKeys, mut block: InOut<'_, '_, Block>) {
        let mut blocks = [*block.get_in()];
        rounds::decrypt::<u32, 1>(keys, blocks.as_mut_slice().into(), None);
        [*block.get_out()] = blocks;
    }
}

impl Lanes for u32 {
    const COUNT: usize = 1;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        word
    }

    #[inline(always)]
    fn rotate_left<const BITS: i32, const REST: i32>(self) -> Self {
        self << BITS | self >> REST
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        self << BITS
    }

    #[inline(always)]
    fn load(blocks: &[Block]) -> [Self; 4] {
        words(&blocks[0])
    }

    #[inline(always)]
    fn store(rows: [Self; 4], blocks: &mut [Block]) {
        set_words(&mut blocks[0], rows);
    }

    #[inline(always)]
    fn transpose(rows: [Self; 4]) -> [Self; 4] {
        rows
    }
}

#[inline(always)]
fn words(block: &Block) -> [u32; 4] {
    let (words, _) = block.as_chunks();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

#[inline(always)]
fn set_words(block: &mut Block, words: [u32; 4]) {
    let (bytes, _) = block.as_chunks_mut();
    for (bytes, word) in bytes.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
}

#[derive(Clone, Copy)]
struct Quad([u32; 4]);

impl Quad {
    #[inline(always)]
    fn with(self, other: Self, each: impl Fn(u32, u32) -> u32) -> Self {
        Self(std::array::from_fn(|i| each(self.0[i], other.0[i])))
    }
}

impl BitAnd for Quad {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        self.with(other, BitAnd::bitand)
    }
}

impl BitOr for Quad {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.with(other, BitOr::bitor)
    }
}

impl BitXor for Quad {
    type Output = Self;
    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        self.with(other, BitXor::bitxor)
    }
}

impl Not for Quad {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(self.0.map(Not::not))
    }
}

impl Lanes for Quad {
    const COUNT: usize = 4;

    #[inline(always)]
    fn splat(word: u32) -> Self {
        Self([word; 4])
    }

    #[inline(always)]
    fn rotate_left<const BITS: i32, const REST: i32>(self) -> Self {
        Self(self.0.map(|word| word << BITS | word >> REST))
    }

    #[inline(always)]
    fn shift_left<const BITS: i32>(self) -> Self {
        Self(self.0.map(|word| word << BITS))
    }

    #[inline(always)]
    fn load(blocks: &[Block]) -> [Self; 4] {
        std::array::from_fn(|i| Self(words(&blocks[i])))
    }

    #[inline(always)]
    fn store(rows: [Self; 4], blocks: &mut [Block]) {
        for (row, block) in rows.into_iter().zip(blocks) {
            set_words(block, row.0);
        }
    }

    #[inline(always)]
    fn transpose(rows: [Self; 4]) -> [Self; 4] {
        std::array::from_fn(|word| Self(std::array::from_fn(|lane| rows[lane].0[word])))
    }
}

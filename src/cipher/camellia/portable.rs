//! Camellia a block at a time, by tables of the S-boxes with what the P function makes of each.
//! Not constant-time: the addresses of table entries depend on keys and data.

use cipher::consts::U4;
use cipher::inout::{InOut, InOutBuf};

use super::sboxes;
use super::schedule::{Keys, Subkeys};
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
        through::<4>(&keys.encrypt, blocks, masks);
    }

    fn decrypt(self, keys: &Keys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>) {
        through::<4>(&keys.decrypt, blocks, masks);
    }

    fn encrypt_one(self, keys: &Keys, mut block: InOut<'_, '_, Block>) {
        let mut blocks = [*block.get_in()];
        through::<1>(&keys.encrypt, blocks.as_mut_slice().into(), None);
        [*block.get_out()] = blocks;
    }

    fn decrypt_one(self, keys: &Keys, mut block: InOut<'_, '_, Block>) {
        let mut blocks = [*block.get_in()];
        through::<1>(&keys.decrypt, blocks.as_mut_slice().into(), None);
        [*block.get_out()] = blocks;
    }
}

/// `COUNT` blocks in the direction of `keys`, with masks, as many, added before and after. Source:
/// RFC 3713, section 2.3.
#[inline(always)]
fn through<const COUNT: usize>(
    keys: &Subkeys,
    mut blocks: InOutBuf<'_, '_, Block>,
    masks: Option<&[Block]>,
) {
    assert_eq!(blocks.len(), COUNT);
    let mut left = [0; COUNT];
    let mut right = [0; COUNT];
    for (i, block) in blocks.get_in().iter().enumerate() {
        let mask = masks.map_or([0; 2], |masks| halves(&masks[i]));
        let [block_left, block_right] = halves(block);
        left[i] = block_left ^ mask[0] ^ keys.start[0];
        right[i] = block_right ^ mask[1] ^ keys.start[1];
    }
    for index in 0..keys.group_count {
        if let Some(before) = index.checked_sub(1) {
            let [key, key_inverse] = keys.between[before];
            left = left.map(|half| fl(half, key));
            right = right.map(|half| fl_inverse(half, key_inverse));
        }
        let (pairs, _) = keys.groups[index].as_chunks();
        for [first, second] in pairs {
            for i in 0..COUNT {
                right[i] ^= f(left[i] ^ first);
            }
            for i in 0..COUNT {
                left[i] ^= f(right[i] ^ second);
            }
        }
    }
    for (i, block) in blocks.get_out().iter_mut().enumerate() {
        let mask = masks.map_or([0; 2], |masks| halves(&masks[i]));
        let (bytes, _) = block.as_chunks_mut();
        bytes[0] = (right[i] ^ mask[0] ^ keys.end[0]).to_be_bytes();
        bytes[1] = (left[i] ^ mask[1] ^ keys.end[1]).to_be_bytes();
    }
}

#[inline(always)]
fn halves(block: &Block) -> [u64; 2] {
    let (halves, _) = block.as_chunks();
    [u64::from_be_bytes(halves[0]), u64::from_be_bytes(halves[1])]
}

/// The F function of a half with the round's key added: S-boxes, then the P function.
#[inline(always)]
pub(super) fn f(half: u64) -> u64 {
    let bytes = half.to_be_bytes();
    let mut sum = 0;
    for i in 0..8 {
        sum ^= SPREAD[i][usize::from(bytes[i])];
    }
    sum
}

fn fl(half: u64, key: u64) -> u64 {
    let [mut left, mut right] = words(half);
    let [key_left, key_right] = words(key);
    right ^= (left & key_left).rotate_left(1);
    left ^= right | key_right;
    u64::from(left) << 32 | u64::from(right)
}

fn fl_inverse(half: u64, key: u64) -> u64 {
    let [mut left, mut right] = words(half);
    let [key_left, key_right] = words(key);
    left ^= right | key_right;
    right ^= (left & key_left).rotate_left(1);
    u64::from(left) << 32 | u64::from(right)
}

fn words(half: u64) -> [u32; 2] {
    [(half >> 32) as u32, half as u32]
}

/// Which S-box, 0 to 3, the F function applies to each byte.
pub(super) const BOX_OF_BYTE: [usize; 8] = [0, 1, 2, 3, 1, 2, 3, 0];

/// Of each byte: in which bytes of its output the P function adds it.
const P: [u64; 8] = [
    0x0101_0100_0100_0001,
    0x0001_0101_0101_0000,
    0x0100_0101_0001_0100,
    0x0101_0001_0000_0101,
    0x0001_0101_0001_0101,
    0x0100_0101_0100_0101,
    0x0101_0001_0101_0001,
    0x0101_0100_0101_0100,
];

static SPREAD: [[u64; 256]; 8] = spread();

const fn spread() -> [[u64; 256]; 8] {
    let mut spread = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 8 {
        let mut x = 0;
        while x < 256 {
            spread[byte][x] = P[byte] * sboxes::TABLES[BOX_OF_BYTE[byte]][x] as u64;
            x += 1;
        }
        byte += 1;
    }
    spread
}

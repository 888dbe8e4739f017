//! Camellia on byte slices: register `i` has byte `i` of as many blocks as it has bytes.
//!
//! An S-box is then the same few instructions for all bytes of a register, and the P function is
//! additions of whole registers. Nothing depends on data but the data.

use cipher::inout::InOutBuf;

use super::schedule::{Bytes, SubkeyBytes};
use crate::cipher::many_blocks::unrolled;
use crate::cipher::run::Block;

/// Bytes of as many blocks. Everything is `inline(always)`, so that it is compiled for the CPU
/// features of the kernel that calls it.
pub(super) trait Slice: Copy {
    /// Bytes, and blocks that go together.
    const COUNT: usize;

    /// The byte that `bytes` is four times, everywhere.
    fn splat(bytes: u32) -> Self;
    /// Sixteen bytes of each of `COUNT` / 16 blocks, from block `index` of `blocks` on.
    fn load(blocks: &[Block], index: usize) -> Self;
    fn store(self, blocks: &mut [Block], index: usize);
    /// The low eight bytes of every sixteen of `self`, alternating with those of `other`.
    fn interleave_low(self, other: Self) -> Self;
    fn interleave_high(self, other: Self) -> Self;

    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    /// Every byte shifted left by one.
    fn shift_left_1(self) -> Self;
    /// Every byte's topmost bit, moved to the lowest.
    fn top_bit(self) -> Self;

    /// S-box `BOX`, 0 to 3, of all bytes.
    fn sbox<const BOX: usize>(self) -> Self;

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        self.xor(b).xor(c)
    }

    /// Adds P of `z`, and `key`, to `half`. Source: RFC 3713, section 2.4.1, with its sums shared
    /// as in Camellia's specification.
    #[inline(always)]
    fn add_p(half: &mut [Self; 8], mut z: [Self; 8], key: &Bytes) {
        macro_rules! add {
            ($($target:literal += $source:literal),*) => {
                $(z[$target - 1] = z[$target - 1].xor(z[$source - 1]);)*
            };
        }
        add!(
            1 += 6,
            2 += 7,
            3 += 8,
            4 += 5,
            5 += 3,
            6 += 4,
            7 += 1,
            8 += 2
        );
        add!(
            1 += 8,
            2 += 5,
            3 += 6,
            4 += 7,
            5 += 4,
            6 += 1,
            7 += 2,
            8 += 3
        );
        for i in 0..8 {
            half[i] = half[i].xor3(z[(i + 4) % 8], Self::splat(key[i]));
        }
    }
}

/// `W::COUNT` blocks in the direction of `keys`, with masks, as many, added before and after.
#[inline(always)]
pub(super) fn through<W: Slice>(
    keys: &SubkeyBytes,
    mut blocks: InOutBuf<'_, '_, Block>,
    masks: Option<&[Block]>,
) {
    assert_eq!(blocks.len(), W::COUNT);
    let [mut left, mut right] = read::<W>(blocks.get_in(), masks);
    add(&mut left, &keys.start[0]);
    add(&mut right, &keys.start[1]);
    for index in 0..keys.group_count {
        if let Some(before) = index.checked_sub(1) {
            let [key, key_inverse] = &keys.between[before];
            fl(&mut left, key);
            fl_inverse(&mut right, key_inverse);
        }
        let [before, first, second, third, fourth, fifth, sixth, after] = &keys.groups[index];
        add(&mut left, before);
        round(&left, &mut right, first);
        round(&right, &mut left, second);
        round(&left, &mut right, third);
        round(&right, &mut left, fourth);
        round(&left, &mut right, fifth);
        round(&right, &mut left, sixth);
        add(&mut right, after);
    }
    add(&mut right, &keys.end[0]);
    add(&mut left, &keys.end[1]);
    write([right, left], blocks.get_out(), masks);
}

#[inline(always)]
fn add<W: Slice>(half: &mut [W; 8], key: &Bytes) {
    for (byte, &key) in half.iter_mut().zip(key) {
        *byte = byte.xor(W::splat(key));
    }
}

#[inline(always)]
fn round<W: Slice>(from: &[W; 8], to: &mut [W; 8], key: &Bytes) {
    let z = [
        from[0].sbox::<0>(),
        from[1].sbox::<1>(),
        from[2].sbox::<2>(),
        from[3].sbox::<3>(),
        from[4].sbox::<1>(),
        from[5].sbox::<2>(),
        from[6].sbox::<3>(),
        from[7].sbox::<0>(),
    ];
    W::add_p(to, z, key);
}

/// Source: RFC 3713, section 2.4.2.
#[inline(always)]
fn fl<W: Slice>(half: &mut [W; 8], key: &Bytes) {
    add_rotated_and(half, key);
    add_or(half, key);
}

/// Source: RFC 3713, section 2.4.3.
#[inline(always)]
fn fl_inverse<W: Slice>(half: &mut [W; 8], key: &Bytes) {
    add_or(half, key);
    add_rotated_and(half, key);
}

/// `right ^= (left & key) <<< 1`.
#[inline(always)]
fn add_rotated_and<W: Slice>(half: &mut [W; 8], key: &Bytes) {
    let masked: [W; 4] = unrolled!(4, i => half[i].and(W::splat(key[i])));
    for i in 0..4 {
        let from_below = masked[(i + 1) % 4].top_bit();
        half[4 + i] = half[4 + i].xor3(masked[i].shift_left_1(), from_below);
    }
}

/// `left ^= right | key`.
#[inline(always)]
fn add_or<W: Slice>(half: &mut [W; 8], key: &Bytes) {
    for i in 0..4 {
        half[i] = half[i].xor(half[4 + i].or(W::splat(key[4 + i])));
    }
}

/// Blocks as their left and right halves in slices. The order of blocks is one that `write`
/// undoes.
#[inline(always)]
fn read<W: Slice>(blocks: &[Block], masks: Option<&[Block]>) -> [[W; 8]; 2] {
    let mut rows = unrolled!(16, i => W::load(blocks, i * W::COUNT / 16));
    add_masks(&mut rows, masks);
    let rows = transpose(rows);
    [unrolled!(8, i => rows[i]), unrolled!(8, i => rows[8 + i])]
}

#[inline(always)]
fn write<W: Slice>([left, right]: [[W; 8]; 2], blocks: &mut [Block], masks: Option<&[Block]>) {
    let rows = unrolled!(16, i => if i < 8 { left[i] } else { right[i - 8] });
    let mut rows = transpose(rows);
    add_masks(&mut rows, masks);
    for (i, row) in rows.into_iter().enumerate() {
        row.store(blocks, i * W::COUNT / 16);
    }
}

#[inline(always)]
fn add_masks<W: Slice>(rows: &mut [W; 16], masks: Option<&[Block]>) {
    if let Some(masks) = masks {
        for (i, row) in rows.iter_mut().enumerate() {
            *row = row.xor(W::load(masks, i * W::COUNT / 16));
        }
    }
}

/// Transposes sixteen registers by sixteen bytes, in every sixteen bytes of the registers. Each
/// step moves the topmost bit of a byte's place to the lowest of its register's number, and that
/// one's topmost to the lowest of the place; after four steps they have changed sides.
#[inline(always)]
fn transpose<W: Slice>(mut rows: [W; 16]) -> [W; 16] {
    for _ in 0..4 {
        rows = unrolled!(16, i => {
            let (low, high) = (rows[i / 2], rows[i / 2 + 8]);
            if i.is_multiple_of(2) {
                low.interleave_low(high)
            } else {
                low.interleave_high(high)
            }
        });
    }
    rows
}

//! Poly1305 as a polynomial over 16-byte blocks, without the final addition of a pad: how Adiantum
//! hashes. Source: D. J. Bernstein, "The Poly1305-AES message-authentication code", section 2.
//!
//! The messages are short (two or three blocks a sector of 512 bytes) and each is hashed by itself,
//! so there is no Horner chain: every block is multiplied by its own power of the key, all products
//! are independent, and the sum is reduced once. Constant time: multiplications and additions only.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Blocks hashed in one go: what NH makes of a sector of 4096 bytes.
pub(super) const BLOCKS_MAX: usize = 8;

const LIMB: u64 = (1 << 44) - 1;
const TOP_LIMB: u64 = (1 << 42) - 1;

/// A number modulo 2^130 - 5 in limbs of 44, 44 and 42 bits.
#[derive(Clone, Copy, Default, Zeroize)]
struct Element([u64; 3]);

/// A sum of products, not yet reduced. A product is less than 2^98, so there is room for all.
#[derive(Clone, Copy, Default, Zeroize)]
pub(super) struct Sum([u128; 3]);

/// The powers of a key.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Poly1305 {
    /// `powers[i]` is the key to the power of `i + 1`.
    powers: [Element; BLOCKS_MAX],
}

impl Poly1305 {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let clamped = u128::from_le_bytes(*key) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        let mut powers = [Element::from_u128(clamped, 0); BLOCKS_MAX];
        for index in 1..BLOCKS_MAX {
            let mut sum = Sum::default();
            sum.add_product(powers[index - 1], powers[0]);
            powers[index] = sum.carried();
        }
        Self { powers }
    }

    /// The hash of `blocks`, at most [`BLOCKS_MAX`], modulo 2^128.
    #[inline(always)]
    pub(super) fn hash(&self, blocks: &[u128]) -> u128 {
        let mut sum = Sum::default();
        for (index, block) in blocks.iter().enumerate() {
            self.add(&mut sum, *block, blocks.len() - index);
        }
        sum.reduced()
    }

    /// Adds what a block contributes that is `from_end` blocks from the message's end (1 is the
    /// last one).
    #[inline(always)]
    pub(super) fn add(&self, sum: &mut Sum, block: u128, from_end: usize) {
        sum.add_product(Element::from_u128(block, 1), self.powers[from_end - 1]);
    }

    /// Changes a block that was added as zero to `block`.
    #[inline(always)]
    pub(super) fn add_to_zero(&self, sum: &mut Sum, block: u128, from_end: usize) {
        sum.add_product(Element::from_u128(block, 0), self.powers[from_end - 1]);
    }
}

impl Element {
    /// `low + top * 2^128`.
    #[inline(always)]
    fn from_u128(low: u128, top: u64) -> Self {
        Self([
            low as u64 & LIMB,
            (low >> 44) as u64 & LIMB,
            (low >> 88) as u64 | top << 40,
        ])
    }
}

impl Sum {
    #[inline(always)]
    fn add_product(&mut self, Element(a): Element, Element(b): Element) {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        // 2^132 is 20 modulo 2^130 - 5.
        let (b1, b2) = (b[1] * 20, b[2] * 20);
        self.0[0] += product(a[0], b[0]) + product(a[1], b2) + product(a[2], b1);
        self.0[1] += product(a[0], b[1]) + product(a[1], b[0]) + product(a[2], b2);
        self.0[2] += product(a[0], b[2]) + product(a[1], b[1]) + product(a[2], b[0]);
    }

    /// Congruent, each limb within its bits but for a few too many in the second.
    #[inline(always)]
    fn carried(self) -> Element {
        let [low, middle, high] = self.0;
        let middle = middle + (low >> 44);
        let high = high + (middle >> 44);
        // What is above 2^130 comes in again times 5: less than 2^64 of it, for at most 8 blocks.
        let low = (low as u64 & LIMB) as u128 + (high >> 42) * 5;
        let middle = (middle as u64 & LIMB) + (low >> 44) as u64;
        Element([low as u64 & LIMB, middle, high as u64 & TOP_LIMB])
    }

    /// Fully reduced modulo 2^130 - 5, then modulo 2^128.
    #[inline(always)]
    pub(super) fn reduced(self) -> u128 {
        let [low, middle, high] = self.carried().0;
        let high = high + (middle >> 44);
        let middle = middle & LIMB;
        // Below 2^131 now. One more fold, then one conditional subtraction: `value + 5` reaches
        // 2^130 exactly where `value` is at least the modulus.
        let low = low + (high >> 42) * 5;
        let high = high & TOP_LIMB;
        let carry = (((low + 5) >> 44) + middle) >> 44;
        let over = (carry + high) >> 42;
        u128::from(low)
            .wrapping_add(u128::from(over * 5))
            .wrapping_add(u128::from(middle) << 44)
            .wrapping_add(u128::from(high) << 88)
    }
}

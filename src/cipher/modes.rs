//! Modes over any block cipher: what isn't used enough to be worth code of its own for each
//! cipher. Whole pieces of a run go through the cipher at once, so that wide backends stay wide.
//!
//! Source: NIST SP 800-38A (ECB, CBC, CTR), IEEE 1619-2018 (XTS), IEEE P1619 draft 2004 (LRW),
//! Kohl's PCBC as of Kerberos 4.

use zeroize::Zeroize;

use super::block::Blocks;
use super::iv::IvRule;
use super::run::{Run, RunCipher};

/// Sectors whose IVs are made together, and chains that go side by side.
const SECTORS_AT_ONCE: usize = 64;
/// The longest IV of these modes in bytes.
const IV_BYTES_MAX: usize = 16;
/// Bytes that go through a parallel mode at a time: whole sectors, of any size.
const WINDOW_BYTES: usize = 4096;

/// A block cipher in a mode, with an IV rule of the cipher's block length.
pub(super) struct Modes {
    pub(super) cipher: Box<dyn Blocks>,
    pub(super) mode: Mode,
    pub(super) iv: IvRule,
}

pub(super) enum Mode {
    /// Every block by itself.
    Ecb,
    /// A block's predecessor in the ciphertext is added before encryption.
    Cbc,
    /// As CBC, with the sum of the predecessors in plaintext and ciphertext.
    Pcbc,
    /// The encrypted counter is added. The IV is its start, big-endian.
    Ctr,
    /// A multiple of a secret is added before and after.
    Masked(Masks),
}

/// What the masks of a sector's blocks are made of.
pub(super) enum Masks {
    /// The IV encrypted with this cipher, then times α from block to block. Blocks of 16 bytes.
    Xts(Box<dyn Blocks>),
    /// The block's index, which begins with the IV, times a secret. Blocks of 16 bytes.
    Lrw(Box<LrwSecret>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl RunCipher for Modes {
    fn encrypt(&self, run: Run<'_, '_>) {
        self.run(run, Direction::Encrypt);
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.run(run, Direction::Decrypt);
    }
}

impl Modes {
    fn run(&self, mut run: Run<'_, '_>, direction: Direction) {
        let mut ivs = [0; SECTORS_AT_ONCE * IV_BYTES_MAX];
        while !run.data.is_empty() {
            let (piece, rest) = run.split(SECTORS_AT_ONCE);
            run = rest;
            let ivs = &mut ivs[..piece.sectors() * self.iv.iv_bytes()];
            self.iv.fill_bytes(piece.numbers, ivs);
            let sector_bytes = piece.sector_bytes;
            let data = piece.data.into_out_with_copied_in();
            match (&self.mode, direction) {
                (Mode::Ecb, _) => self.blocks(data, direction),
                (Mode::Cbc, Direction::Encrypt) => self.cbc_encrypt(data, sector_bytes, ivs),
                (Mode::Cbc, Direction::Decrypt) => self.cbc_decrypt(data, sector_bytes, ivs),
                (Mode::Pcbc, _) => self.pcbc(data, sector_bytes, ivs, direction),
                (Mode::Ctr, _) => self.ctr(data, sector_bytes, ivs),
                (Mode::Masked(masks), _) => {
                    self.masked(data, sector_bytes, ivs, direction, masks);
                }
            }
        }
    }

    fn blocks(&self, data: &mut [u8], direction: Direction) {
        match direction {
            Direction::Encrypt => self.cipher.encrypt(data),
            Direction::Decrypt => self.cipher.decrypt(data),
        }
    }

    /// A chain a sector, all side by side: block `i` of all sectors, then block `i + 1`.
    fn cbc_encrypt(&self, data: &mut [u8], sector_bytes: usize, chains: &mut [u8]) {
        let len = self.cipher.block_bytes();
        for at in (0..sector_bytes).step_by(len) {
            for (chain, sector) in lanes(chains, data, len, sector_bytes) {
                xor(chain, &sector[at..at + len]);
            }
            self.cipher.encrypt(chains);
            for (chain, sector) in lanes(chains, data, len, sector_bytes) {
                sector[at..at + len].copy_from_slice(chain);
            }
        }
    }

    fn cbc_decrypt(&self, data: &mut [u8], sector_bytes: usize, ivs: &[u8]) {
        let len = self.cipher.block_bytes();
        let mut sealed = [0; WINDOW_BYTES];
        let mut ivs = ivs.chunks_exact(len);
        for window in data.chunks_mut(WINDOW_BYTES) {
            let sealed = &mut sealed[..window.len()];
            sealed.copy_from_slice(window);
            self.cipher.decrypt(window);
            let sectors = window.chunks_exact_mut(sector_bytes);
            for (plain, sealed) in sectors.zip(sealed.chunks_exact(sector_bytes)) {
                let iv = ivs.next().expect("an IV a sector");
                xor(&mut plain[..len], iv);
                xor(&mut plain[len..], &sealed[..sector_bytes - len]);
            }
        }
    }

    fn pcbc(&self, data: &mut [u8], sector_bytes: usize, chains: &mut [u8], direction: Direction) {
        let len = self.cipher.block_bytes();
        let mut blocks = [0; SECTORS_AT_ONCE * IV_BYTES_MAX];
        let blocks = &mut blocks[..chains.len()];
        for at in (0..sector_bytes).step_by(len) {
            for (block, sector) in lanes(blocks, data, len, sector_bytes) {
                block.copy_from_slice(&sector[at..at + len]);
            }
            if direction == Direction::Encrypt {
                xor(blocks, chains);
            }
            self.blocks(blocks, direction);
            if direction == Direction::Decrypt {
                xor(blocks, chains);
            }
            // What went in and what came out, added up.
            chains.copy_from_slice(blocks);
            for (chain, sector) in lanes(chains, data, len, sector_bytes) {
                xor(chain, &sector[at..at + len]);
            }
            for (block, sector) in lanes(blocks, data, len, sector_bytes) {
                sector[at..at + len].copy_from_slice(block);
            }
        }
        blocks.zeroize();
    }

    fn ctr(&self, data: &mut [u8], sector_bytes: usize, ivs: &[u8]) {
        let len = self.cipher.block_bytes();
        let mut stream = [0; WINDOW_BYTES];
        let mut ivs = ivs.chunks_exact(len);
        for window in data.chunks_mut(WINDOW_BYTES) {
            let stream = &mut stream[..window.len()];
            for sector in stream.chunks_exact_mut(sector_bytes) {
                let start = big_endian(ivs.next().expect("an IV a sector"));
                for (counter, index) in sector.chunks_exact_mut(len).zip(0_u128..) {
                    let counted = start.wrapping_add(index).to_be_bytes();
                    counter.copy_from_slice(&counted[16 - len..]);
                }
            }
            self.cipher.encrypt(stream);
            xor(window, stream);
        }
    }

    fn masked(
        &self,
        data: &mut [u8],
        sector_bytes: usize,
        ivs: &mut [u8],
        direction: Direction,
        masks: &Masks,
    ) {
        if let Masks::Xts(tweak) = masks {
            tweak.encrypt(ivs);
        }
        let mut mask = [0; WINDOW_BYTES];
        let mut ivs = ivs.chunks_exact(16);
        for window in data.chunks_mut(WINDOW_BYTES) {
            let mask = &mut mask[..window.len()];
            for sector in mask.chunks_exact_mut(sector_bytes) {
                let iv = ivs.next().expect("an IV a sector");
                match masks {
                    Masks::Xts(_) => fill_xts(iv, sector),
                    Masks::Lrw(secret) => secret.fill(iv, sector),
                }
            }
            xor(window, mask);
            self.blocks(window, direction);
            xor(window, mask);
        }
    }
}

/// Each chain with its sector.
fn lanes<'a>(
    chains: &'a mut [u8],
    data: &'a mut [u8],
    block_bytes: usize,
    sector_bytes: usize,
) -> impl Iterator<Item = (&'a mut [u8], &'a mut [u8])> {
    chains
        .chunks_exact_mut(block_bytes)
        .zip(data.chunks_exact_mut(sector_bytes))
}

#[inline]
fn xor(a: &mut [u8], b: &[u8]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
}

/// Up to 16 bytes as a number.
fn big_endian(bytes: &[u8]) -> u128 {
    let mut padded = [0; 16];
    padded[16 - bytes.len()..].copy_from_slice(bytes);
    u128::from_be_bytes(padded)
}

/// GF(2^128)'s polynomial x^128 + x^7 + x^2 + x + 1, without its first term.
const POLYNOMIAL: u128 = 0x87;

/// `a` times α, without a branch on `a`.
fn times_alpha(a: u128) -> u128 {
    (a << 1) ^ ((a >> 127) * POLYNOMIAL)
}

/// The masks of an XTS sector: little-endian elements, each the one before times α.
fn fill_xts(first: &[u8], masks: &mut [u8]) {
    let mut mask = u128::from_le_bytes(first.try_into().expect("16 bytes"));
    for out in masks.chunks_exact_mut(16) {
        out.copy_from_slice(&mask.to_le_bytes());
        mask = times_alpha(mask);
    }
}

/// LRW's second key as an element of GF(2^128), big-endian, times what is needed of it.
pub(super) struct LrwSecret {
    secret: u128,
    /// The secret times 2^(n + 1) - 1: what an index that ends in `n` ones adds to its mask when
    /// it is counted up. Indices are no secrets.
    steps: [u128; 128],
}

impl LrwSecret {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let secret = u128::from_be_bytes(*key);
        let (mut power, mut sum) = (secret, 0);
        let steps = std::array::from_fn(|_| {
            sum ^= power;
            power = times_alpha(power);
            sum
        });
        Self { secret, steps }
    }

    /// The masks of a sector: the products of the secret and the indices from `first` on.
    fn fill(&self, first: &[u8], masks: &mut [u8]) {
        let mut index = big_endian(first);
        let mut mask = self.times(index);
        for out in masks.chunks_exact_mut(16) {
            out.copy_from_slice(&mask.to_be_bytes());
            // Counting up from the last index leads to 0, whose mask is 0.
            mask ^= self.steps[(index.trailing_ones() as usize).min(127)];
            index = index.wrapping_add(1);
        }
    }

    fn times(&self, index: u128) -> u128 {
        let mut product = 0;
        for bit in (0..128).rev() {
            product = times_alpha(product) ^ (self.secret * (index >> bit & 1));
        }
        product
    }
}

impl Drop for LrwSecret {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.steps.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrw_masks_are_products_however_far_they_are_counted() {
        let key = hex::decode("d82a9134b26a565030fe69e2377f9847").unwrap();
        let secret = LrwSecret::new(key.as_slice().try_into().unwrap());
        for first in [
            0_u128,
            1,
            0xfe,
            u64::MAX.into(),
            u128::MAX - 3,
            0x7fff << 112,
        ] {
            let mut masks = [0; 4096];
            secret.fill(&first.to_be_bytes(), &mut masks);
            for (mask, index) in masks.chunks_exact(16).zip(0..) {
                let product = secret.times(first.wrapping_add(index));
                assert_eq!(big_endian(mask), product, "{first:x} + {index}");
            }
        }
    }
}

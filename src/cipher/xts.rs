//! XTS over whole sectors, without ciphertext stealing (a sector is always whole blocks).
//! Source: IEEE 1619-2018, section 5.3.

use cipher::consts::U16;
use cipher::inout::InOutBuf;
use cipher::typenum::Unsigned;
use cipher::{
    Array, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
};

use super::batch::{Batch, Decrypting, Encrypting, encrypt_blocks, xor};
use super::iv::IvRule;
use super::run::{Block, Run, RunCipher};

/// Sectors whose first tweaks are encrypted together: 1 KiB of them on the stack, one batch of the
/// widest backend.
const SECTORS_AT_ONCE: usize = 64;

/// Tweaks held at a time: 4 KiB on the stack, always whole sectors.
const WINDOW_BLOCKS: usize = 256;

/// XTS with data cipher `D` and tweak cipher `T`.
pub(super) struct Xts<D, T> {
    pub(super) data: D,
    pub(super) tweak: T,
    pub(super) iv: IvRule,
}

impl<D, T> RunCipher for Xts<D, T>
where
    D: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + Send + Sync,
    T: BlockCipherEncrypt<BlockSize = U16> + Send + Sync,
{
    fn encrypt(&self, run: Run<'_, '_>) {
        self.for_pieces(run, |piece| self.data.encrypt_with_backend(piece));
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.for_pieces(run, |piece| self.data.decrypt_with_backend(piece));
    }
}

impl<D, T: BlockCipherEncrypt<BlockSize = U16>> Xts<D, T> {
    pub(super) fn for_pieces(&self, mut run: Run<'_, '_>, mut each: impl FnMut(Piece<'_, '_, '_>)) {
        let mut tweaks = [Block::default(); SECTORS_AT_ONCE];
        while !run.data.is_empty() {
            let (piece, rest) = run.split(SECTORS_AT_ONCE);
            run = rest;
            let tweaks = &mut tweaks[..piece.sectors()];
            self.iv.fill(piece.numbers, tweaks);
            encrypt_blocks(&self.tweak, tweaks);
            let sector_blocks = piece.sector_blocks();
            each(Piece {
                blocks: piece.into_blocks(),
                first_tweaks: tweaks,
                sector_blocks,
            });
        }
    }
}

/// Some sectors with the tweak of each one's first block.
pub(super) struct Piece<'inp, 'out, 'a> {
    blocks: InOutBuf<'inp, 'out, Block>,
    first_tweaks: &'a [Block],
    sector_blocks: usize,
}

impl BlockSizeUser for Piece<'_, '_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Piece<'_, '_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.through(Encrypting(backend));
    }
}

impl BlockCipherDecClosure for Piece<'_, '_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.through(Decrypting(backend));
    }
}

impl Piece<'_, '_, '_> {
    #[inline(always)]
    pub(super) fn through<B: Batch>(self, backend: B) {
        let Self {
            mut blocks,
            first_tweaks,
            sector_blocks,
        } = self;
        let mut tweaks = [Block::default(); WINDOW_BLOCKS];
        for firsts in first_tweaks.chunks(WINDOW_BLOCKS / sector_blocks) {
            for (first, tweaks) in firsts.iter().zip(tweaks.chunks_exact_mut(sector_blocks)) {
                fill_sector(first, tweaks);
            }
            let (window, rest) = blocks.split_at(firsts.len() * sector_blocks);
            blocks = rest;
            through_window(&backend, window, &tweaks);
        }
    }
}

/// `window[i] = tweaks[i] ^ E(window[i] ^ tweaks[i])`.
#[inline(always)]
fn through_window<B: Batch>(backend: &B, window: InOutBuf<'_, '_, Block>, tweaks: &[Block]) {
    let (batches, mut rest) = window.into_chunks::<B::Width>();
    let (tweaks, _) = tweaks.split_at(batches.len() * B::Width::USIZE + rest.len());
    let (batch_tweaks, tweaks) = Array::slice_as_chunks(tweaks);
    for (batch, tweaks) in batches.into_iter().zip(batch_tweaks) {
        backend.full_masked(batch, tweaks);
    }
    if !rest.is_empty() {
        let mut blocks = Array::<Block, B::Width>::default();
        let count = rest.len();
        blocks[..count].copy_from_slice(rest.get_in());
        xor(&mut blocks[..count], tweaks);
        backend.first(&mut blocks, count);
        xor(&mut blocks[..count], tweaks);
        rest.get_out().copy_from_slice(&blocks[..count]);
    }
}

/// Tweaks that are computed side by side; every sector has a multiple of it in blocks.
const LANES: usize = 8;

/// The tweaks of one sector: each is the one before times α, in GF(2^128) modulo
/// x^128 + x^7 + x^2 + x + 1, low bit first.
#[inline(always)]
fn fill_sector(first: &Block, tweaks: &mut [Block]) {
    let (mut low, mut high) = ([0_u64; LANES], [0_u64; LANES]);
    let mut tweak = u128::from_le_bytes((*first).into());
    for lane in 0..LANES {
        (low[lane], high[lane]) = (tweak as u64, (tweak >> 64) as u64);
        tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
    }
    for group in tweaks.chunks_exact_mut(LANES) {
        for lane in 0..LANES {
            let tweak = u128::from(low[lane]) | u128::from(high[lane]) << 64;
            group[lane] = tweak.to_le_bytes().into();
            // Times α^8: one byte up, and the byte that falls off folded in.
            let over = high[lane] >> 56;
            high[lane] = high[lane] << 8 | low[lane] >> 56;
            low[lane] = low[lane] << 8 ^ over ^ over << 1 ^ over << 2 ^ over << 7;
        }
    }
}

#[cfg(test)]
mod tests {
    use cipher::consts::{U1, U4, U8, U30, U64};

    use super::super::batch::mock::Mock;
    use super::*;

    /// Three sectors of `sector_blocks` on a backend `W` wide, there and back.
    fn there_and_back<W: cipher::array::ArraySize>(sector_blocks: usize) {
        let first_tweaks: Vec<Block> = (1..=3).map(|i| [i * 0x35; 16].into()).collect();
        let plain: Vec<Block> = (0..3 * sector_blocks)
            .map(|i| [i as u8; 16].into())
            .collect();

        let mut expected = plain.clone();
        for (first, sector) in first_tweaks.iter().zip(expected.chunks_mut(sector_blocks)) {
            let mut tweaks = vec![Block::default(); sector_blocks];
            fill_sector(first, &mut tweaks);
            xor(sector, &tweaks);
            Mock::<U1>::encrypting().aes.encrypt_blocks(sector);
            xor(sector, &tweaks);
        }
        let mut data = plain.clone();
        let blocks = data.as_mut_slice().into();
        Piece {
            blocks,
            first_tweaks: &first_tweaks,
            sector_blocks,
        }
        .through(Mock::<W>::encrypting());
        assert_eq!(
            data,
            expected,
            "{sector_blocks} blocks a sector, {} wide",
            W::USIZE
        );
        let mut back = vec![Block::default(); data.len()];
        let blocks = InOutBuf::new(&data, &mut back).expect("one length");
        Piece {
            blocks,
            first_tweaks: &first_tweaks,
            sector_blocks,
        }
        .through(Mock::<W>::decrypting());
        assert_eq!(
            back,
            plain,
            "{sector_blocks} blocks a sector, {} wide",
            W::USIZE
        );
    }

    #[test]
    fn every_width_of_backend_gives_the_same() {
        for sector_blocks in [32, 64, 128, 256] {
            there_and_back::<U1>(sector_blocks);
            there_and_back::<U4>(sector_blocks);
            there_and_back::<U8>(sector_blocks);
            there_and_back::<U30>(sector_blocks);
            there_and_back::<U64>(sector_blocks);
        }
    }

    #[test]
    fn tweaks_are_successive_multiples_of_alpha() {
        for seed in [
            1_u128,
            u128::MAX,
            1 << 127,
            0x87 << 64,
            0x0123_4567_89ab_cdef << 57,
        ] {
            let mut tweaks = [Block::default(); WINDOW_BLOCKS];
            fill_sector(&seed.to_le_bytes().into(), &mut tweaks);
            let mut expected = seed;
            for tweak in tweaks {
                assert_eq!(u128::from_le_bytes(tweak.into()), expected);
                let carry = expected >> 127 == 1;
                expected = (expected << 1) ^ if carry { 0x87 } else { 0 };
            }
        }
    }
}

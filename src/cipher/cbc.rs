//! CBC, each sector a chain of its own. Source: NIST SP 800-38A, section 6.2.
//!
//! Decryption is parallel by nature and goes straight through the run. Encryption is serial in a
//! sector and free across sectors, so as many sectors as the backend is wide go side by side.

use cipher::consts::U16;
use cipher::inout::InOutBuf;
use cipher::typenum::Unsigned;
use cipher::{
    Array, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
};

use super::batch::{Batch, Decrypting, Encrypting, xor};
use super::iv::IvRule;
use super::run::{Block, Run, RunCipher};

/// Sectors whose IVs are made together: 1 KiB of them on the stack, one batch of the widest
/// backend.
const SECTORS_AT_ONCE: usize = 64;

/// CBC with cipher `C`.
pub(super) struct Cbc<C> {
    pub(super) cipher: C,
    pub(super) iv: IvRule,
}

impl<C> RunCipher for Cbc<C>
where
    C: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + Send + Sync,
{
    fn encrypt(&self, run: Run<'_, '_>) {
        self.for_pieces(run, |piece| self.cipher.encrypt_with_backend(piece));
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.for_pieces(run, |piece| self.cipher.decrypt_with_backend(piece));
    }
}

impl<C> Cbc<C> {
    fn for_pieces(&self, mut run: Run<'_, '_>, mut each: impl FnMut(Piece<'_, '_, '_>)) {
        let mut ivs = [Block::default(); SECTORS_AT_ONCE];
        while !run.data.is_empty() {
            let (piece, rest) = run.split(SECTORS_AT_ONCE);
            run = rest;
            let ivs = &mut ivs[..piece.sectors()];
            self.iv.fill(piece.numbers, ivs);
            let sector_blocks = piece.sector_blocks();
            each(Piece {
                blocks: piece.into_blocks(),
                ivs,
                sector_blocks,
            });
        }
    }
}

/// Some sectors with their IVs.
struct Piece<'inp, 'out, 'a> {
    blocks: InOutBuf<'inp, 'out, Block>,
    ivs: &'a [Block],
    sector_blocks: usize,
}

impl BlockSizeUser for Piece<'_, '_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Piece<'_, '_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.encrypt(Encrypting(backend));
    }
}

impl BlockCipherDecClosure for Piece<'_, '_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.decrypt(Decrypting(backend));
    }
}

impl Piece<'_, '_, '_> {
    /// A chain a lane: block `i` of all sectors, then block `i + 1`.
    #[inline(always)]
    fn encrypt<B: Batch>(self, backend: B) {
        let Self {
            mut blocks,
            ivs,
            sector_blocks,
        } = self;
        for ivs in ivs.chunks(B::Width::USIZE) {
            let (mut group, rest) = blocks.split_at(ivs.len() * sector_blocks);
            blocks = rest;
            let mut chains = Array::<Block, B::Width>::default();
            chains[..ivs.len()].copy_from_slice(ivs);
            for index in 0..sector_blocks {
                let plain = group.get_in().iter().skip(index).step_by(sector_blocks);
                for (chain, plain) in chains.iter_mut().zip(plain) {
                    xor(std::slice::from_mut(chain), std::slice::from_ref(plain));
                }
                backend.first(&mut chains, ivs.len());
                let out = group
                    .get_out()
                    .iter_mut()
                    .skip(index)
                    .step_by(sector_blocks);
                for (out, chain) in out.zip(&chains) {
                    *out = *chain;
                }
            }
        }
    }

    /// Batches straight through the sectors: a block's predecessor is the ciphertext block before
    /// it, or the IV at the start of a sector.
    #[inline(always)]
    fn decrypt<B: Batch>(self, backend: B) {
        let Self {
            blocks,
            ivs,
            sector_blocks,
        } = self;
        let width = B::Width::USIZE;
        let mut before = Block::default();
        let mut start = 0_usize;
        let mut decrypt = |sealed: &Array<Block, B::Width>, count: usize| {
            let mut previous = Array::<Block, B::Width>::default();
            previous[0] = before;
            previous[1..].copy_from_slice(&sealed[..width - 1]);
            let mut sector = start.div_ceil(sector_blocks);
            while sector * sector_blocks < start + count {
                previous[sector * sector_blocks - start] = ivs[sector];
                sector += 1;
            }
            before = sealed[width - 1];
            start += count;

            let mut plain = sealed.clone();
            backend.first(&mut plain, count);
            xor(&mut plain, &previous);
            plain
        };

        let (batches, mut rest) = blocks.into_chunks::<B::Width>();
        for mut batch in batches {
            *batch.get_out() = decrypt(batch.get_in(), width);
        }
        let count = rest.len();
        if count > 0 {
            let mut sealed = Array::<Block, B::Width>::default();
            sealed[..count].copy_from_slice(rest.get_in());
            rest.get_out()
                .copy_from_slice(&decrypt(&sealed, count)[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use cipher::consts::{U1, U4, U8, U30, U64};

    use super::super::batch::mock::Mock;
    use super::*;

    /// `sectors` sectors of `sector_blocks` on a backend `W` wide, there and back.
    fn there_and_back<W: cipher::array::ArraySize>(sectors: usize, sector_blocks: usize) {
        let ivs: Vec<Block> = (0..sectors).map(|i| [i as u8 ^ 0x35; 16].into()).collect();
        let plain: Vec<Block> = (0..sectors * sector_blocks)
            .map(|i| [i as u8; 16].into())
            .collect();

        let mut expected = plain.clone();
        for (iv, sector) in ivs.iter().zip(expected.chunks_mut(sector_blocks)) {
            let mut previous = *iv;
            for block in sector {
                xor(std::slice::from_mut(block), &[previous]);
                Mock::<U1>::encrypting().aes.encrypt_block(block);
                previous = *block;
            }
        }
        let mut data = plain.clone();
        let blocks = data.as_mut_slice().into();
        Piece {
            blocks,
            ivs: &ivs,
            sector_blocks,
        }
        .encrypt(Mock::<W>::encrypting());
        assert_eq!(
            data,
            expected,
            "{sectors} sectors of {sector_blocks}, {} wide",
            W::USIZE
        );
        let mut back = vec![Block::default(); data.len()];
        let blocks = InOutBuf::new(&data, &mut back).expect("one length");
        Piece {
            blocks,
            ivs: &ivs,
            sector_blocks,
        }
        .decrypt(Mock::<W>::decrypting());
        assert_eq!(
            back,
            plain,
            "{sectors} sectors of {sector_blocks}, {} wide",
            W::USIZE
        );
    }

    #[test]
    fn every_width_of_backend_gives_the_same() {
        for (sectors, sector_blocks) in [(1, 32), (3, 32), (64, 32), (31, 64), (9, 128), (2, 256)] {
            there_and_back::<U1>(sectors, sector_blocks);
            there_and_back::<U4>(sectors, sector_blocks);
            there_and_back::<U8>(sectors, sector_blocks);
            there_and_back::<U30>(sectors, sector_blocks);
            there_and_back::<U64>(sectors, sector_blocks);
        }
    }
}

//! Block ciphers as wide as the CPU runs them, whichever way the data goes.
//!
//! The backends of the `aes` crate take 64 blocks at a time (VAES-512), 30 (VAES-256), 8 (AES-NI,
//! ARMv8) or fewer, and do a shorter rest one block at a time, which is many times slower. Here a
//! rest is padded to a full batch instead.

use cipher::array::ArraySize;
use cipher::consts::U16;
use cipher::inout::InOut;
use cipher::typenum::Unsigned;
use cipher::{
    Array, BlockCipherDecBackend, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt,
    BlockSizeUser,
};

use super::run::Block;

/// One direction of a block cipher's backend. Everything that uses it is `inline(always)`, so that
/// it is compiled for the CPU features of the backend that calls it.
pub(super) trait Batch {
    /// Blocks that go together.
    type Width: ArraySize;

    fn one(&self, block: &mut Block);
    fn full(&self, blocks: &mut Array<Block, Self::Width>);

    /// `blocks[i] = masks[i] ^ E(blocks[i] ^ masks[i])`: a batch of XTS.
    #[inline(always)]
    fn full_masked(
        &self,
        mut blocks: InOut<'_, '_, Array<Block, Self::Width>>,
        masks: &Array<Block, Self::Width>,
    ) {
        let mut batch = blocks.clone_in();
        xor(&mut batch, masks);
        self.full(&mut batch);
        xor(&mut batch, masks);
        *blocks.get_out() = batch;
    }

    /// The first `count` blocks of a batch; the others are scratch.
    #[inline(always)]
    fn first(&self, blocks: &mut Array<Block, Self::Width>, count: usize) {
        // A batch of VAES-512 takes about as long as two or three single blocks.
        if count * 16 < Self::Width::USIZE {
            for block in &mut blocks[..count] {
                self.one(block);
            }
        } else {
            self.full(blocks);
        }
    }
}

pub(super) struct Encrypting<'a, B>(pub(super) &'a B);

impl<B: BlockCipherEncBackend<BlockSize = U16>> Batch for Encrypting<'_, B> {
    type Width = B::ParBlocksSize;

    #[inline(always)]
    fn one(&self, block: &mut Block) {
        self.0.encrypt_block(block.into());
    }

    #[inline(always)]
    fn full(&self, blocks: &mut Array<Block, Self::Width>) {
        self.0.encrypt_par_blocks(blocks.into());
    }
}

pub(super) struct Decrypting<'a, B>(pub(super) &'a B);

impl<B: BlockCipherDecBackend<BlockSize = U16>> Batch for Decrypting<'_, B> {
    type Width = B::ParBlocksSize;

    #[inline(always)]
    fn one(&self, block: &mut Block) {
        self.0.decrypt_block(block.into());
    }

    #[inline(always)]
    fn full(&self, blocks: &mut Array<Block, Self::Width>) {
        self.0.decrypt_par_blocks(blocks.into());
    }
}

/// `a ^= b`, all blocks.
#[inline(always)]
pub(super) fn xor(a: &mut [Block], b: &[Block]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = (u128::from_ne_bytes((*a).into()) ^ u128::from_ne_bytes((*b).into()))
            .to_ne_bytes()
            .into();
    }
}

/// Encrypts each block by itself: IVs and first tweaks of many sectors at once.
pub(super) fn encrypt_blocks<C>(cipher: &C, blocks: &mut [Block])
where
    C: BlockCipherEncrypt<BlockSize = U16>,
{
    cipher.encrypt_with_backend(EncryptBlocks { blocks });
}

struct EncryptBlocks<'a> {
    blocks: &'a mut [Block],
}

impl BlockSizeUser for EncryptBlocks<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for EncryptBlocks<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        for blocks in self.blocks.chunks_mut(B::ParBlocksSize::USIZE) {
            let mut batch = Array::<Block, B::ParBlocksSize>::default();
            batch[..blocks.len()].copy_from_slice(blocks);
            Encrypting(backend).first(&mut batch, blocks.len());
            blocks.copy_from_slice(&batch[..blocks.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use aes::Aes128;
    use cipher::KeyInit;

    use super::*;

    #[test]
    fn any_number_of_blocks_is_encrypted_each_by_itself() {
        let aes = Aes128::new(&[7; 16].into());
        for count in 0..200_usize {
            let mut blocks: Vec<Block> = (0..count).map(|i| [i as u8; 16].into()).collect();
            let mut expected = blocks.clone();
            encrypt_blocks(&aes, &mut blocks);
            for block in &mut expected {
                aes.encrypt_block(block);
            }
            assert_eq!(blocks, expected, "{count} blocks");
        }
    }
}

/// AES-128 a block at a time, as if it came `W` wide: every backend's width on every CPU.
#[cfg(test)]
pub(super) mod mock {
    use std::marker::PhantomData;

    use aes::Aes128;
    use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

    use super::*;

    pub(in crate::cipher) struct Mock<W> {
        pub(in crate::cipher) aes: Aes128,
        encrypting: bool,
        width: PhantomData<W>,
    }

    impl<W> Mock<W> {
        pub(in crate::cipher) fn encrypting() -> Self {
            Self {
                aes: Aes128::new(&[7; 16].into()),
                encrypting: true,
                width: PhantomData,
            }
        }

        pub(in crate::cipher) fn decrypting() -> Self {
            Self {
                encrypting: false,
                ..Self::encrypting()
            }
        }
    }

    impl<W: ArraySize> Batch for Mock<W> {
        type Width = W;

        fn one(&self, block: &mut Block) {
            if self.encrypting {
                self.aes.encrypt_block(block);
            } else {
                self.aes.decrypt_block(block);
            }
        }

        fn full(&self, blocks: &mut Array<Block, W>) {
            for block in blocks {
                self.one(block);
            }
        }
    }
}

//! Block ciphers whose kernels take many blocks at a time: what Serpent, Twofish and Camellia share.
//!
//! A kernel is a value that can only be had where the CPU runs it. It is made the `cipher` crate's
//! backend here, so every mode that is generic over block ciphers runs on it, compiled for its CPU.

mod macros;
#[cfg(test)]
pub(super) mod testing;

use cipher::array::ArraySize;
use cipher::consts::U16;
use cipher::inout::{InOut, InOutBuf};
use cipher::typenum::Unsigned;
use cipher::{
    Array, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, ParBlocksSizeUser,
};

use crate::cipher::batch::Batch;
use crate::cipher::cpu::CpuEngine;
use crate::cipher::run::{Block, Run, RunCipher};
use crate::cipher::xts::{Piece, Xts};

pub(super) use macros::block_cipher;
#[cfg(target_arch = "x86_64")]
pub(super) use macros::{kernel, unrolled};

/// What a cipher keeps its blocks in. Each cipher says itself which instructions that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registers {
    /// No instructions of one CPU's own.
    Portable,
    /// AVX2 and, for Camellia, AES-NI.
    Bits256,
    /// AVX2 and GFNI, for Camellia.
    Bits256Gfni,
    /// AVX-512 and what goes with it.
    Bits512,
}

impl Registers {
    /// All, the fastest first.
    pub const ALL: [Self; 4] = [
        Self::Bits512,
        Self::Bits256Gfni,
        Self::Bits256,
        Self::Portable,
    ];

    /// What goes with an engine: anything with the best one of this CPU, else none that the engine
    /// is without.
    pub fn of(engine: CpuEngine) -> Self {
        match engine {
            CpuEngine::Soft => Self::Portable,
            best if best == CpuEngine::best() => Self::Bits512,
            CpuEngine::Vaes512 => Self::Bits512,
            CpuEngine::Vaes256 => Self::Bits256Gfni,
            CpuEngine::AesNi | CpuEngine::Crate => Self::Bits256,
        }
    }

    /// `avx512`, `avx2+gfni`, `avx2` or `portable`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Bits256 => "avx2",
            Self::Bits256Gfni => "avx2+gfni",
            Self::Bits512 => "avx512",
        }
    }
}

/// A cipher's code for one kind of registers.
pub(in crate::cipher) trait Kernel: Copy {
    /// What the cipher makes of its key.
    type Keys;
    /// Blocks that go together.
    type Width: ArraySize;

    /// Encrypts `Width` blocks. Where there are masks, as many, they are added before and after.
    fn encrypt(self, keys: &Self::Keys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>);
    /// Decrypts `Width` blocks, with masks as [`Self::encrypt`].
    fn decrypt(self, keys: &Self::Keys, blocks: InOutBuf<'_, '_, Block>, masks: Option<&[Block]>);
    fn encrypt_one(self, keys: &Self::Keys, block: InOut<'_, '_, Block>);
    fn decrypt_one(self, keys: &Self::Keys, block: InOut<'_, '_, Block>);

    /// Gives the kernel to a mode. A kernel with CPU features compiles the mode for them.
    fn lend_to_encrypt<F>(self, keys: &Self::Keys, mode: F)
    where
        F: BlockCipherEncClosure<BlockSize = U16>,
    {
        mode.call(&Keyed { kernel: self, keys });
    }

    /// As [`Self::lend_to_encrypt`].
    fn lend_to_decrypt<F>(self, keys: &Self::Keys, mode: F)
    where
        F: BlockCipherDecClosure<BlockSize = U16>,
    {
        mode.call(&Keyed { kernel: self, keys });
    }

    /// XTS of a piece. As [`Self::lend_to_encrypt`], for its CPU.
    fn encrypt_piece(self, keys: &Self::Keys, piece: Piece<'_, '_, '_>) {
        Keyed { kernel: self, keys }.encrypt_piece(piece);
    }

    /// As [`Self::encrypt_piece`].
    fn decrypt_piece(self, keys: &Self::Keys, piece: Piece<'_, '_, '_>) {
        Keyed { kernel: self, keys }.decrypt_piece(piece);
    }
}

/// A block cipher whose kernels take masks.
pub(in crate::cipher) trait ManyBlocks:
    BlockCipherEncrypt<BlockSize = U16>
{
    /// XTS of a piece.
    fn encrypt_piece(&self, piece: Piece<'_, '_, '_>);
    /// As [`Self::encrypt_piece`].
    fn decrypt_piece(&self, piece: Piece<'_, '_, '_>);
}

/// XTS with tweaks that are added while blocks are on their way into registers and back. A mode that
/// only sees a block cipher has to put the sum into memory first, in parts that are narrower than
/// the kernel's loads, and the CPU makes those wait; Camellia lost an eighth of its speed to that.
pub(in crate::cipher) struct ManyBlocksXts<C>(pub(in crate::cipher) Xts<C, C>);

impl<C: ManyBlocks + Send + Sync> RunCipher for ManyBlocksXts<C> {
    fn encrypt(&self, run: Run<'_, '_>) {
        self.0
            .for_pieces(run, |piece| self.0.data.encrypt_piece(piece));
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        self.0
            .for_pieces(run, |piece| self.0.data.decrypt_piece(piece));
    }
}

struct Encrypting<'a, K: Kernel>(&'a Keyed<'a, K>);

impl<K: Kernel> Batch for Encrypting<'_, K> {
    type Width = K::Width;

    #[inline(always)]
    fn one(&self, block: &mut Block) {
        self.0.encrypt_block(block.into());
    }

    #[inline(always)]
    fn full(&self, blocks: &mut Array<Block, K::Width>) {
        self.0.encrypt_par_blocks(blocks.into());
    }

    #[inline(always)]
    fn full_masked(
        &self,
        blocks: InOut<'_, '_, Array<Block, K::Width>>,
        masks: &Array<Block, K::Width>,
    ) {
        let Keyed { kernel, keys } = self.0;
        kernel.encrypt(keys, blocks.into_buf(), Some(masks));
    }
}

struct Decrypting<'a, K: Kernel>(&'a Keyed<'a, K>);

impl<K: Kernel> Batch for Decrypting<'_, K> {
    type Width = K::Width;

    #[inline(always)]
    fn one(&self, block: &mut Block) {
        self.0.decrypt_block(block.into());
    }

    #[inline(always)]
    fn full(&self, blocks: &mut Array<Block, K::Width>) {
        self.0.decrypt_par_blocks(blocks.into());
    }

    #[inline(always)]
    fn full_masked(
        &self,
        blocks: InOut<'_, '_, Array<Block, K::Width>>,
        masks: &Array<Block, K::Width>,
    ) {
        let Keyed { kernel, keys } = self.0;
        kernel.decrypt(keys, blocks.into_buf(), Some(masks));
    }
}

/// A kernel with its keys, as the `cipher` crate's backend.
pub(in crate::cipher) struct Keyed<'a, K: Kernel> {
    pub(in crate::cipher) kernel: K,
    pub(in crate::cipher) keys: &'a K::Keys,
}

impl<K: Kernel> Keyed<'_, K> {
    #[inline(always)]
    pub(in crate::cipher) fn encrypt_piece(&self, piece: Piece<'_, '_, '_>) {
        piece.through(Encrypting(self));
    }

    #[inline(always)]
    pub(in crate::cipher) fn decrypt_piece(&self, piece: Piece<'_, '_, '_>) {
        piece.through(Decrypting(self));
    }
}

impl<K: Kernel> BlockSizeUser for Keyed<'_, K> {
    type BlockSize = U16;
}

impl<K: Kernel> ParBlocksSizeUser for Keyed<'_, K> {
    type ParBlocksSize = K::Width;
}

impl<K: Kernel> BlockCipherEncBackend for Keyed<'_, K> {
    #[inline(always)]
    fn encrypt_block(&self, block: InOut<'_, '_, Block>) {
        self.kernel.encrypt_one(self.keys, block);
    }

    #[inline(always)]
    fn encrypt_par_blocks(&self, blocks: InOut<'_, '_, Array<Block, K::Width>>) {
        self.kernel.encrypt(self.keys, blocks.into_buf(), None);
    }

    #[inline(always)]
    fn encrypt_tail_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        padded::<K>(blocks, |batch| self.kernel.encrypt(self.keys, batch, None));
    }
}

impl<K: Kernel> BlockCipherDecBackend for Keyed<'_, K> {
    #[inline(always)]
    fn decrypt_block(&self, block: InOut<'_, '_, Block>) {
        self.kernel.decrypt_one(self.keys, block);
    }

    #[inline(always)]
    fn decrypt_par_blocks(&self, blocks: InOut<'_, '_, Array<Block, K::Width>>) {
        self.kernel.decrypt(self.keys, blocks.into_buf(), None);
    }

    #[inline(always)]
    fn decrypt_tail_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        padded::<K>(blocks, |batch| self.kernel.decrypt(self.keys, batch, None));
    }
}

/// Fewer blocks than a kernel takes, as a batch.
#[inline(always)]
fn padded<K: Kernel>(mut blocks: InOutBuf<'_, '_, Block>, each: impl Fn(InOutBuf<'_, '_, Block>)) {
    let count = blocks.len();
    assert!(count <= K::Width::USIZE);
    if count > 0 {
        let mut batch = Array::<Block, K::Width>::default();
        batch[..count].copy_from_slice(blocks.get_in());
        each(batch.as_mut_slice().into());
        blocks.get_out().copy_from_slice(&batch[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_limits_the_registers() {
        assert_eq!(Registers::of(CpuEngine::Soft), Registers::Portable);
        let best = CpuEngine::best();
        for engine in CpuEngine::ALL {
            let registers = Registers::of(engine);
            if engine == best && best != CpuEngine::Soft {
                assert_eq!(registers, Registers::Bits512, "{engine}");
            } else if engine > best {
                assert!(registers < Registers::Bits512, "{engine}");
            }
        }
    }
}

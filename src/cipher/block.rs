//! Block ciphers by the kernel's names, with the keys that it takes.
//!
//! A mode that isn't worth code of its own for each cipher works on [`Blocks`]: whole blocks of any
//! size, as many at a time as the cipher's backend is wide.

use cipher::array::ArraySize;
use cipher::typenum::Unsigned;
use cipher::{
    Array, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};

use super::cpu::CpuEngine;
use super::many_blocks::Registers;
use super::soft_aes::SoftAes;
use super::{Camellia, Serpent, Twofish};

/// A keyed block cipher: each block by itself.
pub(super) trait Blocks: Send + Sync {
    /// Length of a block in bytes: 8 or 16.
    fn block_bytes(&self) -> usize;
    /// Encrypts whole blocks in place.
    fn encrypt(&self, data: &mut [u8]);
    /// Decrypts whole blocks in place.
    fn decrypt(&self, data: &mut [u8]);
}

/// Why there is no cipher of a name and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoCipher {
    /// The name isn't known.
    Unknown,
    /// The cipher takes keys of these lengths only, in bits, in words.
    KeyLength(&'static str),
}

/// The length of a block in bytes of the cipher that the kernel calls `name`.
pub(super) fn block_bytes(name: &str) -> Option<usize> {
    match name {
        "aes" | "aria" | "camellia" | "cast6" | "serpent" | "sm4" | "twofish" => Some(16),
        "blowfish" | "cast5" | "des" | "des3_ede" => Some(8),
        _ => None,
    }
}

/// The cipher that the kernel calls `name`, under `key`, on what goes with `engine`.
pub(super) fn new(engine: CpuEngine, name: &str, key: &[u8]) -> Result<Box<dyn Blocks>, NoCipher> {
    let registers = Registers::of(engine);
    match (name, key.len()) {
        ("aes", 16 | 24 | 32) if engine == CpuEngine::Soft => keyed::<SoftAes>(key),
        ("aes", 16) => keyed::<aes::Aes128>(key),
        ("aes", 24) => keyed::<aes::Aes192>(key),
        ("aes", 32) => keyed::<aes::Aes256>(key),
        ("aria", 16) => keyed::<aria::Aria128>(key),
        ("aria", 24) => keyed::<aria::Aria192>(key),
        ("aria", 32) => keyed::<aria::Aria256>(key),
        ("camellia", 16 | 24 | 32) => Ok(boxed(Camellia::up_to(registers, key))),
        ("aes" | "aria" | "camellia", _) => Err(NoCipher::KeyLength("128, 192 or 256")),
        ("twofish", 16 | 24 | 32) => Ok(boxed(Twofish::up_to(registers, key))),
        ("twofish", _) => Err(NoCipher::KeyLength("128, 192 or 256")),
        ("serpent", 0..=32) => Ok(boxed(Serpent::up_to(registers, key))),
        ("serpent", _) => Err(NoCipher::KeyLength("0 to 256")),
        ("cast6", 16 | 20 | 24 | 28 | 32) => keyed::<cast6::Cast6>(key),
        ("cast6", _) => Err(NoCipher::KeyLength("128, 160, 192, 224 or 256")),
        ("sm4", 16) => keyed::<sm4::Sm4>(key),
        ("sm4", _) => Err(NoCipher::KeyLength("128")),
        ("blowfish", 4..=56) => keyed::<blowfish::Blowfish>(key),
        ("blowfish", _) => Err(NoCipher::KeyLength("32 to 448")),
        ("cast5", 5..=16) => keyed::<cast5::Cast5>(key),
        ("cast5", _) => Err(NoCipher::KeyLength("40 to 128")),
        ("des", 8) => keyed::<des::Des>(key),
        ("des", _) => Err(NoCipher::KeyLength("64")),
        ("des3_ede", 24) => keyed::<des::TdesEde3>(key),
        ("des3_ede", _) => Err(NoCipher::KeyLength("192")),
        _ => Err(NoCipher::Unknown),
    }
}

fn keyed<C>(key: &[u8]) -> Result<Box<dyn Blocks>, NoCipher>
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync + 'static,
{
    let cipher = C::new_from_slice(key).expect("the caller checked the length");
    Ok(Box::new(Cipher(cipher)))
}

/// # Panics
/// Where there is none: the caller checked the key's length.
fn boxed<C>(cipher: Option<C>) -> Box<dyn Blocks>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync + 'static,
{
    Box::new(Cipher(cipher.expect("the caller checked the length")))
}

struct Cipher<C>(C);

impl<C> Blocks for Cipher<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync,
{
    fn block_bytes(&self) -> usize {
        C::BlockSize::USIZE
    }

    fn encrypt(&self, data: &mut [u8]) {
        self.0.encrypt_with_backend(All {
            blocks: blocks(data),
        });
    }

    fn decrypt(&self, data: &mut [u8]) {
        self.0.decrypt_with_backend(All {
            blocks: blocks(data),
        });
    }
}

fn blocks<N: ArraySize>(data: &mut [u8]) -> &mut [Array<u8, N>] {
    let (blocks, rest) = Array::slice_as_chunks_mut(data);
    debug_assert!(rest.is_empty(), "whole blocks");
    blocks
}

struct All<'a, N: ArraySize> {
    blocks: &'a mut [Array<u8, N>],
}

impl<N: ArraySize> BlockSizeUser for All<'_, N> {
    type BlockSize = N;
}

impl<N: ArraySize> BlockCipherEncClosure for All<'_, N> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = N>>(self, backend: &B) {
        self.each(
            |batch: &mut Array<_, B::ParBlocksSize>| backend.encrypt_par_blocks(batch.into()),
            |block| backend.encrypt_block(block.into()),
        );
    }
}

impl<N: ArraySize> BlockCipherDecClosure for All<'_, N> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = N>>(self, backend: &B) {
        self.each(
            |batch: &mut Array<_, B::ParBlocksSize>| backend.decrypt_par_blocks(batch.into()),
            |block| backend.decrypt_block(block.into()),
        );
    }
}

impl<N: ArraySize> All<'_, N> {
    /// Full batches where they lie. A shorter rest is padded to one, unless it is so short that
    /// single blocks are faster.
    #[inline(always)]
    fn each<W: ArraySize>(
        self,
        full: impl Fn(&mut Array<Array<u8, N>, W>),
        one: impl Fn(&mut Array<u8, N>),
    ) {
        let (batches, rest) = Array::<_, W>::slice_as_chunks_mut(self.blocks);
        for batch in batches {
            full(batch);
        }
        if rest.len() * 16 < W::USIZE {
            for block in rest {
                one(block);
            }
        } else if !rest.is_empty() {
            let mut batch = Array::<Array<u8, N>, W>::default();
            batch[..rest.len()].clone_from_slice(rest);
            full(&mut batch);
            rest.clone_from_slice(&batch[..rest.len()]);
        }
    }
}

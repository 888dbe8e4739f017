//! AES without instructions for it, in constant time: bitsliced, in safe and portable code.
//!
//! Bit `b` of every byte of 4 or 16 blocks lies in word `b`; all that AES does is then sums,
//! products and shifts of words. No branch and no memory address depends on a key or on data, in
//! the key schedule neither. Source: FIPS 197.

mod sbox;
mod schedule;
mod slices;
#[cfg(test)]
mod tests;

use cipher::consts::{U16, U32};
use cipher::inout::{InOut, InOutBuf};
use cipher::{
    Array, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InvalidLength, Key, KeyInit,
    KeySizeUser, ParBlocksSizeUser,
};

use self::schedule::Schedule;
use self::slices::Wide;
use super::run::Block;

/// AES-128, AES-192 or AES-256 with a key. The keys are wiped when it is dropped.
#[derive(Clone)]
pub(super) struct SoftAes(Schedule);

impl KeySizeUser for SoftAes {
    type KeySize = U32;
}

/// Keys of 16, 24 or 32 bytes; the type's own size is the longest.
impl KeyInit for SoftAes {
    fn new(key: &Key<Self>) -> Self {
        Self(Schedule::new(key).expect("a key of 32 bytes fits"))
    }

    fn new_from_slice(key: &[u8]) -> Result<Self, InvalidLength> {
        Schedule::new(key).map(Self).ok_or(InvalidLength)
    }
}

impl BlockSizeUser for SoftAes {
    type BlockSize = U16;
}

/// A schedule, as the `cipher` crate's backend.
struct Backend<'a>(&'a Schedule);

impl BlockSizeUser for Backend<'_> {
    type BlockSize = U16;
}

impl ParBlocksSizeUser for Backend<'_> {
    type ParBlocksSize = U16;
}

impl BlockCipherEncrypt for SoftAes {
    fn encrypt_with_backend(&self, mode: impl BlockCipherEncClosure<BlockSize = U16>) {
        mode.call(&Backend(&self.0));
    }
}

impl BlockCipherDecrypt for SoftAes {
    fn decrypt_with_backend(&self, mode: impl BlockCipherDecClosure<BlockSize = U16>) {
        mode.call(&Backend(&self.0));
    }
}

impl BlockCipherEncBackend for Backend<'_> {
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block>) {
        let mut only = [*block.get_in()];
        slices::encrypt::<u64>(self.0.rounds(), only.as_mut_slice().into());
        [*block.get_out()] = only;
    }

    fn encrypt_par_blocks(&self, blocks: InOut<'_, '_, Array<Block, U16>>) {
        slices::encrypt::<Wide>(self.0.rounds(), blocks.into_buf());
    }

    fn encrypt_tail_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        match blocks.len() {
            0..=4 => slices::encrypt::<u64>(self.0.rounds(), blocks),
            _ => slices::encrypt::<Wide>(self.0.rounds(), blocks),
        }
    }
}

impl BlockCipherDecBackend for Backend<'_> {
    fn decrypt_block(&self, mut block: InOut<'_, '_, Block>) {
        let mut only = [*block.get_in()];
        slices::decrypt::<u64>(self.0.rounds(), only.as_mut_slice().into());
        [*block.get_out()] = only;
    }

    fn decrypt_par_blocks(&self, blocks: InOut<'_, '_, Array<Block, U16>>) {
        slices::decrypt::<Wide>(self.0.rounds(), blocks.into_buf());
    }

    fn decrypt_tail_blocks(&self, blocks: InOutBuf<'_, '_, Block>) {
        match blocks.len() {
            0..=4 => slices::decrypt::<u64>(self.0.rounds(), blocks),
            _ => slices::decrypt::<Wide>(self.0.rounds(), blocks),
        }
    }
}

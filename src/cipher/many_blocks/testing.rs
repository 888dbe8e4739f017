//! What the ciphers' tests share.

use cipher::{BlockCipherDecrypt, BlockCipherEncrypt};
use proptest::prelude::*;

use super::*;

/// Blocks of the longest run: three batches of the widest kernel and a rest.
const BLOCKS_MAX: usize = 200;

/// A cipher on every kind of registers that this CPU has.
pub(in crate::cipher) fn everywhere<C>(on: impl Fn(Registers) -> Option<C>) -> Vec<C> {
    let here: Vec<C> = Registers::ALL.into_iter().filter_map(on).collect();
    assert!(!here.is_empty(), "the portable kernel is always there");
    here
}

/// One published block, both ways.
pub(in crate::cipher) fn known<C>(on: impl Fn(Registers, &[u8]) -> Option<C>, vector: [&str; 3])
where
    C: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + std::fmt::Debug,
{
    let [key, plain, sealed] = vector.map(|hex| hex::decode(hex).expect("hex"));
    for cipher in everywhere(|registers| on(registers, &key)) {
        let mut block = Block::try_from(plain.as_slice()).expect("16 bytes");
        cipher.encrypt_block(&mut block);
        assert_eq!(block[..], sealed, "{cipher:?}, key {vector:?}");
        cipher.decrypt_block(&mut block);
        assert_eq!(block[..], plain, "{cipher:?}, key {vector:?}");

        // The same in every place of some batches.
        let mut blocks = vec![block; BLOCKS_MAX];
        cipher.encrypt_blocks(&mut blocks);
        assert!(blocks.iter().all(|block| block[..] == sealed), "{cipher:?}");
        cipher.decrypt_blocks(&mut blocks);
        assert!(blocks.iter().all(|block| block[..] == plain), "{cipher:?}");
    }
}

/// Every length up to [`BLOCKS_MAX`], in place and from one place to another, both ways,
/// against `oracle`.
pub(in crate::cipher) fn every_length<C, O>(cipher: &C, oracle: &O)
where
    C: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + std::fmt::Debug,
    O: BlockCipherEncrypt<BlockSize = U16>,
{
    let plain: Vec<Block> = (0..BLOCKS_MAX as u64)
        .map(|i| {
            let word = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (u128::from(word) << 64 | u128::from(!word.rotate_left(23)))
                .to_le_bytes()
                .into()
        })
        .collect();
    let mut sealed = plain.clone();
    oracle.encrypt_blocks(&mut sealed);
    for count in 0..=BLOCKS_MAX {
        let mut blocks = plain[..count].to_vec();
        cipher.encrypt_blocks(&mut blocks);
        assert_eq!(blocks, sealed[..count], "{cipher:?}, {count} blocks");
        cipher.decrypt_blocks(&mut blocks);
        assert_eq!(blocks, plain[..count], "{cipher:?}, {count} blocks");

        let mut other = vec![Block::default(); count];
        cipher
            .encrypt_blocks_b2b(&blocks, &mut other)
            .expect("one length");
        assert_eq!(other, sealed[..count], "{cipher:?}, {count} blocks");
        cipher
            .decrypt_blocks_b2b(&other, &mut blocks)
            .expect("one length");
        assert_eq!(blocks, plain[..count], "{cipher:?}, {count} blocks");
    }
}

/// Any key, any number of blocks with any contents.
pub(in crate::cipher) fn any_data<C, O>(
    on: impl Fn(Registers, &[u8]) -> Option<C>,
    oracle: impl Fn(&[u8]) -> O,
) where
    C: BlockCipherEncrypt<BlockSize = U16> + BlockCipherDecrypt + std::fmt::Debug,
    O: BlockCipherEncrypt<BlockSize = U16>,
{
    let inputs = (
        any::<[u8; 32]>(),
        prop::sample::select(vec![16_usize, 24, 32]),
        prop::collection::vec(any::<[u8; 16]>(), 0..=BLOCKS_MAX),
    );
    let config = ProptestConfig {
        cases: 64,
        // Nothing is written into the tree.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |((key, key_bytes, blocks) in inputs)| {
        let key = &key[..key_bytes];
        let plain: Vec<Block> = blocks.into_iter().map(Into::into).collect();
        let mut sealed = plain.clone();
        oracle(key).encrypt_blocks(&mut sealed);
        for cipher in everywhere(|registers| on(registers, key)) {
            let mut blocks = plain.clone();
            cipher.encrypt_blocks(&mut blocks);
            prop_assert_eq!(&blocks, &sealed, "{:?}", cipher);
            cipher.decrypt_blocks(&mut blocks);
            prop_assert_eq!(&blocks, &plain, "{:?}", cipher);
        }
    });
}

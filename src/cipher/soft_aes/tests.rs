//! Against the standard's examples, and the `aes` crate.

use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use proptest::prelude::*;

use super::*;

fn bytes<const N: usize>() -> [u8; N] {
    std::array::from_fn(|i| i as u8)
}

/// FIPS 197, appendix C.
#[test]
fn the_standards_examples() {
    for (key_bytes, sealed) in [
        (16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (24, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (32, "8ea2b7ca516745bfeafc49904b496089"),
    ] {
        let aes = SoftAes::new_from_slice(&bytes::<32>()[..key_bytes]).expect("a good length");
        let plain = Block::from(bytes::<16>().map(|i| i * 0x11));
        let mut block = plain;
        aes.encrypt_block(&mut block);
        assert_eq!(hex::encode(block), sealed);
        aes.decrypt_block(&mut block);
        assert_eq!(block, plain);
    }
}

/// NIST's AESAVS, appendices B to E: single entries of the known-answer tests.
#[test]
fn known_answers() {
    let zeros = "00000000000000000000000000000000";
    for (key, plain, sealed) in [
        (
            zeros,
            "f34481ec3cc627bacd5dc3fb08f273e6",
            "0336763e966d92595a567cc9ce537f5e",
        ),
        (
            "10a58869d74be5a374cf867cfb473859",
            zeros,
            "6d251e6944b051e04eaa6fb4dbf78465",
        ),
        (
            zeros,
            "80000000000000000000000000000000",
            "3ad78e726c1ec02b7ebfe92b23d9ec34",
        ),
        (
            "80000000000000000000000000000000",
            zeros,
            "0edd33d3c621e546455bd8ba1418bec8",
        ),
    ] {
        let key = hex::decode(key).expect("hexadecimal");
        let aes = SoftAes::new_from_slice(&key).expect("a good length");
        let mut block = Block::try_from(&*hex::decode(plain).expect("hexadecimal")).expect("16");
        aes.encrypt_block(&mut block);
        assert_eq!(hex::encode(block), sealed);
        aes.decrypt_block(&mut block);
        assert_eq!(hex::encode(block), plain);
    }
}

#[test]
fn keys_of_other_lengths_are_refused() {
    for len in (0..=40).filter(|len| ![16, 24, 32].contains(len)) {
        assert!(SoftAes::new_from_slice(&vec![0; len]).is_err(), "{len}");
    }
}

fn equals<C: KeyInit + BlockCipherEncrypt<BlockSize = U16>>(key: &[u8], blocks: &[Block]) {
    let other = C::new_from_slice(key).expect("the crate's length");
    let aes = SoftAes::new_from_slice(key).expect("the same length");
    let mut expected = blocks.to_vec();
    other.encrypt_blocks(&mut expected);
    let mut ours = blocks.to_vec();
    aes.encrypt_blocks(&mut ours);
    assert_eq!(ours, expected);
    aes.decrypt_blocks(&mut ours);
    assert_eq!(ours, blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn equals_the_aes_crate(
        key in any::<[u8; 32]>(),
        blocks in prop::collection::vec(any::<[u8; 16]>().prop_map(Block::from), 0..40),
    ) {
        equals::<aes::Aes128>(&key[..16], &blocks);
        equals::<aes::Aes192>(&key[..24], &blocks);
        equals::<aes::Aes256>(&key, &blocks);
    }
}

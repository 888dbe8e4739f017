use cipher::{Array, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16};

use super::*;
use crate::cipher::many_blocks::{Registers, testing};

/// Source: RFC 3713, appendix A.
const VECTORS: [[&str; 3]; 3] = [
    [
        "0123456789abcdeffedcba9876543210",
        "0123456789abcdeffedcba9876543210",
        "67673138549669730857065648eabe43",
    ],
    [
        "0123456789abcdeffedcba98765432100011223344556677",
        "0123456789abcdeffedcba9876543210",
        "b4993401b3e996f84ee5cee7d79b09b9",
    ],
    [
        "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff",
        "0123456789abcdeffedcba9876543210",
        "9acc237dff16d76c20ef7c919e3a7509",
    ],
];

/// The `camellia` crate, with a key of any length.
enum Oracle {
    Short(::camellia::Camellia128),
    Middle(::camellia::Camellia192),
    Long(::camellia::Camellia256),
}

impl Oracle {
    fn new(key: &[u8]) -> Self {
        match key.len() {
            16 => Self::Short(KeyInit::new_from_slice(key).expect("16 bytes")),
            24 => Self::Middle(KeyInit::new_from_slice(key).expect("24 bytes")),
            _ => Self::Long(KeyInit::new_from_slice(key).expect("32 bytes")),
        }
    }
}

impl BlockSizeUser for Oracle {
    type BlockSize = U16;
}

impl BlockCipherEncrypt for Oracle {
    fn encrypt_with_backend(&self, f: impl ::cipher::BlockCipherEncClosure<BlockSize = U16>) {
        match self {
            Self::Short(camellia) => camellia.encrypt_with_backend(f),
            Self::Middle(camellia) => camellia.encrypt_with_backend(f),
            Self::Long(camellia) => camellia.encrypt_with_backend(f),
        }
    }
}

#[test]
fn published_vectors_on_all_registers() {
    for vector in VECTORS {
        testing::known(Camellia::on, vector);
    }
}

#[test]
fn every_length_as_the_camellia_crate_does() {
    let key: Vec<u8> = (0..32).map(|i| i * 7 + 3).collect();
    for key in [&key[..16], &key[..24], &key[..]] {
        for camellia in testing::everywhere(|registers| Camellia::on(registers, key)) {
            testing::every_length(&camellia, &Oracle::new(key));
        }
    }
}

#[test]
fn any_key_and_data_as_the_camellia_crate_does() {
    testing::any_data(Camellia::on, Oracle::new);
}

/// Each byte value goes through each S-box, by the first round of a key that adds nothing to it.
#[test]
fn all_byte_values_in_all_places() {
    let key = [0_u8; 16];
    let oracle = Oracle::new(&key);
    for camellia in testing::everywhere(|registers| Camellia::on(registers, &key)) {
        for place in 0..16 {
            let mut blocks = [Array::default(); 256];
            for (value, block) in blocks.iter_mut().enumerate() {
                block[place] = value as u8;
            }
            let mut expected = blocks;
            camellia.encrypt_blocks(&mut blocks);
            oracle.encrypt_blocks(&mut expected);
            assert_eq!(blocks, expected, "{camellia:?}, byte {place}");
        }
    }
}

/// Source: RFC 3713, section 2.4.1: the first entries of SBOX1 and what follows from them.
#[test]
fn s_boxes_begin_as_published() {
    let [first, second, third, fourth] = sboxes::TABLES;
    assert_eq!(first[..8], [112, 130, 44, 236, 179, 39, 192, 229]);
    for x in 0..=255_u8 {
        let of = |table: [u8; 256], x: u8| table[usize::from(x)];
        assert_eq!(of(second, x), of(first, x).rotate_left(1));
        assert_eq!(of(third, x), of(first, x).rotate_right(1));
        assert_eq!(of(fourth, x), of(first, x.rotate_left(1)));
    }
}

#[test]
fn keys_of_other_lengths_are_refused() {
    for bytes in (0..=64).filter(|bytes| ![16, 24, 32].contains(bytes)) {
        assert!(Camellia::new(&vec![1; bytes]).is_none(), "{bytes} bytes");
    }
}

#[test]
fn registers_can_be_limited_and_keys_are_not_shown() {
    let key = [0x5a; 32];
    for widest in Registers::ALL {
        let camellia = Camellia::up_to(widest, &key).expect("32 bytes");
        assert!(camellia.registers() <= widest);
        let name = camellia.registers().name();
        assert_eq!(format!("{camellia:?}"), format!("Camellia({name})"));
    }
}

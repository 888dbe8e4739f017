use cipher::{BlockCipherEncrypt, KeyInit};

use super::*;
use crate::cipher::many_blocks::{Registers, testing};
use crate::cipher::run::Block;

/// Source: the Twofish paper, appendix B.2; the last is where its chain for 256 bits ends.
const VECTORS: [[&str; 3]; 5] = [
    [
        "00000000000000000000000000000000",
        "00000000000000000000000000000000",
        "9f589f5cf6122c32b6bfec2f2ae8c35a",
    ],
    [
        "0123456789abcdeffedcba98765432100011223344556677",
        "00000000000000000000000000000000",
        "cfd1d2e5a9be9cdf501f13b892bd2248",
    ],
    [
        "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff",
        "00000000000000000000000000000000",
        "37527be0052334b89f0cfccae87cfa20",
    ],
    [
        "9f589f5cf6122c32b6bfec2f2ae8c35a",
        "d491db16e7b1c39e86cb086b789f5419",
        "019f9809de1711858faac3a3ba20fbc3",
    ],
    [
        "248a7f3528b168acfdd1386e3f51e30c2e2158bc3e5fc714c1eeeca0ea696d48",
        "431058f4dbc7f734da4f02f04cc4f459",
        "37fe26ff1cf66175f5ddf4c33b97a205",
    ],
];

#[test]
fn published_vectors_on_all_registers() {
    for vector in VECTORS {
        testing::known(Twofish::on, vector);
    }
}

/// Each plaintext is the ciphertext before, each key the plaintexts before in front of the key
/// before. Source: the Twofish submission, `ecb_ival.txt`, I=49.
#[test]
fn the_published_chains_end_as_they_should() {
    let ends = [
        (16, "5d9d4eeffa9151575524f115815a12e0"),
        (24, "e75449212beef9f4a390bd860a640941"),
        (32, "37fe26ff1cf66175f5ddf4c33b97a205"),
    ];
    for registers in testing::everywhere(|registers| {
        Twofish::on(registers, &[0; 16]).map(|twofish| twofish.registers())
    }) {
        for (key_bytes, end) in ends {
            let mut key = vec![0; key_bytes];
            let mut blocks = [Block::default(); 64];
            for _ in 0..49 {
                let plain = blocks[0];
                let twofish = Twofish::on(registers, &key).expect("a valid length");
                twofish.encrypt_blocks(&mut blocks);
                key.splice(..0, plain);
                key.truncate(key_bytes);
            }
            assert!(
                blocks.iter().all(|block| hex::encode(block) == end),
                "{registers:?}, key of {key_bytes} bytes"
            );
        }
    }
}

#[test]
fn every_length_as_the_twofish_crate_does() {
    let key: Vec<u8> = (0..32).map(|i| i * 7 + 3).collect();
    for key in [&key[..16], &key[..24], &key[..]] {
        let oracle = ::twofish::Twofish::new_from_slice(key).expect("a valid length");
        for twofish in testing::everywhere(|registers| Twofish::on(registers, key)) {
            testing::every_length(&twofish, &oracle);
        }
    }
}

#[test]
fn any_key_and_data_as_the_twofish_crate_does() {
    testing::any_data(Twofish::on, |key| {
        ::twofish::Twofish::new_from_slice(key).expect("a valid length")
    });
}

#[test]
fn keys_of_other_lengths_are_refused() {
    for bytes in (0..=64).filter(|bytes| ![16, 24, 32].contains(bytes)) {
        assert!(Twofish::new(&vec![1; bytes]).is_none(), "{bytes} bytes");
    }
}

#[test]
fn registers_can_be_limited_and_keys_are_not_shown() {
    let key = [0x5a; 32];
    for widest in Registers::ALL {
        let twofish = Twofish::up_to(widest, &key).expect("32 bytes");
        assert!(twofish.registers() <= widest);
        let name = twofish.registers().name();
        assert_eq!(format!("{twofish:?}"), format!("Twofish({name})"));
    }
}

use cipher::KeyInit;

use super::*;
use crate::cipher::many_blocks::{Registers, testing};
use rounds::Lanes;

/// Source: the Serpent authors' NESSIE vectors, sets 1 and 4.
const VECTORS: [[&str; 3]; 4] = [
    [
        "80000000000000000000000000000000",
        "00000000000000000000000000000000",
        "264e5481eff42a4606abda06c0bfda3d",
    ],
    [
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "563e2cf8740a27c164804560391e9b27",
    ],
    [
        "800000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000",
        "9e274ead9b737bb21efcfca548602689",
    ],
    [
        "8000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000",
        "a223aa1288463c0e2be38ebd825616c0",
    ],
];

#[test]
fn published_vectors_on_all_registers() {
    for vector in VECTORS {
        testing::known(Serpent::on, vector);
    }
}

#[test]
fn every_length_as_the_serpent_crate_does() {
    let key: Vec<u8> = (0..32).map(|i| i * 7 + 3).collect();
    for key in [&key[..16], &key[..24], &key[..]] {
        let oracle = ::serpent::Serpent::new_from_slice(key).expect("a valid length");
        for serpent in testing::everywhere(|registers| Serpent::on(registers, key)) {
            testing::every_length(&serpent, &oracle);
        }
    }
}

#[test]
fn any_key_and_data_as_the_serpent_crate_does() {
    testing::any_data(Serpent::on, |key| {
        ::serpent::Serpent::new_from_slice(key).expect("a valid length")
    });
}

/// A circuit against its table: bit `x` of input word `i` is bit `i` of `x`.
fn check(circuit: impl Fn([u32; 4]) -> [u32; 4], table: impl Fn(usize) -> usize, name: &str) {
    let words = circuit([0xaaaa, 0xcccc, 0xf0f0, 0xff00]);
    for x in 0..16 {
        let y = (0..4).fold(0, |y, i| y | (words[i] as usize >> x & 1) << i);
        assert_eq!(y, table(x), "{name} of {x}");
    }
}

#[test]
fn circuits_are_the_tables() {
    macro_rules! both {
        ($($sbox:literal)*) => {$(
            let table = sboxes::TABLES[$sbox].map(usize::from);
            let undone = |y| table.iter().position(|&x| x == y).expect("a permutation");
            check(u32::sbox::<$sbox>, |x| table[x], concat!("S", $sbox));
            check(u32::sbox_inverse::<$sbox>, undone, concat!("inverse of S", $sbox));
        )*};
    }
    both!(0 1 2 3 4 5 6 7);
}

#[test]
fn short_keys_end_in_a_one_bit_and_zeros_and_longer_ones_are_refused() {
    for bytes in 0..32 {
        let mut padded = [0x5a_u8; 32];
        padded[bytes] = 1;
        padded[bytes + 1..].fill(0);
        let short = Serpent::new(&padded[..bytes]).expect("no more than 32 bytes");
        let whole = Serpent::new(&padded).expect("32 bytes");
        assert_eq!(short.keys, whole.keys, "{bytes} bytes");
    }
    for bytes in 33..=64 {
        assert!(Serpent::new(&vec![1; bytes]).is_none(), "{bytes} bytes");
    }
}

#[test]
fn registers_can_be_limited_and_keys_are_not_shown() {
    let key = [0x5a; 32];
    for widest in Registers::ALL {
        let serpent = Serpent::up_to(widest, &key).expect("32 bytes");
        assert!(serpent.registers() <= widest);
        let name = serpent.registers().name();
        assert_eq!(format!("{serpent:?}"), format!("Serpent({name})"));
    }
}

//! Every kernel against the authors' vectors and against the portable one.

use cipher::inout::InOutBuf;

use super::*;
use crate::cipher::wide_iv::WideIv;

const VECTORS: &str = include_str!("../../../tests/vectors/adiantum.txt");

fn run(data: &mut [u8], sector_bytes: usize, first_unit: u64) -> Run<'_, '_> {
    let numbers = IvNumbers {
        first_unit,
        sector_units: sector_bytes as u64 / 512,
        large_sectors: false,
    };
    Run {
        data: data.into(),
        sector_bytes,
        numbers,
    }
}

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL
        .iter()
        .copied()
        .filter(|kernel| kernel.available())
}

fn check(kernel: Kernel, variant: &str, key: &[u8; 32], tweak: &[u8], plain: &[u8], sealed: &[u8]) {
    let half = |at: usize| u128::from_le_bytes(tweak[at..at + 16].try_into().expect("a half"));
    let iv = WideIv::Fixed([half(0), half(16)]);
    let cipher: Box<dyn RunCipher> = match variant {
        "xchacha12" => Box::new(Adiantum::<12>::on(
            crate::cipher::CpuEngine::in_use(),
            kernel,
            key,
            iv,
        )),
        "xchacha20" => Box::new(Adiantum::<20>::on(
            crate::cipher::CpuEngine::in_use(),
            kernel,
            key,
            iv,
        )),
        other => unreachable!("{other}"),
    };
    // Alone, and as several sectors of a run.
    for count in [1, 2, 3, 17] {
        let mut data = plain.repeat(count);
        cipher.encrypt(run(&mut data, plain.len(), 0));
        assert!(
            data == sealed.repeat(count),
            "{kernel:?} {variant}: {count} encrypted"
        );
        cipher.decrypt(run(&mut data, plain.len(), 0));
        assert!(
            data == plain.repeat(count),
            "{kernel:?} {variant}: {count} decrypted"
        );
    }
}

#[test]
fn the_authors_vectors() {
    let mut checked = 0;
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let bytes = |index: usize| hex::decode(fields[index]).expect("hexadecimal");
        let key = bytes(1).try_into().expect("a key of 32 bytes");
        for kernel in kernels() {
            check(kernel, fields[0], &key, &bytes(2), &bytes(3), &bytes(4));
            checked += 1;
        }
    }
    assert!(checked >= 16, "all vectors are there");
}

#[test]
fn every_kernel_equals_the_portable_one_at_every_length() {
    let key = std::array::from_fn(|i| i as u8 ^ 0x5c);
    let portable = Adiantum::<12>::on(
        crate::cipher::CpuEngine::in_use(),
        Kernel::Portable,
        &key,
        WideIv::Plain64,
    );
    for kernel in kernels() {
        let cipher = Adiantum::<12>::on(
            crate::cipher::CpuEngine::in_use(),
            kernel,
            &key,
            WideIv::Plain64,
        );
        for sector_bytes in [512, 1024, 2048, 4096] {
            for sectors in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33] {
                let bytes = sectors * sector_bytes;
                // At any alignment; all ones, too, for the carries.
                let at = sectors % 7;
                let fill = |i: usize| {
                    if sectors % 3 == 0 {
                        0xff
                    } else {
                        ((i * 31) >> 3) as u8
                    }
                };
                let plain: Vec<u8> = (0..bytes + at).map(fill).collect();
                let mut expected = plain.clone();
                portable.encrypt(run(&mut expected[at..], sector_bytes, 1 << 40));
                let mut data = plain.clone();
                cipher.encrypt(run(&mut data[at..], sector_bytes, 1 << 40));
                assert!(
                    data == expected,
                    "{kernel:?}: {sectors} of {sector_bytes} encrypted"
                );
                let mut back = vec![0xee; bytes];
                let numbers = run(&mut data[at..], sector_bytes, 1 << 40).numbers;
                let out_of_place = InOutBuf::new(&data[at..], &mut back).expect("one length");
                cipher.decrypt(Run {
                    data: out_of_place,
                    sector_bytes,
                    numbers,
                });
                assert!(
                    back == plain[at..],
                    "{kernel:?}: {sectors} of {sector_bytes} decrypted"
                );
            }
        }
    }
}

#[test]
fn poly1305_reduces_fully() {
    // With a key of 1 the hash is the sum of the blocks, each with its 2^128.
    let one = Poly1305::new(&1_u128.to_le_bytes());
    assert_eq!(one.hash(&[]), 0);
    assert_eq!(one.hash(&[7]), 7);
    // Blocks of all ones and twice 2^128 are 2 less than 2^130, the modulus 5 less.
    assert_eq!(one.hash(&[u128::MAX; 2]), 3);
    // With three blocks, around the modulus and 2^130 itself.
    assert_eq!(one.hash(&[u128::MAX - 5, 0, 0]), u128::MAX - 5);
    assert_eq!(one.hash(&[u128::MAX - 4, 0, 0]), 0);
    assert_eq!(one.hash(&[u128::MAX, 0, 0]), 4);
    assert_eq!(one.hash(&[0; 4]), 5);
    assert_eq!(
        one.hash(&[u128::MAX, u128::MAX - 4, u128::MAX]),
        u128::MAX - 1
    );
}

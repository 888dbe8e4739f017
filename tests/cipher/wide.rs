//! Adiantum against the `adiantum` crate a sector at a time.

use adiantum::Cipher;
use aes::Aes256;
use cbc::cipher::{KeyInit, KeyIvInit, StreamCipher};
use chacha20::{XChaCha12, XChaCha20};
use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use proptest::prelude::*;

fn adiantum<S>(key: &[u8; 32], tweak: &[u8; 32], sector: &mut [u8])
where
    S: KeyIvInit + StreamCipher,
    Cipher<S, Aes256>: KeyInit,
    S::IvSize: cbc::cipher::typenum::IsGreaterOrEqual<cbc::cipher::consts::U16>,
{
    Cipher::<S, Aes256>::new_from_slice(key)
        .expect("a key of 32 bytes")
        .encrypt(sector, tweak);
}

fn tweak(iv: &str, number: u64) -> [u8; 32] {
    let mut tweak = [0; 32];
    match iv {
        "plain" => tweak[..4].copy_from_slice(&number.to_le_bytes()[..4]),
        "plain64" => tweak[..8].copy_from_slice(&number.to_le_bytes()),
        "plain64be" => tweak[24..].copy_from_slice(&number.to_be_bytes()),
        "benbi" => tweak[24..].copy_from_slice(&((number << 5) + 1).to_be_bytes()),
        _ => {}
    }
    tweak
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn adiantum_equals_the_crate(
        rounds in prop::sample::select(vec![12, 20]),
        iv in prop::sample::select(vec!["plain", "plain64", "plain64be", "benbi", "null"]),
        sector_bytes in prop::sample::select(vec![512_u64, 1024, 2048, 4096]),
        sectors in prop_oneof![0_usize..10, 15_usize..18, 32_usize..35],
        first in any::<u64>(),
        large_sectors in any::<bool>(),
        key in any::<[u8; 32]>(),
        salt in any::<u8>(),
    ) {
        let sector_size = SectorSize::new(sector_bytes).expect("a size of the list");
        let units = sector_size.iv_units();
        let first = first & !(units - 1);
        let spec = CipherSpec::parse(&format!("xchacha{rounds},aes-adiantum-{iv}")).expect("good");
        let options = IvOptions { large_sectors, ..IvOptions::default() };
        let cipher = SectorCipher::new(&spec, &key, sector_size, options).expect("supported");

        let plain: Vec<u8> = (0..sectors * sector_size.bytes())
            .map(|i| (i / 7) as u8 ^ (i as u8).wrapping_mul(salt))
            .collect();
        let mut expected = plain.clone();
        let mut unit = first;
        for sector in expected.chunks_exact_mut(sector_size.bytes()) {
            let tweak = tweak(iv, if large_sectors { unit / units } else { unit });
            match rounds {
                12 => adiantum::<XChaCha12>(&key, &tweak, sector),
                _ => adiantum::<XChaCha20>(&key, &tweak, sector),
            }
            unit = unit.wrapping_add(units);
        }

        let mut data = plain.clone();
        cipher.encrypt(&mut data, first);
        prop_assert!(data == expected, "encrypt in place");
        let mut back = vec![0xee; data.len()];
        cipher.decrypt_to(&data, &mut back, first);
        prop_assert!(back == plain && data == expected, "decrypt to");
        let mut sealed = vec![0xee; data.len()];
        cipher.encrypt_to(&plain, &mut sealed, first);
        prop_assert!(sealed == expected, "encrypt to");
        cipher.decrypt(&mut data, first);
        prop_assert!(data == plain, "decrypt in place");
    }
}

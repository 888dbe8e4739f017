//! Serpent, Twofish and Camellia in XTS and CBC on every engine of this CPU, against the modes and
//! ciphers of other crates, a sector at a time.

use camellia::{Camellia128, Camellia192, Camellia256};
use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use nbdcrypt::cipher::{CipherSpec, CpuEngine, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use serpent::Serpent;
use twofish::Twofish;

use super::oracle::{cbc_sector, xts_sector};

fn check<C>(cipher: &str, key_bytes: usize)
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    for (mode, key_bytes) in [("xts", 2 * key_bytes), ("cbc", key_bytes)] {
        let spec = CipherSpec::parse(&format!("{cipher}-{mode}-plain64")).unwrap();
        let key: Vec<u8> = (0..key_bytes).map(|i| (i * i + 11) as u8).collect();
        // Batches that begin and end anywhere in sectors, and rests.
        for (sector_bytes, sectors) in [(512, 1), (512, 3), (512, 67), (2048, 5), (4096, 9)] {
            let size = SectorSize::new(sector_bytes).unwrap();
            let units = size.iv_units();
            let first = units << 32;
            let plain: Vec<u8> = (0..sectors * size.bytes())
                .map(|i| (i * 37 / 8) as u8)
                .collect();
            let mut sealed = plain.clone();
            for (i, sector) in sealed.chunks_exact_mut(size.bytes()).enumerate() {
                let iv = u128::from(first + i as u64 * units).to_le_bytes();
                match mode {
                    "xts" => xts_sector::<C>(&key, iv, sector),
                    _ => cbc_sector::<C>(&key, iv, sector),
                }
            }
            for engine in CpuEngine::ALL.into_iter().filter(|engine| engine.is_here()) {
                let what = format!("{engine} {spec} {key_bytes} {sector_bytes} x {sectors}");
                let options = IvOptions::default();
                let ours = SectorCipher::with_engine(engine, &spec, &key, size, options).unwrap();
                let mut data = plain.clone();
                ours.encrypt(&mut data, first);
                assert!(data == sealed, "{what}: encrypt");
                ours.decrypt(&mut data, first);
                assert!(data == plain, "{what}: decrypt");
            }
        }
    }
}

#[test]
fn serpent_is_what_other_crates_make_of_it() {
    for key_bytes in [16, 24, 32] {
        check::<Serpent>("serpent", key_bytes);
    }
}

#[test]
fn twofish_is_what_other_crates_make_of_it() {
    for key_bytes in [16, 24, 32] {
        check::<Twofish>("twofish", key_bytes);
    }
}

#[test]
fn camellia_is_what_other_crates_make_of_it() {
    check::<Camellia128>("camellia", 16);
    check::<Camellia192>("camellia", 24);
    check::<Camellia256>("camellia", 32);
}

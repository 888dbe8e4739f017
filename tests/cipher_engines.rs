//! Every engine of this CPU against the portable ciphers: every sector size, key size and mode, at
//! every count of sectors and every alignment, in place and out of place, both directions.

use nbdcrypt::cipher::{CipherSpec, CpuEngine, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use proptest::prelude::*;

fn cipher(engine: CpuEngine, spec: &str, key: &[u8], sector: u64) -> SectorCipher {
    let spec = CipherSpec::parse(spec).unwrap();
    let sector = SectorSize::new(sector).unwrap();
    SectorCipher::with_engine(engine, &spec, key, sector, IvOptions::default()).unwrap()
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn engines() -> impl Iterator<Item = CpuEngine> {
    CpuEngine::ALL.into_iter().filter(|engine| {
        let here = engine.is_here();
        if !here {
            eprintln!("skipped: needs a CPU with {engine}");
        }
        here
    })
}

/// `key_bytes` of the data key; XTS takes twice that.
fn check(spec: &str, key_bytes: usize, sector: u64, sectors: usize, shift: usize, first: u64) {
    let key_bytes = if spec.contains("xts") {
        2 * key_bytes
    } else {
        key_bytes
    };
    let key = bytes(key_bytes, 7 + key_bytes as u64);
    let len = sectors * sector as usize;
    let first = first * (sector / 512);
    let plain = bytes(len, 99 + first);
    let mut expected = plain.clone();
    cipher(CpuEngine::Soft, spec, &key, sector).encrypt(&mut expected, first);
    for engine in engines() {
        let what = format!("{engine} {spec} {key_bytes} {sector} x {sectors} at {shift}");
        let cipher = cipher(engine, spec, &key, sector);
        // Room around the data shows writes outside it.
        let mut room = vec![0xa5; len + 256];
        let place = shift..shift + len;
        room[place.clone()].copy_from_slice(&plain);
        cipher.encrypt(&mut room[place.clone()], first);
        assert!(room[place.clone()] == expected, "{what}: encrypt");
        cipher.decrypt(&mut room[place.clone()], first);
        assert!(room[place.clone()] == plain, "{what}: decrypt");
        cipher.encrypt_to(&plain, &mut room[place.clone()], first);
        assert!(room[place.clone()] == expected, "{what}: encrypt_to");
        cipher.decrypt_to(&expected, &mut room[place.clone()], first);
        assert!(room[place] == plain, "{what}: decrypt_to");
        let untouched = room[..shift]
            .iter()
            .chain(&room[shift + len..])
            .all(|b| *b == 0xa5);
        assert!(untouched, "{what}: outside");
    }
}

const AES: [&str; 4] = [
    "aes-xts-plain64",
    "aes-xts-essiv:sha256",
    "aes-cbc-plain64",
    "aes-cbc-essiv:sha256",
];

const OTHERS: [&str; 6] = [
    "serpent-xts-plain64",
    "serpent-cbc-plain64",
    "twofish-xts-plain64",
    "twofish-cbc-plain64",
    "camellia-xts-plain64",
    "camellia-cbc-plain64",
];

#[test]
fn every_count_of_sectors() {
    for spec in AES {
        for key_bytes in [16, 24, 32] {
            for sectors in (0..=36).chain([63, 64, 65, 127, 128, 130]) {
                check(spec, key_bytes, 512, sectors, sectors % 64, 1 << 33);
            }
            for sectors in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33] {
                check(spec, key_bytes, 4096, sectors, 3 * sectors % 64, 5);
            }
        }
    }
}

/// Their kernels take 64 blocks or fewer, two sectors of 512 bytes.
#[test]
fn counts_of_sectors_around_batches() {
    for spec in OTHERS {
        for sectors in [0, 1, 2, 3, 5, 63, 64, 65] {
            check(spec, 32, 512, sectors, sectors % 64, 1 << 33);
        }
        for sectors in [1, 2, 5] {
            check(spec, 32, 4096, sectors, 3 * sectors, 5);
        }
    }
}

/// AES wherever else it is used, alone or in something around it: an IV, a wide block, a diffuser.
#[test]
fn every_use_of_aes() {
    for (spec, key_bytes) in [
        ("aes-ecb", 24),
        ("aes-ctr-plain64", 32),
        ("aes-pcbc-plain64", 16),
        ("aes-lrw-benbi", 48),
        ("aes-cbc-eboiv", 32),
        ("aes-cbc-elephant", 64),
        ("aes:64-cbc-lmk", 65 * 16),
        ("aes-cbc-tcw", 64),
        ("aes-hctr2-plain64", 32),
        ("xchacha12,aes-adiantum-plain64", 32),
        ("xchacha20,aes-adiantum-plain64", 32),
    ] {
        for sectors in [1, 2, 5, 17, 65] {
            check(spec, key_bytes, 512, sectors, sectors % 64, 1 << 33);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_place_and_number(
        spec in prop::sample::select([&AES[..], &OTHERS[..]].concat()),
        key_bytes in prop::sample::select(vec![16usize, 24, 32]),
        sector in prop::sample::select(vec![512u64, 1024, 2048, 4096]),
        sectors in 0usize..40,
        shift in 0usize..128,
        first in any::<u32>(),
    ) {
        check(spec, key_bytes, sector, sectors, shift, u64::from(first));
    }
}

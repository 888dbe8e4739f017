//! Every block cipher in every mode against the mode written down as its definition reads, a block
//! at a time, over the crates' ciphers.

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use cbc::cipher::{BlockCipherEncrypt, KeyInit};

/// One direction of a keyed block cipher.
type Blocks = Box<dyn Fn(&mut [u8])>;

fn encryptor<C: KeyInit + BlockCipherEncrypt + 'static>(key: &[u8]) -> Blocks {
    let cipher = C::new_from_slice(key).expect("a key of its length");
    Box::new(move |block| cipher.encrypt_block(block.try_into().expect("a block")))
}

/// Encryption by the cipher of a name.
fn encrypt(name: &str, key: &[u8]) -> Blocks {
    match (name, key.len()) {
        ("aes", 16) => encryptor::<aes::Aes128>(key),
        ("aes", 24) => encryptor::<aes::Aes192>(key),
        ("aes", 32) => encryptor::<aes::Aes256>(key),
        ("aria", 16) => encryptor::<aria::Aria128>(key),
        ("aria", 32) => encryptor::<aria::Aria256>(key),
        ("camellia", 16) => encryptor::<camellia::Camellia128>(key),
        ("camellia", 24) => encryptor::<camellia::Camellia192>(key),
        ("camellia", 32) => encryptor::<camellia::Camellia256>(key),
        ("cast6", _) => encryptor::<cast6::Cast6>(key),
        ("serpent", _) => encryptor::<serpent::Serpent>(key),
        ("sm4", _) => encryptor::<sm4::Sm4>(key),
        ("twofish", _) => encryptor::<twofish::Twofish>(key),
        ("blowfish", _) => encryptor::<blowfish::Blowfish>(key),
        ("cast5", _) => encryptor::<cast5::Cast5>(key),
        ("des3_ede", _) => encryptor::<des::TdesEde3>(key),
        other => unreachable!("{other:?}"),
    }
}

/// Name, key bytes, block bytes.
const CIPHERS: &[(&str, usize, usize)] = &[
    ("aes", 16, 16),
    ("aes", 24, 16),
    ("aes", 32, 16),
    ("aria", 16, 16),
    ("aria", 32, 16),
    ("camellia", 16, 16),
    ("camellia", 24, 16),
    ("camellia", 32, 16),
    ("cast6", 20, 16),
    ("cast6", 32, 16),
    ("serpent", 16, 16),
    ("serpent", 29, 16),
    ("serpent", 32, 16),
    ("sm4", 16, 16),
    ("twofish", 16, 16),
    ("twofish", 24, 16),
    ("twofish", 32, 16),
    ("blowfish", 7, 8),
    ("blowfish", 32, 8),
    ("cast5", 16, 8),
    ("des3_ede", 24, 8),
];

const MODES: &[&str] = &["ecb", "cbc", "pcbc", "ctr", "xts", "lrw"];

const IVS: &[&str] = &[
    "null",
    "plain",
    "plain64",
    "plain64be",
    "benbi",
    "essiv:sha256",
    "essiv:md5",
    "eboiv",
];

fn xor(a: &mut [u8], b: &[u8]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
}

#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    block_bytes: usize,
    mode: &'static str,
    iv: &'static str,
    /// Several of them where the cipher has a key count.
    keys: Vec<Vec<u8>>,
    sector_size: SectorSize,
    options: IvOptions,
    first_iv_unit: u64,
    plain: Vec<u8>,
}

impl Case {
    /// Bytes of a key of the mode.
    fn key_bytes(mode: &str, cipher_key_bytes: usize) -> usize {
        match mode {
            "xts" => cipher_key_bytes * 2,
            "lrw" => cipher_key_bytes + 16,
            _ => cipher_key_bytes,
        }
    }

    fn spec(&self) -> String {
        let count = match self.keys.len() {
            1 => String::new(),
            n => format!(":{n}"),
        };
        format!("{}{count}-{}-{}", self.name, self.mode, self.iv)
    }

    fn iv(&self, number: u64, key: &[u8]) -> Vec<u8> {
        let len = self.block_bytes;
        let mut iv = vec![0; len];
        match self.iv {
            "null" => {}
            "plain" => iv[..4].copy_from_slice(&(number as u32).to_le_bytes()),
            "plain64be" => iv[len - 8..].copy_from_slice(&number.to_be_bytes()),
            "benbi" => {
                let blocks = if self.mode == "ctr" {
                    512
                } else {
                    512 / len as u64
                };
                let first = number.wrapping_mul(blocks).wrapping_add(1);
                iv[len - 8..].copy_from_slice(&first.to_be_bytes());
            }
            "eboiv" => {
                let offset = number.wrapping_mul(self.sector_size.bytes_u64());
                iv[..8].copy_from_slice(&offset.to_le_bytes());
                // As the kernel does: a block of zeros in the very mode.
                let zeros = vec![0; len];
                return self.sealed(&zeros, &iv, key);
            }
            _ => iv[..8].copy_from_slice(&number.to_le_bytes()),
        }
        match self.iv {
            "essiv:sha256" => encrypt(self.name, &Sha256::digest(key))(&mut iv),
            "essiv:md5" => encrypt(self.name, &md5::Md5::digest(key))(&mut iv),
            _ => {}
        }
        iv
    }

    /// A sector, as the mode's definition says.
    fn sealed(&self, plain: &[u8], iv: &[u8], key: &[u8]) -> Vec<u8> {
        let len = self.block_bytes;
        let (key, rest) = match self.mode {
            "xts" => key.split_at(key.len() / 2),
            "lrw" => key.split_at(key.len() - 16),
            _ => (key, &[][..]),
        };
        let cipher = encrypt(self.name, key);
        let mut chain = iv.to_vec();
        if self.mode == "xts" {
            encrypt(self.name, rest)(&mut chain);
        }
        let mut sealed = Vec::new();
        for plain in plain.chunks(len) {
            let mut block = plain.to_vec();
            match self.mode {
                "ecb" => cipher(&mut block),
                "cbc" => {
                    xor(&mut block, &chain);
                    cipher(&mut block);
                    chain = block.clone();
                }
                "pcbc" => {
                    xor(&mut block, &chain);
                    cipher(&mut block);
                    chain = block.clone();
                    xor(&mut chain, plain);
                }
                "ctr" => {
                    let mut stream = chain.clone();
                    cipher(&mut stream);
                    xor(&mut block, &stream);
                    count_up(&mut chain);
                }
                "xts" => {
                    xor(&mut block, &chain);
                    cipher(&mut block);
                    xor(&mut block, &chain);
                    let tweak = u128::from_le_bytes(chain[..].try_into().unwrap());
                    chain = times(tweak, 2).to_le_bytes().to_vec();
                }
                "lrw" => {
                    let secret = u128::from_be_bytes(rest.try_into().unwrap());
                    let index = u128::from_be_bytes(chain[..].try_into().unwrap());
                    let mask = times(secret, index).to_be_bytes();
                    xor(&mut block, &mask);
                    cipher(&mut block);
                    xor(&mut block, &mask);
                    count_up(&mut chain);
                }
                other => unreachable!("{other}"),
            }
            sealed.extend(block);
        }
        sealed
    }

    fn expected(&self) -> Vec<u8> {
        let units = self.sector_size.iv_units();
        let mut unit = self
            .first_iv_unit
            .wrapping_add(self.options.offset_iv_units);
        let mut sealed = Vec::new();
        for sector in self.plain.chunks(self.sector_size.bytes()) {
            let number = match self.options.large_sectors {
                true => unit / units,
                false => unit,
            };
            let key = &self.keys[(unit % self.keys.len() as u64) as usize];
            let iv = self.iv(number, key);
            sealed.extend(self.sealed(sector, &iv, key));
            unit = unit.wrapping_add(units);
        }
        sealed
    }
}

/// One more, big-endian.
fn count_up(counter: &mut [u8]) {
    for byte in counter.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
}

/// The product in GF(2^128), a bit of `b` at a time.
fn times(mut a: u128, b: u128) -> u128 {
    let mut product = 0;
    for bit in 0..128 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        let over = a >> 127 == 1;
        a <<= 1;
        if over {
            a ^= 0x87;
        }
    }
    product
}

/// Whether dm-crypt could map it, and we do.
fn is_possible(name: &str, key_bytes: usize, block_bytes: usize, mode: &str, iv: &str) -> bool {
    let salt_fits = |bytes| {
        CIPHERS
            .iter()
            .any(|&(other, takes, _)| other == name && takes == bytes)
    };
    match (mode, iv) {
        ("xts" | "lrw", _) if block_bytes != 16 => false,
        ("ctr" | "lrw", "eboiv") => false,
        // dm-crypt has the IV encrypted with a template that ECB has no part in.
        ("ecb", "essiv:sha256" | "essiv:md5") => false,
        (_, "essiv:sha256") => key_bytes > 0 && salt_fits(32),
        (_, "essiv:md5") => salt_fits(16),
        _ => true,
    }
}

fn case() -> impl Strategy<Value = Case> {
    let mut kinds = Vec::new();
    for &(name, key_bytes, block_bytes) in CIPHERS {
        for &mode in MODES {
            for &iv in IVS {
                if is_possible(name, key_bytes, block_bytes, mode, iv) {
                    kinds.push((
                        name,
                        Case::key_bytes(mode, key_bytes),
                        block_bytes,
                        mode,
                        iv,
                    ));
                }
            }
        }
    }
    let number = || {
        prop_oneof![
            0_u64..100,
            (u64::from(u32::MAX) - 100)..(u64::from(u32::MAX) + 10),
            (u64::MAX - 200)..=u64::MAX,
            any::<u64>()
        ]
    };
    (
        prop::sample::select(kinds),
        prop::sample::select(vec![1_usize, 1, 1, 2, 64]),
        prop::sample::select(vec![512_u64, 1024, 2048, 4096]),
        prop_oneof![0_usize..10, 62_usize..67],
        (number(), number(), any::<bool>()),
        any::<u64>(),
    )
        .prop_map(|(kind, count, sector_bytes, sectors, numbers, seed)| {
            let (name, key_bytes, block_bytes, mode, iv) = kind;
            let (first, offset, large_sectors) = numbers;
            let sector_size = SectorSize::new(sector_bytes).expect("a size of the list");
            let grid = !(sector_size.iv_units() - 1);
            let count = if iv == "eboiv" { 1 } else { count };
            let bytes = |label: u8, len: usize| -> Vec<u8> {
                (0..len.div_ceil(32) as u64)
                    .flat_map(|n| {
                        Sha256::new()
                            .chain_update([label])
                            .chain_update(seed.to_le_bytes())
                            .chain_update(n.to_le_bytes())
                            .finalize()
                    })
                    .take(len)
                    .collect()
            };
            Case {
                name,
                block_bytes,
                mode,
                iv,
                keys: (0..count).map(|n| bytes(n as u8, key_bytes)).collect(),
                sector_size,
                options: IvOptions {
                    offset_iv_units: offset & grid,
                    large_sectors,
                },
                first_iv_unit: first & grid,
                plain: bytes(0xff, sectors * sector_size.bytes()),
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_mode_is_what_its_definition_says(case in case()) {
        let spec = CipherSpec::parse(&case.spec()).expect("good");
        let cipher = SectorCipher::new(&spec, &case.keys.concat(), case.sector_size, case.options)
            .expect("supported");
        let expected = case.expected();
        let mut data = case.plain.clone();
        cipher.encrypt(&mut data, case.first_iv_unit);
        prop_assert!(data == expected, "encrypt in place: {spec}");
        cipher.decrypt(&mut data, case.first_iv_unit);
        prop_assert!(data == case.plain, "decrypt in place: {spec}");

        let mut other = vec![0xee; data.len()];
        cipher.encrypt_to(&case.plain, &mut other, case.first_iv_unit);
        prop_assert!(other == expected, "encrypt to: {spec}");
        let mut back = vec![0xee; data.len()];
        cipher.decrypt_to(&other, &mut back, case.first_iv_unit);
        prop_assert!(back == case.plain && other == expected, "decrypt to: {spec}");
    }
}

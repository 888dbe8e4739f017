//! Against `xts-mode` and `cbc` a sector at a time, with IVs made the long way.

use aes::{Aes128, Aes192, Aes256};
use cbc::cipher::consts::U16;
use cbc::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, Debug)]
enum Iv {
    Plain,
    Plain64,
    Plain64Be,
    EssivSha256,
    EssivSm3,
}

impl Iv {
    const ALL: [Self; 5] = [
        Self::Plain,
        Self::Plain64,
        Self::Plain64Be,
        Self::EssivSha256,
        Self::EssivSm3,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Plain64 => "plain64",
            Self::Plain64Be => "plain64be",
            Self::EssivSha256 => "essiv:sha256",
            Self::EssivSm3 => "essiv:sm3",
        }
    }

    fn of(self, number: u64, key: &[u8]) -> [u8; 16] {
        let mut iv = [0; 16];
        match self {
            Self::Plain => iv[..4].copy_from_slice(&number.to_le_bytes()[..4]),
            Self::Plain64Be => iv[8..].copy_from_slice(&number.to_be_bytes()),
            _ => iv[..8].copy_from_slice(&number.to_le_bytes()),
        }
        let salt = match self {
            Self::EssivSha256 => Sha256::digest(key).to_vec(),
            Self::EssivSm3 => sm3::Sm3::digest(key).to_vec(),
            _ => return iv,
        };
        let mut block = iv.into();
        Aes256::new_from_slice(&salt)
            .expect("256 bits")
            .encrypt_block(&mut block);
        block.into()
    }
}

pub(super) fn xts_sector<C>(key: &[u8], iv: [u8; 16], sector: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let (data, tweak) = key.split_at(key.len() / 2);
    let cipher = |key| C::new_from_slice(key).expect("a key of its length");
    xts_mode::Xts128::new(cipher(data), cipher(tweak)).encrypt_sector(sector, iv.into());
}

pub(super) fn cbc_sector<C>(key: &[u8], iv: [u8; 16], sector: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    use cbc::cipher::{BlockModeEncrypt, InnerIvInit};
    let cipher = C::new_from_slice(key).expect("a key of its length");
    let mut chain = cbc::Encryptor::<C>::inner_iv_init(cipher, &iv.into());
    for block in sector.chunks_exact_mut(16) {
        let block: &mut [u8; 16] = block.try_into().expect("16 bytes");
        chain.encrypt_block(block.into());
    }
}

#[derive(Clone, Debug)]
struct Case {
    mode: &'static str,
    iv: Iv,
    key: Vec<u8>,
    sector_size: SectorSize,
    options: IvOptions,
    first_iv_unit: u64,
    plain: Vec<u8>,
}

impl Case {
    fn expected(&self) -> Vec<u8> {
        let units = self.sector_size.iv_units();
        let mut sealed = self.plain.clone();
        let mut unit = self
            .first_iv_unit
            .wrapping_add(self.options.offset_iv_units);
        for sector in sealed.chunks_exact_mut(self.sector_size.bytes()) {
            let number = if self.options.large_sectors {
                unit / units
            } else {
                unit
            };
            let iv = self.iv.of(number, &self.key);
            match (self.mode, self.key.len()) {
                ("xts", 32) => xts_sector::<Aes128>(&self.key, iv, sector),
                ("xts", 48) => xts_sector::<Aes192>(&self.key, iv, sector),
                ("xts", 64) => xts_sector::<Aes256>(&self.key, iv, sector),
                ("cbc", 16) => cbc_sector::<Aes128>(&self.key, iv, sector),
                ("cbc", 24) => cbc_sector::<Aes192>(&self.key, iv, sector),
                ("cbc", 32) => cbc_sector::<Aes256>(&self.key, iv, sector),
                other => unreachable!("{other:?}"),
            }
            unit = unit.wrapping_add(units);
        }
        sealed
    }
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (
        prop::sample::select(vec![
            ("xts", 32_usize),
            ("xts", 48),
            ("xts", 64),
            ("cbc", 16),
            ("cbc", 24),
            ("cbc", 32),
        ]),
        prop::sample::select(Iv::ALL.to_vec()),
        prop::sample::select(vec![512_u64, 1024, 2048, 4096]),
        // Up to and over the 64 sectors that are set up together, and the widths of backends.
        prop_oneof![0_usize..12, 28..36_usize, 60..70_usize, 120..135_usize],
    );
    // Near the ends of 32 and 64 bits, and anywhere.
    let number = || {
        prop_oneof![
            0_u64..100,
            (u64::from(u32::MAX) - 2000)..(u64::from(u32::MAX) + 10),
            (u64::MAX - 2000)..=u64::MAX,
            any::<u64>()
        ]
    };
    (
        shape,
        number(),
        number(),
        any::<bool>(),
        any::<[u8; 64]>(),
        any::<u8>(),
    )
        .prop_map(
            |(((mode, key_bytes), iv, sector_bytes, sectors), first, offset, large, key, salt)| {
                let sector_size = SectorSize::new(sector_bytes).expect("a size of the list");
                let grid = !(sector_size.iv_units() - 1);
                let len_bytes = sectors * sector_size.bytes();
                Case {
                    mode,
                    iv,
                    key: key[..key_bytes].to_vec(),
                    sector_size,
                    options: IvOptions {
                        offset_iv_units: offset & grid,
                        large_sectors: large,
                    },
                    first_iv_unit: first & grid,
                    plain: (0..len_bytes)
                        .map(|i| (i / 7) as u8 ^ (i as u8).wrapping_mul(salt))
                        .collect(),
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_run_equals_its_sectors_done_singly(case in case()) {
        let spec = CipherSpec::parse(&format!("aes-{}-{}", case.mode, case.iv.name())).expect("good");
        let cipher = SectorCipher::new(&spec, &case.key, case.sector_size, case.options)
            .expect("supported");
        let expected = case.expected();

        let mut data = case.plain.clone();
        cipher.encrypt(&mut data, case.first_iv_unit);
        prop_assert!(data == expected, "encrypt in place");
        cipher.decrypt(&mut data, case.first_iv_unit);
        prop_assert!(data == case.plain, "decrypt in place");

        let mut other = vec![0xee; data.len()];
        cipher.encrypt_to(&case.plain, &mut other, case.first_iv_unit);
        prop_assert!(other == expected, "encrypt to");
        let mut back = vec![0xee; data.len()];
        cipher.decrypt_to(&other, &mut back, case.first_iv_unit);
        prop_assert!(back == case.plain && other == expected, "decrypt to");
    }
}

#[test]
#[should_panic(expected = "whole sectors")]
fn part_of_a_sector_is_a_mistake_of_the_caller() {
    let spec = CipherSpec::parse("aes-xts-plain64").expect("good");
    let cipher = SectorCipher::new(&spec, &[1; 64], SectorSize::MAX, IvOptions::default())
        .expect("supported");
    cipher.encrypt(&mut [0; 512], 0);
}

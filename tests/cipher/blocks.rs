//! Block ciphers by published vectors, through the modes that show a block alone.

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;

fn cipher(spec: &str, key: &[u8]) -> SectorCipher {
    let parsed = CipherSpec::parse(spec).expect(spec);
    SectorCipher::new(&parsed, key, SectorSize::MIN, IvOptions::default()).expect(spec)
}

/// Source, cipher, key, plaintext, ciphertext.
const VECTORS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "RFC 3713, appendix A",
        "camellia",
        "0123456789abcdeffedcba9876543210",
        "0123456789abcdeffedcba9876543210",
        "67673138549669730857065648eabe43",
    ),
    (
        "RFC 3713, appendix A",
        "camellia",
        "0123456789abcdeffedcba98765432100011223344556677",
        "0123456789abcdeffedcba9876543210",
        "b4993401b3e996f84ee5cee7d79b09b9",
    ),
    (
        "RFC 3713, appendix A",
        "camellia",
        "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff",
        "0123456789abcdeffedcba9876543210",
        "9acc237dff16d76c20ef7c919e3a7509",
    ),
    (
        "RFC 2144, appendix B",
        "cast5",
        "0123456712345678234567893456789a",
        "0123456789abcdef",
        "238b4fe5847e44b2",
    ),
    (
        "RFC 2144, appendix B",
        "cast5",
        "01234567123456782345",
        "0123456789abcdef",
        "eb6a711a2c02271b",
    ),
    (
        "RFC 2144, appendix B",
        "cast5",
        "0123456712",
        "0123456789abcdef",
        "7ac816d16e9b302e",
    ),
    (
        "RFC 2612, appendix A",
        "cast6",
        "2342bb9efa38542c0af75647f29f615d",
        "00000000000000000000000000000000",
        "c842a08972b43d20836c91d1b7530f6b",
    ),
    (
        "RFC 2612, appendix A",
        "cast6",
        "2342bb9efa38542cbed0ac83940ac298bac77a7717942863",
        "00000000000000000000000000000000",
        "1b386c0210dcadcbdd0e41aa08a7a7e8",
    ),
    (
        "RFC 2612, appendix A",
        "cast6",
        "2342bb9efa38542cbed0ac83940ac2988d7c47ce264908461cc1b5137ae6b604",
        "00000000000000000000000000000000",
        "4f6a2038286897b9c9870136553317fa",
    ),
    (
        "RFC 5794, appendix A",
        "aria",
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "d718fbd6ab644c739da95f3be6451778",
    ),
    (
        "RFC 5794, appendix A",
        "aria",
        "000102030405060708090a0b0c0d0e0f1011121314151617",
        "00112233445566778899aabbccddeeff",
        "26449c1805dbe7aa25a468ce263a9e79",
    ),
    (
        "RFC 5794, appendix A",
        "aria",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "00112233445566778899aabbccddeeff",
        "f92bd7c79fb72e2f2b8f80c1972d24fc",
    ),
    (
        "GB/T 32907-2016, appendix A.1",
        "sm4",
        "0123456789abcdeffedcba9876543210",
        "0123456789abcdeffedcba9876543210",
        "681edf34d206965e86b3e94f536e4246",
    ),
    (
        "E. Young's vectors on the author's page",
        "blowfish",
        "fedcba9876543210",
        "0123456789abcdef",
        "0aceab0fc6a0a28d",
    ),
    (
        "J. O. Grabbe, The DES Algorithm Illustrated",
        "des",
        "133457799bbcdff1",
        "0123456789abcdef",
        "85e813540f0ab405",
    ),
    (
        "NIST SP 800-67 rev. 2, appendix B",
        "des3_ede",
        "0123456789abcdef23456789abcdef01456789abcdef0123",
        "5468652071756663",
        "a826fd8ce53b855f",
    ),
    (
        "The Twofish paper, appendix A",
        "twofish",
        "00000000000000000000000000000000",
        "00000000000000000000000000000000",
        "9f589f5cf6122c32b6bfec2f2ae8c35a",
    ),
    (
        "The Twofish paper, appendix A",
        "twofish",
        "0123456789abcdeffedcba98765432100011223344556677",
        "00000000000000000000000000000000",
        "cfd1d2e5a9be9cdf501f13b892bd2248",
    ),
    (
        "The Twofish paper, appendix A",
        "twofish",
        "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff",
        "00000000000000000000000000000000",
        "37527be0052334b89f0cfccae87cfa20",
    ),
    (
        "Linux's self-tests, an empty key",
        "serpent",
        "",
        "000102030405060708090a0b0c0d0e0f",
        "1207fcce9bd0d6476ae98fbed143a0e2",
    ),
    (
        "Linux's self-tests",
        "serpent",
        "000102030405060708090a0b0c0d0e0f",
        "000102030405060708090a0b0c0d0e0f",
        "4c7d8a328072a22c823e4a1f3acda16d",
    ),
    (
        "Linux's self-tests",
        "serpent",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "000102030405060708090a0b0c0d0e0f",
        "de269ff833e432b85b2e88d2701ce75c",
    ),
];

#[test]
fn published_blocks() {
    for (source, name, key, plain, sealed) in VECTORS {
        let key = hex::decode(key).expect("hexadecimal");
        let plain = hex::decode(plain).expect("hexadecimal");
        let mut sector = plain.repeat(512 / plain.len());
        let cipher = cipher(&format!("{name}-ecb"), &key);
        cipher.encrypt(&mut sector, 0);
        for block in sector.chunks(plain.len()) {
            assert_eq!(hex::encode(block), *sealed, "{name} ({source})");
        }
        cipher.decrypt(&mut sector, 0);
        assert_eq!(sector, plain.repeat(512 / plain.len()), "{name}");
    }
}

/// IEEE P1619 draft 4 (2005), annex C: the first of its LRW-32-AES vectors, of the index 1, which
/// is the first sector's first under benbi.
#[test]
fn published_lrw() {
    let key = "4562ac25f828176d4c268414b5680185258e2a05e73e9d03ee5a830ccc094c87";
    let cipher = cipher("aes-lrw-benbi", &hex::decode(key).expect("hexadecimal"));
    let mut sector = [0; 512];
    sector[..16].copy_from_slice(b"0123456789ABCDEF");
    cipher.encrypt(&mut sector, 0);
    assert_eq!(
        hex::encode(&sector[..16]),
        "f1b273cd65a3df5fe95d489254634eb8"
    );
}

//! What isn't supported is refused, by name, and never taken for something else.

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::error::ErrorKind;
use nbdcrypt::units::SectorSize;

fn refusal(spec: &str, key_bytes: usize) -> String {
    let parsed = CipherSpec::parse(spec).expect(spec);
    let key = vec![0x5a; key_bytes];
    let error = SectorCipher::new(&parsed, &key, SectorSize::MIN, IvOptions::default())
        .expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(
        error.what().contains(&parsed.to_string()),
        "{error} should name {parsed}"
    );
    assert!(
        !error.to_string().contains("5a5a"),
        "{error} should hold no key"
    );
    error.to_string()
}

#[test]
fn unsupported_ciphers_are_named() {
    for spec in [
        // No maintained crate has them.
        "anubis-cbc-plain64",
        "khazad-cbc-plain64",
        "seed-cbc-plain64",
        // Blocks of 8 bytes in modes for 16.
        "blowfish-xts-plain64",
        "cast5-lrw-benbi",
        // Modes and IVs that need more than dm-crypt alone, or aren't known.
        "aes-xts-random",
        "aes-gcm-random",
        "aes-cts-plain64",
        "aes-cbc-plain128",
        "aes-cbc-essiv",
        // The kernel has none for a mode without IVs (seen in 6.12).
        "aes-ecb-essiv:sha256",
        "capi:ecb(aes)-essiv:sha256",
        "serpent:4-ecb-essiv:sha256",
        "aes-xts-plain64:8",
        "AES-xts-plain64",
        "xchacha8,aes-adiantum-plain64",
        "xchacha12,aes-adiantum-essiv:sha256",
        "xchacha12,serpent-adiantum-plain64",
        "capi:authenc(hmac(sha256),xts(aes))-plain64",
        // IVs that come with CBC, or that need one at all.
        "aes-xts-lmk",
        "aes-xts-tcw",
        "aes-ctr-elephant",
        "aes-lrw-eboiv",
        "aes:2-cbc-eboiv",
        // Opened as plaintext where that is allowed, never as if it were a cipher.
        "cipher_null-ecb",
        "cipher_null-cbc-plain",
    ] {
        assert!(refusal(spec, 32).contains("is not supported"), "{spec}");
    }
}

#[test]
fn key_lengths_that_do_not_fit_are_named() {
    for bytes in [0, 1, 16, 24, 31, 33, 63, 65, 96, 128, 4096] {
        assert!(refusal("aes-xts-plain64", bytes).contains(&format!("not {}", bytes * 8)));
    }
    for bytes in [0, 16, 24, 31, 33, 64] {
        let error = refusal("xchacha12,aes-adiantum-plain64", bytes);
        assert!(error.contains(&format!("256 bits, not {}", bytes * 8)));
    }
    for bytes in [0, 15, 31, 33, 48, 64] {
        let error = refusal("aes-hctr2-plain64", bytes);
        assert!(error.contains(&format!("256 bits, not {}", bytes * 8)));
    }
    for bytes in [0, 7, 15, 17, 31, 48, 64] {
        assert!(refusal("aes-cbc-essiv:sha256", bytes).contains(&format!("not {}", bytes * 8)));
    }
}

#[test]
fn key_lengths_of_all_other_ciphers() {
    // Lengths in bytes that the kernel takes, by its crypto API's sources of each cipher.
    let lengths: [(&str, &[usize]); 9] = [
        ("aria-cbc-plain", &[16, 24, 32]),
        ("camellia-cbc-plain", &[16, 24, 32]),
        ("twofish-cbc-plain", &[16, 24, 32]),
        ("cast6-cbc-plain", &[16, 20, 24, 28, 32]),
        ("sm4-cbc-plain", &[16]),
        ("des-cbc-plain", &[8]),
        ("des3_ede-cbc-plain", &[24]),
        ("aes-lrw-benbi", &[32, 40, 48]),
        ("camellia-xts-plain64", &[32, 48, 64]),
    ];
    let ranges = [
        ("serpent-cbc-plain", 0..=32),
        ("blowfish-cbc-plain", 4..=56),
        ("cast5-cbc-plain", 5..=16),
    ];
    let takes = |spec: &str, bytes: usize| {
        let parsed = CipherSpec::parse(spec).expect(spec);
        let key = vec![0x5a; bytes];
        SectorCipher::new(&parsed, &key, SectorSize::MIN, IvOptions::default()).is_ok()
    };
    for bytes in 0..=70 {
        for (spec, lengths) in lengths {
            assert_eq!(
                takes(spec, bytes),
                lengths.contains(&bytes),
                "{spec} {bytes}"
            );
        }
        for (spec, range) in &ranges {
            assert_eq!(takes(spec, bytes), range.contains(&bytes), "{spec} {bytes}");
        }
    }
    assert!(refusal("twofish-cbc-plain", 20).contains("128, 192 or 256 bits, not 160"));
    assert!(refusal("serpent-xts-plain64", 63).contains("not 504"));
    assert!(refusal("aes-lrw-benbi", 16).contains("not"));
    assert!(refusal("aes-cbc-tcw", 32).contains("not 256"));
    assert!(refusal("aes-cbc-elephant", 24).contains("not 192"));
    assert!(refusal("aes:64-cbc-lmk", 100).contains("not 800"));
}

#[test]
fn old_formats_have_sectors_of_512_bytes() {
    for (spec, bytes) in [("aes:64-cbc-lmk", 1024), ("aes-cbc-tcw", 48)] {
        let parsed = CipherSpec::parse(spec).expect(spec);
        let new = |size| SectorCipher::new(&parsed, &vec![1; bytes], size, IvOptions::default());
        assert!(new(SectorSize::MIN).is_ok(), "{spec}");
        assert!(new(SectorSize::MAX).expect_err(spec).what().contains("512"));
    }
}

#[test]
fn an_iv_offset_off_the_sector_grid_is_refused() {
    let spec = CipherSpec::parse("aes-xts-plain64").expect("good");
    let cipher = |offset_iv_units| {
        let iv = IvOptions {
            offset_iv_units,
            large_sectors: false,
        };
        SectorCipher::new(&spec, &[1; 64], SectorSize::MAX, iv)
    };
    assert!(cipher(8).is_ok());
    assert_eq!(
        cipher(7).expect_err("off the grid").kind(),
        ErrorKind::Device
    );
}

#[test]
fn weak_keys_are_told() {
    assert!(SectorCipher::weak_xts_key(&[3; 64]));
    let mut key = [3; 64];
    key[63] = 4;
    assert!(!SectorCipher::weak_xts_key(&key));
}

#[test]
fn debug_tells_the_cipher_and_not_the_key() {
    let spec = CipherSpec::parse("aes-xts-plain64").expect("good");
    let cipher = SectorCipher::new(&spec, &[0xab; 64], SectorSize::MIN, IvOptions::default())
        .expect("supported");
    let shown = format!("{cipher:?}");
    assert!(shown.contains("aes-xts-plain64") && !shown.contains("171") && !shown.contains("ab"));
}

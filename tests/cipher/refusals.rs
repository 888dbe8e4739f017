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
        "serpent-xts-plain64",
        "twofish-cbc-essiv:sha256",
        "cipher_null-ecb",
        "aes-ecb",
        "aes-ctr-plain64",
        "aes-lrw-benbi",
        "aes-xts-benbi",
        "aes-cbc-null",
        "aes-cbc-tcw",
        "aes-cbc-eboiv",
        "aes-cbc-elephant",
        "aes-xts-random",
        "aes-gcm-random",
        "aes:64-cbc-lmk",
        "aes:2-xts-plain64",
        "xchacha8,aes-adiantum-plain64",
        "xchacha12,aes-adiantum-essiv:sha256",
        "xchacha12,serpent-adiantum-plain64",
        "capi:authenc(hmac(sha256),xts(aes))-plain64",
        "aes-xts-plain64:8",
        "aes-cbc-essiv",
        "AES-xts-plain64",
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

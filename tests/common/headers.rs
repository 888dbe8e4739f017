//! LUKS headers made from parts, right or wrong, with right checksums.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub const HEADER_BYTES: usize = 16 << 10;
pub const KEYSLOTS_BYTES: usize = 128 << 10;
pub const DATA_OFFSET_BYTES: usize = 2 * HEADER_BYTES + KEYSLOTS_BYTES;
pub const IMAGE_BYTES: usize = DATA_OFFSET_BYTES + (64 << 10);

pub fn base_json() -> Value {
    let keyslot = |offset: usize, kdf: Value| {
        json!({
            "type": "luks2",
            "key_size": 16,
            "af": { "type": "luks1", "stripes": 4000, "hash": "sha256" },
            "area": {
                "type": "raw",
                "offset": offset.to_string(),
                "size": "65536",
                "encryption": "aes-xts-plain64",
                "key_size": 32,
            },
            "kdf": kdf,
        })
    };
    let salt = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let digest = |keyslot: &str, segments: Value| {
        json!({
            "type": "pbkdf2",
            "keyslots": [keyslot],
            "segments": segments,
            "hash": "sha256",
            "iterations": 1,
            "salt": salt,
            "digest": salt,
        })
    };
    json!({
        "keyslots": {
            "0": keyslot(32768, json!({
                "type": "pbkdf2", "hash": "sha256", "iterations": 1, "salt": salt
            })),
            "1": keyslot(98304, json!({
                "type": "argon2id", "time": 1, "memory": 32, "cpus": 1, "salt": salt
            })),
        },
        "tokens": { "0": { "type": "luks2-keyring", "keyslots": ["0"], "key_description": "x" } },
        "segments": {
            "0": {
                "type": "crypt",
                "offset": DATA_OFFSET_BYTES.to_string(),
                "size": "dynamic",
                "iv_tweak": "0",
                "encryption": "aes-xts-plain64",
                "sector_size": 512,
            },
        },
        "digests": { "0": digest("0", json!(["0"])), "1": digest("1", json!([])) },
        "config": {
            "json_size": (HEADER_BYTES - 4096).to_string(),
            "keyslots_size": KEYSLOTS_BYTES.to_string(),
            "flags": ["allow-discards"],
        },
    })
}

pub fn luks2_image(json: &str) -> Vec<u8> {
    luks2_image_of_bytes(json.as_bytes())
}

/// An image with both header copies and right checksums. Source: LUKS2 on-disk format.
pub fn luks2_image_of_bytes(json: &[u8]) -> Vec<u8> {
    let mut image = vec![0; IMAGE_BYTES];
    for (offset, magic) in [(0, b"LUKS\xba\xbe"), (HEADER_BYTES, b"SKUL\xba\xbe")] {
        let header = &mut image[offset..offset + HEADER_BYTES];
        header[..6].copy_from_slice(magic);
        header[6..8].copy_from_slice(&2u16.to_be_bytes());
        header[8..16].copy_from_slice(&(HEADER_BYTES as u64).to_be_bytes());
        header[16..24].copy_from_slice(&3u64.to_be_bytes());
        header[72..78].copy_from_slice(b"sha256");
        header[168..172].copy_from_slice(b"uuid");
        header[256..264].copy_from_slice(&(offset as u64).to_be_bytes());
        let json = &json[..json.len().min(HEADER_BYTES - 4096)];
        header[4096..4096 + json.len()].copy_from_slice(json);
        write_checksum(header);
    }
    image
}

pub fn write_checksum(header: &mut [u8]) {
    header[448..512].fill(0);
    let checksum = Sha256::digest(&*header);
    header[448..480].copy_from_slice(&checksum);
}

/// Source: LUKS1 on-disk format.
pub fn luks1_image() -> Vec<u8> {
    let mut image = vec![0; IMAGE_BYTES];
    image[..8].copy_from_slice(b"LUKS\xba\xbe\x00\x01");
    image[8..11].copy_from_slice(b"aes");
    image[40..51].copy_from_slice(b"xts-plain64");
    image[72..78].copy_from_slice(b"sha256");
    let mut number = |at: usize, n: u32| image[at..at + 4].copy_from_slice(&n.to_be_bytes());
    number(104, DATA_OFFSET_BYTES as u32 / 512);
    number(108, 4);
    number(164, 1);
    for slot in 0..8 {
        let at = 208 + 48 * slot;
        number(at, if slot < 2 { 0x00ac_71f3 } else { 0xdead });
        number(at + 4, 1);
        number(at + 40, 8 + 32 * slot as u32);
        number(at + 44, 4000);
    }
    image
}

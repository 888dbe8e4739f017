//! Which header copy counts, which segments make a volume, and what is refused by name.

mod common;

use std::sync::Arc;

use common::headers::{
    DATA_OFFSET_BYTES, HEADER_BYTES, IMAGE_BYTES, base_json, luks1_image, luks2_image,
    write_checksum,
};
use nbdcrypt::error::{Error, ErrorKind, Result};
use nbdcrypt::luks::{Credential, Header, UnlockOptions, VolumeKey};
use nbdcrypt::secret::Secret;
use nbdcrypt::storage::MemoryStorage;
use nbdcrypt::volume::{SegmentKind, Volume};
use serde_json::{Value, json};

fn load(image: Vec<u8>) -> Result<Header> {
    Header::load(Arc::new(MemoryStorage::new(image)), false)
}

fn load_json(edit: impl FnOnce(&mut Value)) -> Header {
    let mut json = base_json();
    edit(&mut json);
    load(luks2_image(&json.to_string())).expect("the header loads")
}

fn key(digest: u32) -> VolumeKey {
    let mut key = Secret::zeroed(32);
    key[0] = 1;
    VolumeKey {
        key,
        keyslot: None,
        digest,
    }
}

fn volume(header: &Header) -> Result<Volume> {
    header.volume(&key(0), IMAGE_BYTES as u64, &UnlockOptions::default())
}

#[track_caller]
fn is_refused<T>(result: Result<T>, kind: ErrorKind, words: &[&str]) -> Error {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(
            error.to_string().contains(word),
            "{error} should name {word:?}"
        );
    }
    error
}

fn set_sequence(image: &mut [u8], copy: usize, sequence: u64) {
    let header = &mut image[copy * HEADER_BYTES..][..HEADER_BYTES];
    header[16..24].copy_from_slice(&sequence.to_be_bytes());
    write_checksum(header);
}

#[test]
fn the_newer_copy_counts_and_the_other_is_named() {
    for (copy, newer, older) in [(0, 0, HEADER_BYTES), (1, HEADER_BYTES, 0)] {
        let mut image = luks2_image(&base_json().to_string());
        image[newer + 24..newer + 29].copy_from_slice(b"newer");
        set_sequence(&mut image, copy, 9);
        let header = load(image.clone()).unwrap();
        let description = header.description();
        assert_eq!(
            (&description["label"], &description["sequence_id"]),
            (&json!("newer"), &json!(9))
        );
        assert_eq!(header.warnings().len(), 1);
        assert!(header.warnings()[0].contains("luks repair"));
        assert!(header.warnings()[0].contains(&format!("offset {older}")));
    }
}

#[test]
fn a_damaged_copy_is_left_alone_and_named() {
    for (damaged, good) in [(0, HEADER_BYTES), (HEADER_BYTES, 0)] {
        for at in [0, 6, 8, 80, 300, 448, 4096, HEADER_BYTES - 1] {
            let mut image = luks2_image(&base_json().to_string());
            image[damaged + at] ^= 0x55;
            let storage = Arc::new(MemoryStorage::new(image.clone()));
            let header = Header::load(storage.clone(), false)
                .unwrap_or_else(|e| panic!("byte {at} of the copy at {damaged}: {e}"));
            assert_eq!(header.warnings().len(), 1, "byte {at}");
            assert!(header.warnings()[0].contains(&format!("offset {damaged}")));
            assert!(volume(&header).is_ok());
            assert_eq!(storage.contents(), image, "nothing was written");
            image[good + at] ^= 0x55;
            let words = ["offset 0", "offset 16384"];
            let words = if at == 0 {
                &["no LUKS header"][..]
            } else {
                &words
            };
            is_refused(load(image), ErrorKind::Device, words);
        }
    }
}

#[test]
fn a_second_copy_alone_opens_only_where_nothing_else_begins() {
    let mut image = luks2_image(&base_json().to_string());
    image[..4096].fill(0);
    assert!(Header::probe(&MemoryStorage::new(image.clone())).unwrap());
    assert!(load(image.clone()).is_ok());
    assert!(!Header::probe(&MemoryStorage::new(vec![0; IMAGE_BYTES])).unwrap());
    for (at, bytes, name) in [
        (512, &b"LABELONE"[..], "LVM2"),
        (0, b"XFSB", "XFS"),
        (510, b"\x55\xaa", "partition table"),
        (1080, b"\x53\xef", "ext4"),
    ] {
        let mut image = image.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        // Not "no LUKS header": a person should hear what is left of it.
        assert!(Header::probe(&MemoryStorage::new(image.clone())).unwrap());
        is_refused(
            load(image),
            ErrorKind::Device,
            &[name, "offset 16384", "luks repair"],
        );
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let requirement = |name: &str| {
        let name = name.to_owned();
        load_json(|json| json["config"]["requirements"] = json!({ "mandatory": [name] }))
    };
    for name in [
        "online-reencrypt",
        "online-reencrypt-v2",
        "opal",
        "inline-hw-tags",
        "new",
    ] {
        let header = requirement(name);
        is_refused(volume(&header), ErrorKind::Device, &[name]);
        assert_eq!(header.description()["requirements"], json!([name]));
    }
    let segment = |field: &str, value: Value| {
        let field = field.to_owned();
        load_json(|json| json["segments"]["0"][field] = value)
    };
    for (header, words) in [
        (
            segment("integrity", json!({ "type": "hmac(sha256)" })),
            &["integrity", "hmac(sha256)"],
        ),
        (
            segment("type", json!("hw-opal")),
            &["hw-opal", "not supported"],
        ),
        (
            segment("type", json!("hw-opal-crypt")),
            &["hw-opal-crypt", "not supported"],
        ),
        (segment("type", json!("some")), &["some", "not supported"]),
        (
            segment("flags", json!(["in-reencryption"])),
            &["re-encryption", "not supported"],
        ),
        (
            segment("encryption", json!("anubis-xts-plain64")),
            &["anubis-xts-plain64", "not"],
        ),
        (
            segment("encryption", json!("cipher_null-ecb")),
            &["cipher_null", "--allow-null-cipher"],
        ),
    ] {
        is_refused(volume(&header), ErrorKind::Device, words);
    }
    let null = segment("encryption", json!("cipher_null-ecb"));
    let options = UnlockOptions {
        allow_null_cipher: true,
        ..UnlockOptions::default()
    };
    let volume = null.volume(&key(0), IMAGE_BYTES as u64, &options).unwrap();
    assert!(matches!(volume.segments[0].kind, SegmentKind::Linear));
}

#[test]
fn a_key_bound_to_no_segment_maps_none() {
    let header = load_json(|_| {});
    let size = IMAGE_BYTES as u64;
    let options = UnlockOptions::default();
    assert!(header.volume(&key(0), size, &options).is_ok());
    for digest in [1, 2, u32::MAX] {
        is_refused(
            header.volume(&key(digest), size, &options),
            ErrorKind::Permission,
            &["bound"],
        );
    }
    assert_eq!(header.description()["keyslots"][1]["state"], "unbound");
}

#[test]
fn fixed_sizes_are_honoured_and_must_fit() {
    let sized = |bytes: u64| {
        let bytes = bytes.to_string();
        load_json(|json| json["segments"]["0"]["size"] = json!(bytes))
    };
    let rest = (IMAGE_BYTES - DATA_OFFSET_BYTES) as u64;
    for bytes in [512, 4096, rest] {
        assert_eq!(volume(&sized(bytes)).unwrap().size_bytes, bytes);
    }
    for bytes in [rest + 512, u64::MAX - 511] {
        is_refused(
            volume(&sized(bytes)),
            ErrorKind::Device,
            &[&bytes.to_string()],
        );
    }
}

#[test]
fn the_data_area_must_be_there_and_on_the_grid() {
    let header = load_json(|json| json["segments"]["0"]["sector_size"] = json!(4096));
    let start = DATA_OFFSET_BYTES as u64;
    let volume = |bytes: u64| header.volume(&key(0), bytes, &UnlockOptions::default());
    assert_eq!(volume(start + 8192).unwrap().size_bytes, 8192);
    // A block device below would not show a tail under 512 bytes.
    assert_eq!(volume(start + 8192 + 511).unwrap().size_bytes, 8192);
    is_refused(
        volume(start + 8192 + 512),
        ErrorKind::Device,
        &["sector size"],
    );
    for bytes in [0, start, start + 511] {
        is_refused(volume(bytes), ErrorKind::Device, &["no data area"]);
    }
}

#[test]
fn a_detached_header_needs_its_data_device() {
    let mut json = base_json();
    json["segments"]["0"]["offset"] = json!("0");
    let luks2 = luks2_image(&json.to_string());
    let mut luks1 = luks1_image();
    luks1[104..108].fill(0);
    for image in [luks1, luks2] {
        let storage = Arc::new(MemoryStorage::new(image));
        let options = UnlockOptions::default();
        let alone = Header::load(storage.clone(), false).unwrap();
        let refusal = alone.volume(&key(0), IMAGE_BYTES as u64, &options);
        is_refused(refusal, ErrorKind::Device, &["detached", "--header"]);
        let header = Header::load(storage, true).unwrap();
        let volume = header.volume(&key(0), 1 << 20, &options).unwrap();
        assert_eq!(
            (volume.size_bytes, volume.segments[0].storage_offset_bytes),
            (1 << 20, 0)
        );
    }
}

#[test]
fn several_segments_are_joined_with_their_iv_tweaks() {
    let offset = |bytes: usize| (DATA_OFFSET_BYTES + bytes).to_string();
    let joined = |second: Value| {
        load_json(|json| {
            json["segments"]["0"]["size"] = json!("8192");
            json["segments"]["1"] = second;
            json["digests"]["0"]["segments"] = json!(["0", "1"]);
        })
    };
    let crypt = |offset: String, size: &str, tweak: &str, sector_size: u32| {
        json!({
            "type": "crypt", "offset": offset, "size": size, "iv_tweak": tweak,
            "encryption": "aes-xts-plain64", "sector_size": sector_size,
        })
    };
    // The volume goes on at another place, and with the IVs it would have had in one piece.
    let header = joined(crypt(offset(16384), "dynamic", "16", 512));
    let volume = volume(&header).unwrap();
    assert_eq!(volume.size_bytes, 8192 + 49152);
    let ciphers = volume.segments.iter().map(|segment| match &segment.kind {
        SegmentKind::Crypt(cipher) => cipher.clone(),
        SegmentKind::Linear => panic!("both are encrypted"),
    });
    let [first, second] = ciphers.collect::<Vec<_>>().try_into().unwrap();
    let (mut a, mut b) = ([7; 512], [7; 512]);
    first.encrypt(&mut a, 16);
    second.encrypt(&mut b, 0);
    assert_eq!(a, b);

    let linear = json!({ "type": "linear", "offset": offset(16384), "size": "4096" });
    let header = joined(linear);
    assert_eq!(joined_bytes(&header), 8192 + 4096);
    for (second, word) in [
        (crypt(offset(4096), "dynamic", "16", 512), "overlap"),
        (crypt(offset(16384), "dynamic", "16", 4096), "sector sizes"),
    ] {
        is_refused(self::volume(&joined(second)), ErrorKind::Device, &[word]);
    }
    let header = load_json(|json| {
        json["segments"]["1"] = crypt(offset(16384), "dynamic", "16", 512);
        json["digests"]["0"]["segments"] = json!(["0", "1"]);
    });
    is_refused(
        self::volume(&header),
        ErrorKind::Device,
        &["another follows"],
    );
    let header = load_json(|json| {
        json["segments"]["0"]["size"] = json!("8192");
        json["segments"]["1"] = crypt(offset(16384), "dynamic", "16", 512);
        json["digests"]["1"]["segments"] = json!(["1"]);
    });
    is_refused(self::volume(&header), ErrorKind::Permission, &["segment 1"]);
}

fn joined_bytes(header: &Header) -> u64 {
    volume(header).unwrap().size_bytes
}

#[test]
fn one_strange_slot_spoils_no_other_and_is_named_when_none_opens() {
    let passphrase = || Credential::Passphrase(Secret::copy_of(b"x"));
    let unlock = |header: &Header| header.unlock(&passphrase(), &UnlockOptions::default());
    let slot = |path: &str, value: Value| {
        let path = path.to_owned();
        load_json(|json| *json.pointer_mut(&path).expect("a place in the header") = value)
    };
    let header = load_json(|_| {});
    is_refused(
        unlock(&header),
        ErrorKind::Permission,
        &["no key slot opens"],
    );
    for (path, value, words) in [
        (
            "/keyslots/0/kdf/hash",
            json!("nohash"),
            ["key slot 0", "nohash"],
        ),
        (
            "/keyslots/0/kdf/type",
            json!("scrypt"),
            ["key slot 0", "scrypt"],
        ),
        (
            "/keyslots/0/kdf/iterations",
            json!(0),
            ["key slot 0", "out of range"],
        ),
        (
            "/keyslots/0/kdf/iterations",
            json!(-1),
            ["key slot 0", "out of range"],
        ),
        (
            "/keyslots/0/kdf/salt",
            json!("***"),
            ["key slot 0", "base64"],
        ),
        (
            "/keyslots/0/af/hash",
            json!("nohash"),
            ["key slot 0", "nohash"],
        ),
        (
            "/keyslots/0/area/encryption",
            json!("foo-xts-plain64"),
            ["key slot 0", "foo"],
        ),
        ("/keyslots/0/area/key_size", json!(7), ["key slot 0", "key"]),
        ("/keyslots/0/key_size", json!(0), ["key slot 0", "key"]),
        ("/keyslots/0/key_size", json!(513), ["key slot 0", "key"]),
        (
            "/keyslots/0/key_size",
            json!(17),
            ["key slot 0", "doesn't fit"],
        ),
        ("/digests/0/hash", json!("nohash"), ["key slot 0", "nohash"]),
        (
            "/digests/0/digest",
            json!("AAAA"),
            ["key slot 0", "3 bytes"],
        ),
        (
            "/keyslots/0/area/encryption",
            json!("cipher_null-ecb"),
            ["key slot 0", "cipher_null"],
        ),
    ] {
        is_refused(unlock(&slot(path, value)), ErrorKind::Device, &words);
    }
    let ignored = load_json(|json| json["keyslots"]["0"]["priority"] = json!(0));
    is_refused(
        unlock(&ignored),
        ErrorKind::Permission,
        &["no key slot can be opened"],
    );
    let named = UnlockOptions {
        keyslot: Some(5),
        ..UnlockOptions::default()
    };
    is_refused(
        header.unlock(&passphrase(), &named),
        ErrorKind::Permission,
        &["key slot 5"],
    );
}

#[test]
fn luks1_rules_of_place() {
    let with = |at: usize, n: u32| {
        let mut image = luks1_image();
        image[at..at + 4].copy_from_slice(&n.to_be_bytes());
        load(image)
    };
    let slot = |index: usize, field: usize| 208 + 48 * index + field;
    assert!(load(luks1_image()).is_ok());
    // Slots in use or not, as old headers have them: from sector 2 on, up to the payload.
    assert!(with(slot(0, 40), 2).is_ok());
    for (result, word) in [
        (with(slot(0, 40), 1), "over the header"),
        (with(slot(7, 40), 0), "over the header"),
        (with(slot(7, 40), 8), "overlap"),
        (with(slot(7, 40), 290), "over the payload"),
        (with(slot(7, 40), u32::MAX), "over the payload"),
        (with(slot(3, 44), 3999), "stripes"),
        (with(104, 200), "over the payload"),
        (with(108, 0), "key of 0 bytes"),
        (with(108, 513), "key of 513 bytes"),
        (with(72, 0), "hash"),
    ] {
        is_refused(result, ErrorKind::Device, &["LUKS1 header", word]);
    }
    let mut image = luks1_image();
    image[104..108].fill(0);
    image.truncate(HEADER_BYTES);
    is_refused(load(image), ErrorKind::Device, &["within the key material"]);
    is_refused(
        load(luks1_image()[..600].to_vec()),
        ErrorKind::Device,
        &["LUKS1 header"],
    );
    is_refused(load(Vec::new()), ErrorKind::Device, &["no LUKS header"]);
}

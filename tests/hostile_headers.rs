//! Headers that nobody's tool wrote: whatever the bytes, loading, describing, unlocking and
//! mapping end in a result, and a volume that comes of it lies within its device.

mod common;

use std::sync::Arc;

use common::headers::{
    DATA_OFFSET_BYTES, HEADER_BYTES, IMAGE_BYTES, base_json, luks1_image, luks2_image,
    luks2_image_of_bytes, write_checksum,
};
use nbdcrypt::luks::{Credential, Header, UnlockOptions, VolumeKey};
use nbdcrypt::secret::Secret;
use nbdcrypt::storage::MemoryStorage;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Replacements that stay cheap: no number of them is a cost that limits would allow and a test
/// couldn't wait for.
const NUMBERS: [i64; 16] = [
    0,
    1,
    2,
    3,
    7,
    16,
    32,
    512,
    1000,
    4000,
    4096,
    -1,
    1 << 31,
    u32::MAX as i64,
    i64::MIN,
    i64::MAX,
];
const TEXTS: [&str; 24] = [
    "",
    "0",
    "1",
    "31",
    "32",
    "00",
    "-1",
    "511",
    "512",
    "32768",
    "65536",
    "163840",
    "18446744073709551615",
    "18446744073709551104",
    "18446744073709551616",
    "dynamic",
    "crypt",
    "linear",
    "luks2",
    "aes-xts-plain64",
    "aes-cbc-essiv:sha256",
    "cipher_null-ecb",
    "argon2id",
    "\u{1b}[2J\u{202e}",
];

#[test]
fn the_base_images_are_good() {
    for image in [luks2_image(&base_json().to_string()), luks1_image()] {
        let header = Header::load(Arc::new(MemoryStorage::new(image)), false).unwrap();
        assert_eq!(header.warnings(), &[] as &[String]);
        let key = VolumeKey {
            key: Secret::zeroed(32),
            keyslot: None,
            digest: 0,
        };
        let volume = header
            .volume(&key, IMAGE_BYTES as u64, &UnlockOptions::default())
            .unwrap();
        assert_eq!(volume.size_bytes as usize, IMAGE_BYTES - DATA_OFFSET_BYTES);
    }
}

/// 400 cases a property, or as many as `PROPTEST_CASES` says; a failure prints its input.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn changed_bytes_without_a_new_checksum(
        changes in prop::collection::vec((0..2 * HEADER_BYTES, any::<u8>()), 1..20),
        luks1 in any::<bool>(),
    ) {
        let mut image = if luks1 { luks1_image() } else { luks2_image(&base_json().to_string()) };
        for (at, byte) in changes {
            // Most of a LUKS1 image's first bytes are no header.
            image[if luks1 { at % 592 } else { at }] = byte;
        }
        survives(image, !luks1);
    }

    #[test]
    fn cut_images(len_bytes in 0..IMAGE_BYTES, luks1 in any::<bool>()) {
        let mut image = if luks1 { luks1_image() } else { luks2_image(&base_json().to_string()) };
        image.truncate(len_bytes);
        survives(image, true);
    }

    #[test]
    fn edited_json(edits in prop::collection::vec((any::<prop::sample::Index>(), edit()), 1..4)) {
        let mut json = base_json();
        for (place, edit) in edits {
            let places = count(&json);
            apply(&mut json, place.index(places), &edit);
        }
        survives(luks2_image(&json.to_string()), true);
    }

    #[test]
    fn edited_text(
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..20usize, prop::collection::vec(any::<u8>(), 0..20)),
            1..4,
        ),
    ) {
        let mut text = base_json().to_string().into_bytes();
        for (at, removed, inserted) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, inserted);
        }
        survives(luks2_image_of_bytes(&text), true);
    }

    #[test]
    fn changed_binary_header(
        changes in prop::collection::vec((0..448usize, any::<u8>()), 1..6),
        secondary in any::<bool>(),
    ) {
        let mut image = luks2_image(&base_json().to_string());
        let start = if secondary { HEADER_BYTES } else { 0 };
        for (at, byte) in changes {
            image[start + at] = byte;
        }
        write_checksum(&mut image[start..start + HEADER_BYTES]);
        survives(image, true);
    }
}

/// Everything that a header can be asked; nothing of it may panic.
fn survives(image: Vec<u8>, cheap: bool) {
    let image_bytes = image.len() as u64;
    let storage = Arc::new(MemoryStorage::new(image));
    let _ = Header::probe(&*storage);
    for detached in [false, true] {
        let Ok(header) = Header::load(storage.clone(), detached) else {
            continue;
        };
        let words = header.description_in_words();
        assert!(
            !words.contains('\u{1b}'),
            "escape sequences reach the terminal"
        );
        let description = header.description();
        assert_eq!(description["schema"], 1);
        let credential = Credential::Passphrase(Secret::copy_of(b"x"));
        let slots = [None, Some(0), Some(1), Some(7), Some(31), Some(u32::MAX)];
        for keyslot in slots {
            let options = UnlockOptions {
                keyslot,
                allow_null_cipher: true,
            };
            if cheap || is_cheap(&description) {
                let _ = header.unlock(&credential, &options);
            }
        }
        for (digest, key_bytes) in [(0, 32), (0, 64), (1, 16), (31, 0)] {
            let key = VolumeKey {
                key: Secret::zeroed(key_bytes),
                keyslot: None,
                digest,
            };
            for data_bytes in [image_bytes, 0, 511, u64::MAX, u64::MAX - 511] {
                let options = UnlockOptions {
                    allow_null_cipher: true,
                    ..Default::default()
                };
                if let Ok(volume) = header.volume(&key, data_bytes, &options) {
                    lies_within(&volume, data_bytes);
                }
            }
        }
    }
}

fn lies_within(volume: &nbdcrypt::volume::Volume, data_bytes: u64) {
    let grid_bytes = volume.sector_size.bytes_u64();
    let mut next_bytes = 0;
    assert!(!volume.segments.is_empty());
    for segment in &volume.segments {
        assert_eq!(
            segment.start_bytes, next_bytes,
            "segments follow each other"
        );
        assert!(segment.len_bytes > 0 && segment.len_bytes % grid_bytes == 0);
        let end_bytes = segment.storage_offset_bytes.checked_add(segment.len_bytes);
        assert!(
            end_bytes.is_some_and(|end| end <= data_bytes),
            "{segment:?} of {data_bytes}"
        );
        next_bytes += segment.len_bytes;
    }
    assert_eq!(volume.size_bytes, next_bytes);
}

/// Whether no key derivation would take long; random bytes may ask for a billion iterations.
fn is_cheap(description: &Value) -> bool {
    let lists = [&description["keyslots"], &description["digests"]];
    let entries = lists
        .into_iter()
        .flat_map(|list| list.as_array().into_iter().flatten());
    let mut iterations =
        entries.filter_map(|e| e["kdf"]["iterations"].as_u64().or(e["iterations"].as_u64()));
    iterations.all(|n| n < 10_000)
}

/// One change of a JSON value.
#[derive(Debug, Clone)]
enum Edit {
    Replace(Value),
    Remove,
    Rename(String),
    /// A copy under another name, or again in a list.
    Repeat(String),
}

fn edit() -> impl Strategy<Value = Edit> {
    let number = prop::sample::select(&NUMBERS[..]).prop_map(|n| json!(n));
    let text = prop::sample::select(&TEXTS[..]).prop_map(|t| json!(t));
    let other = prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(1.5),
        json!(u64::MAX),
        json!([]),
        json!({}),
        json!(["0", "1", "31"]),
        json!([0]),
        json!({"0": {}}),
        json!({"type": "luks2"}),
    ]);
    let name = || prop::sample::select(&TEXTS[..]).prop_map(str::to_owned);
    prop_oneof![
        4 => number.prop_map(Edit::Replace),
        4 => text.prop_map(Edit::Replace),
        2 => other.prop_map(Edit::Replace),
        2 => Just(Edit::Remove),
        1 => name().prop_map(Edit::Rename),
        2 => name().prop_map(Edit::Repeat),
    ]
}

/// How many places below `value` an edit can be made at.
fn count(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.values().map(|v| 1 + count(v)).sum(),
        Value::Array(items) => items.iter().map(|v| 1 + count(v)).sum(),
        _ => 0,
    }
}

/// Makes an edit at the `place`th place, counted as [`count`] does.
fn apply(value: &mut Value, mut place: usize, edit: &Edit) {
    match value {
        Value::Object(map) => {
            let keys = map.keys().cloned().collect::<Vec<_>>();
            for key in keys {
                if place == 0 {
                    return apply_to_member(map, &key, edit);
                }
                place -= 1;
                let below = count(&map[&key]);
                if place < below {
                    return apply(&mut map[&key], place, edit);
                }
                place -= below;
            }
        }
        Value::Array(items) => {
            for index in 0..items.len() {
                if place == 0 {
                    match edit {
                        Edit::Replace(new) => items[index] = new.clone(),
                        Edit::Remove => drop(items.remove(index)),
                        Edit::Rename(text) => items[index] = json!(text),
                        Edit::Repeat(_) => items.push(items[index].clone()),
                    }
                    return;
                }
                place -= 1;
                let below = count(&items[index]);
                if place < below {
                    return apply(&mut items[index], place, edit);
                }
                place -= below;
            }
        }
        _ => {}
    }
}

fn apply_to_member(map: &mut Map<String, Value>, key: &str, edit: &Edit) {
    match edit {
        Edit::Replace(new) => drop(map.insert(key.to_owned(), new.clone())),
        Edit::Remove => drop(map.shift_remove(key)),
        Edit::Rename(name) => {
            let value = map.shift_remove(key).expect("the key is there");
            map.insert(name.clone(), value);
        }
        Edit::Repeat(name) => drop(map.insert(name.clone(), map[key].clone())),
    }
}

/// Numbers and ids out of range that cryptsetup cuts or ignores when it loads a header; we refuse
/// them (`docs/decisions/0002-lenient-headers.md`).
const STRICTER: [&str; 5] = [
    "is out of range",
    "is not an integer",
    "an object with id",
    "an object without a number",
    "is not one of dm-crypt's",
];

/// Random edits, judged by cryptsetup as well: we load nothing that it refuses, and refuse what it
/// loads for the reasons above only.
#[test]
fn cryptsetup_judges_edited_json_alike() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    if !common::has_tool("cryptsetup", "cryptsetup-bin") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut runner = TestRunner::deterministic();
    let strategy = (any::<prop::sample::Index>(), edit());
    let mut disagreements = Vec::new();
    let rounds = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    for _ in 0..rounds.unwrap_or(150) {
        let (place, edit) = strategy.new_tree(&mut runner).unwrap().current();
        let mut json = base_json();
        let place = place.index(count(&json));
        apply(&mut json, place, &edit);
        let text = json.to_string();
        let image = luks2_image(&text);
        std::fs::write(&path, &image).unwrap();
        let ours = Header::load(Arc::new(MemoryStorage::new(image)), false);
        let theirs = std::process::Command::new("cryptsetup")
            .env("PATH", common::path_with_sbin())
            .arg("luksDump")
            .arg(&path)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let refusal = ours.err().map(|e| e.to_string());
        let agreed = match (&refusal, theirs.status.success()) {
            (None, loads) => loads,
            (Some(_), false) => true,
            (Some(why), true) => STRICTER.iter().any(|reason| why.contains(reason)),
        };
        if !agreed {
            disagreements.push(format!("{place} {edit:?}: {refusal:?}"));
        }
    }
    assert!(disagreements.is_empty(), "\n{}", disagreements.join("\n"));
}

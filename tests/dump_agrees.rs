//! What we tell of a header, against what cryptsetup tells of it: every LUKS header of the
//! corpus, every field that both know.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::corpus::{Corpus, HEADERS};
use nbdcrypt::luks::Header;
use nbdcrypt::storage::{FileStorage, OpenMode};
use serde_json::{Value, json};

/// Headers that cryptsetup dumps and we refuse; `docs/decisions/0002-lenient-headers.md` says why.
const REFUSED: [&str; 3] = [
    "bad-l2-json-duplicate-key",
    "bad-l2-json-invalid-utf8",
    "bad-l2-token-id-32",
];

#[test]
fn descriptions_agree_with_luks_dump() {
    if !common::has_tool("cryptsetup", "cryptsetup-bin") {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let mut compared = 0;
    for case in corpus.cases(&HEADERS) {
        // A copy: cryptsetup mends headers on dumping them.
        let unpacked = case.unpack(folder.path());
        let path = unpacked.header.as_ref().unwrap_or(&unpacked.image);
        let storage = FileStorage::open(path, OpenMode::ReadOnly).unwrap();
        let ours = Header::load(Arc::new(storage), unpacked.header.is_some());
        let theirs = luks_dump(path, &[]);
        match (ours, theirs) {
            (Ok(header), Some(text)) => {
                let description = header.description();
                let mut differences = match header.format() {
                    "luks1" => differences(&luks1(&text), &description),
                    _ => differences(&luks2(&text), &description),
                };
                if header.format() == "luks2" {
                    let metadata = luks_dump(path, &["--dump-json-metadata"]).expect("it dumps");
                    let metadata = serde_json::from_str(&metadata).expect("cryptsetup writes JSON");
                    differences.extend(self::differences(&luks2_json(&metadata), &description));
                }
                failures.extend(differences.iter().map(|d| format!("{}: {d}", case.name())));
                compared += 1;
            }
            (Ok(_), None) => failures.push(format!("{}: cryptsetup refuses it", case.name())),
            (Err(_), Some(_)) if REFUSED.contains(&case.name()) => {}
            (Err(e), Some(_)) => failures.push(format!("{}: we refuse it: {e}", case.name())),
            (Err(_), None) => {}
        }
        for file in std::iter::once(&unpacked.image).chain(&unpacked.header) {
            std::fs::remove_file(file).unwrap();
        }
    }
    eprintln!("{compared} headers compared");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(compared > 0);
}

fn luks_dump(path: &Path, flags: &[&str]) -> Option<String> {
    let output = Command::new("cryptsetup")
        .env("PATH", common::path_with_sbin())
        .arg("luksDump")
        .args(flags)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .expect("cryptsetup runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// JSON pointers into the description, and the values cryptsetup gives.
type Facts = BTreeMap<String, Value>;

fn differences(expected: &Facts, description: &Value) -> Vec<String> {
    let differs = |(pointer, expected): (&String, &Value)| {
        let found = description.pointer(pointer).unwrap_or(&Value::Null);
        (found != expected).then(|| format!("{pointer}: {found}, cryptsetup says {expected}"))
    };
    expected.iter().filter_map(differs).collect()
}

/// `luksDump` of a LUKS1 header.
fn luks1(text: &str) -> Facts {
    let mut facts = Facts::new();
    let mut top = BTreeMap::new();
    let mut slot = None;
    let mut slots: Vec<BTreeMap<String, String>> = Vec::new();
    for (name, value) in fields(text) {
        match (name.strip_prefix("Key Slot "), slot) {
            (Some(_), _) => {
                slots.push(BTreeMap::from([("state".to_owned(), value)]));
                slot = Some(());
            }
            (None, None) => {
                top.insert(name, value);
            }
            (None, Some(())) => {
                slots.last_mut().unwrap().insert(name, value);
            }
        }
    }
    assert_eq!(slots.len(), 8, "{text}");
    let mode = match top["Cipher mode"].as_str() {
        "" => String::new(),
        mode => format!("-{mode}"),
    };
    let cipher = format!("{}{mode}", top["Cipher name"]);
    let offset_bytes = number(&top["Payload offset"]) * 512;
    for (pointer, value) in [
        ("/format", json!("luks1")),
        ("/uuid", json!(top["UUID"])),
        ("/cipher", json!(cipher)),
        ("/key_bits", json!(number(&top["MK bits"]))),
        ("/payload_offset_bytes", json!(offset_bytes)),
        ("/sector_size_bytes", json!(512)),
        ("/segments/0/offset_bytes", json!(offset_bytes)),
        ("/segments/0/cipher", json!(cipher)),
        ("/segments/0/size_bytes", json!("dynamic")),
        ("/digests/0/hash", json!(top["Hash spec"])),
        (
            "/digests/0/iterations",
            json!(number(&top["MK iterations"])),
        ),
        ("/digests/0/salt_hex", json!(unspaced(&top["MK salt"]))),
        ("/digests/0/digest_hex", json!(unspaced(&top["MK digest"]))),
    ] {
        facts.insert(pointer.to_owned(), value);
    }
    for (id, slot) in slots.iter().enumerate() {
        let mut fact = |name: &str, value: Value| {
            facts.insert(format!("/keyslots/{id}/{name}"), value);
        };
        fact("id", json!(id));
        if slot["state"] != "ENABLED" {
            fact("state", json!("inactive"));
            continue;
        }
        fact("state", json!("active"));
        fact("cipher", json!(cipher));
        fact("key_bits", json!(number(&top["MK bits"])));
        fact("kdf/type", json!("pbkdf2"));
        fact("kdf/hash", json!(top["Hash spec"]));
        fact("kdf/iterations", json!(number(&slot["Iterations"])));
        fact("kdf/salt_hex", json!(unspaced(&slot["Salt"])));
        fact(
            "area_offset_bytes",
            json!(number(&slot["Key material offset"]) * 512),
        );
        fact("af/stripes", json!(number(&slot["AF stripes"])));
        fact("af/hash", json!(top["Hash spec"]));
    }
    facts
}

/// `luksDump` of a LUKS2 header.
fn luks2(text: &str) -> Facts {
    let mut facts = Facts::new();
    let words = |value: &str| {
        value
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let none_as_empty = |value: &str| if value.starts_with('(') { "" } else { value }.to_owned();
    let (mut section, mut place) = (String::new(), String::new());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, value) in fields(text) {
        let value = value.as_str();
        if let Some(heading) = ["Data segments", "Keyslots", "Tokens", "Digests"]
            .iter()
            .find(|h| **h == name)
        {
            section = (*heading).to_owned();
            continue;
        }
        if let Ok(id) = name.parse::<u32>() {
            let list = match section.as_str() {
                "Data segments" => "segments",
                "Keyslots" => "keyslots",
                "Tokens" => "tokens",
                _ => "digests",
            };
            let count = counts.entry(list).or_default();
            place = format!("/{list}/{count}");
            *count += 1;
            facts.insert(format!("{place}/id"), json!(id));
            let kind = value.trim_end_matches(" (unbound)");
            facts.insert(format!("{place}/type"), json!(kind));
            if list == "keyslots" {
                let state = if kind == value { "active" } else { "unbound" };
                facts.insert(format!("{place}/state"), json!(state));
            }
            continue;
        }
        let first = || number(value.split_whitespace().next().unwrap_or_default());
        let (field, fact) = match (section.as_str(), name.as_str()) {
            ("", "Version") => ("/format".to_owned(), json!(format!("luks{value}"))),
            ("", "Epoch") => ("/sequence_id".to_owned(), json!(number(value))),
            ("", "Metadata area") => ("/metadata_size_bytes".to_owned(), json!(first())),
            ("", "Keyslots area") => ("/keyslots_size_bytes".to_owned(), json!(first())),
            ("", "UUID") => ("/uuid".to_owned(), json!(value)),
            ("", "Label") => ("/label".to_owned(), json!(none_as_empty(value))),
            ("", "Subsystem") => ("/subsystem".to_owned(), json!(none_as_empty(value))),
            ("", "Requirements") => ("/requirements".to_owned(), json!(words(value))),
            ("Data segments", "offset") => (format!("{place}/offset_bytes"), json!(first())),
            ("Data segments", "length") => {
                let whole = value == "(whole device)";
                let fact = if whole {
                    json!("dynamic")
                } else {
                    json!(first())
                };
                (format!("{place}/size_bytes"), fact)
            }
            ("Data segments", "cipher") => (format!("{place}/cipher"), json!(value)),
            ("Data segments", "sector") => (format!("{place}/sector_size_bytes"), json!(first())),
            ("Data segments", "integrity") => (format!("{place}/integrity"), json!(value)),
            ("Data segments", "flags") => {
                let flags = value.split(',').map(str::trim).collect::<Vec<_>>();
                (format!("{place}/flags"), json!(flags))
            }
            ("Keyslots", "Key") => (format!("{place}/key_bits"), json!(first())),
            ("Keyslots", "Priority") => {
                let word = match value {
                    "ignored" => "ignore",
                    "preferred" => "prefer",
                    other => other,
                };
                (format!("{place}/priority"), json!(word))
            }
            ("Keyslots", "Cipher") => (format!("{place}/cipher"), json!(value)),
            ("Keyslots", "Cipher key") => (format!("{place}/cipher_key_bits"), json!(first())),
            ("Keyslots", "PBKDF") => (format!("{place}/kdf/type"), json!(value)),
            ("Keyslots", "Time cost") => (format!("{place}/kdf/time"), json!(first())),
            ("Keyslots", "Memory") => (format!("{place}/kdf/memory_kib"), json!(first())),
            ("Keyslots", "Threads") => (format!("{place}/kdf/cpus"), json!(first())),
            // In a slot without a KDF it is another hash: that of a re-encryption's checksums.
            ("Keyslots", "Hash") if !facts.contains_key(&format!("{place}/kdf/type")) => continue,
            ("Keyslots", "Hash") => (format!("{place}/kdf/hash"), json!(value)),
            ("Keyslots", "Iterations") => (format!("{place}/kdf/iterations"), json!(first())),
            ("Keyslots", "AF stripes") => (format!("{place}/af/stripes"), json!(first())),
            ("Keyslots", "AF hash") => (format!("{place}/af/hash"), json!(value)),
            ("Keyslots", "Area offset") => (format!("{place}/area_offset_bytes"), json!(first())),
            ("Keyslots", "Area length") => (format!("{place}/area_size_bytes"), json!(first())),
            ("Keyslots", "Digest ID") => (format!("{place}/digest"), json!(first())),
            ("Digests", "Hash") => (format!("{place}/hash"), json!(value)),
            ("Digests", "Iterations") => (format!("{place}/iterations"), json!(first())),
            // Where they aren't base64, cryptsetup's lines run together.
            ("Digests", "Salt" | "Digest") if !is_hex(value) => continue,
            ("Digests", "Salt") => (format!("{place}/salt_hex"), json!(unspaced(value))),
            ("Digests", "Digest") => (format!("{place}/digest_hex"), json!(unspaced(value))),
            _ => continue,
        };
        facts.insert(field, fact);
    }
    assert!(counts.contains_key("segments"), "{text}");
    facts
}

/// The JSON metadata of a LUKS2 header, as cryptsetup prints them.
fn luks2_json(metadata: &Value) -> Facts {
    let mut facts = Facts::new();
    let integer = |text: &Value| json!(number(text.as_str().expect("a number in a string")));
    let sorted = |name: &str| {
        let objects = metadata[name].as_object().expect("an object");
        let parsed = objects.iter().map(|(id, value)| (number(id), value));
        parsed.collect::<BTreeMap<u64, &Value>>()
    };
    let ids = |list: &Value| {
        let list = list.as_array().expect("a list of ids").iter();
        json!(
            list.map(|id| number(id.as_str().expect("an id")))
                .collect::<Vec<_>>()
        )
    };
    for (index, (id, segment)) in sorted("segments").into_iter().enumerate() {
        let mut fact = |name: &str, value: Value| {
            facts.insert(format!("/segments/{index}/{name}"), value);
        };
        fact("id", json!(id));
        fact("type", segment["type"].clone());
        fact("offset_bytes", integer(&segment["offset"]));
        fact(
            "size_bytes",
            match segment["size"].as_str() {
                Some("dynamic") => json!("dynamic"),
                _ => integer(&segment["size"]),
            },
        );
        fact("flags", list_or_empty(&segment["flags"]));
        if segment["type"] == "crypt" {
            fact("cipher", segment["encryption"].clone());
            fact("sector_size_bytes", segment["sector_size"].clone());
            fact("iv_offset", integer(&segment["iv_tweak"]));
        }
    }
    for (index, (id, slot)) in sorted("keyslots").into_iter().enumerate() {
        let mut fact = |name: &str, value: Value| {
            facts.insert(format!("/keyslots/{index}/{name}"), value);
        };
        fact("id", json!(id));
        fact("type", slot["type"].clone());
        fact("key_bits", json!(slot["key_size"].as_i64().unwrap() * 8));
        fact(
            "priority",
            match slot["priority"].as_i64() {
                Some(0) => json!("ignore"),
                None | Some(1) => json!("normal"),
                Some(2) => json!("prefer"),
                Some(_) => Value::Null,
            },
        );
        fact("area_offset_bytes", integer(&slot["area"]["offset"]));
        fact("area_size_bytes", integer(&slot["area"]["size"]));
        if slot["type"] != "luks2" {
            continue;
        }
        fact("cipher", slot["area"]["encryption"].clone());
        fact(
            "cipher_key_bits",
            json!(slot["area"]["key_size"].as_i64().unwrap() * 8),
        );
        fact("af/hash", slot["af"]["hash"].clone());
        fact("af/stripes", slot["af"]["stripes"].clone());
        let kdf = &slot["kdf"];
        fact("kdf/type", kdf["type"].clone());
        fact("kdf/salt", kdf["salt"].clone());
        let numbers: &[(&str, &str)] = match kdf["type"].as_str().unwrap() {
            "pbkdf2" => &[("hash", "hash"), ("iterations", "iterations")],
            "argon2i" | "argon2id" => {
                &[("time", "time"), ("memory", "memory_kib"), ("cpus", "cpus")]
            }
            _ => &[],
        };
        for (theirs, ours) in numbers {
            fact(&format!("kdf/{ours}"), kdf[theirs].clone());
        }
    }
    for (index, (id, token)) in sorted("tokens").into_iter().enumerate() {
        facts.insert(format!("/tokens/{index}/id"), json!(id));
        facts.insert(format!("/tokens/{index}/type"), token["type"].clone());
        facts.insert(format!("/tokens/{index}/keyslots"), ids(&token["keyslots"]));
        facts.insert(format!("/tokens/{index}/json"), token.clone());
    }
    for (index, (id, digest)) in sorted("digests").into_iter().enumerate() {
        let mut fact = |name: &str, value: Value| {
            facts.insert(format!("/digests/{index}/{name}"), value);
        };
        fact("id", json!(id));
        fact("type", digest["type"].clone());
        fact("keyslots", ids(&digest["keyslots"]));
        fact("segments", ids(&digest["segments"]));
        if digest["type"] == "pbkdf2" {
            fact("hash", digest["hash"].clone());
            fact("iterations", digest["iterations"].clone());
            fact("salt", digest["salt"].clone());
        }
    }
    for list in ["segments", "keyslots", "tokens", "digests"] {
        let count = metadata[list].as_object().map_or(0, serde_json::Map::len);
        // Nothing after the last: a description with more would differ here.
        facts.insert(format!("/{list}/{count}"), Value::Null);
    }
    let config = &metadata["config"];
    facts.insert(
        "/keyslots_size_bytes".into(),
        integer(&config["keyslots_size"]),
    );
    let metadata_bytes = number(config["json_size"].as_str().unwrap()) + 4096;
    facts.insert("/metadata_size_bytes".into(), json!(metadata_bytes));
    facts.insert("/flags".into(), list_or_empty(&config["flags"]));
    let mandatory = list_or_empty(&config["requirements"]["mandatory"]);
    facts.insert("/requirements".into(), mandatory);
    facts
}

fn list_or_empty(value: &Value) -> Value {
    if value.is_null() {
        json!([])
    } else {
        value.clone()
    }
}

/// The `name: value` lines of a dump, blanks around them taken off; lines without a name go on
/// the value before.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().skip(1) {
        let is_hex = |word: &str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_hexdigit());
        let goes_on = line.starts_with([' ', '\t']) && line.split_whitespace().all(is_hex);
        match (line.split_once(':'), goes_on) {
            (_, true) => {
                if let Some((_, value)) = fields.last_mut() {
                    value.push_str(line);
                }
            }
            (Some((name, value)), false) => {
                fields.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            (None, false) => {}
        }
    }
    fields
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_hexdigit() || b.is_ascii_whitespace())
}

fn number(text: &str) -> u64 {
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn unspaced(text: &str) -> String {
    text.split_whitespace().collect()
}

//! A header as `dump` shows it: one JSON document, and the same in words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::Format;
use super::luks1::Luks1;
use super::luks2::{Keyslot, Luks2, Priority, Size};
use super::material::STRIPES;

/// The version of the document's shape.
const SCHEMA: u32 = 1;

/// The document of `dump --json`. Sizes and offsets are in bytes.
pub(super) fn json(format: &Format) -> Value {
    match format {
        Format::Luks1(header) => luks1(header),
        Format::Luks2(header) => luks2(header),
    }
}

fn luks1(header: &Luks1) -> Value {
    let cipher = header.cipher();
    let key_bits = header.key_bytes * 8;
    let keyslots = (0..).zip(&header.keyslots).map(|(id, slot): (u32, _)| {
        json!({
            "id": id,
            "type": "luks1",
            "state": if slot.active { "active" } else { "inactive" },
            "priority": "normal",
            "kdf": {
                "type": "pbkdf2",
                "hash": header.hash_name,
                "iterations": slot.iterations,
                "salt": BASE64.encode(slot.salt),
                "salt_hex": hex(&slot.salt),
            },
            "cipher": cipher,
            "key_bits": key_bits,
            "cipher_key_bits": key_bits,
            "area_offset_bytes": slot.offset_bytes,
            "area_size_bytes": super::material::material_bytes(header.key_bytes),
            "af": { "hash": header.hash_name, "stripes": STRIPES },
            "digest": 0,
        })
    });
    let keyslots = keyslots.collect::<Vec<_>>();
    let active = (0u32..)
        .zip(&header.keyslots)
        .filter(|(_, slot)| slot.active);
    let active = active.map(|(id, _)| id).collect::<Vec<_>>();
    json!({
        "schema": SCHEMA,
        "format": "luks1",
        "uuid": header.uuid,
        "label": "",
        "subsystem": "",
        "sequence_id": null,
        "cipher": cipher,
        "key_bits": key_bits,
        "sector_size_bytes": 512,
        "payload_offset_bytes": header.payload_offset_bytes,
        "metadata_size_bytes": null,
        "keyslots_size_bytes": null,
        "hash": header.hash_name,
        "segments": [{
            "id": 0,
            "type": "crypt",
            "offset_bytes": header.payload_offset_bytes,
            "size_bytes": "dynamic",
            "cipher": cipher,
            "sector_size_bytes": 512,
            "iv_offset": 0,
            "integrity": null,
            "flags": [],
        }],
        "keyslots": keyslots,
        "tokens": [],
        "digests": [{
            "id": 0,
            "type": "pbkdf2",
            "hash": header.hash_name,
            "iterations": header.digest_iterations,
            "salt": BASE64.encode(header.digest_salt),
            "salt_hex": hex(&header.digest_salt),
            "digest_hex": hex(&header.digest),
            "keyslots": active,
            "segments": [0],
        }],
        "requirements": [],
        "flags": [],
    })
}

fn luks2(header: &Luks2) -> Value {
    let copy = &header.copy;
    let metadata = &copy.metadata;
    let active = header.active();
    let crypt = active
        .iter()
        .find_map(|(_, segment)| segment.crypt.as_ref());
    let payload_offset_bytes = active
        .iter()
        .map(|(_, s)| s.offset_bytes)
        .min()
        .unwrap_or(0);
    json!({
        "schema": SCHEMA,
        "format": "luks2",
        "uuid": copy.uuid,
        "label": copy.label,
        "subsystem": copy.subsystem,
        "sequence_id": copy.sequence_id,
        "cipher": crypt.map(|crypt| crypt.encryption.as_str()),
        "key_bits": luks2_key_bits(header),
        "sector_size_bytes": crypt.map(|crypt| crypt.sector_size.bytes()),
        "payload_offset_bytes": payload_offset_bytes,
        "metadata_size_bytes": copy.size_bytes,
        "keyslots_size_bytes": metadata.config.keyslots_bytes,
        "segments": luks2_segments(header),
        "keyslots": metadata
            .keyslots
            .iter()
            .map(|(id, slot)| luks2_keyslot(header, *id, slot))
            .collect::<Vec<_>>(),
        "tokens": metadata
            .tokens
            .iter()
            .map(|(id, token)| {
                json!({
                    "id": id,
                    "type": token.kind,
                    "keyslots": token.keyslots,
                    "json": token.json,
                })
            })
            .collect::<Vec<_>>(),
        "digests": luks2_digests(header),
        "requirements": metadata.config.requirements,
        "flags": metadata.config.flags,
    })
}

/// The length of the key that the first segment is encrypted with, by a key slot that holds it.
fn luks2_key_bits(header: &Luks2) -> Option<i64> {
    let metadata = &header.copy.metadata;
    let (first, _) = header
        .active()
        .into_iter()
        .find(|(_, segment)| segment.crypt.is_some())?;
    let holds_it = |id: &u32| {
        let digest = metadata.digest_of_keyslot(*id);
        digest.is_some_and(|(_, digest)| digest.segments.contains(&first))
    };
    let (_, slot) = metadata.keyslots.iter().find(|(id, _)| holds_it(id))?;
    slot.key_bytes.checked_mul(8)
}

fn luks2_segments(header: &Luks2) -> Vec<Value> {
    let segments = (0u32..).zip(&header.copy.metadata.segments);
    let describe = |(id, segment): (u32, &super::luks2::Segment)| {
        let crypt = segment.crypt.as_ref();
        json!({
            "id": id,
            "type": segment.kind,
            "offset_bytes": segment.offset_bytes,
            "size_bytes": match segment.size {
                Size::Dynamic => Value::from("dynamic"),
                Size::Fixed(bytes) => Value::from(bytes),
            },
            "cipher": crypt.map(|crypt| crypt.encryption.as_str()),
            "sector_size_bytes": crypt.map(|crypt| crypt.sector_size.bytes()),
            "iv_offset": crypt.map(|crypt| crypt.iv_tweak),
            "integrity": crypt.and_then(|crypt| crypt.integrity.as_deref()),
            "flags": segment.flags,
        })
    };
    segments.map(describe).collect()
}

fn luks2_keyslot(header: &Luks2, id: u32, slot: &Keyslot) -> Value {
    let digest = header
        .copy
        .metadata
        .digest_of_keyslot(id)
        .map(|(digest, _)| digest);
    let priority = match slot.priority {
        Priority::Ignore => "ignore",
        Priority::Normal => "normal",
        Priority::Prefer => "prefer",
    };
    let state = match header.is_bound(id) {
        true => "active",
        false => "unbound",
    };
    let wrap = slot.wrap.as_ref();
    let kdf = wrap.map(|wrap| {
        let mut kdf = Map::new();
        kdf.insert("type".into(), wrap.kdf.kind.as_str().into());
        if let Some((hash, iterations)) = &wrap.kdf.pbkdf2 {
            kdf.insert("hash".into(), hash.as_str().into());
            kdf.insert("iterations".into(), (*iterations).into());
        }
        if let Some((time, memory_kib, cpus)) = wrap.kdf.argon2 {
            kdf.insert("time".into(), time.into());
            kdf.insert("memory_kib".into(), memory_kib.into());
            kdf.insert("cpus".into(), cpus.into());
        }
        kdf.insert("salt".into(), wrap.kdf.salt.as_str().into());
        kdf.insert("salt_hex".into(), hex_of_base64(&wrap.kdf.salt));
        Value::Object(kdf)
    });
    let af = wrap.map(|wrap| json!({ "hash": wrap.af.hash, "stripes": wrap.af.stripes }));
    json!({
        "id": id,
        "type": slot.kind,
        "state": state,
        "priority": priority,
        "kdf": kdf,
        "cipher": wrap.map(|wrap| wrap.encryption.as_str()),
        "key_bits": slot.key_bytes.checked_mul(8),
        "cipher_key_bits": wrap.and_then(|wrap| wrap.area_key_bytes.checked_mul(8)),
        "area_type": slot.area.as_ref().map(|area| area.kind.as_str()),
        "area_offset_bytes": slot.area.as_ref().map(|area| area.offset_bytes),
        "area_size_bytes": slot.area.as_ref().map(|area| area.size_bytes),
        "af": af,
        "digest": digest,
    })
}

fn luks2_digests(header: &Luks2) -> Vec<Value> {
    let digests = header.copy.metadata.digests.iter();
    let describe = |(id, digest): (&u32, &super::luks2::Digest)| {
        let parameters = digest.pbkdf2.as_ref();
        json!({
            "id": id,
            "type": digest.kind,
            "hash": parameters.map(|p| p.hash.as_str()),
            "iterations": parameters.map(|p| p.iterations),
            "salt": parameters.map(|p| p.salt.as_str()),
            "salt_hex": parameters.map(|p| hex_of_base64(&p.salt)),
            "digest_hex": parameters.map(|p| hex_of_base64(&p.digest)),
            "keyslots": digest.keyslots,
            "segments": digest.segments,
        })
    };
    digests.map(describe).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `null` where it isn't base64.
fn hex_of_base64(text: &str) -> Value {
    BASE64
        .decode(text)
        .map_or(Value::Null, |bytes| hex(&bytes).into())
}

/// The same document for people: a line a fact.
pub(super) fn words(document: &Value) -> String {
    let mut out = Lines::default();
    out.line(0, "Format", &document["format"]);
    out.line(0, "UUID", &document["uuid"]);
    out.line(0, "Label", &document["label"]);
    out.line(0, "Subsystem", &document["subsystem"]);
    out.line(0, "Sequence", &document["sequence_id"]);
    out.line(0, "Cipher", &document["cipher"]);
    out.line_in(0, "Volume key", &document["key_bits"], "bits");
    out.line_in(0, "Sector size", &document["sector_size_bytes"], "bytes");
    out.line_in(
        0,
        "Payload offset",
        &document["payload_offset_bytes"],
        "bytes",
    );
    out.line_in(
        0,
        "Metadata area",
        &document["metadata_size_bytes"],
        "bytes",
    );
    out.line_in(
        0,
        "Key slots area",
        &document["keyslots_size_bytes"],
        "bytes",
    );
    out.line(0, "Flags", &document["flags"]);
    out.line(0, "Requirements", &document["requirements"]);
    for segment in items(&document["segments"]) {
        out.heading("Segment", segment);
        out.line(1, "Type", &segment["type"]);
        out.line_in(1, "Offset", &segment["offset_bytes"], "bytes");
        match &segment["size_bytes"] {
            Value::String(_) => out.text(1, "Length", "to the end of the device"),
            bytes => out.line_in(1, "Length", bytes, "bytes"),
        }
        out.line(1, "Cipher", &segment["cipher"]);
        out.line_in(1, "Sector size", &segment["sector_size_bytes"], "bytes");
        if segment["iv_offset"].as_u64().is_some_and(|n| n != 0) {
            out.line(1, "IV offset", &segment["iv_offset"]);
        }
        out.line(1, "Integrity", &segment["integrity"]);
        out.line(1, "Flags", &segment["flags"]);
    }
    for slot in items(&document["keyslots"]) {
        out.heading("Key slot", slot);
        out.line(1, "State", &slot["state"]);
        if slot["state"] == "inactive" {
            continue;
        }
        out.line(1, "Type", &slot["type"]);
        out.line(1, "Priority", &slot["priority"]);
        out.line_in(1, "Key", &slot["key_bits"], "bits");
        out.line(1, "Cipher", &slot["cipher"]);
        out.line_in(1, "Cipher key", &slot["cipher_key_bits"], "bits");
        let kdf = &slot["kdf"];
        out.line(1, "KDF", &kdf["type"]);
        out.line(1, "KDF hash", &kdf["hash"]);
        out.line(1, "KDF iterations", &kdf["iterations"]);
        out.line(1, "KDF time", &kdf["time"]);
        out.line_in(1, "KDF memory", &kdf["memory_kib"], "KiB");
        out.line(1, "KDF lanes", &kdf["cpus"]);
        out.line(1, "KDF salt", &kdf["salt_hex"]);
        out.line(1, "AF stripes", &slot["af"]["stripes"]);
        out.line(1, "AF hash", &slot["af"]["hash"]);
        out.line_in(1, "Area offset", &slot["area_offset_bytes"], "bytes");
        out.line_in(1, "Area length", &slot["area_size_bytes"], "bytes");
        out.line(1, "Digest", &slot["digest"]);
    }
    for token in items(&document["tokens"]) {
        out.heading("Token", token);
        out.line(1, "Type", &token["type"]);
        out.line(1, "Key slots", &token["keyslots"]);
    }
    for digest in items(&document["digests"]) {
        out.heading("Digest", digest);
        out.line(1, "Type", &digest["type"]);
        out.line(1, "Hash", &digest["hash"]);
        out.line(1, "Iterations", &digest["iterations"]);
        out.line(1, "Salt", &digest["salt_hex"]);
        out.line(1, "Digest", &digest["digest_hex"]);
        out.line(1, "Key slots", &digest["keyslots"]);
        out.line(1, "Segments", &digest["segments"]);
    }
    out.0
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Aligned `name: value` lines; what is not there has no line.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn heading(&mut self, name: &str, object: &Value) {
        self.0.push_str(&format!("\n{name} {}\n", object["id"]));
    }

    fn line(&mut self, indent: usize, name: &str, value: &Value) {
        if let Some(text) = spelled(value) {
            self.text(indent, name, &text);
        }
    }

    fn line_in(&mut self, indent: usize, name: &str, value: &Value, unit: &str) {
        if let Some(text) = spelled(value) {
            self.text(indent, name, &format!("{text} {unit}"));
        }
    }

    fn text(&mut self, indent: usize, name: &str, text: &str) {
        let label = format!("{}{name}:", "  ".repeat(indent));
        self.0.push_str(&format!("{label:<18} {text}\n"));
    }
}

/// A value in words, or `None` where there is nothing to say. Text from a header may hold
/// anything; what goes to a terminal holds no control characters.
fn spelled(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => super::text::printable(text),
        Value::Array(values) => values
            .iter()
            .filter_map(spelled)
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    };
    (!text.is_empty()).then_some(text)
}

//! Key derivation and the anti-forensic merge against key slots that cryptsetup and qemu wrote: the
//! images of the corpus beside the tree, their headers read here in the plainest way, by the LUKS1
//! and LUKS2 on-disk formats. A key is right when the header's digest says so.

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine};
use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::error::Result;
use nbdcrypt::kdf::{HashAlgorithm, Kdf, af_merge};
use nbdcrypt::units::SectorSize;
use serde_json::Value;

const STRIPES: u32 = 4000;

struct Slot {
    kdf: Kdf,
    area_spec: CipherSpec,
    area_key_bytes: usize,
    area_offset_bytes: usize,
    key_bytes: usize,
    af_hash: HashAlgorithm,
    digest_kdf: Kdf,
    digest: Vec<u8>,
}

impl Slot {
    /// Whether the passphrase opens the slot; an error where its cipher isn't supported.
    fn opens(&self, image: &[u8], passphrase: &[u8]) -> Result<bool> {
        let derived = self.kdf.derive(passphrase, self.area_key_bytes)?;
        let options = IvOptions::default();
        let cipher = SectorCipher::new(&self.area_spec, &derived, SectorSize::MIN, options)?;
        let material_bytes = self.key_bytes * STRIPES as usize;
        let mut material =
            image[self.area_offset_bytes..][..material_bytes.next_multiple_of(512)].to_vec();
        cipher.decrypt(&mut material, 0);
        let key = af_merge(
            &material[..material_bytes],
            self.key_bytes,
            STRIPES,
            self.af_hash,
        );
        Ok(*self.digest_kdf.derive(&key, self.digest.len())? == self.digest[..])
    }
}

fn luks1_slots(image: &[u8]) -> Vec<Slot> {
    let number = |at: usize| u32::from_be_bytes(image[at..at + 4].try_into().expect("4 bytes"));
    let text = |at: usize| {
        let field = &image[at..at + 32];
        let end = field
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(field.len());
        std::str::from_utf8(&field[..end]).expect("ASCII")
    };
    let hash = HashAlgorithm::parse(text(72)).expect("a hash cryptsetup has");
    let area_spec = CipherSpec::from_parts(text(8), text(40)).expect("a specification");
    let key_bytes = number(108) as usize;
    let pbkdf2 = |iterations_at, salt_at| Kdf::Pbkdf2 {
        hash,
        iterations: number(iterations_at),
        salt: image[salt_at..salt_at + 32].to_vec(),
    };
    (0..8)
        .map(|index| 208 + index * 48)
        .filter(|&slot| number(slot) == 0x00ac_71f3)
        .map(|slot| Slot {
            kdf: pbkdf2(slot + 4, slot + 8),
            area_spec: area_spec.clone(),
            area_key_bytes: key_bytes,
            area_offset_bytes: number(slot + 40) as usize * 512,
            key_bytes,
            af_hash: hash,
            digest_kdf: pbkdf2(164, 132),
            digest: image[112..132].to_vec(),
        })
        .collect()
}

fn luks2_slots(image: &[u8]) -> Vec<Slot> {
    let area = &image[4096..];
    let end = area
        .iter()
        .position(|&byte| byte == 0)
        .expect("a terminator");
    let json: Value = serde_json::from_slice(&area[..end]).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let hash = |value: &Value| HashAlgorithm::parse(&text(value)).expect("a known hash");
    let number = |value: &Value| value.as_u64().expect("a number") as u32;
    let bytes = |value: &Value| BASE64_STANDARD.decode(text(value)).expect("base64");
    let pbkdf2 = |value: &Value| Kdf::Pbkdf2 {
        hash: hash(&value["hash"]),
        iterations: number(&value["iterations"]),
        salt: bytes(&value["salt"]),
    };
    let slots = json["keyslots"].as_object().expect("an object");
    let mut found = Vec::new();
    for (id, slot) in slots.iter().filter(|(_, slot)| slot["type"] == "luks2") {
        let kdf = match &slot["kdf"] {
            kdf if kdf["type"] == "pbkdf2" => pbkdf2(kdf),
            kdf => Kdf::Argon2 {
                id: kdf["type"] == "argon2id",
                time: number(&kdf["time"]),
                memory_kib: number(&kdf["memory"]),
                cpus: number(&kdf["cpus"]),
                salt: bytes(&kdf["salt"]),
            },
        };
        let digest = json["digests"]
            .as_object()
            .expect("an object")
            .values()
            .find(|digest| {
                digest["keyslots"]
                    .as_array()
                    .expect("a list")
                    .contains(&id.as_str().into())
            })
            .expect("each slot has a digest");
        let area = &slot["area"];
        found.push(Slot {
            kdf,
            area_spec: CipherSpec::parse(&text(&area["encryption"])).expect("a specification"),
            area_key_bytes: number(&area["key_size"]) as usize,
            area_offset_bytes: text(&area["offset"]).parse().expect("a number"),
            key_bytes: number(&slot["key_size"]) as usize,
            af_hash: hash(&slot["af"]["hash"]),
            digest_kdf: pbkdf2(digest),
            digest: bytes(&digest["digest"]),
        });
    }
    found
}

/// What the manifest says unlocks the image: a passphrase, or a key file's bytes, which are one.
fn passphrase(corpus: &Path, unlock: &Value) -> Option<Vec<u8>> {
    let hex_field = |name: &str| {
        unlock[name]
            .as_str()
            .map(|text| hex::decode(text).expect("hex"))
    };
    let keyfile = || {
        let bytes = fs::read(corpus.join(unlock["keyfile"].as_str()?)).expect("a key file");
        let position = |name: &str| unlock[name].as_u64().map(|number| number as usize);
        let start = position("keyfile_offset").unwrap_or(0);
        let end = position("keyfile_size").map_or(bytes.len(), |size| start + size);
        Some(bytes[start..end].to_vec())
    };
    (unlock["passphrase"]
        .as_str()
        .map(|text| text.as_bytes().to_vec()))
    .or_else(|| hex_field("passphrase_hex"))
    .or_else(|| hex_field("key_hex"))
    .or_else(keyfile)
}

#[test]
fn key_slots_of_the_corpus_open() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let Ok(manifest) = fs::read_to_string(corpus.join("manifest.json")) else {
        eprintln!("skipped: no corpus at {}", corpus.display());
        return;
    };
    if Command::new("xz").arg("--version").output().is_err() {
        eprintln!("skipped: needs xz");
        return;
    }
    let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    let (mut opened, mut kdfs) = (0, std::collections::BTreeSet::new());
    for image in manifest["images"].as_array().expect("a list") {
        let (name, category) = (
            &image["name"],
            image["category"].as_str().expect("a string"),
        );
        if !["luks1", "luks1-qemu", "luks2", "cs-luks1", "cs-luks2"].contains(&category)
            || image["expected"]["outcome"] != "opens"
        {
            continue;
        }
        let files = image["files"].as_array().expect("a list");
        let header = files
            .iter()
            .find(|file| file["role"] == "header")
            .unwrap_or(&files[0]);
        let file = corpus.join(header["file"].as_str().expect("a name"));
        let output = Command::new("xz")
            .arg("-dc")
            .arg(&file)
            .output()
            .expect("xz runs");
        let stored = output.stdout;
        let slots = match stored.get(..8) {
            Some([b'L', b'U', b'K', b'S', 0xba, 0xbe, 0, 1]) => luks1_slots(&stored),
            Some([b'L', b'U', b'K', b'S', 0xba, 0xbe, 0, 2]) => luks2_slots(&stored),
            // Recovery of a damaged first header is not this test's business.
            _ => continue,
        };
        for unlock in image["unlock"].as_array().expect("a list") {
            let Some(passphrase) = passphrase(&corpus, unlock) else {
                continue;
            };
            let tried: Vec<Result<bool>> = slots
                .iter()
                .map(|slot| slot.opens(&stored, &passphrase))
                .collect();
            if tried.iter().all(|tried| tried.is_err()) {
                continue;
            }
            let hit = tried.iter().position(|tried| matches!(tried, Ok(true)));
            let hit = hit.unwrap_or_else(|| panic!("{name}: no slot opens: {tried:?}"));
            opened += 1;
            kdfs.insert(match &slots[hit].kdf {
                Kdf::Pbkdf2 { hash, .. } => hash.name(),
                Kdf::Argon2 { id: true, .. } => "argon2id",
                Kdf::Argon2 { id: false, .. } => "argon2i",
            });
            assert!(
                !matches!(slots[hit].opens(&stored, b"not the passphrase"), Ok(true)),
                "{name}"
            );
        }
    }
    eprintln!("{opened} key slots opened; KDFs: {kdfs:?}");
    assert!(
        opened >= 30,
        "the corpus has at least 30 such slots, {opened} opened"
    );
    for kdf in [
        "argon2i",
        "argon2id",
        "sha1",
        "sha256",
        "sha3-256",
        "blake2s-256",
        "whirlpool",
    ] {
        assert!(kdfs.contains(kdf), "the corpus has slots with {kdf}");
    }
}

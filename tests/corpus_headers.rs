//! Every LUKS image of the corpus, through the library: headers load or are refused, keys are
//! found, volumes decrypt, each as other tools witnessed.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use common::corpus::{Case, Corpus, HEADERS};
use nbdcrypt::error::{Error, ErrorKind, Result};
use nbdcrypt::luks::{Credential, Header, UnlockOptions, VolumeKey};
use nbdcrypt::secret::Secret;
use nbdcrypt::storage::{FileStorage, OpenMode, Storage};
use nbdcrypt::volume::{SegmentKind, Volume};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What is decided where tools differ, as `docs/decisions/0002-lenient-headers.md` says it.
const DECIDED: [(&str, bool); 10] = [
    ("bad-l1-uuid-not-terminated", true),
    ("bad-l2-af-stripes-1", true),
    ("bad-l2-config-extra-key", true),
    ("bad-l2-digest-hash-unknown", false),
    ("bad-l2-json-duplicate-key", false),
    ("bad-l2-json-invalid-utf8", false),
    ("bad-l2-requirement-unknown-optional", true),
    ("bad-l2-segment-iv-tweak-8", true),
    ("bad-l2-segment-type-unknown", false),
    ("bad-l2-top-extra-object", true),
];

#[test]
fn every_image_ends_as_the_manifest_says() {
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let mut judged = 0;
    for case in corpus.cases(&HEADERS) {
        let image = Image::unpack(&corpus, case, folder.path());
        let start = Instant::now();
        let verdict = catch_unwind(AssertUnwindSafe(|| judge(&image)));
        let took = start.elapsed();
        match verdict {
            Ok(Ok(())) if took <= common::TIME_MAX => judged += 1,
            Ok(Ok(())) => failures.push(format!("{}: took {took:?}", case.name())),
            Ok(Err(why)) => failures.push(format!("{}: {why}", case.name())),
            Err(_) => failures.push(format!("{}: panicked", case.name())),
        }
        image.remove();
    }
    let peak_kib = peak_memory_kib();
    eprintln!("{judged} images judged, peak memory {} MiB", peak_kib >> 10);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(judged > 0);
    assert!(peak_kib << 10 < common::MEMORY_BYTES_MAX, "{peak_kib} KiB");
}

/// An image and the ways to unlock it.
struct Image<'a> {
    corpus: &'a Corpus,
    case: Case<'a>,
    header: Arc<dyn Storage>,
    data: Arc<dyn Storage>,
    detached: bool,
    files: Vec<std::path::PathBuf>,
    ways: Vec<Way>,
}

struct Way {
    passphrase: Vec<u8>,
    options: UnlockOptions,
    keyslot: Option<u64>,
}

impl<'a> Image<'a> {
    fn unpack(corpus: &'a Corpus, case: Case<'a>, folder: &Path) -> Self {
        let unpacked = case.unpack(folder);
        let open = |path: &Path| -> Arc<dyn Storage> {
            Arc::new(FileStorage::open(path, OpenMode::ReadOnly).expect("just unpacked"))
        };
        let data = open(&unpacked.image);
        let header = unpacked
            .header
            .as_deref()
            .map_or_else(|| data.clone(), open);
        let detached = unpacked.header.is_some();
        let files = std::iter::once(unpacked.image)
            .chain(unpacked.header)
            .collect();
        let count = case.facts["unlock"].as_array().map_or(0, Vec::len);
        let ways = (0..count)
            .filter_map(|n| Way::read(case, n, folder))
            .collect();
        Self {
            corpus,
            case,
            header,
            data,
            detached,
            files,
            ways,
        }
    }

    fn load(&self) -> Result<Header> {
        Header::load(self.header.clone(), self.detached)
    }

    fn volume(&self, header: &Header, key: &VolumeKey, options: &UnlockOptions) -> Result<Volume> {
        header.volume(
            key,
            self.data.size_bytes().expect("a file has a size"),
            options,
        )
    }

    /// Load, unlock, map, by the first way; what `open` does.
    fn open(&self) -> Result<(VolumeKey, Volume)> {
        let header = self.load()?;
        let way = self.ways.first().expect("a case that may open names a way");
        let key = header.unlock(&way.credential(), &way.options)?;
        let volume = self.volume(&header, &key, &way.options)?;
        Ok((key, volume))
    }

    fn remove(&self) {
        for file in &self.files {
            std::fs::remove_file(file).unwrap();
        }
    }
}

impl Way {
    fn read(case: Case<'_>, n: usize, folder: &Path) -> Option<Self> {
        let flags = case.unlock_flags(n, folder)?;
        let value = |name: &str| {
            let at = flags.iter().position(|flag| flag == name)?;
            flags.get(at + 1).cloned()
        };
        let number = |name: &str| value(name).map(|text| text.parse::<usize>().unwrap());
        let mut passphrase = std::fs::read(value("--key-file")?).unwrap();
        passphrase.drain(..number("--keyfile-offset").unwrap_or(0));
        passphrase.truncate(number("--keyfile-size").unwrap_or(usize::MAX));
        let keyslot = number("--key-slot").map(|slot| slot as u32);
        let options = UnlockOptions {
            keyslot,
            ..UnlockOptions::default()
        };
        let keyslot = case.facts["unlock"][n]["keyslot"].as_u64();
        Some(Self {
            passphrase,
            options,
            keyslot,
        })
    }

    fn credential(&self) -> Credential {
        passphrase(&self.passphrase)
    }
}

fn passphrase(bytes: &[u8]) -> Credential {
    Credential::Passphrase(Secret::copy_of(bytes))
}

type Verdict = std::result::Result<(), String>;

fn judge(image: &Image<'_>) -> Verdict {
    match image.case.outcome() {
        "header_loads" => loads(image).map(|_| ()),
        "opens" | "passphrase_fits" => opens(image),
        "rejected" => rejected(image),
        "opens_or_rejected" => {
            let decided = DECIDED.iter().find(|(name, _)| *name == image.case.name());
            match decided {
                Some((_, true)) => opens(image),
                Some((_, false)) => rejected(image),
                None => Err("nothing is decided for it".into()),
            }
        }
        other => Err(format!("the outcome {other:?} is not known")),
    }
}

fn loads(image: &Image<'_>) -> std::result::Result<Header, String> {
    let header = image.load().map_err(|e| format!("doesn't load: {e}"))?;
    assert!(Header::probe(&*image.header).unwrap());
    assert_eq!(header.description()["format"], header.format());
    assert!(header.description_in_words().contains(header.format()));
    Ok(header)
}

fn rejected(image: &Image<'_>) -> Verdict {
    let error = match (image.load(), image.ways.is_empty()) {
        (Ok(_), true) => return Err("loads".into()),
        (Err(error), _) => error,
        (Ok(_), false) => match image.open() {
            Ok(_) => return Err("opens".into()),
            Err(error) => error,
        },
    };
    let kind = match image.case.reason() {
        "wrong_key" | "no_usable_keyslot" => ErrorKind::Permission,
        _ => ErrorKind::Device,
    };
    match error.kind() == kind {
        true => Ok(()),
        false => Err(format!(
            "rejected as {:?} instead of {kind:?}: {error}",
            error.kind()
        )),
    }
}

fn opens(image: &Image<'_>) -> Verdict {
    let header = loads(image)?;
    let description = header.description();
    for way in &image.ways {
        opens_by(image, &header, &description, way)?;
    }
    for wrong in list(&image.case.facts["must_not_unlock"]) {
        let credential = passphrase(wrong["passphrase"].as_str().unwrap().as_bytes());
        refused(
            header.unlock(&credential, &UnlockOptions::default()),
            ErrorKind::Permission,
            "",
        )?;
    }
    for unbound in list(&image.case.facts["unbound_keyslot"]) {
        let credential = passphrase(unbound["passphrase"].as_str().unwrap().as_bytes());
        let anywhere = UnlockOptions::default();
        refused(
            header.unlock(&credential, &anywhere),
            ErrorKind::Permission,
            "",
        )?;
        let keyslot = unbound["keyslot"].as_u64().map(|slot| slot as u32);
        let named = UnlockOptions {
            keyslot,
            ..anywhere
        };
        let key = header
            .unlock(&credential, &named)
            .map_err(|e| format!("unbound: {e}"))?;
        refused(
            image.volume(&header, &key, &named),
            ErrorKind::Permission,
            "bound",
        )?;
    }
    Ok(())
}

fn opens_by(image: &Image<'_>, header: &Header, description: &Value, way: &Way) -> Verdict {
    let mut options = way.options.clone();
    let cipher = description["cipher"].as_str().unwrap_or_default();
    if cipher.contains("cipher_null") {
        let refusal = header
            .unlock(&way.credential(), &options)
            .and_then(|key| image.volume(header, &key, &options));
        refused(refusal, ErrorKind::Device, "cipher_null")?;
        options.allow_null_cipher = true;
    }
    let opened = header.unlock(&way.credential(), &options);
    let key = opened.map_err(|e| format!("doesn't unlock: {e}"))?;
    if let (Some(expected), Some(slot)) = (way.keyslot, key.keyslot) {
        assert_eq!(u64::from(slot), expected, "key slot");
    }
    if let Some(hex) = image.case.facts["volume_key_hex"].as_str() {
        assert_eq!(hex::encode(&*key.key), hex, "volume key");
    }
    // The key itself opens, too, and none other does.
    let given = header.unlock(&Credential::VolumeKey(key.key.clone()), &options);
    assert_eq!(given.map_err(|e| e.to_string())?.digest, key.digest);
    let mut other = key.key.clone();
    other[0] ^= 1;
    refused(
        header.unlock(&Credential::VolumeKey(other), &options),
        ErrorKind::Permission,
        "",
    )?;

    let volume = image.volume(header, &key, &options);
    let category = image.case.category();
    if category == "luks2-reencrypt" {
        return refused(volume, ErrorKind::Device, "re-encryption");
    }
    if category == "luks2-integrity" {
        return refused(volume, ErrorKind::Device, "integrity");
    }
    if image.case.outcome() == "passphrase_fits" {
        return refused(volume, ErrorKind::Device, "data");
    }
    let volume = volume.map_err(|e| format!("doesn't map: {e}"))?;
    payload_is_right(image, &volume)
}

fn payload_is_right(image: &Image<'_>, volume: &Volume) -> Verdict {
    // What no other tool opened was made of a control image, and reads as that one does.
    let control = match image.case.category() {
        "luks1-malformed" => image.corpus.case("bad-l1-control"),
        "luks2-malformed" => image.corpus.case("bad-l2-control"),
        _ => None,
    };
    let payload = [Some(image.case), control]
        .into_iter()
        .flatten()
        .map(|case| payload(case.facts));
    let payload = payload
        .into_iter()
        .find(|payload| !payload.is_null())
        .unwrap_or(&Value::Null);
    let (length, sha256) = match (payload["length"].as_u64(), payload["sha256"].as_str()) {
        (Some(length), Some(sha256)) => (length, sha256),
        _ => return Err("its payload is not known".into()),
    };
    if volume.size_bytes != length {
        return Err(format!(
            "a volume of {} bytes, not {length}",
            volume.size_bytes
        ));
    }
    let computed = hex::encode(Sha256::digest(plaintext(volume, &*image.data)));
    match computed == sha256 {
        true => Ok(()),
        false => Err(format!("plaintext {computed}, not {sha256}")),
    }
}

/// The plaintext's length and hash: the manifest's, or that of the newest cryptsetup that opened
/// the image.
fn payload(facts: &Value) -> &Value {
    if !facts["payload"].is_null() {
        return &facts["payload"];
    }
    let newest = facts["exit_codes"]
        .as_object()
        .and_then(|versions| versions.values().next_back());
    newest.map_or(&Value::Null, |codes| &codes["payload"])
}

fn plaintext(volume: &Volume, data: &dyn Storage) -> Vec<u8> {
    let mut plaintext = Vec::new();
    for segment in &volume.segments {
        let mut bytes = vec![0; segment.len_bytes as usize];
        data.read_at(&mut bytes, segment.storage_offset_bytes)
            .unwrap();
        if let SegmentKind::Crypt(cipher) = &segment.kind {
            cipher.decrypt(&mut bytes, 0);
        }
        assert_eq!(segment.start_bytes, plaintext.len() as u64);
        plaintext.extend(bytes);
    }
    plaintext
}

/// A refusal of this kind whose text names `word`.
fn refused<T>(result: Result<T>, kind: ErrorKind, word: &str) -> Verdict {
    let error: Error = match result {
        Ok(_) => return Err(format!("should be refused ({word})")),
        Err(error) => error,
    };
    match error.kind() == kind && error.to_string().contains(word) {
        true => Ok(()),
        false => Err(format!(
            "refused as {:?}, not {kind:?} naming {word}: {error}",
            error.kind()
        )),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

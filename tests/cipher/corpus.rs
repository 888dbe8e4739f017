//! The plain dm-crypt images of the corpus beside the tree: their ciphertext was written by the
//! Linux kernel, their keys and tables are in its manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

/// `start length crypt cipher key iv_offset device start [n options…]`.
/// Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst`.
struct Table {
    len_bytes: usize,
    cipher: String,
    iv: IvOptions,
    data_offset_bytes: usize,
    sector_size: SectorSize,
}

impl Table {
    fn parse(line: &str) -> Self {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| fields[index].parse::<u64>().expect("a number");
        let options = fields.get(9..).unwrap_or_default();
        let sector_bytes = options
            .iter()
            .find_map(|option| option.strip_prefix("sector_size:"))
            .map_or(512, |bytes| bytes.parse().expect("a number"));
        Self {
            len_bytes: number(1) as usize * 512,
            cipher: fields[3].to_owned(),
            iv: IvOptions {
                offset_iv_units: number(5),
                large_sectors: options.contains(&"iv_large_sectors"),
            },
            data_offset_bytes: number(7) as usize * 512,
            sector_size: SectorSize::new(sector_bytes).expect("a sector size"),
        }
    }
}

#[test]
fn plain_images_decrypt_to_their_payload_and_back() {
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
    let images = manifest["images"].as_array().expect("a list");
    let (mut opened, mut refused) = (0, 0);
    for image in images.iter().filter(|image| image["category"] == "plain") {
        let name = image["name"].as_str().expect("a name");
        let (Some(key), Some(table)) =
            (image["volume_key_hex"].as_str(), image["dm_table"].as_str())
        else {
            continue;
        };
        let key = hex::decode(key).expect("hexadecimal");
        let table = Table::parse(table);
        let spec = CipherSpec::parse(&table.cipher).expect(name);
        let cipher = match SectorCipher::new(&spec, &key, table.sector_size, table.iv) {
            Ok(cipher) => cipher,
            Err(error) => {
                assert!(REFUSED.contains(&spec.cipher()), "{name}: {error}");
                assert!(error.what().contains(&spec.to_string()), "{name}: {error}");
                refused += 1;
                continue;
            }
        };

        let file = image["files"][0]["file"].as_str().expect("a file");
        let stored = unpacked(&corpus.join(file));
        let sealed = &stored[table.data_offset_bytes..][..table.len_bytes];
        let mut data = sealed.to_vec();
        cipher.decrypt(&mut data, 0);
        let payload = &image["payload"];
        let payload_bytes = payload["length"].as_u64().expect("a length") as usize;
        assert_eq!(
            hex::encode(Sha256::digest(&data[..payload_bytes])),
            payload["sha256"].as_str().expect("a sum"),
            "{name}"
        );
        cipher.encrypt(&mut data, 0);
        assert!(data == sealed, "{name}: encrypting again gives the image");
        opened += 1;
    }
    eprintln!("{opened} plain images opened, {refused} refused by name");
    assert!(
        opened >= 50,
        "the corpus has at least 50 such images, {opened} were opened"
    );
}

/// Loop-AES's key files: a key a line, hashed by SHA-512 for AES-256. What is done to the first byte
/// keeps keys of the formats apart. Source: the kernel's tables of these images.
#[test]
fn loop_aes_images_decrypt_and_back() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let sealed = |name: &str| corpus.join(format!("img/loopaes-{name}-keys-256.img.xz"));
    if !sealed("65").exists() || Command::new("xz").arg("--version").output().is_err() {
        eprintln!("skipped: no corpus at {}, or no xz", corpus.display());
        return;
    }
    let payload = "95c60d761a9629183869d96962d4735ef1606ce4f77c72a17e0573e901251f6d";
    for (count, spec, tweak) in [
        ("1", "aes-cbc-plain64", 0),
        ("65", "aes:64-cbc-lmk", 0xf4),
        ("65", "capi:cbc(aes)-lmk", 0xf4),
    ] {
        let lines = fs::read_to_string(corpus.join(format!("keys/loopaes-{count}.key"))).unwrap();
        let keys = lines.lines().map(|line| {
            let mut key = Sha512::digest(line)[..32].to_vec();
            key[0] ^= tweak;
            key
        });
        let key = keys.collect::<Vec<_>>().concat();
        let spec = CipherSpec::parse(spec).expect("good");
        let iv = IvOptions::default();
        let cipher = SectorCipher::new(&spec, &key, SectorSize::MIN, iv).expect("supported");
        let sealed = unpacked(&sealed(count));
        let mut data = sealed.clone();
        cipher.decrypt(&mut data, 0);
        assert_eq!(hex::encode(Sha256::digest(&data)), payload, "{spec}");
        cipher.encrypt(&mut data, 0);
        assert!(data == sealed, "{spec}: encrypting again gives the image");
    }
}

/// What no maintained crate has and hardly anyone uses.
const REFUSED: [&str; 2] = ["khazad", "seed"];

fn unpacked(path: &PathBuf) -> Vec<u8> {
    let output = Command::new("xz")
        .args(["-dc", "--"])
        .arg(path)
        .output()
        .expect("xz runs");
    assert!(output.status.success(), "xz: {}", path.display());
    output.stdout
}

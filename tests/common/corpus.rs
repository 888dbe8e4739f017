//! Encrypted images with known answers. `tests/images` is a small selection; the whole corpus is
//! used where it lies beside the tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::skipped;

/// The categories whose images have a LUKS header, good or bad.
pub const HEADERS: [&str; 12] = [
    "luks1",
    "luks1-qemu",
    "luks1-malformed",
    "luks2",
    "luks2-integrity",
    "luks2-reencrypt",
    "luks2-malformed",
    "luks2-generated-headers",
    "cs-luks1",
    "cs-luks1-evil",
    "cs-luks2",
    "cs-luks-conv",
];

/// A folder of images with its manifest.
pub struct Corpus {
    root: PathBuf,
    images: Vec<Value>,
}

/// One image of the manifest.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    corpus: &'a Corpus,
    pub facts: &'a Value,
}

/// An image unpacked into a folder.
#[derive(Debug)]
pub struct Unpacked {
    pub image: PathBuf,
    pub header: Option<PathBuf>,
}

impl Corpus {
    /// The selection in the tree.
    pub fn selection() -> Self {
        Self::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images"))
            .expect("tests/images/manifest.json is in the tree")
    }

    /// The whole corpus beside the tree, where it is; else the selection.
    pub fn largest() -> Self {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
        Self::open(&beside).unwrap_or_else(|| {
            skipped("the whole corpus beside the tree; the selection in tests/images is used");
            Self::selection()
        })
    }

    fn open(root: &Path) -> Option<Self> {
        let text = fs::read_to_string(root.join("manifest.json")).ok()?;
        let manifest: Value = serde_json::from_str(&text).expect("a manifest is JSON");
        let images = manifest["images"]
            .as_array()
            .expect("a manifest lists images")
            .clone();
        Some(Self {
            root: root.to_owned(),
            images,
        })
    }

    /// The images of some categories.
    pub fn cases<'a>(&'a self, categories: &'a [&str]) -> impl Iterator<Item = Case<'a>> {
        self.images
            .iter()
            .map(|facts| Case {
                corpus: self,
                facts,
            })
            .filter(|case| categories.contains(&case.category()))
    }

    /// The image of this name.
    pub fn case(&self, name: &str) -> Option<Case<'_>> {
        self.images
            .iter()
            .map(|facts| Case {
                corpus: self,
                facts,
            })
            .find(|case| case.name() == name)
    }
}

impl<'a> Case<'a> {
    pub fn name(&self) -> &'a str {
        self.facts["name"].as_str().expect("every image has a name")
    }

    pub fn category(&self) -> &'a str {
        self.facts["category"]
            .as_str()
            .expect("every image has a category")
    }

    /// `opens`, `rejected`, `header_loads`, …
    pub fn outcome(&self) -> &'a str {
        self.facts["expected"]["outcome"]
            .as_str()
            .expect("every image has an outcome")
    }

    /// Why it must be rejected.
    pub fn reason(&self) -> &'a str {
        self.facts["expected"]["reason"].as_str().unwrap_or("")
    }

    /// The SHA-256 of its whole plaintext, where that is known.
    pub fn payload_sha256(&self) -> Option<&'a str> {
        self.facts["payload"]["sha256"].as_str()
    }

    /// Unpacks its files into `folder`.
    pub fn unpack(&self, folder: &Path) -> Unpacked {
        let mut unpacked = Unpacked {
            image: PathBuf::new(),
            header: None,
        };
        for file in self.facts["files"]
            .as_array()
            .expect("every image has files")
        {
            let source = self
                .corpus
                .root
                .join(file["file"].as_str().expect("a file has a path"));
            let role = file["role"].as_str().expect("a file has a role");
            let target = folder.join(format!("{}.{role}", self.name()));
            match file["member"].as_str() {
                Some(member) => unpack_tar(&source, member, &target),
                None => unpack_xz(&source, &target),
            }
            match role {
                "header" => unpacked.header = Some(target),
                "image" => unpacked.image = target,
                _ => {}
            }
        }
        if let Some(size_bytes) = self.facts["extend_with_zeros_to"].as_u64() {
            let file = File::options().write(true).open(&unpacked.image).unwrap();
            file.set_len(size_bytes).unwrap();
        }
        unpacked
    }

    /// Flags that unlock it by the `n`th way the manifest names, with a key file in `folder`;
    /// `None` where it names no passphrase or key file.
    pub fn unlock_flags(&self, n: usize, folder: &Path) -> Option<Vec<String>> {
        let unlock = &self.facts["unlock"][n];
        let mut flags = Vec::new();
        let key_file = if let Some(path) = unlock["keyfile"].as_str() {
            self.corpus.root.join(path)
        } else {
            let path = folder.join(format!("{}.{n}.passphrase", self.name()));
            let passphrase = match unlock["passphrase_hex"].as_str() {
                Some(hex) => hex::decode(hex).expect("passphrase_hex is hexadecimal"),
                None => unlock["passphrase"].as_str()?.as_bytes().to_vec(),
            };
            fs::write(&path, passphrase).unwrap();
            path
        };
        flags.extend([
            "--key-file".to_owned(),
            key_file.to_str().unwrap().to_owned(),
        ]);
        for (field, flag) in [
            ("keyfile_offset", "--keyfile-offset"),
            ("keyfile_size", "--keyfile-size"),
        ] {
            if let Some(number) = unlock[field].as_u64() {
                flags.extend([flag.to_owned(), number.to_string()]);
            }
        }
        if let (Some(slot), Some(_)) = (unlock["keyslot"].as_u64(), unlock["only_with"].as_str()) {
            flags.extend(["--key-slot".to_owned(), slot.to_string()]);
        }
        Some(flags)
    }
}

impl Unpacked {
    /// The image, and its header where that is detached, as arguments.
    pub fn args(&self) -> Vec<String> {
        let mut args = vec![self.image.to_str().unwrap().to_owned()];
        if let Some(header) = &self.header {
            args.extend(["--header".to_owned(), header.to_str().unwrap().to_owned()]);
        }
        args
    }
}

fn unpack_xz(source: &Path, target: &Path) {
    let mut command = Command::new("xz");
    command.args(["--decompress", "--stdout"]).arg(source);
    run_into(&mut command, target);
}

fn unpack_tar(source: &Path, member: &str, target: &Path) {
    let mut command = Command::new("tar");
    command
        .args(["--extract", "--xz", "--to-stdout", "--file"])
        .arg(source)
        .arg(member);
    run_into(&mut command, target);
}

fn run_into(command: &mut Command, target: &Path) {
    let output = File::create(target).unwrap();
    let status = command.stdin(Stdio::null()).stdout(output).status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?}");
}

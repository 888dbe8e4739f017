//! The house is in order: rooms of a readable size, `unsafe` where it is listed, no stand-ins, and
//! documents that name what is there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of the largest room that can be read in one go.
const LINES_MAX: usize = 700;

/// The files that may use `unsafe`, and for what. Everywhere else the compiler refuses it.
const UNSAFE: [(&str, &str); 27] = [
    (
        "benches/foreign/src/bound.rs",
        "AES instructions alone, to compare with",
    ),
    (
        "benches/foreign/src/evp.rs",
        "calls of OpenSSL and AWS-LC, to compare with",
    ),
    (
        "benches/foreign/src/gcrypt.rs",
        "calls of libgcrypt, to compare with",
    ),
    (
        "benches/foreign/src/ticks.rs",
        "reading the time stamp counter",
    ),
    ("src/attach/block.rs", "ioctls of block devices"),
    ("src/attach/loop_device.rs", "ioctls of the loop driver"),
    (
        "src/attach/partitions.rs",
        "an ioctl that tells the kernel of partitions",
    ),
    ("src/buffer.rs", "page mappings of request buffers"),
    ("src/cli/bench/clock.rs", "reading the time stamp counter"),
    (
        "src/cli/terminal.rs",
        "signal masks while a passphrase is typed",
    ),
    (
        "src/cipher/adiantum/chacha_x86.rs",
        "vector instructions of XChaCha",
    ),
    (
        "src/cipher/adiantum/kernel.rs",
        "calls of kernels for CPU features",
    ),
    ("src/cipher/adiantum/nh_x86.rs", "vector instructions of NH"),
    (
        "src/cipher/camellia/x86.rs",
        "vector instructions of Camellia",
    ),
    (
        "src/cipher/serpent/x86.rs",
        "vector instructions of Serpent",
    ),
    (
        "src/cipher/twofish/x86.rs",
        "vector instructions of Twofish",
    ),
    (
        "src/cipher/x86/kernel.rs",
        "AES kernels over pointers to sectors",
    ),
    ("src/cipher/x86/mod.rs", "calls of kernels for CPU features"),
    ("src/cipher/x86/schedule.rs", "AES key schedules"),
    ("src/cipher/x86/vector.rs", "vector instructions of AES"),
    ("src/control/background.rs", "fork"),
    ("src/engines/probe.rs", "asking whether io_uring is there"),
    ("src/kdf/argon2.rs", "the page mapping of Argon2's memory"),
    ("src/queue/ring.rs", "memory that io_uring reads and writes"),
    ("src/secret.rs", "page mappings of secrets"),
    ("src/signals.rs", "a signal handler"),
    (
        "tests/kernel_matrix/device.rs",
        "ioctls of device-mapper, to compare with",
    ),
];

/// Licences of dependencies that permit linking into a program under any licence.
const PERMISSIVE: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unlicense",
    "Unicode-3.0",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every Rust file of the tree, relative to its root.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["src", "tests", "benches"]
        .into_iter()
        .map(|f| root().join(f))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name == "target") {
                continue; // A build's.
            } else if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    assert!(found.len() > 20, "the sources were not found");
    found
}

#[test]
fn no_room_is_too_large() {
    for path in sources() {
        let lines = read(path.to_str().unwrap()).lines().count();
        assert!(
            lines <= LINES_MAX,
            "{} has {lines} lines: split it by noun",
            path.display()
        );
    }
}

#[test]
fn unsafe_is_where_it_is_listed() {
    let mut found = BTreeSet::new();
    // Split, so that this file doesn't find itself.
    let allowance = concat!("#![allow(", "unsafe_code");
    let anywhere = concat!("allow(", "unsafe_code");
    for path in sources() {
        let path = path.to_str().unwrap();
        let text = read(path);
        if text.contains(anywhere) {
            assert!(
                text.contains(allowance),
                "{path}: allow it for the file, with the reason"
            );
            let line = text
                .lines()
                .find(|line| line.starts_with(allowance))
                .unwrap_or_default();
            assert!(
                line.contains("//"),
                "{path}: the allowance has no reason beside it"
            );
            found.insert(path.to_owned());
        }
    }
    let listed: BTreeSet<String> = UNSAFE.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(found, listed, "the list in this test and the files differ");
}

#[test]
fn nothing_stands_in_for_something() {
    let words = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
    ];
    for path in sources() {
        let text = read(path.to_str().unwrap());
        for word in words {
            assert!(!text.contains(word), "{} has {word}", path.display());
        }
        // A test that is left out says where it is run instead.
        let without_reason = text.split(concat!("#[", "ignore")).skip(1);
        for rest in without_reason {
            let reason = rest.starts_with(" = \"run by");
            assert!(reason, "{} leaves a test out", path.display());
        }
    }
}

#[test]
fn the_map_names_every_room() {
    let map = read("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let shown = if entry.path().is_dir() {
            format!("src/{name}/")
        } else {
            format!("src/{name}")
        };
        assert!(map.contains(&shown), "ARCHITECTURE.md doesn't name {shown}");
    }
    // And names nothing that isn't there.
    for word in map.split(|c: char| !(c.is_alphanumeric() || "/_.-".contains(c))) {
        let path = word.trim_end_matches('.');
        if ["src/", "tests/", "tools/"]
            .iter()
            .any(|start| path.starts_with(start))
        {
            assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}");
        }
    }
}

#[test]
fn the_documents_are_there_and_the_readme_names_every_verb() {
    for file in [
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "tests/images/README.md",
    ] {
        assert!(read(file).len() > 100, "{file} is empty");
    }
    let readme = read("README.md");
    for command in ["cargo run --release -- demo", "./tools/test"] {
        assert!(readme.contains(command), "README.md doesn't say {command}");
    }
    let help = Command::new(env!("CARGO_BIN_EXE_luks"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let verbs = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    let mut count = 0;
    for line in verbs
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
    {
        let verb = line.split_whitespace().next().unwrap();
        if verb != "help" {
            assert!(
                readme.contains(&format!("luks {verb}")),
                "README.md doesn't name {verb}"
            );
            count += 1;
        }
    }
    assert!(count >= 5, "{help}");
}

#[test]
fn scripts_can_be_run() {
    for script in [
        ".ci/run",
        "tools/test",
        "tools/vm-run",
        "tools/vm-crypto-modules",
        "tools/uml-run",
    ] {
        let mode = fs::metadata(root().join(script))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o111, 0o111, "{script} isn't executable");
    }
}

#[test]
fn images_in_the_tree_were_made_for_it() {
    for entry in fs::read_dir(root().join("tests/images/img")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let own = ["luks1-", "luks2-", "qemu-", "bad-"]
            .iter()
            .any(|start| name.starts_with(start));
        assert!(
            own,
            "{name}: its origin isn't told in tests/images/README.md"
        );
    }
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    if !output.status.success() {
        // Packages for other platforms may not be on this machine.
        eprintln!("skipped: needs the sources of all dependencies (cargo fetch)");
        return;
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(
            is_permissive(licence),
            "{} is under {licence}",
            package["name"]
        );
    }
}

/// Whether one alternative of the SPDX expression is permissive in all its parts. Enough for the
/// shapes in use: alternatives with at most one group in parentheses.
fn is_permissive(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    let of = |part: &str| PERMISSIVE.contains(&part.trim());
    flat.split(" AND ").all(|part| part.split(" OR ").any(of))
}

#[test]
fn the_licence_check_can_say_no() {
    assert!(is_permissive("MIT/Apache-2.0"));
    assert!(is_permissive("MIT OR Apache-2.0 OR LGPL-2.1-or-later"));
    assert!(is_permissive("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!is_permissive("GPL-2.0-or-later"));
    assert!(!is_permissive("MIT AND GPL-2.0-or-later"));
    assert!(!is_permissive("none"));
}

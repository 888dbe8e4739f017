//! Every image of the corpus through the whole command: what opens is byte for byte what dm-crypt
//! read, and what must be refused is, by name and exit code, within limits of time and memory.

mod common;

use std::path::Path;

use common::corpus::{Case, Corpus};
use common::{Ended, has_tool, run_luks};

const LUKS: [&str; 8] = [
    "luks1",
    "luks1-qemu",
    "luks2",
    "cs-luks1",
    "cs-luks2",
    "cs-luks-conv",
    "luks1-malformed",
    "luks2-malformed",
];
const REJECTS: [&str; 4] = [
    "cs-luks1-evil",
    "cs-luks2",
    "luks1-malformed",
    "luks2-malformed",
];

fn has_tools() -> bool {
    has_tool("nbdcopy", "libnbd-bin") && has_tool("xz", "xz-utils")
}

/// Serves the image to nbdcopy; stdout is the SHA-256 of what was read.
fn serve(case: Case<'_>, folder: &Path, flags: &[String]) -> Ended {
    let unpacked = case.unpack(folder);
    let mut args = vec!["serve".to_owned()];
    args.extend(unpacked.args());
    args.extend_from_slice(flags);
    let socket = folder.join(format!("{}.sock", case.name()));
    args.extend(["--socket".to_owned(), socket.to_str().unwrap().to_owned()]);
    args.extend([
        "--run".to_owned(),
        r#"nbdcopy -- "$uri" - | sha256sum"#.to_owned(),
    ]);
    let ended = run_luks(&args, b"");
    let _ = std::fs::remove_file(unpacked.image);
    ended
}

fn flags(case: Case<'_>, folder: &Path) -> Vec<String> {
    case.unlock_flags(0, folder)
        .unwrap_or_else(|| ["--key-file", "/dev/null"].map(Into::into).into())
}

fn assert_short(case: Case<'_>, ended: &Ended) {
    let lines = ended
        .stderr
        .lines()
        .filter(|line| !line.contains("warning: "))
        .count();
    assert!(
        (1..=3).contains(&lines),
        "{}: {}",
        case.name(),
        ended.stderr
    );
    assert!(
        !ended.stderr.contains("panicked"),
        "{}: {}",
        case.name(),
        ended.stderr
    );
}

#[test]
fn what_opens_reads_as_dm_crypt_read_it() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let mut opened = 0;
    for case in corpus.cases(&LUKS).filter(|case| case.outcome() == "opens") {
        let ways = case.facts["unlock"].as_array().unwrap().len();
        for way in 0..ways {
            let Some(mut flags) = case.unlock_flags(way, folder.path()) else {
                continue;
            };
            let name = case.name();
            if name.contains("cipher_null") {
                let refused = serve(case, folder.path(), &flags);
                assert_eq!(refused.code, Some(4), "{name}: {}", refused.stderr);
                assert!(refused.stderr.contains("--allow-null-cipher"), "{name}");
                flags.push("--allow-null-cipher".to_owned());
            }
            let ended = serve(case, folder.path(), &flags);
            assert_eq!(ended.code, Some(0), "{name} by way {way}: {}", ended.stderr);
            let sha256 = ended.stdout.split(' ').next();
            assert_eq!(
                sha256,
                case.payload_sha256(),
                "{name} by way {way}: {}",
                ended.stderr
            );
            opened += 1;
        }
    }
    assert!(opened >= 10, "only {opened} images opened");
    eprintln!("{opened} volumes read as dm-crypt read them");
}

#[test]
fn integrity_and_reencryption_are_refused_by_name() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    for (category, word) in [
        ("luks2-integrity", "integrity"),
        ("luks2-reencrypt", "reencrypt"),
    ] {
        for case in corpus.cases(&[category]) {
            let ended = serve(case, folder.path(), &flags(case, folder.path()));
            assert_eq!(ended.code, Some(4), "{}: {}", case.name(), ended.stderr);
            let stderr = ended.stderr.replace("re-encrypt", "reencrypt");
            assert!(stderr.contains(word), "{}: {}", case.name(), ended.stderr);
            assert_short(case, &ended);
        }
    }
}

/// The exit codes that cli.md gives to the manifest's reasons.
fn codes(case: Case<'_>) -> &'static [i32] {
    match case.reason() {
        "wrong_key" => &[2],
        // "No key slot opens" and "there is none to open" are told apart by the message.
        "no_usable_keyslot" => &[2, 4],
        // A KDF that needs more memory than there is may be said before it is said to be absurd.
        _ if case.name().contains("memory") => &[3, 4],
        _ => &[4],
    }
}

#[test]
fn what_must_be_refused_is_by_its_code() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let mut refused = 0;
    let cases = corpus
        .cases(&REJECTS)
        .chain(corpus.cases(&["luks1", "luks2"]));
    for case in cases.filter(|case| case.outcome() == "rejected") {
        let ended = serve(case, folder.path(), &flags(case, folder.path()));
        let (name, reason) = (case.name(), case.reason());
        assert!(
            ended.code.is_some_and(|code| codes(case).contains(&code)),
            "{name} ({reason}): {:?} {}",
            ended.code,
            ended.stderr
        );
        assert_eq!(ended.stdout, "", "{name} served something");
        assert_short(case, &ended);
        refused += 1;
    }
    assert!(refused >= 40, "only {refused} images refused");
}

#[test]
fn where_tools_differ_it_is_read_right_or_refused() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    for case in corpus
        .cases(&LUKS)
        .filter(|case| case.outcome() == "opens_or_rejected")
    {
        let ended = serve(case, folder.path(), &flags(case, folder.path()));
        let name = case.name();
        match ended.code {
            // Not every such image has its sum in the manifest: those are one good image, edited.
            Some(0) => assert_eq!(
                ended.stdout.split(' ').next(),
                case.payload_sha256()
                    .or(corpus.case("bad-l1-control").unwrap().payload_sha256()),
                "{name}"
            ),
            Some(4) => assert_short(case, &ended),
            _ => panic!("{name}: {:?} {}", ended.code, ended.stderr),
        }
    }
}

#[test]
fn keys_that_must_not_open_do_not() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    for case in corpus.cases(&["luks1", "luks2"]) {
        for (field, extra) in [("must_not_unlock", None), ("unbound_keyslot", Some("9"))] {
            for key in case.facts[field].as_array().into_iter().flatten() {
                let path = folder.path().join("key");
                std::fs::write(&path, key["passphrase"].as_str().unwrap()).unwrap();
                let mut flags = vec!["--key-file".to_owned(), path.to_str().unwrap().to_owned()];
                if let Some(slot) = extra {
                    flags.extend(["--key-slot".to_owned(), slot.to_owned()]);
                }
                let ended = serve(case, folder.path(), &flags);
                assert!(
                    matches!(ended.code, Some(2 | 4)),
                    "{}: {}",
                    case.name(),
                    ended.stderr
                );
                assert_eq!(ended.stdout, "");
            }
        }
    }
}

#[test]
fn headers_without_data_load_and_serve_nothing() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let categories = [
        "cs-luks1",
        "cs-luks2",
        "cs-luks-conv",
        "luks2-generated-headers",
    ];
    for case in corpus.cases(&categories) {
        let name = case.name();
        let unpacked = case.unpack(folder.path());
        let image = unpacked.image.to_str().unwrap();
        let dump = run_luks(&["dump", "--json", image], b"");
        match case.outcome() {
            "header_loads" | "passphrase_fits" | "opens" => {
                assert_eq!(dump.code, Some(0), "{name}: {}", dump.stderr);
                serde_json::from_str::<serde_json::Value>(&dump.stdout).expect(name);
            }
            "rejected" if categories[3] == case.category() => {
                assert_eq!(dump.code, Some(4), "{name}: {}", dump.stderr);
                assert_short(case, &dump);
            }
            _ => {}
        }
        if case.outcome() == "passphrase_fits" {
            let flags = case.unlock_flags(0, folder.path()).unwrap();
            let args = [
                ["open", "--test-passphrase", image]
                    .map(Into::into)
                    .to_vec(),
                flags,
            ]
            .concat();
            let ended = run_luks(&args, b"");
            assert_eq!(ended.code, Some(0), "{name}: {}", ended.stderr);
            let ended = serve(case, folder.path(), &flags_of(&args));
            assert_eq!(ended.code, Some(4), "{name}: {}", ended.stderr);
        }
    }
}

fn flags_of(open_args: &[String]) -> Vec<String> {
    open_args[3..].to_vec()
}

#[test]
fn other_formats_are_never_guessed() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    for (category, word) in [
        ("plain", "LUKS"),
        ("loopaes-made", "LUKS"),
        ("tcrypt-made", "LUKS"),
        ("cs-tcrypt", "LUKS"),
        ("cs-bitlk", "BitLocker"),
        ("cs-fvault2", "FileVault"),
    ] {
        for case in corpus.cases(&[category]) {
            let ended = serve(case, folder.path(), &flags(case, folder.path()));
            assert_eq!(ended.code, Some(4), "{}: {}", case.name(), ended.stderr);
            assert!(
                ended.stderr.contains(word),
                "{}: {}",
                case.name(),
                ended.stderr
            );
            assert_short(case, &ended);
        }
    }
}

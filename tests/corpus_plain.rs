//! Plain dm-crypt volumes through the whole command: what the kernel wrote is read byte for byte,
//! and nothing about a volume is guessed.

mod common;

use std::path::Path;

use common::corpus::{Case, Corpus};
use common::{Ended, has_tool, run_luks, skipped};
use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use sha2::{Digest, Sha256};

/// What no maintained crate has.
const REFUSED: [&str; 2] = ["khazad-cbc-plain64", "seed-cbc-plain64"];

fn has_tools() -> bool {
    has_tool("nbdcopy", "libnbd-bin") && has_tool("xz", "xz-utils")
}

/// Serves IMAGE to nbdcopy; stdout is the SHA-256 of what was read.
fn serve(folder: &Path, args: &[&str], stdin: &[u8]) -> Ended {
    let socket = folder.join("sock");
    let socket = socket.to_str().unwrap();
    let run = r#"nbdcopy -- "$uri" - | sha256sum"#;
    let ends = ["--socket", socket, "--run", run];
    run_luks(
        &[&["serve", "--type", "plain"], args, &ends].concat(),
        stdin,
    )
}

/// The flags of the cryptsetup command that opened the image, by their long names.
fn flags(case: Case<'_>) -> Vec<&str> {
    let command = case.facts["open"].as_str().unwrap();
    let flags = command
        .strip_prefix("cryptsetup open --type plain ")
        .expect("a command that opens a plain volume");
    let flags = flags.split(" IMG ").next().unwrap();
    let mut words = flags.split(' ').collect::<Vec<_>>();
    if let Some(at) = words.iter().position(|&word| word == "--key-file") {
        words.drain(at..at + 2);
    }
    for word in &mut words {
        if *word == "-h" {
            *word = "--hash";
        }
    }
    words
}

#[test]
fn images_read_as_the_kernel_wrote_them() {
    if !has_tools() {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let (mut opened, mut refused) = (0, 0);
    for case in corpus.cases(&["plain"]) {
        let name = case.name();
        let unpacked = case.unpack(folder.path());
        let unlock = &case.facts["unlock"][0];
        let mut args = vec![unpacked.image.to_str().unwrap()];
        args.extend(flags(case));
        let key = folder.path().join("key");
        let mut stdin = Vec::new();
        let key_file;
        if let Some(hex) = unlock["key_hex"].as_str() {
            std::fs::write(&key, hex::decode(hex).unwrap()).unwrap();
            args.extend(["--key-file", key.to_str().unwrap()]);
        } else if let Some(passphrase) = unlock["passphrase"].as_str() {
            stdin = passphrase.as_bytes().to_vec();
            if let Some(hex) = unlock["passphrase_hex"].as_str() {
                stdin = hex::decode(hex).unwrap();
            }
        } else {
            key_file = case.unlock_flags(0, folder.path()).unwrap();
            args.extend(key_file.iter().map(String::as_str));
        }
        if !args.contains(&"--cipher") && !args.contains(&"-c") {
            // It was opened with the defaults of cryptsetup 2.6.1.
            args.extend(["-c", "aes-cbc-essiv:sha256", "-s", "256"]);
        }
        if !stdin.is_empty() && !args.contains(&"--hash") {
            args.extend(["--hash", "ripemd160"]);
        }
        let ended = serve(folder.path(), &args, &stdin);
        let cipher = case.facts["cipher"].as_str().unwrap_or_default();
        if REFUSED.contains(&cipher) {
            assert_eq!(ended.code, Some(4), "{name}: {}", ended.stderr);
            assert!(ended.stderr.contains(cipher), "{name}: {}", ended.stderr);
            refused += 1;
            continue;
        }
        assert_eq!(ended.code, Some(0), "{name}: {}", ended.stderr);
        assert_eq!(ended.stderr, "", "{name}");
        let sha256 = ended.stdout.split(' ').next();
        assert_eq!(sha256, case.payload_sha256(), "{name}: {args:?}");
        opened += 1;
    }
    if opened == 0 {
        return skipped("plain images");
    }
    eprintln!("{opened} plain volumes read as the kernel wrote them, {refused} refused by name");
    assert!(opened >= 50 && refused == 2);
}

/// An image of zeros, 64 KiB.
fn zeros(folder: &Path) -> String {
    let path = folder.join("zeros");
    std::fs::write(&path, vec![0; 65536]).unwrap();
    path.to_str().unwrap().to_owned()
}

fn assert_refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    let lines = ended.stderr.lines().count();
    assert!((1..=3).contains(&lines), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
}

#[test]
fn there_are_no_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let image = zeros(folder.path());
    let historic = ["aes-cbc-essiv:sha256", "ripemd160", "aes-xts-plain64"];
    let full = ["-c", "aes-xts-plain64", "-s", "512", "--hash", "sha512"];
    for missing in [0, 2, 4] {
        let mut args = vec![image.as_str()];
        args.extend(&full[..missing]);
        args.extend(&full[missing + 2..]);
        let ended = serve(folder.path(), &args, b"pw\n");
        let flag = ["--cipher", "--key-size", "--hash"][missing / 2];
        assert_refused(&ended, 1, &[&[flag], &historic[..]].concat());
    }
    let ended = serve(folder.path(), &[&image], b"pw\n");
    assert_refused(&ended, 1, &["--cipher", "--key-size", "--hash"]);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let image = zeros(folder.path());
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 40]).unwrap();
    let key = key.to_str().unwrap();
    let with = |args: &[&str]| {
        let told = ["-c", "aes-xts-plain64", "-s", "256", "--key-file", key];
        let mut all = vec![image.as_str()];
        // A flag given twice is no flag of ours: the later takes the earlier's place here.
        for pair in told.chunks(2).filter(|pair| !args.contains(&pair[0])) {
            all.extend(pair);
        }
        all.extend(args);
        serve(folder.path(), &all, b"")
    };
    for (args, code, words) in [
        (&["-c", "aes-xts"][..], 1, &["aes-xts"][..]),
        (&["-c", "anubis-cbc-plain"], 4, &["anubis-cbc-plain"]),
        (&["-c", "cipher_null-ecb"], 4, &["--allow-null-cipher"]),
        (&["-c", "null"], 4, &["--allow-null-cipher"]),
        (&["-s", "255"], 1, &["255"]),
        (&["-s", "128"], 4, &["128"]),
        (&["-s", "0"], 1, &["0 bits"]),
        (&["-s", "512"], 1, &["40 bytes", "64"]),
        (&["-s", "18446744073709551608"], 1, &["bits"]),
        (&["--sector-size", "8192"], 1, &["8192"]),
        (&["--iv-large-sectors"], 1, &["--sector-size"]),
        (&["--sector-size", "4096", "--skip", "1"], 4, &["IV offset"]),
        (&["--sector-size", "4096", "--size", "9"], 4, &["4096"]),
        (&["--offset", "128"], 4, &["no data"]),
        (&["--offset", "36028797018963968"], 4, &["beyond"]),
        (&["--size", "129"], 4, &["129"]),
        (&["--hash", "sha257"], 1, &["sha257"]),
        (&["--keyfile-size", "8"], 1, &["32"]),
        (&["--key-file", "-", "--hash", "sha256"], 1, &["ambiguous"]),
        (&["--header", key], 1, &["--header"]),
        (&["--key-slot", "1"], 1, &["--key-slot"]),
    ] {
        assert_refused(&with(args), code, words);
    }
    let luks = ["open", "--test-passphrase", &image, "--type", "plain"];
    assert_refused(&run_luks(&luks, b"pw\n"), 1, &["plain"]);
    let auto = [
        "serve",
        &image,
        "--run",
        "true",
        "--cipher",
        "aes-xts-plain64",
    ];
    assert_refused(&run_luks(&auto, b"pw\n"), 1, &["--cipher", "--type plain"]);
    let auto = ["serve", &image, "--run", "true"];
    assert_refused(&run_luks(&auto, b"pw\n"), 4, &["LUKS"]);
}

#[test]
fn a_null_cipher_is_plaintext_where_it_is_allowed() {
    if !has_tools() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = zeros(folder.path());
    let args = [&image, "-c", "null", "--allow-null-cipher", "--size", "64"];
    let ended = serve(folder.path(), &args, b"");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // sha256sum of 32 KiB of zeros.
    let zeros = "c35020473aed1b4642cd726cad727b63fff2824ad68cedd7ffb73c7cbd890479";
    assert_eq!(ended.stdout.split(' ').next(), Some(zeros));
}

#[test]
fn equal_halves_of_an_xts_key_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let image = zeros(folder.path());
    let key = folder.path().join("key");
    for (bytes, weak) in [([7; 32], true), (std::array::from_fn(|i| i as u8), false)] {
        std::fs::write(&key, bytes).unwrap();
        let key = key.to_str().unwrap();
        let args = [
            "serve",
            "--type",
            "plain",
            &image,
            "--run",
            "true",
            "--key-file",
            key,
        ];
        let args = [&args[..], &["-c", "aes-xts-plain64", "-s", "256"]].concat();
        let ended = run_luks(&args, b"");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("halves"), weak, "{}", ended.stderr);
    }
}

#[test]
fn a_key_file_is_never_hashed() {
    if !has_tools() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = zeros(folder.path());
    let key: [u8; 64] = std::array::from_fn(|i| (i * 5) as u8);
    let file = folder.path().join("key");
    std::fs::write(&file, key).unwrap();
    // AES-XTS of zeros under the file's bytes as they are.
    let cipher = CipherSpec::parse("aes-xts-plain64").unwrap();
    let iv = IvOptions::default();
    let cipher = SectorCipher::new(&cipher, &key, SectorSize::MIN, iv).unwrap();
    let mut plain = vec![0; 65536];
    cipher.decrypt(&mut plain, 0);
    let expected = hex::encode(Sha256::digest(&plain));

    let flags = ["-c", "aes-xts-plain64", "-s", "512", "--key-file"];
    let args = [&[image.as_str()], &flags[..], &[file.to_str().unwrap()]].concat();
    for hash in [&[][..], &["--hash", "sha256"]] {
        let ended = serve(folder.path(), &[&args[..], hash].concat(), b"");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stdout.split(' ').next(), Some(expected.as_str()));
        let warned = ended.stderr.contains("a key file is never hashed");
        assert_eq!(warned, !hash.is_empty(), "{}", ended.stderr);
    }
}

//! What a person meets before a volume is served: keys, passphrases, exit codes, and errors that
//! say what to do.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::corpus::Corpus;
use common::{Ended, has_tool, luks, path_with_sbin, run_limited, run_luks, sparse_file, tool};
use serde_json::{Value, json};

/// A volume of the selection with its passphrase and volume key.
struct Volume {
    folder: tempfile::TempDir,
    image: String,
    passphrase: String,
    key_hex: String,
}

impl Volume {
    fn new(name: &str) -> Self {
        let corpus = Corpus::selection();
        let case = corpus.case(name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let image = case
            .unpack(folder.path())
            .image
            .to_str()
            .unwrap()
            .to_owned();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let passphrase = text(&case.facts["unlock"][0]["passphrase"]);
        Self {
            folder,
            image,
            passphrase,
            key_hex: text(&case.facts["volume_key_hex"]),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Asks for the volume key, which the manifest knows: proof that it was unlocked.
    fn key(&self, flags: &[&str], stdin: impl AsRef<[u8]>) -> Ended {
        let args = [&["dump", "--volume-key", &self.image], flags].concat();
        run_luks(&args, stdin.as_ref())
    }

    fn assert_opens(&self, ended: &Ended) {
        assert_eq!(
            (ended.code, ended.stdout.trim()),
            (Some(0), &*self.key_hex),
            "{ended:?}"
        );
    }
}

#[track_caller]
fn assert_fails(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!((1..=3).contains(&ended.stderr.lines().count()), "{ended:?}");
    assert_eq!(ended.stdout, "");
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "{word} isn't in: {}",
            ended.stderr
        );
    }
}

fn has_xz() -> bool {
    has_tool("xz", "xz-utils")
}

#[test]
fn a_key_file_is_taken_as_it_is_and_a_passphrase_as_a_line() {
    if !has_xz() {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let passphrase = volume.passphrase.as_str();
    let exact = volume.write("exact", passphrase);
    let with_newline = volume.write("newline", format!("{passphrase}\n"));
    let other = volume.write("other", "something else\n");

    volume.assert_opens(&volume.key(&["--key-file", &exact], ""));
    volume.assert_opens(&volume.key(&["-d", "-"], passphrase));
    volume.assert_opens(&volume.key(&[], format!("{passphrase}\n")));
    volume.assert_opens(&volume.key(&[], passphrase));
    // The newline counts, and the error says so; only where it is what's wrong.
    assert_fails(
        &volume.key(&["--key-file", &with_newline], ""),
        2,
        &["ends in a newline"],
    );
    let ended = volume.key(&["--key-file", "-"], format!("{passphrase}\n"));
    assert_fails(&ended, 2, &["ends in a newline"]);
    let ended = volume.key(&["--key-file", &other], "");
    assert_fails(&ended, 2, &[]);
    assert!(!ended.stderr.contains("newline"), "{ended:?}");
    // Without a key file the error says what was tried.
    assert_fails(
        &volume.key(&[], "wrong\n"),
        2,
        &["first line of standard input"],
    );
    // A part of a key file.
    let inside = volume.write("inside", format!("12345{passphrase}67"));
    let size = passphrase.len().to_string();
    let flags = [
        "-d",
        &inside,
        "--keyfile-offset",
        "5",
        "--keyfile-size",
        &size,
    ];
    volume.assert_opens(&volume.key(&flags, ""));
}

#[test]
fn a_key_with_a_newline_in_it_is_never_cut() {
    if !has_tool("cryptsetup", "cryptsetup-bin") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut key: Vec<u8> = (0..64u8).map(|n| n.wrapping_mul(37) ^ 11).collect();
    key[3] = b'\n';
    fs::write(path("key"), &key).unwrap();
    sparse_file(Path::new(&path("image")), 4 << 20);
    let format = "cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 $0 $1";
    tool("sh", &[&"-c", &format, &path("image"), &path("key")]);
    let key_of = |flags: &[&str], stdin: &[u8]| {
        run_luks(
            &[&["dump", "--volume-key", &path("image")], flags].concat(),
            stdin,
        )
    };
    let by_file = key_of(&["--key-file", &path("key")], b"");
    assert_eq!(by_file.code, Some(0), "{by_file:?}");
    assert_eq!(key_of(&["--key-file", "-"], &key).stdout, by_file.stdout);
    for cut in [&key[..3], &key[..4]] {
        assert_fails(&key_of(&["--key-file", "-"], cut), 2, &[]);
        assert_fails(&key_of(&[], cut), 2, &[]);
    }
}

#[test]
fn equal_halves_of_a_luks_volumes_xts_key_are_warned_of() {
    if !has_tool("cryptsetup", "cryptsetup-bin") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("key"), "a key").unwrap();
    let format = "cryptsetup luksFormat -q --type $0 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
                  --cipher $1 --key-size 256 --volume-key-file $2 $3 $4";
    let halves = [7; 32];
    let whole: [u8; 32] = std::array::from_fn(|i| i as u8);
    for (kind, cipher, volume_key, weak) in [
        ("luks1", "aes-xts-plain64", halves, true),
        ("luks2", "aes-xts-plain64", halves, true),
        ("luks2", "aes-xts-plain64", whole, false),
        // Other modes have no halves.
        ("luks2", "aes-cbc-essiv:sha256", halves, false),
    ] {
        fs::write(path("volume"), volume_key).unwrap();
        let image = path("image");
        let _ = fs::remove_file(&image);
        sparse_file(Path::new(&image), 24 << 20);
        tool(
            "sh",
            &[
                &"-c",
                &format,
                &kind,
                &cipher,
                &path("volume"),
                &image,
                &path("key"),
            ],
        );
        let args = ["serve", &image, "--key-file", &path("key"), "--run", "true"];
        let ended = run_luks(&args, b"");
        assert_eq!(ended.code, Some(0), "{kind} {cipher}: {ended:?}");
        let warned = ended.stderr.contains("halves of its XTS key are equal");
        assert_eq!(warned, weak, "{kind} {cipher}: {ended:?}");
    }
}

#[test]
fn tries_are_counted() {
    if !has_xz() {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let right = volume.passphrase.as_str();
    let ended = volume.key(&["--tries", "3"], format!("a\nb\n{right}\n"));
    volume.assert_opens(&ended);
    assert_eq!(ended.stderr.lines().count(), 2, "{ended:?}");
    let ended = volume.key(&["--tries", "2"], format!("a\nb\n{right}\n"));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("2 of 2 tries failed"), "{ended:?}");
    let ended = volume.key(&["--tries", "3"], "a\n");
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("1 try failed"), "{ended:?}");
    assert_fails(&volume.key(&[], ""), 1, &["no passphrase"]);
    assert_fails(&volume.key(&[], [b'x'; 513]), 1, &["512"]);
}

/// Runs `luks` on a terminal; see `terminal.py`.
fn on_a_terminal(script: Value, args: &[&str]) -> Value {
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/terminal.py");
    let mut command = Command::new("python3");
    command
        .arg(helper)
        .arg(script.to_string())
        .arg(luks())
        .args(args);
    let ended = run_limited(&mut command, b"");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_terminal_is_asked_three_times_without_echo() {
    if !has_xz() || !has_tool("python3", "python3") {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let right = volume.passphrase.as_str();
    let args = ["dump", "--volume-key", &volume.image];
    let prompt = format!("Enter passphrase for {}: ", volume.image);

    let wrong = json!([[prompt, "one\n"], [prompt, "two\n"], [prompt, "three\n"]]);
    let end = on_a_terminal(wrong, &args);
    let output = end["output"].as_str().unwrap();
    assert_eq!(
        (&end["code"], &end["restored"]),
        (&json!(2), &json!(true)),
        "{end}"
    );
    assert!(output.contains("3 of 3 tries failed"), "{output}");
    assert!(
        !["one", "two", "three"]
            .iter()
            .any(|typed| output.contains(typed)),
        "{output}"
    );

    // The keys that edit a line: a character back (of two bytes), and the whole line.
    let edited = format!("nonsense\u{15}{right}\u{e4}\u{7f}\n");
    let end = on_a_terminal(json!([[prompt, "wrong\n"], [prompt, edited]]), &args);
    assert_eq!(
        (&end["code"], &end["restored"]),
        (&json!(0), &json!(true)),
        "{end}"
    );
    let output = end["output"].as_str().unwrap();
    assert!(
        output.contains(&volume.key_hex) && !output.contains(right),
        "{output}"
    );

    // Ctrl-C and Ctrl-D.
    let end = on_a_terminal(json!([[prompt, "half\u{3}"]]), &args);
    assert_eq!(
        (&end["code"], &end["restored"]),
        (&json!(-2), &json!(true)),
        "{end}"
    );
    let end = on_a_terminal(json!([[prompt, "\u{4}"]]), &args);
    assert_eq!(
        (&end["code"], &end["restored"]),
        (&json!(1), &json!(true)),
        "{end}"
    );
}

#[test]
fn open_asks_on_the_terminal_too() {
    if !has_xz() || !has_tool("python3", "python3") {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let name = format!("asks-{}", std::process::id());
    let args = ["open", "--attach", "none", &volume.image, &name];
    let prompt = format!("Enter passphrase for {}: ", volume.image);
    let end = on_a_terminal(json!([[prompt, "half\u{3}"]]), &args);
    assert_ne!(end["code"], json!(0), "{end}");
    assert_eq!(end["restored"], json!(true), "{end}");
    let right = format!("{}\n", volume.passphrase);
    let end = on_a_terminal(json!([[prompt, "wrong\n"], [prompt, right]]), &args);
    assert_eq!(
        (&end["code"], &end["restored"]),
        (&json!(0), &json!(true)),
        "{end}"
    );
    assert!(
        end["output"]
            .as_str()
            .unwrap()
            .contains("nbd+unix:///?socket="),
        "{end}"
    );
    let closed = run_luks(&["close", &name], b"");
    assert_eq!(closed.code, Some(0), "{closed:?}");
}

#[test]
fn test_passphrase_says_by_its_code() {
    if !has_xz() {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let args = ["open", "--test-passphrase", &volume.image];
    let ended = run_luks(&args, volume.passphrase.as_bytes());
    assert_eq!(
        (ended.code, &*ended.stdout, &*ended.stderr),
        (Some(0), "", "")
    );
    assert_fails(&run_luks(&args, b"wrong"), 2, &[]);
}

#[test]
fn a_detached_header_needs_its_data_and_data_their_header() {
    if !has_xz() || !has_tool("nbdcopy", "libnbd-bin") {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    for name in ["luks1-detached-header", "luks2-detached-header"] {
        let Some(case) = corpus.case(name) else {
            continue;
        };
        let unpacked = case.unpack(folder.path());
        let image = unpacked.image.to_str().unwrap();
        let header = unpacked.header.as_ref().unwrap().to_str().unwrap();
        let key = case.unlock_flags(0, folder.path()).unwrap();
        let serve = |more: &[&str]| {
            let run = ["--run", r#"nbdcopy -- "$uri" - | sha256sum"#];
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            run_luks(&[&["serve"], more, &key, &run].concat(), b"")
        };
        let both = serve(&[image, "--header", header]);
        assert_eq!(
            both.stdout.split(' ').next(),
            case.payload_sha256(),
            "{both:?}"
        );
        assert_fails(&serve(&[image]), 4, &["no LUKS header", "--header FILE"]);
        assert_fails(&serve(&[header]), 4, &["a LUKS header only", "--header "]);
    }
}

#[test]
fn a_null_cipher_has_to_be_meant() {
    if !has_xz() || !has_tool("nbdcopy", "libnbd-bin") {
        return;
    }
    let corpus = Corpus::largest();
    let folder = tempfile::tempdir().unwrap();
    let cases = corpus
        .cases(&["luks1", "luks2"])
        .filter(|c| c.name().contains("cipher_null"));
    let mut count = 0;
    for case in cases {
        let unpacked = case.unpack(folder.path());
        let key = case.unlock_flags(0, folder.path()).unwrap();
        let mut args = vec!["serve".to_owned(), unpacked.args().remove(0)];
        args.extend([
            "--run".to_owned(),
            r#"nbdcopy -- "$uri" - | sha256sum"#.to_owned(),
        ]);
        args.extend(key);
        assert_fails(
            &run_luks(&args, b""),
            4,
            &["null cipher", "--allow-null-cipher"],
        );
        args.push("--allow-null-cipher".to_owned());
        let ended = run_luks(&args, b"");
        assert_eq!(
            ended.stdout.split(' ').next(),
            case.payload_sha256(),
            "{ended:?}"
        );
        count += 1;
    }
    if count == 0 {
        common::skipped("images with a null cipher (the whole corpus)");
    }
}

#[test]
fn a_signal_from_elsewhere_leaves_the_terminal_as_it_was() {
    if !has_xz() || !has_tool("python3", "python3") {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let luks = luks();
    let script = format!(
        "{} dump --volume-key {} </dev/tty & pid=$!; sleep 0.5; kill -TERM $pid; wait $pid",
        luks.display(),
        volume.image
    );
    // A child in the foreground's process group, ended by another.
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/terminal.py");
    let mut command = Command::new("python3");
    command
        .arg(helper)
        .arg(json!([]).to_string())
        .args(["bash", "-c"]);
    command.arg(script);
    let ended = run_limited(&mut command, b"");
    let end: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(
        end["output"].as_str().unwrap().contains("Enter passphrase"),
        "{end}"
    );
    assert_eq!(
        (&end["code"], &end["restored"]),
        (&json!(128 + 15), &json!(true)),
        "{end}"
    );
}

#[test]
fn what_is_no_volume_is_exit_4_and_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("short"), [b'L'; 511]).unwrap();
    fs::write(path("magic"), b"LUKS\xba\xbe\0\x01").unwrap();
    fs::write(path("magic2"), b"LUKS\xba\xbe\0\x02").unwrap();
    sparse_file(Path::new(&path("zeros")), 8 << 20);
    fs::create_dir(path("folder")).unwrap();
    tool("mkfifo", &[&path("fifo")]);
    for (name, words) in [
        ("empty", "empty"),
        ("short", "--header"),
        ("magic", ""),
        ("magic2", ""),
        ("zeros", "zeros only"),
        ("folder", "not a regular file"),
        ("fifo", "not a regular file"),
        ("missing", "No such file"),
    ] {
        for verb in ["uuid", "dump"] {
            assert_fails(
                &run_luks(&[verb, &path(name)], b""),
                4,
                &[words, &path(name)],
            );
        }
        assert_eq!(
            run_luks(&["is-luks", &path(name)], b"").code,
            Some(4),
            "{name}"
        );
    }
    let ended = run_luks(&["uuid", "--type", "plain", &path("zeros")], b"");
    assert_fails(&ended, 4, &["plain"]);
    let ended = run_luks(&["uuid", "--type", "plane", &path("zeros")], b"");
    assert_fails(&ended, 1, &["luks1"]);
}

#[test]
fn a_damaged_header_copy_is_warned_of_and_two_are_refused() {
    if !has_xz() {
        return;
    }
    let volume = Volume::new("luks2-aes-cbc-plain64-128-s4096");
    let image = File::options()
        .read(true)
        .write(true)
        .open(&volume.image)
        .unwrap();
    let intact = run_luks(&["uuid", &volume.image], b"");
    assert_eq!((intact.code, &*intact.stderr), (Some(0), ""));
    let damage = |offset: u64| {
        let mut byte = [0];
        image.read_exact_at(&mut byte, offset).unwrap();
        image.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    };
    for offset in [4096 + 100, 16384 + 4096 + 100] {
        damage(offset);
        let ended = run_luks(&["uuid", &volume.image], b"");
        assert_eq!(
            (ended.code, &ended.stdout),
            (Some(0), &intact.stdout),
            "{ended:?}"
        );
        assert!(ended.stderr.contains("warning") && ended.stderr.contains("luks repair"));
        damage(offset);
    }
    damage(4096 + 100);
    damage(16384 + 4096 + 100);
    assert_fails(&run_luks(&["uuid", &volume.image], b""), 4, &["both"]);
}

#[test]
fn a_volume_in_a_partition_is_found_and_named() {
    if !has_xz() || !has_tool("sfdisk", "fdisk") {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let disk = volume.path("disk");
    sparse_file(&disk, 16 << 20);
    let table = "label: gpt\nunit: sectors\n1: start=2048, size=2048\n2: start=8192, size=4096\n";
    let script = volume.write("table", table);
    let mut sfdisk = Command::new("sfdisk");
    sfdisk
        .env("PATH", path_with_sbin())
        .arg("--quiet")
        .arg(&disk);
    let status = sfdisk
        .stdin(File::open(script).unwrap())
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&fs::read(&volume.image).unwrap(), 8192 * 512)
        .unwrap();

    let uuid = run_luks(&["uuid", &volume.image], b"").stdout;
    let disk = disk.to_str().unwrap();
    assert_fails(
        &run_luks(&["uuid", disk], b""),
        4,
        &["GPT", "--partition 2"],
    );
    for flags in [["--partition", "2"], ["--image-offset", "4194304"]] {
        let ended = run_luks(&["uuid", disk, flags[0], flags[1]], b"");
        assert_eq!(
            (ended.code, ended.stdout),
            (Some(0), uuid.clone()),
            "{}",
            ended.stderr
        );
    }
    assert_fails(
        &run_luks(&["uuid", disk, "--partition", "1"], b""),
        4,
        &["zeros only"],
    );
    assert_fails(
        &run_luks(&["uuid", disk, "--partition", "3"], b""),
        4,
        &["1, 2"],
    );
    assert_fails(&run_luks(&["uuid", disk, "--partition", "0"], b""), 1, &[]);
}

#[test]
fn the_commands_named_for_a_qcow2_image_open_it() {
    let tools = [
        ("qemu-img", "qemu-utils"),
        ("qemu-nbd", "qemu-utils"),
        ("nbdfuse", "nbdfuse"),
        ("fusermount3", "fuse3"),
    ];
    if !has_xz() || !tools.iter().all(|(tool, package)| has_tool(tool, package)) {
        return;
    }
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        common::skipped("/dev/fuse");
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let qcow2 = volume.path("disk.qcow2");
    tool(
        "qemu-img",
        &[
            &"convert",
            &"-f",
            &"raw",
            &"-O",
            &"qcow2",
            &volume.image,
            &qcow2,
        ],
    );
    let ended = run_luks(&["uuid", qcow2.to_str().unwrap()], b"");
    assert_fails(&ended, 4, &["qcow2", "qemu-nbd", "nbdfuse"]);

    // Exactly what the hint says, up to where a person goes on.
    let hint = ended.stderr.split("try: ").nth(1).unwrap();
    let (commands, _) = hint.split_once(" & then open raw/nbd").unwrap();
    let script = format!(
        "{commands} & for n in $(seq 50); do [ -e raw/nbd ] && break; sleep 0.1; done; \
         {} uuid raw/nbd; fusermount3 -u raw; wait",
        luks().display()
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .current_dir(volume.folder.path());
    let through_the_chain = run_limited(&mut command, b"");
    let uuid = run_luks(&["uuid", &volume.image], b"").stdout;
    assert_eq!(through_the_chain.stdout, uuid, "{through_the_chain:?}");
}

#[test]
fn help_and_version_are_exit_0_on_stdout() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["uuid", "--help"],
        &["help", "dump"],
    ] {
        let ended = run_luks(args, b"");
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{args:?}");
        assert!(ended.stdout.contains("luks"));
    }
    assert_fails(&run_luks::<&str>(&[], b""), 1, &[]);
    assert_fails(
        &run_luks(&["uuid", "--no-such-flag", "x"], b""),
        1,
        &["--no-such-flag"],
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    if !has_xz() {
        return;
    }
    let volume = Volume::new("luks1-aes-128-sha256");
    let script = format!("{} dump --json {} | true", luks().display(), volume.image);
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{script}; echo ${{PIPESTATUS[0]}}")]);
    let ended = run_limited(&mut command, b"");
    assert_eq!((&*ended.stdout, &*ended.stderr), ("0\n", ""));
}

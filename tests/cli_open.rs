//! `open`, `close` and `status` as scripts meet them: what is printed, what is left, who may come
//! in, and what happens when a server dies.

mod common;

use nbdcrypt::cipher::CpuEngine;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::corpus::Corpus;
use common::{Ended, has_tool, luks, path_with_sbin, run_limited, tool};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// An image of the selection, and a runtime folder of its own, so that tests don't meet.
struct Bench {
    folder: tempfile::TempDir,
    image: String,
    key: String,
    payload_sha256: String,
}

impl Bench {
    /// `None` where the image can't be unpacked.
    fn new() -> Option<Self> {
        if !has_tool("xz", "xz-utils") {
            return None;
        }
        let corpus = Corpus::selection();
        let case = corpus.case("luks2-aes-xts-plain64-256-s2048").unwrap();
        let folder = tempfile::Builder::new().prefix("l").tempdir().unwrap();
        fs::DirBuilder::new()
            .mode(0o700)
            .create(folder.path().join("run"))
            .unwrap();
        let image = case.unpack(folder.path()).image;
        let flags = case.unlock_flags(0, folder.path()).unwrap();
        Some(Self {
            image: image.to_str().unwrap().to_owned(),
            key: flags[1].clone(),
            payload_sha256: case.payload_sha256().unwrap().to_owned(),
            folder,
        })
    }

    fn luks(&self, args: &[&str]) -> Ended {
        run_limited(&mut self.command(luks(), args), b"")
    }

    fn command(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("XDG_RUNTIME_DIR", self.folder.path().join("run"))
            .env("PATH", path_with_sbin());
        command
    }

    fn open(&self, name: &str, how: &str) -> Ended {
        self.open_on(name, how, "auto")
    }

    fn open_on(&self, name: &str, how: &str, engine: &str) -> Ended {
        self.luks(&[
            "open",
            &self.image,
            name,
            "--key-file",
            &self.key,
            "--attach",
            how,
            "--engine",
            engine,
        ])
    }

    /// Opens it without attaching it; its URI.
    fn open_plainly(&self, name: &str) -> String {
        let ended = self.open(name, "none");
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        ended.stdout.trim_end().to_owned()
    }

    fn status(&self, name: &str) -> Value {
        let ended = self.luks(&["status", name, "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    }

    fn volumes(&self) -> Vec<Value> {
        let ended = self.luks(&["status", "--json"]);
        let list: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(list["schema"], 1);
        list["volumes"].as_array().unwrap().clone()
    }

    fn signal(&self, name: &str, signal: Signal) {
        let pid = self.status(name)["pid"].as_i64().unwrap() as i32;
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// The folder of all that is open.
    fn state(&self) -> PathBuf {
        self.folder.path().join("run/luks")
    }

    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state()).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }

    fn wait_until_nothing_is_left(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while !self.left().is_empty() {
            assert!(Instant::now() < end, "left: {:?}", self.left());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Bench {
    /// A failed test must leave no server and no mount.
    fn drop(&mut self) {
        for name in fs::read_dir(self.state()).into_iter().flatten().flatten() {
            let name = name.file_name().into_string().unwrap();
            let text = fs::read(self.state().join(&name).join("state.json")).unwrap_or_default();
            let state: Value = serde_json::from_slice(&text).unwrap_or_default();
            let pid = state["pid"]
                .as_i64()
                .and_then(|pid| Pid::from_raw(pid as i32));
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::KILL);
            }
            sleep(Duration::from_millis(100));
        }
        let _ = self.command(luks(), &["status"]).output();
    }
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn open_serves_in_the_background_and_close_ends_it() {
    let Some(bench) = Bench::new() else { return };
    let uri = bench.open_plainly("vol");
    let socket = bench.state().join("vol/nbd.sock");
    assert_eq!(uri, format!("nbd+unix:///?socket={}", socket.display()));
    assert_eq!(
        [mode(bench.state()), mode(bench.state().join("vol"))],
        [0o700, 0o700]
    );
    assert_eq!(
        [mode(&socket), mode(bench.state().join("vol/control.sock"))],
        [0o600, 0o600]
    );

    if has_tool("nbdcopy", "libnbd-bin") {
        let copy = bench.folder.path().join("copy");
        tool("nbdcopy", &[&uri, &copy]);
        let sum = hex::encode(Sha256::digest(fs::read(copy).unwrap()));
        assert_eq!(sum, bench.payload_sha256);
        let status = bench.status("vol");
        assert_eq!(status["bytes_read"], status["size_bytes"]);
        assert!(status["requests"]["read"].as_u64() > Some(0));
        assert!(status["cpu_us"].as_u64() > Some(0));
    }

    let again = bench.open("vol", "none");
    assert_eq!((again.code, &*again.stdout), (Some(5), ""), "{again:?}");
    let closed = bench.luks(&["close", "vol"]);
    assert_eq!(
        (closed.code, &*closed.stdout, &*closed.stderr),
        (Some(0), "", "")
    );
    assert!(bench.left().is_empty());
    assert_eq!(bench.luks(&["close", "vol"]).code, Some(4));
    assert_eq!(bench.luks(&["status", "vol"]).code, Some(4));
    assert!(bench.volumes().is_empty());
}

#[test]
fn status_tells_what_scripts_rely_on() {
    let Some(bench) = Bench::new() else { return };
    let uri = bench.open_plainly("vol");
    let status = bench.status("vol");
    for (field, value) in [
        ("schema", Value::from(1)),
        ("name", "vol".into()),
        ("state", "open".into()),
        ("device", Value::Null),
        ("attach", "none".into()),
        ("uri", uri.as_str().into()),
        (
            "image",
            fs::canonicalize(&bench.image).unwrap().to_str().into(),
        ),
        ("format", "luks2".into()),
        ("cipher", "aes-xts-plain64".into()),
        ("key_bits", 256.into()),
        ("sector_size_bytes", 2048.into()),
        ("size_bytes", 32768.into()),
        ("read_only", false.into()),
        ("in_use", Value::Null),
        ("engine", format!("cpu:{}", CpuEngine::in_use()).into()),
        ("bytes_read", 0.into()),
        ("bytes_written", 0.into()),
        ("copied_bytes", 0.into()),
        ("backlog_events", 0.into()),
    ] {
        assert_eq!(status[field], value, "{field}");
    }
    for kind in ["read", "write", "flush", "trim", "zero"] {
        assert_eq!(status["requests"][kind], 0, "{kind}");
    }
    for field in ["engine_requests", "fallbacks", "requests"] {
        assert!(status[field].is_object(), "{field}");
    }
    let words = bench.luks(&["status", "vol"]).stdout;
    assert!(
        words.starts_with("vol is open\n") && words.contains(&uri),
        "{words}"
    );
    let line = bench.luks(&["status"]).stdout;
    assert_eq!(
        line.split('\t').take(3).collect::<Vec<_>>(),
        ["vol", "open", &uri]
    );
    assert_eq!(bench.luks(&["close", "vol"]).code, Some(0));
}

#[test]
fn the_server_keeps_nothing_of_its_caller() {
    let Some(bench) = Bench::new() else { return };
    // The pipe has three ends at the command, one of them where nobody looks; `cat` waits for all.
    let script = "timeout 10 sh -c '\"$0\" open \"$1\" vol --key-file /dev/fd/5 --attach none \
                  2>&1 7>&1 5<\"$2\" | cat' \"$0\" \"$1\" \"$2\"";
    let luks = luks();
    let args = [
        "-c",
        script,
        luks.to_str().unwrap(),
        &bench.image,
        &bench.key,
    ];
    let output = bench.command("sh", &args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?} {text}", output.status);
    assert!(text.starts_with("nbd+unix:"), "{text}");

    let pid = bench.status("vol")["pid"].to_string();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let (session, terminal) = (fields[3], fields[4]);
    assert_eq!(
        (session, terminal),
        (&*pid, "0"),
        "a session of its own, without a terminal"
    );
    assert_eq!(bench.luks(&["close", "vol"]).code, Some(0));
}

#[test]
fn failures_have_their_codes_and_leave_nothing() {
    let Some(bench) = Bench::new() else { return };
    let wrong = bench.folder.path().join("wrong");
    fs::write(&wrong, "wrong").unwrap();
    let cases: [(&[&str], i32); 6] = [
        (
            &[
                "open",
                &bench.image,
                "vol",
                "--key-file",
                wrong.to_str().unwrap(),
            ],
            2,
        ),
        (
            &["open", "/nonexistent", "vol", "--key-file", &bench.key],
            4,
        ),
        (&["open", &bench.image, "a/b", "--key-file", &bench.key], 1),
        (&["open", &bench.image, "..", "--key-file", &bench.key], 1),
        (&["open", &bench.image, "vol", "--attach", "usb"], 1),
        (&["open", &bench.image], 1),
    ];
    for (args, code) in cases {
        let ended = bench.luks(args);
        assert_eq!(
            (ended.code, &*ended.stdout),
            (Some(code), ""),
            "{args:?} {ended:?}"
        );
        assert!(
            (1..=3).contains(&ended.stderr.lines().count()),
            "{}",
            ended.stderr
        );
        if bench.state().exists() {
            assert!(bench.left().is_empty(), "{args:?}");
        }
    }
    let long = "x".repeat(150);
    assert_eq!(
        bench.open(&long, "none").code,
        Some(1),
        "no room for its socket's path"
    );
}

#[test]
fn an_attachment_that_cant_be_had_is_named() {
    let Some(bench) = Bench::new() else { return };
    if Path::new("/sys/module/nbd").exists() {
        common::skipped("a kernel without nbd");
        return;
    }
    let ended = bench.open("vol", "nbd");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("nbd"), "{}", ended.stderr);
    assert!(bench.left().is_empty());
}

#[test]
fn what_a_killed_server_left_is_cleared_by_the_next_command() {
    let Some(bench) = Bench::new() else { return };
    for how in ["none", "fuse"] {
        let opened = bench.open("vol", how);
        if opened.code != Some(0) {
            assert_eq!((how, opened.code), ("fuse", Some(4)), "{opened:?}");
            common::skipped("FUSE");
            continue;
        }
        let device = PathBuf::from(opened.stdout.trim_end());
        bench.signal("vol", Signal::KILL);
        sleep(Duration::from_millis(200));
        assert_eq!(
            bench.left(),
            ["vol"],
            "a killed server clears nothing itself"
        );
        bench.open_plainly("other");
        assert_eq!(bench.left(), ["other"]);
        assert_eq!(bench.volumes().len(), 1);
        assert_eq!(bench.luks(&["close", "other"]).code, Some(0));
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        assert!(
            !mounts.contains(bench.folder.path().to_str().unwrap()),
            "{mounts}"
        );
        if let Ok(name) = device.strip_prefix("/dev") {
            assert!(
                !Path::new("/sys/block")
                    .join(name)
                    .join("loop/backing_file")
                    .exists()
            );
        }
    }
    // The same name again, and by the verbs that only look.
    bench.open_plainly("vol");
    bench.signal("vol", Signal::KILL);
    sleep(Duration::from_millis(200));
    bench.open_plainly("vol");
    bench.signal("vol", Signal::KILL);
    sleep(Duration::from_millis(200));
    assert_eq!(bench.luks(&["close", "vol"]).code, Some(0));
    assert!(bench.left().is_empty());
}

#[test]
fn a_client_keeps_it_open_and_deferred_waits_for_it() {
    let Some(bench) = Bench::new() else { return };
    bench.open_plainly("vol");
    let mut client = UnixStream::connect(bench.state().join("vol/nbd.sock")).unwrap();
    client.read_exact(&mut [0; 18]).unwrap();
    let refused = bench.luks(&["close", "vol"]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("NBD client"), "{}", refused.stderr);
    assert_eq!(bench.luks(&["close", "vol", "--deferred"]).code, Some(0));
    assert_eq!(bench.status("vol")["state"], "closing");
    drop(client);
    bench.wait_until_nothing_is_left();
}

#[test]
fn sigterm_closes() {
    let Some(bench) = Bench::new() else { return };
    bench.open_plainly("vol");
    bench.signal("vol", Signal::TERM);
    bench.wait_until_nothing_is_left();
}

#[test]
fn the_state_folder_must_be_its_owners_alone() {
    let Some(bench) = Bench::new() else { return };
    fs::create_dir(bench.state()).unwrap();
    fs::set_permissions(bench.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let ended = bench.open("vol", "none");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("0700"), "{}", ended.stderr);
    assert!(bench.left().is_empty());
}

#[test]
fn without_force_it_is_the_best_this_machine_has() {
    let Some(bench) = Bench::new() else { return };
    let ended = bench.open("vol", "auto");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let status = bench.status("vol");
    let line = ended.stdout.trim_end();
    let kind = fs::metadata(line).map(|found| found.file_type());
    match status["attach"].as_str().unwrap() {
        "nbd" | "loop" => assert!(kind.unwrap().is_block_device()),
        "fuse" => {
            assert!(kind.unwrap().is_file());
            assert_eq!(mode(line), 0o600);
        }
        "none" => assert!(line.starts_with("nbd+unix:") && !ended.stderr.is_empty()),
        other => panic!("{other}"),
    }
    if status["device"].is_string() {
        assert_eq!(status["device"], line);
        let sum = hex::encode(Sha256::digest(fs::read(line).unwrap()));
        assert_eq!(sum, bench.payload_sha256);
    }
    assert_eq!(bench.luks(&["close", "vol"]).code, Some(0));
    assert!(bench.left().is_empty());
}

#[test]
fn the_background_server_runs_on_the_engine_that_was_asked_for() {
    let Some(bench) = Bench::new() else { return };
    let open = |engine: &str| {
        let key = ["--key-file", "/dev/null"];
        bench.luks(&[&["open", &bench.image, "vol", "--engine", engine], &key[..]].concat())
    };
    for engine in ["cpu:nonesuch", "gpu", "cpu:"] {
        let ended = open(engine);
        assert_eq!(ended.code, Some(1), "{engine}");
        assert!(ended.stderr.contains("cpu:soft"), "{}", ended.stderr);
    }
    for engine in CpuEngine::ALL.into_iter().filter(|e| !e.is_here()) {
        assert_eq!(open(&format!("cpu:{engine}")).code, Some(4), "{engine}");
    }
    for engine in CpuEngine::ALL.into_iter().filter(|e| e.is_here()) {
        let engine = format!("cpu:{engine}");
        let ended = bench.open_on("vol", "none", &engine);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(bench.status("vol")["engine"], *engine);
        assert_eq!(bench.luks(&["close", "vol"]).code, Some(0));
    }
}

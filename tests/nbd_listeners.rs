//! Where a server listens and how it ends: the library's server, then the command.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nbdcrypt::error::ErrorKind;
use nbdcrypt::queue::{Device, DeviceOptions};
use nbdcrypt::server::{Server, ServerOptions};
use nbdcrypt::storage::MemoryStorage;
use rustix::process::{Pid, Signal, kill_process};

mod common;
#[path = "common/nbd_client.rs"]
mod nbd_client;
use common::corpus::Corpus;
use common::{has_tool, luks};
use nbd_client::*;

fn device() -> Arc<Device> {
    let storage = Arc::new(MemoryStorage::new(vec![7; 1 << 20]));
    linear_device(storage, DeviceOptions::default())
}

fn server() -> Server {
    Server::new(device(), &ServerOptions::default()).unwrap()
}

fn refusal(path: &Path) -> ErrorKind {
    server().listen_unix(path).unwrap_err().kind()
}

/// Handshake and one read over TCP.
fn read_over_tcp(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut hello = [0; 18];
    stream.read_exact(&mut hello).unwrap();
    stream
        .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
        .unwrap();
    let mut export = [0; 10];
    stream.read_exact(&mut export).unwrap();
    stream.write_all(&request(0, READ, 1, 0, 16)).unwrap();
    let mut reply = [0; 32];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    stream
}

// The library.

#[test]
fn a_unix_socket_is_its_owner_s_alone() {
    let folder = tempfile::tempdir().unwrap();
    let before = fs::metadata(folder.path()).unwrap().permissions();
    let path = folder.path().join("s");
    let mut server = server();
    server.listen_unix(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert_eq!(fs::metadata(folder.path()).unwrap().permissions(), before);
    drop(server);
    assert!(!path.exists(), "a server that never ran cleans up too");
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead server's socket");
    let served = {
        let mut server = server();
        server.listen_unix(&path).unwrap();
        server
    };
    let handle = served.handle();
    let running = thread::spawn(move || served.run());
    assert_eq!(refusal(&path), ErrorKind::Busy);
    drop(UnixStream::connect(&path).unwrap());
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert_eq!(refusal(&file), ErrorKind::Busy);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert_eq!(refusal(&folder.path().join("none/s")), ErrorKind::Device);
    assert_eq!(
        refusal(&folder.path().join("x".repeat(200))),
        ErrorKind::Usage
    );
    handle.stop();
    running.join().unwrap().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_socket_that_was_replaced_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut server = server();
    server.listen_unix(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn several_listeners_and_an_idle_tcp_client_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::new(
        device(),
        &ServerOptions {
            export: String::new(),
        },
    )
    .unwrap();
    server.listen_unix(&folder.path().join("a b")).unwrap();
    server.listen_tcp("127.0.0.1:0").unwrap();
    server.listen_tcp("localhost:0").unwrap();
    let uris = server.uris();
    assert_eq!(
        uris[0],
        format!("nbd+unix:///?socket={}/a%20b", folder.path().display())
    );
    let port = server.tcp_address().unwrap().port();
    assert_eq!(uris[1], format!("nbd://127.0.0.1:{port}/"));
    assert_ne!(port, 0);
    let taken = self::server().listen_tcp(&format!("127.0.0.1:{port}"));
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(
        self::server().listen_tcp("nonsense").unwrap_err().kind(),
        ErrorKind::Usage
    );
    let handle = server.handle();
    let running = thread::spawn(move || server.run());
    let mut idle = read_over_tcp(&format!("127.0.0.1:{port}"));
    let mut unix = Client::connect(&folder.path().join("a b"));
    unix.hello(3);
    unix.go(b"");
    let clients = handle.clients();
    assert_eq!(clients.as_array().unwrap().len(), 2);
    assert_eq!(clients[0]["requests"], 1);
    assert_eq!(clients[0]["state"], "transmission");
    let peer = clients[1]["peer"].as_str().unwrap();
    assert_eq!(
        peer.split(',').next(),
        Some(&*format!("unix:pid={}", std::process::id()))
    );
    let started = Instant::now();
    handle.stop();
    running.join().unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
    unix.expect_end();
}

// The command.

/// A LUKS image and its key in a folder of their own.
struct Image {
    folder: tempfile::TempDir,
    args: Vec<String>,
}

impl Image {
    fn new() -> Option<Self> {
        if !has_tool("xz", "xz-utils") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let corpus = Corpus::selection();
        let case = corpus.case("luks2-aes-xts-plain64-256-s2048").unwrap();
        let mut args = vec!["serve".to_owned()];
        args.extend(case.unpack(folder.path()).args());
        args.extend(case.unlock_flags(0, folder.path()).unwrap());
        Some(Self { folder, args })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(luks());
        command.args(&self.args).args(flags).stdin(Stdio::null());
        command
    }

    /// Serves in the background once it said so; returns what it said, as many lines as expected.
    fn start(&self, flags: &[&str], lines: usize) -> (Running, Vec<String>) {
        Running::start(&mut self.command(flags), lines)
    }
}

/// A server that is killed when a test fails.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, lines: usize) -> (Self, Vec<String>) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let said = stdout.lines().take(lines).map(Result::unwrap).collect();
        (Self(child), said)
    }

    fn end(mut self, signal: Signal) -> (ExitStatus, Duration) {
        let started = Instant::now();
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        let status = self.0.wait().unwrap();
        (status, started.elapsed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn serve_says_where_and_a_signal_ends_it_with_0() {
    let Some(image) = Image::new() else { return };
    let (one, two) = (image.path("one"), image.path("two"));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let flags = [
        "--socket",
        one,
        "--listen",
        "127.0.0.1:0",
        "--socket",
        two,
        "--export",
        "my disk",
    ];
    for signal in [Signal::TERM, Signal::INT] {
        let (running, said) = image.start(&flags, 3);
        assert_eq!(said[0], format!("nbd+unix:///my%20disk?socket={one}"));
        assert_eq!(said[1], format!("nbd+unix:///my%20disk?socket={two}"));
        let address = said[2].strip_prefix("nbd://127.0.0.1:").unwrap();
        let port: u16 = address.strip_suffix("/my%20disk").unwrap().parse().unwrap();
        let silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut client = Client::connect(Path::new(two));
        client.hello(3);
        assert_eq!(client.go(b"my disk").0 % 2048, 0);
        assert_eq!(client.write(0, 5, &[9; 100]).errno, 0);
        let (status, took) = running.end(signal);
        assert_eq!(status.code(), Some(0));
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(!Path::new(one).exists() && !Path::new(two).exists());
        client.expect_end();
        drop(silent);
    }
}

#[test]
fn an_ignored_sigint_ends_it_too() {
    let Some(image) = Image::new() else { return };
    let socket = image.path("s");
    let mut command = Command::new("/bin/sh");
    // A shell without job control starts what goes to the background so.
    command
        .args(["-c", "trap '' INT; exec \"$@\"", "sh"])
        .arg(luks())
        .args(&image.args);
    let (running, _) = Running::start(command.arg("--socket").arg(&socket), 1);
    assert_eq!(running.end(Signal::INT).0.code(), Some(0));
}

#[test]
fn a_killed_server_is_replaced_and_a_living_one_is_not() {
    let Some(image) = Image::new() else { return };
    let socket = image.path("s");
    let flags = ["--socket", socket.to_str().unwrap()];
    let (running, _) = image.start(&flags, 1);
    running.end(Signal::KILL);
    assert!(socket.exists());
    let (running, said) = image.start(&flags, 1);
    assert_eq!(said.len(), 1);
    let refused = image.command(&flags).output().unwrap();
    assert_eq!(refused.status.code(), Some(5));
    assert_eq!(running.end(Signal::TERM).0.code(), Some(0));
    assert_eq!(image.command(&[]).output().unwrap().status.code(), Some(1));
}

#[test]
fn run_sets_the_variables_and_ends_with_the_command() {
    let Some(image) = Image::new() else { return };
    let run = |flags: &[&str], command: &str| {
        let output = image
            .command(flags)
            .args(["--run", command])
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, said) = run(
        &[],
        r#"ls -ld "$(dirname "$socket")"; echo "$uri|$socket|$nbd""#,
    );
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("drwx------"), "{said}");
    let words: Vec<&str> = lines[1].split('|').collect();
    assert_eq!(words[0], format!("nbd+unix:///?socket={}", words[1]));
    assert_eq!(words[2], format!("nbd:unix:{}", words[1]));
    assert!(
        !Path::new(words[1]).parent().unwrap().exists(),
        "the folder goes with it"
    );
    assert_eq!(lines.len(), 2, "stdout is the command's own");
    let socket = image.path("s");
    let flags = ["--socket", socket.to_str().unwrap(), "--export", "x"];
    let (code, said) = run(
        &flags,
        r#"test -S "$socket" && echo "$socket $exportname"; exit 7"#,
    );
    assert_eq!((code, said), (Some(7), format!("{} x\n", socket.display())));
    let (code, said) = run(
        &["--listen", "127.0.0.1:0"],
        r#"echo "$nbd" "$uri" "[$socket]""#,
    );
    let port = said
        .split(' ')
        .next()
        .unwrap()
        .strip_prefix("nbd:127.0.0.1:")
        .unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        said,
        format!("nbd:127.0.0.1:{port} nbd://127.0.0.1:{port}/ []\n")
    );
    assert_eq!(run(&[], "kill -9 $$").0, Some(137));
    assert_eq!(run(&[], "kill -TERM $$").0, Some(143));
    assert_eq!(run(&[], "no-such-command").0, Some(127));
}

#[test]
fn the_command_inherits_nothing_of_ours() {
    let Some(image) = Image::new() else { return };
    let script = "ls -l /proc/self/fd; grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let output = image.command(&["--run", script]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    for field in ["SigBlk:", "SigIgn:"] {
        let mask = said
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        // The C library keeps 32 and 33 to itself.
        assert_eq!(mask & 0x7fff_ffff, 0, "{said}");
    }
    for ours in [".image", ".passphrase", "eventfd", "socket:"] {
        assert!(!said.contains(ours), "{ours} is inherited: {said}");
    }
}

#[test]
fn a_signal_is_passed_on_to_the_command() {
    let Some(image) = Image::new() else { return };
    let script = "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = image
        .command(&["--run", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let (status, took) = Running(child).end(Signal::TERM);
    stdout.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), status.code()), ("ready\ntold\n", Some(3)));
    assert!(took < Duration::from_secs(5), "{took:?}");
    // One that doesn't care is killed.
    let deaf = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let (running, _) = image.start(&["--run", deaf], 1);
    let (status, took) = running.end(Signal::TERM);
    assert_eq!(status.code(), Some(137));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

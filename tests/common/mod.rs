//! What the integration tests share: the `luks` command under limits, tools that may be missing,
//! and the corpus of encrypted images.
#![allow(dead_code, missing_docs, unreachable_pub)] // Each test file uses a part of it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub mod corpus;
pub mod headers;

/// A person who gave a wrong image never waits longer than this.
pub const TIME_MAX: Duration = Duration::from_secs(10);
/// Address space of the command and what it runs, in bytes: no image may cost more.
pub const MEMORY_BYTES_MAX: u64 = 2 << 30;

/// The path of the `luks` command under test.
pub fn luks() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_luks"))
}

/// Says that a test, or a part of it, can't run here. `tools/test` counts these lines.
pub fn skipped(needs: &str) {
    eprintln!("skipped: needs {needs}");
}

/// Whether `tool` is installed; says so where it isn't.
pub fn has_tool(tool: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|folder| folder.join(tool).exists());
    if !here {
        skipped(&format!("{tool} (Debian package {package})"));
    }
    here
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code, or `None` where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

/// Runs `luks` with `args` within the limits of time and memory, with `stdin` as its input.
/// Panics where it takes longer.
pub fn run_luks<S: AsRef<std::ffi::OsStr>>(args: &[S], stdin: &[u8]) -> Ended {
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--as={MEMORY_BYTES_MAX}"))
        .arg("--core=0")
        .arg(luks())
        .args(args);
    run_limited(&mut command, stdin)
}

/// [`TIME_MAX`], and more where portable ciphers are asked for, which these tests run unoptimised.
fn time_max() -> Duration {
    let soft = std::env::var_os("LUKS_CPU_ENGINE").is_some_and(|engine| engine == "soft");
    if soft { 6 * TIME_MAX } else { TIME_MAX }
}

/// Runs a command in a process group of its own and ends the group after a time.
pub fn run_limited(command: &mut Command, stdin: &[u8]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("in"), stdin).unwrap();
    command
        .stdin(File::open(path("in")).unwrap())
        .stdout(File::create(path("out")).unwrap())
        .stderr(File::create(path("err")).unwrap())
        .process_group(0);
    let start = Instant::now();
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |name: &str| String::from_utf8_lossy(&fs::read(path(name)).unwrap()).into_owned();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let (stdout, stderr) = (text("out"), text("err"));
            return Ended {
                code: status.code(),
                stdout,
                stderr,
                took: start.elapsed(),
            };
        }
        if start.elapsed() > time_max() {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            panic!(
                "{command:?} took over {:?}; it said: {}{}",
                time_max(),
                text("out"),
                text("err")
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a tool that must succeed, and returns its output.
pub fn tool(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let mut command = Command::new(program);
    command.env("PATH", path_with_sbin()).stdin(Stdio::null());
    for arg in args {
        command.arg(arg.as_ref());
    }
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

/// A file of `size_bytes`, all hole.
pub fn sparse_file(path: &Path, size_bytes: u64) {
    File::create(path).unwrap().set_len(size_bytes).unwrap();
}

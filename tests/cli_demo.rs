//! The demonstration, on machines that have more and less.

mod common;

use std::process::Command;

use common::{Ended, has_tool, luks, path_with_sbin, run_limited, skipped};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
fn assert_shown(ended: &Ended, words: &str) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(words), "{ended:?}");
    let folder = ended
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("$ cd "))
        .unwrap();
    assert!(
        !std::path::Path::new(folder).exists(),
        "{folder} is still there"
    );
}

#[test]
fn a_file_is_read_back_the_best_way_there_is() {
    let ended = run_limited(
        Command::new(luks())
            .arg("demo")
            .env("PATH", path_with_sbin()),
        b"",
    );
    assert_shown(&ended, "read back");
    if is_root() && has_tool("mkfs.ext4", "e2fsprogs") && ended.stdout.contains("/dev/loop") {
        assert!(
            ended.stdout.contains("through a mounted file system"),
            "{ended:?}"
        );
    }
}

#[test]
fn without_fuse_and_without_tools_the_bytes_go_over_nbd() {
    if !is_root() || !has_tool("unshare", "util-linux") {
        skipped("root, to hide /dev/fuse");
        return;
    }
    let hidden = "mount --bind /dev/null /dev/fuse && ";
    for (more, words) in [
        ("", "read back from a file system"),
        (
            "PATH=/nowhere && /bin/mount -t tmpfs none /sbin/ &&",
            "The bytes were read back",
        ),
    ] {
        if more.is_empty() && !has_tool("mkfs.ext4", "e2fsprogs") {
            continue;
        }
        let script = format!("{hidden}{more} exec {} demo", luks().display());
        let ended = run_limited(
            Command::new("unshare").args(["-m", "sh", "-c", &script]),
            b"",
        );
        if ended.stderr.contains("/dev/fuse: ") || ended.stderr.contains("unshare") {
            skipped("leave to hide /dev/fuse");
            return;
        }
        // A kernel with its own nbd driver has a better way than plain NBD.
        if !ended.stdout.contains("/dev/nbd") {
            assert_shown(&ended, words);
            assert!(ended.stdout.contains("nbd+unix:///"), "{ended:?}");
        }
    }
}

#[test]
fn an_ordinary_user_sees_it_too() {
    if !is_root() || !has_tool("setpriv", "util-linux") {
        skipped("root, to become an ordinary user");
        return;
    }
    // Where that user may come to it.
    let folder = tempfile::Builder::new()
        .prefix("luks-test")
        .tempdir_in("/var/tmp")
        .unwrap();
    let copy = folder.path().join("luks");
    std::fs::copy(luks(), &copy).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy)
        .arg("demo")
        .env_remove("XDG_RUNTIME_DIR")
        .current_dir("/");
    let ended = run_limited(&mut command, b"");
    assert_shown(&ended, "read back");
}

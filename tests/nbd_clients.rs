//! The server against clients that others wrote: libnbd (nbdinfo, nbdcopy, its Python binding),
//! qemu (qemu-io, qemu-img) and fio, over an encrypted volume.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::queue::{Device, DeviceOptions};
use nbdcrypt::storage::{FileStorage, MemoryStorage, OpenMode, Storage};
use nbdcrypt::units::SectorSize;
use nbdcrypt::volume::SegmentKind;

mod common;
#[path = "common/nbd_client.rs"]
mod nbd_client;
use common::has_tool;
use nbd_client::*;

const SIZE: u64 = 8 << 20;

fn encrypted(storage: Arc<dyn Storage>, sector: u64, options: DeviceOptions) -> Arc<Device> {
    let sector = SectorSize::new(sector).unwrap();
    let key: Vec<u8> = (0..64).map(|i| i * 3 + 1).collect();
    let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
    let cipher = SectorCipher::new(&spec, &key, sector, IvOptions::default()).unwrap();
    let size_bytes = storage.size_bytes().unwrap();
    device_of(
        storage,
        SegmentKind::Crypt(Arc::new(cipher)),
        size_bytes,
        sector,
        options,
    )
}

fn served(sector: u64, options: DeviceOptions) -> Served {
    let storage = Arc::new(MemoryStorage::new(vec![0; SIZE as usize]));
    Served::new(encrypted(storage, sector, options), "")
}

fn uri(served: &Served) -> String {
    format!("nbd+unix:///?socket={}", served.socket.display())
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !has_tool("nbdinfo", "libnbd-bin") {
        return;
    }
    let served = served(
        4096,
        DeviceOptions {
            allow_discards: true,
            read_only: false,
            ..DeviceOptions::default()
        },
    );
    let text = succeeds(Command::new("nbdinfo").args(["--json", &uri(&served)]));
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["protocol"], "newstyle-fixed");
    assert_eq!(told["structured"], true);
    let export = &told["exports"][0];
    assert_eq!(export["export-size"], SIZE);
    assert_eq!(export["contexts"][0], "base:allocation");
    for can in [
        "can_cache",
        "can_df",
        "can_fast_zero",
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
    ] {
        assert_eq!(export[can], true, "{can}");
    }
    assert_eq!(export["is_read_only"], false);
    assert_eq!(export["block_size_minimum"], 1);
    assert_eq!(export["block_size_preferred"], 4096);
    assert_eq!(export["block_size_maximum"], 32 << 20);
    let map = succeeds(Command::new("nbdinfo").args(["--map", "--json", &uri(&served)]));
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    assert_eq!(map[0]["length"], SIZE);
    let list = succeeds(Command::new("nbdinfo").args(["--list", &uri(&served)]));
    assert!(list.contains("export=\"\""), "{list}");
    let wrong = uri(&served).replace("///", "///other");
    assert!(
        !Command::new("nbdinfo")
            .arg(&wrong)
            .output()
            .unwrap()
            .status
            .success()
    );
}

#[test]
fn nbdcopy_there_and_back() {
    if !has_tool("nbdcopy", "libnbd-bin") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (plain, image) = (folder.path().join("plain"), folder.path().join("image"));
    let data = noise(SIZE as usize);
    std::fs::write(&plain, &data).unwrap();
    for sector in [512, 4096] {
        std::fs::write(&image, vec![0; SIZE as usize]).unwrap();
        let storage = Arc::new(FileStorage::open(&image, OpenMode::ReadWrite).unwrap());
        let served = Served::new(encrypted(storage, sector, DeviceOptions::default()), "");
        succeeds(
            Command::new("nbdcopy")
                .args(["--flush"])
                .arg(&plain)
                .arg(uri(&served)),
        );
        let back = folder.path().join("back");
        succeeds(Command::new("nbdcopy").arg(uri(&served)).arg(&back));
        assert!(std::fs::read(&back).unwrap() == data);
        served.stop().unwrap();
        // What lies below is the same encryption, done by hand.
        let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
        let key: Vec<u8> = (0..64).map(|i| i * 3 + 1).collect();
        let size = SectorSize::new(sector).unwrap();
        let cipher = SectorCipher::new(&spec, &key, size, IvOptions::default()).unwrap();
        let mut below = data.clone();
        cipher.encrypt(&mut below, 0);
        assert!(std::fs::read(&image).unwrap() == below);
    }
}

/// The Python that has the binding: where another comes first in PATH, it is the system's.
fn python_with_libnbd() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let probe = Command::new(python).args(["-c", "import nbd"]).output();
        probe.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn libnbd_commands_with_and_without_structured_replies() {
    let script = r#"
import errno, nbd, os
for structured in (True, False):
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    h.add_meta_context("base:allocation")
    h.connect_uri(os.environ["uri"])
    assert h.get_structured_replies_negotiated() == structured
    assert h.get_size() == 8 << 20
    h.pwrite(b"x" * 5000, 123)
    assert h.pread(5000, 123) == b"x" * 5000
    h.zero(1000, 200, nbd.CMD_FLAG_NO_HOLE)
    assert h.pread(1000, 200) == bytes(1000)
    assert h.pread(1, 1200) == b"x"
    h.pwrite(b"y" * 512, 4096, nbd.CMD_FLAG_FUA)
    h.cache(8 << 20, 0)
    h.trim(4096, 8192, nbd.CMD_FLAG_FUA)
    h.flush()
    if structured:
        assert h.pread_structured(100, 123, lambda *a: None, nbd.CMD_FLAG_DF) == b"x" * 77 + bytes(23)
        got = []
        h.block_status(1 << 20, 0, lambda c, o, e, err: got.append((c, o, list(e))))
        assert got == [("base:allocation", 0, [1 << 20, 0])], got
    def fails(number, call, *args):
        try:
            call(*args)
        except nbd.Error as e:
            assert e.errnum == number, (e.errnum, number, str(e))
        else:
            raise AssertionError("it did not fail")
    h.set_strict_mode(0)
    fails(errno.EINVAL, h.pread, 2, (8 << 20) - 1)
    fails(errno.ENOSPC, h.pwrite, b"ab", (8 << 20) - 1)
    fails(errno.EINVAL, h.trim, 2, (8 << 20) - 1)
    fails(errno.ENOSPC, h.zero, 2, (8 << 20) - 1)
    fails(errno.ENOTSUP, h.zero, 512, 0, nbd.CMD_FLAG_FAST_ZERO)
    fails(errno.EINVAL, h.pwrite, b"ab", 0, 0x8000)
    # Many at once, over each other's sectors.
    import random
    random.seed(7)
    model = bytearray(h.pread(1 << 20, 0))
    for _ in range(20):
        done = []
        spans = [(i * 1000 + random.randrange(500), random.randrange(1, 500)) for i in range(60)]
        for offset, length in spans:
            data = bytes([random.randrange(256)]) * length
            model[offset:offset + length] = data
            buf = nbd.Buffer.from_bytearray(bytearray(data))
            done.append(h.aio_pwrite(buf, offset))
        while h.aio_in_flight() > 0:
            h.poll(-1)
        assert all(h.aio_command_completed(c) for c in done)
        assert h.pread(1 << 20, 0) == model
    h.shutdown()
"#;
    let Some(python) = python_with_libnbd() else {
        return common::skipped("libnbd's Python binding (Debian package python3-libnbd)");
    };
    let options = DeviceOptions {
        allow_discards: true,
        read_only: false,
        ..DeviceOptions::default()
    };
    let served = served(512, options);
    let mut command = Command::new(python);
    succeeds(command.args(["-c", script]).env("uri", uri(&served)));
    let read_only = self::served(
        512,
        DeviceOptions {
            read_only: true,
            allow_discards: false,
            ..DeviceOptions::default()
        },
    );
    let script = r#"
import errno, nbd, os
h = nbd.NBD()
h.connect_uri(os.environ["uri"])
assert h.is_read_only()
h.set_strict_mode(0)
for call in (lambda: h.pwrite(b"x", 0), lambda: h.zero(512, 0), lambda: h.trim(512, 0)):
    try:
        call()
    except nbd.Error as e:
        assert e.errnum == errno.EPERM, str(e)
    else:
        raise AssertionError("it did not fail")
h.flush()
"#;
    let mut command = Command::new(python);
    succeeds(command.args(["-c", script]).env("uri", uri(&read_only)));
}

#[test]
fn qemu_reads_and_writes() {
    if !has_tool("qemu-io", "qemu-utils") {
        return;
    }
    let served = served(
        4096,
        DeviceOptions {
            allow_discards: true,
            read_only: false,
            ..DeviceOptions::default()
        },
    );
    let commands = [
        "write -P 0xab 1000 70000",
        "read -P 0xab 1000 70000",
        "read -P 0xab 70999 1",
        "write -z 2048 4096",
        "read -P 0 2048 4096",
        "write -f -P 0x11 1M 64k",
        "aio_write -P 0x22 2M 1M",
        "aio_write -P 0x33 3M 1M",
        "aio_flush",
        "read -P 0x22 2M 1M",
        "read -P 0x33 3M 1M",
        "discard 4M 64k",
        "flush",
    ];
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", "-t", "writeback", "-d", "unmap"]);
    commands.iter().for_each(|one| {
        command.args(["-c", one]);
    });
    let told = succeeds(command.arg(uri(&served)));
    assert!(
        !told.contains("failed") && !told.contains("error"),
        "{told}"
    );
    let folder = tempfile::tempdir().unwrap();
    let back = folder.path().join("back");
    let mut convert = Command::new("qemu-img");
    convert
        .args(["convert", "-f", "raw", "-O", "raw"])
        .arg(uri(&served))
        .arg(&back);
    succeeds(&mut convert);
    assert!(std::fs::read(&back).unwrap() == served.client(true).read(0, SIZE as u32));
}

#[test]
fn fio_verifies_mixed_writes_over_four_connections() {
    let has_engine =
        has_tool("fio", "fio") && succeeds(Command::new("fio").arg("--enghelp")).contains("nbd");
    if !has_engine {
        return common::skipped("fio with its nbd engine");
    }
    for (sector, block) in [(512, "512-64k"), (4096, "512-64k"), (4096, "1000-30000")] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, vec![0; SIZE as usize]).unwrap();
        let storage = Arc::new(FileStorage::open(&image, OpenMode::ReadWrite).unwrap());
        let served = Served::new(encrypted(storage, sector, DeviceOptions::default()), "");
        fio(&served, folder.path(), block);
        served.stop().unwrap();
    }
}

fn fio(served: &Served, folder: &Path, block: &str) {
    let mut fio = Command::new("fio");
    fio.current_dir(folder)
        .args(["--name=verify", "--ioengine=nbd", "--rw=randwrite"]);
    fio.arg(format!("--uri={}", uri(served)))
        .arg(format!("--bsrange={block}"));
    fio.args([
        "--bs_unaligned",
        "--verify=crc32c",
        "--iodepth=16",
        "--numjobs=4",
        "--size=2m",
    ]);
    fio.args([
        "--offset_increment=2m",
        "--serialize_overlap=1",
        "--randseed=5",
        "--fsync=20",
    ]);
    succeeds(&mut fio);
}

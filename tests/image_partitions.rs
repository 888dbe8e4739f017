//! Partition tables against the tools that write them, and foreign formats against qemu.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{has_tool, path_with_sbin, sparse_file, tool};
use nbdcrypt::image::{
    Foreign, Partition, PartitionTable, Place, TableKind, explain_no_header, read_table, recognise,
    window,
};
use nbdcrypt::storage::{FileStorage, OpenMode, Storage};

const DISK_BYTES: u64 = 64 << 20;

fn open(path: &Path) -> Arc<dyn Storage> {
    Arc::new(FileStorage::open(path, OpenMode::ReadWrite).unwrap())
}

fn table(path: &Path) -> PartitionTable {
    read_table(&*open(path))
        .unwrap()
        .expect("a partition table")
}

/// Feeds a script to a partitioning tool.
fn script(program: &str, args: &[&str], disk: &Path, script: &str) {
    let mut child = Command::new(program)
        .env("PATH", path_with_sbin())
        .args(args)
        .arg(disk)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

/// What sfdisk says of a disk with 512-byte sectors.
fn sfdisk_says(disk: &Path) -> Vec<Partition> {
    let text = tool("sfdisk", &[&"--json", &disk]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let list = json["partitiontable"]["partitions"].as_array().unwrap();
    let disk = disk.to_str().unwrap();
    list.iter()
        .filter(|p| !matches!(p["type"].as_str(), Some("5" | "f" | "85")))
        .map(|p| Partition {
            number: p["node"]
                .as_str()
                .unwrap()
                .strip_prefix(disk)
                .unwrap()
                .parse()
                .unwrap(),
            start_bytes: p["start"].as_u64().unwrap() * 512,
            len_bytes: p["size"].as_u64().unwrap() * 512,
        })
        .collect()
}

#[test]
fn mbr_with_logical_partitions_is_read_as_sfdisk_reads_it() {
    if !has_tool("sfdisk", "fdisk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    for extended in ["5", "f", "85"] {
        sparse_file(&disk, DISK_BYTES);
        let text = format!(
            "label: dos\nunit: sectors\n\
             start=2048, size=8192, type=83\n\
             start=10240, size=60000, type={extended}\n\
             start=12288, size=4096, type=83\n\
             start=20480, size=8192, type=83\n\
             start=71680, size=2048, type=7\n\
             start=30720, size=1, type=82\n"
        );
        script("sfdisk", &["--quiet"], &disk, &text);
        let found = table(&disk);
        assert_eq!(found.kind, TableKind::Mbr);
        let mut expected = sfdisk_says(&disk);
        expected.sort_by_key(|p| p.number);
        assert!(expected.len() >= 4, "{expected:?}");
        assert_eq!(found.partitions, expected);
    }
}

fn gpt_disk(disk: &Path) {
    sparse_file(disk, DISK_BYTES);
    let text = "label: gpt\nunit: sectors\n1: start=2048, size=8192\n\
                3: start=20480, size=2048\n128: start=40960, size=1\n";
    script("sfdisk", &["--quiet"], disk, text);
}

#[test]
fn gpt_is_read_as_sfdisk_reads_it() {
    if !has_tool("sfdisk", "fdisk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    gpt_disk(&disk);
    let expected = PartitionTable {
        kind: TableKind::Gpt,
        partitions: sfdisk_says(&disk),
    };
    assert_eq!(expected.partitions.len(), 3);
    assert_eq!(table(&disk), expected);

    // The backup takes over where the header or the entries of the primary are damaged.
    let bytes = fs::read(&disk).unwrap();
    for damage in [512 + 16, 512 + 72, 512 + 88, 1024 + 32, 1024 + 5000] {
        let file = File::options().write(true).open(&disk).unwrap();
        file.write_all_at(&[bytes[damage] ^ 1], damage as u64)
            .unwrap();
        assert_eq!(table(&disk), expected, "damage at {damage}");
        file.write_all_at(&bytes[damage..=damage], damage as u64)
            .unwrap();
    }
    // Also where the start of the disk is gone altogether; and with both gone it is an error.
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0; 512], 512).unwrap();
    assert_eq!(table(&disk), expected);
    file.write_all_at(&[0; 512], DISK_BYTES - 512).unwrap();
    assert!(
        read_table(&*open(&disk))
            .unwrap_err()
            .what()
            .contains("both copies")
    );
}

#[test]
fn gpt_with_4096_byte_sectors_is_read_as_fdisk_wrote_it() {
    if !has_tool("fdisk", "fdisk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    sparse_file(&disk, DISK_BYTES);
    let keys = "g\nn\n1\n512\n+8M\nn\n3\n4096\n+4M\nw\n";
    script("fdisk", &["--sector-size", "4096"], &disk, keys);
    let expected = [(1, 512, 2048), (3, 4096, 1024)].map(|(number, start, len)| Partition {
        number,
        start_bytes: start * 4096,
        len_bytes: len * 4096,
    });
    assert_eq!(
        table(&disk),
        PartitionTable {
            kind: TableKind::Gpt,
            partitions: expected.to_vec()
        }
    );
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0; 4096], 4096).unwrap();
    assert_eq!(table(&disk).partitions, expected);
}

#[test]
fn a_window_is_the_partition_and_ends_with_it() {
    if !has_tool("sfdisk", "fdisk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    gpt_disk(&disk);
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(b"here", 20480 * 512).unwrap();
    let third = window(open(&disk), Place::Partition(3)).unwrap();
    assert_eq!(third.size_bytes().unwrap(), 2048 * 512);
    let mut bytes = [0; 4];
    third.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"here");
    assert!(third.write_at(&[1; 8], 2048 * 512 - 4).is_err());

    let error = window(open(&disk), Place::Partition(2)).unwrap_err();
    assert!(error.to_string().contains("1, 3, 128"), "{error}");
    assert!(window(open(&disk), Place::Offset(DISK_BYTES)).is_err());
    // Cut short: the table's backup goes, and partition 128 reaches over the end.
    file.set_len(40960 * 512).unwrap();
    assert!(window(open(&disk), Place::Partition(3)).is_ok());
    let error = window(open(&disk), Place::Partition(128)).unwrap_err();
    assert!(error.what().contains("cut short"), "{error}");
}

#[test]
fn foreign_images_are_named_as_qemu_made_them() {
    if !has_tool("qemu-img", "qemu-utils") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (format, options) in [
        ("qcow", ""),
        ("qcow2", ""),
        ("qed", ""),
        ("vmdk", ""),
        ("vmdk", "subformat=monolithicFlat"),
        ("vhdx", ""),
        ("vpc", ""),
        ("vpc", "subformat=fixed"),
        ("vdi", ""),
        ("parallels", ""),
    ] {
        let path = folder
            .path()
            .join(format!("disk-{format}-{}", options.len()));
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &"-q", &"-f", &format];
        if !options.is_empty() {
            args.extend([&"-o" as &dyn AsRef<_>, &options]);
        }
        args.extend([&path as &dyn AsRef<_>, &"8M"]);
        tool("qemu-img", &args);
        match recognise(&*open(&path)) {
            Some(Foreign::Disk { qemu_format, .. }) => assert_eq!(qemu_format, format),
            other => panic!("{format} {options}: {other:?}"),
        }
        let error = explain_no_header(&open(&path), &path, false).to_string();
        assert!(error.contains(&format!("qemu-nbd -f {format} ")), "{error}");
        assert!(error.lines().count() <= 3, "{error}");
    }
    let raw = folder.path().join("raw");
    sparse_file(&raw, 8 << 20);
    assert_eq!(recognise(&*open(&raw)), None);
}

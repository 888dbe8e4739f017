//! A volume as a real block device of this machine: FUSE with a loop device over it. The kernel,
//! mkfs, mount and fsck are the judges. Needs root, `/dev/fuse` and loop devices; says so where
//! they are missing.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use nbdcrypt::attach::{AttachMode, Attachment, Place};
use nbdcrypt::error::ErrorKind;
use nbdcrypt::queue::{Device, DeviceOptions};
use nbdcrypt::storage::{MemoryStorage, Storage};
use nbdcrypt::units::SectorSize;
use nbdcrypt::volume::{Segment, SegmentKind, Volume, VolumeAbout};

const SIZE_BYTES: u64 = 32 << 20;

/// A volume without encryption over memory.
fn device(sector_size: u64, options: DeviceOptions) -> (Arc<Device>, Arc<MemoryStorage>) {
    let storage = Arc::new(MemoryStorage::new(vec![0; SIZE_BYTES as usize]));
    let volume = Volume {
        segments: vec![Segment {
            start_bytes: 0,
            len_bytes: SIZE_BYTES,
            storage_offset_bytes: 0,
            kind: SegmentKind::Linear,
        }],
        size_bytes: SIZE_BYTES,
        sector_size: SectorSize::new(sector_size).unwrap(),
        about: VolumeAbout::default(),
    };
    (
        Device::new(volume, Arc::clone(&storage) as Arc<dyn Storage>, options),
        storage,
    )
}

fn place(folder: &Path) -> Place {
    Place {
        name: "volume".to_owned(),
        mount: folder.join("mount"),
        socket: folder.join("nbd.sock"),
        identifier: folder.display().to_string(),
    }
}

/// Attaches by FUSE, or says why this machine can't.
fn attach(device: &Arc<Device>, folder: &Path) -> Option<Attachment> {
    match Attachment::new(device, AttachMode::Fuse, &place(folder), 0) {
        Ok(attached) => Some(attached),
        Err(e) => {
            eprintln!("skipped: needs FUSE: {e}");
            None
        }
    }
}

fn attach_loop(device: &Arc<Device>, folder: &Path) -> Option<(Attachment, PathBuf)> {
    let mut attached = attach(device, folder)?;
    if attached.kind() != "loop" {
        eprintln!(
            "skipped: needs root and loop devices: {}",
            attached.notes.join(", ")
        );
        attached.detach().unwrap();
        return None;
    }
    let path = attached.path().unwrap();
    Some((attached, path))
}

fn run(command: &str) -> (bool, String) {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn must(command: &str) -> String {
    let (success, text) = run(command);
    assert!(success, "{command}: {text}");
    text
}

#[test]
fn block_sizes_are_the_volumes_and_a_file_system_survives() {
    for sector_size in [512, 1024, 2048, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let (device, storage) = device(sector_size, DeviceOptions::default());
        let Some((mut attached, path)) = attach_loop(&device, folder.path()) else {
            return;
        };
        assert!(fs::metadata(&path).unwrap().file_type().is_block_device());
        let name = path.file_name().unwrap().to_str().unwrap();
        for fact in ["logical_block_size", "physical_block_size"] {
            let found = fs::read_to_string(format!("/sys/block/{name}/queue/{fact}")).unwrap();
            assert_eq!(found.trim(), sector_size.to_string(), "{fact}");
        }
        let dio = fs::read_to_string(format!("/sys/block/{name}/loop/dio")).unwrap();
        assert_eq!(dio.trim(), "1", "no second cache below the loop device's");
        let discard = format!("/sys/block/{name}/queue/discard_max_bytes");
        assert_eq!(fs::read_to_string(discard).unwrap().trim(), "0");

        let (path, mount) = (path.display(), folder.path().join("fs"));
        fs::create_dir(&mount).unwrap();
        let mount = mount.display();
        must(&format!("mkfs.ext4 -q {path} && mount {path} {mount}"));
        must(&format!("cp -r src Cargo.toml {mount}/ && sync -f {mount}"));

        let busy = attached.detach().unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
        assert!(
            busy.to_string().contains(&format!("mounted on {mount}")),
            "{busy}"
        );
        assert!(attached.stands());

        must(&format!("umount {mount}"));
        attached.detach().unwrap();
        assert!(!folder.path().join("mount").exists());

        // What reached the storage is the file system, whole.
        let image = folder.path().join("image");
        fs::write(&image, storage.contents()).unwrap();
        let image = image.display();
        must(&format!("fsck.ext4 -fn {image}"));
        must(&format!(
            "mount -o loop,ro {image} {mount} && diff -r src {mount}/src; umount {mount}"
        ));
    }
}

#[test]
fn zeroing_and_discarding_read_as_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let options = DeviceOptions {
        allow_discards: true,
        ..DeviceOptions::default()
    };
    let (device, _) = device(512, options);
    let Some((mut attached, path)) = attach_loop(&device, folder.path()) else {
        return;
    };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&vec![0xa5; 20 << 20], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let path = path.display();
    must(&format!(
        "blkdiscard --zeroout --offset 512 --length 10M {path}"
    ));
    assert!(
        !run(&format!("blkdiscard {path}")).0,
        "a discard that may leave noise is no hole"
    );
    let mut bytes = Vec::new();
    File::open(path.to_string())
        .unwrap()
        .take(20 << 20)
        .read_to_end(&mut bytes)
        .unwrap();
    let zeros = 512..(10 << 20) + 512;
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(*byte, if zeros.contains(&at) { 0 } else { 0xa5 }, "at {at}");
    }
    attached.detach().unwrap();
}

#[test]
fn partitions_inside_appear() {
    let folder = tempfile::tempdir().unwrap();
    let (device, storage) = device(512, DeviceOptions::default());
    let image = folder.path().join("image");
    fs::write(&image, vec![0; SIZE_BYTES as usize]).unwrap();
    if !run("command -v sfdisk").0 {
        eprintln!("skipped: needs sfdisk");
        return;
    }
    must(&format!(
        "printf '1MiB,8MiB\\n9MiB,\\n' | sfdisk -q {}",
        image.display()
    ));
    storage.write_at(&fs::read(&image).unwrap(), 0).unwrap();
    let Some((mut attached, path)) = attach_loop(&device, folder.path()) else {
        return;
    };
    let second = format!("{}p2", path.display());
    let mount = folder.path().join("fs");
    fs::create_dir(&mount).unwrap();
    must(&format!(
        "mkfs.ext4 -q {second} && mount {second} {}",
        mount.display()
    ));
    let busy = attached.detach().unwrap_err();
    assert!(
        busy.to_string().contains("mounted on"),
        "a partition's mount counts: {busy}"
    );
    must(&format!("umount {}", mount.display()));
    attached.detach().unwrap();
    assert!(!Path::new(&second).exists());
}

#[test]
fn the_file_has_a_block_devices_manners() {
    let folder = tempfile::tempdir().unwrap();
    let (device, _) = device(4096, DeviceOptions::default());
    let Some(mut attached) = attach(&device, folder.path()) else {
        return;
    };
    let path = folder.path().join("mount/volume");
    let about = fs::metadata(&path).unwrap();
    assert_eq!((about.len(), about.mode() & 0o7777), (SIZE_BYTES, 0o600));
    let names = fs::read_dir(folder.path().join("mount")).unwrap().flatten();
    assert_eq!(
        names.map(|entry| entry.file_name()).collect::<Vec<_>>(),
        ["volume"]
    );

    let mut file = File::options()
        .read(true)
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    file.write_all_at(b"off the grid", 4090).unwrap();
    let mut found = [0; 14];
    file.read_exact_at(&mut found, 4089).unwrap();
    assert_eq!(&found, b"\0off the grid\0");
    assert_eq!(
        file.metadata().unwrap().len(),
        SIZE_BYTES,
        "truncation leaves it"
    );
    assert!(file.set_len(4096).is_err());

    file.seek(SeekFrom::Start(SIZE_BYTES - 3)).unwrap();
    assert_eq!(
        file.write(b"abcdef").unwrap(),
        3,
        "a write over the end is cut"
    );
    assert_eq!(
        file.write(b"def").unwrap_err().raw_os_error(),
        Some(libc::ENOSPC)
    );
    let mut rest = Vec::new();
    file.seek(SeekFrom::Start(SIZE_BYTES - 3)).unwrap();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"abc");
    if attached.kind() == "fuse" {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(&file, hole, 0, 4096);
        assert_eq!(punched, Err(Errno::OPNOTSUPP));
    }
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4092, 2).unwrap();
    file.read_exact_at(&mut found, 4089).unwrap();
    assert_eq!(&found, b"\0of\0\0the grid\0");

    let flushes = || {
        device.stats().to_json()["requests"]["flush"]
            .as_u64()
            .unwrap()
    };
    let before = flushes();
    file.sync_data().unwrap();
    assert_eq!(flushes(), before + 1);
    let direct = File::options()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    assert!(direct.is_ok());
    drop((file, direct));
    attached.detach().unwrap();
}

#[test]
fn read_only_is_refused_to_writers() {
    let folder = tempfile::tempdir().unwrap();
    let options = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let (device, _) = device(512, options);
    let Some((mut attached, path)) = attach_loop(&device, folder.path()) else {
        return;
    };
    let file = File::options()
        .write(true)
        .open(folder.path().join("mount/volume"));
    assert_eq!(file.unwrap_err().raw_os_error(), Some(libc::EROFS));
    let name = path.file_name().unwrap().to_str().unwrap();
    let ro = fs::read_to_string(format!("/sys/block/{name}/ro")).unwrap();
    assert_eq!(ro.trim(), "1");
    attached.detach().unwrap();
}

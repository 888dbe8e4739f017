//! A sample through the whole command, `luks serve --type plain`, with offsets and sizes: the same
//! volume, mapped by the kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::combinations::key;
use super::common::{has_tool, luks, skipped};
use super::device::{Backing, Mapper, Pages};

/// Flags of the command, the specification aside, with what dm-crypt's table says for them.
struct Sample {
    spec: &'static str,
    key_bytes: usize,
    flags: &'static [&'static str],
    skip: u64,
    offset: u64,
    options: &'static str,
}

const fn sample(spec: &'static str, key_bytes: usize) -> Sample {
    Sample {
        spec,
        key_bytes,
        flags: &[],
        skip: 0,
        offset: 0,
        options: "",
    }
}

const SAMPLES: &[Sample] = &[
    // A key file is never hashed, whatever is said.
    Sample {
        flags: &["--hash", "sha256"],
        ..sample("aes-xts-plain64", 64)
    },
    Sample {
        flags: &["--skip", "4294967280", "--offset", "16"],
        skip: 4_294_967_280,
        offset: 16,
        ..sample("aes-cbc-plain", 16)
    },
    Sample {
        flags: &["--sector-size", "4096", "--iv-large-sectors", "--skip", "8"],
        skip: 8,
        options: " 2 sector_size:4096 iv_large_sectors",
        ..sample("capi:xts(aes)-plain64", 64)
    },
    Sample {
        flags: &["--sector-size", "2048", "--offset", "4"],
        offset: 4,
        options: " 1 sector_size:2048",
        ..sample("serpent-xts-plain64", 64)
    },
    sample("aes-cbc-essiv:sha256", 32),
    Sample {
        flags: &["--skip", "7"],
        skip: 7,
        ..sample("twofish-lrw-benbi", 48)
    },
    Sample {
        flags: &["--sector-size", "4096"],
        options: " 1 sector_size:4096",
        ..sample("capi:adiantum(xchacha12,aes)-plain64", 32)
    },
    Sample {
        flags: &["--skip", "1"],
        skip: 1,
        ..sample("aes:64-cbc-lmk", 65 * 16)
    },
    sample("aes-cbc-tcw", 64),
    sample("blowfish-cbc-plain64be", 56),
    Sample {
        flags: &["--allow-null-cipher"],
        ..sample("cipher_null-ecb", 0)
    },
];

const VOLUME_BYTES: usize = 65536;
const OFFSET_BYTES_MAX: u64 = 8192;

#[test]
fn the_command_and_the_kernel_agree() {
    let Some(mapper) = Mapper::new("command") else {
        return skipped("device-mapper with dm-crypt (tests/vm/cipher_matrix.sh)");
    };
    if !has_tool("nbdcopy", "libnbd-bin") {
        return;
    }
    let Some(backing) = Backing::new(VOLUME_BYTES as u64 + OFFSET_BYTES_MAX) else {
        return skipped("a loop device");
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for sample in SAMPLES {
        let spec = sample.spec;
        let key = key(spec, sample.key_bytes);
        fs::write(path("key"), &key).unwrap();
        let shown = match key.as_slice() {
            [] => "-".to_owned(),
            key => hex::encode(key),
        };
        let (skip, offset, options) = (sample.skip, sample.offset, sample.options);
        let table = format!("{spec} {shown} {skip} {} {offset}{options}", backing.device);
        let sectors = VOLUME_BYTES as u64 / 512;
        mapper
            .load(sectors, &table)
            .unwrap_or_else(|e| panic!("{spec}: {e}"));
        println!("{spec} {skip} {offset}{options}");
        let mapped = mapper.resume();
        let (mut plain, mut read) = (Pages::new(VOLUME_BYTES), Pages::new(VOLUME_BYTES));

        super::fill(plain.bytes_mut(), 3);
        mapped.write(&plain);
        let copy = format!(r#"nbdcopy -- "$uri" {}"#, path("read").display());
        serve(&backing.path, sample, &path("key"), &copy);
        assert!(
            fs::read(path("read")).unwrap() == plain.bytes(),
            "{spec}: we read otherwise"
        );

        super::fill(plain.bytes_mut(), 4);
        fs::write(path("written"), plain.bytes()).unwrap();
        let copy = format!(r#"nbdcopy --flush -- {} "$uri""#, path("written").display());
        serve(&backing.path, sample, &path("key"), &copy);
        mapped.read(&mut read);
        assert!(
            read.bytes() == plain.bytes(),
            "{spec}: the kernel reads otherwise"
        );
    }
    println!(
        "{} volumes equal both ways through the command",
        SAMPLES.len()
    );
}

fn serve(image: &Path, sample: &Sample, key: &Path, run: &str) {
    let bits = (sample.key_bytes * 8).to_string();
    let mut command = Command::new(luks());
    command.args(["serve", "--type", "plain", "--cipher", sample.spec]);
    command.args(sample.flags);
    if sample.key_bytes > 0 {
        command
            .args(["--key-size", &bits])
            .arg("--key-file")
            .arg(key);
    }
    command.args(["--size", &(VOLUME_BYTES / 512).to_string()]);
    let output = command.args(["--run", run]).arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", sample.spec);
    let hashed = sample.flags.contains(&"--hash");
    assert_eq!(
        said.contains("a key file is never hashed"),
        hashed,
        "{said}"
    );
}

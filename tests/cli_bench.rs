//! `luks bench`: the rows that scripts rely on, and figures that are of this world.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;
use serde_json::Value;

fn luks(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_luks"))
        .args(args)
        .output()
        .expect("luks runs")
}

fn rows(args: &[&str]) -> Vec<Value> {
    let output = luks(args);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{args:?}");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect()
}

#[test]
fn ciphers_has_a_row_for_every_size_and_direction() {
    let spec = "xchacha12,aes-adiantum-plain64";
    let args = ["--cipher", spec, "--engine", "cpu:soft", "--json"];
    let rows = rows(&[&["bench", "ciphers"], &args[..]].concat());
    let mut shapes = BTreeSet::new();
    for row in &rows {
        assert_eq!(row["bench"], "ciphers");
        assert_eq!(row["cipher"], spec);
        assert_eq!(row["key_bits"], 256);
        assert_eq!(row["threads"], 1);
        assert_eq!(row["label"], "measured");
        assert_eq!(row["engine"], "cpu:soft");
        let number = |name: &str| row[name].as_f64().expect(name);
        assert!(number("bytes_per_s") > 1e4, "{row}");
        assert!(number("cpu_s") > 0.0, "{row}");
        // One is the median slice, the other all of them, by one clock that others' work on the
        // machine doesn't move.
        let ratio = number("measured_bytes") / number("cpu_s") / number("bytes_per_s");
        assert!((0.5..2.0).contains(&ratio), "{ratio}: {row}");
        shapes.insert((
            row["sector_size_bytes"].as_u64(),
            row["request_bytes"].as_u64(),
            row["direction"].as_str(),
        ));
    }
    assert_eq!((rows.len(), shapes.len()), (12, 12));
    for sector in [512, 4096] {
        for request in [4096, 65_536, 1_048_576] {
            for direction in ["encrypt", "decrypt"] {
                let shape = (Some(sector), Some(request), Some(direction));
                assert!(shapes.contains(&shape), "{shape:?}");
            }
        }
    }
}

/// The figures are those of the library's face, timed from outside: the same build, the same work.
/// CPU time on both sides, which other work on the machine hardly moves; the best of some counts.
#[test]
fn ciphers_agrees_with_the_library_timed_from_outside() {
    let spec = "aes-xts-plain64";
    let rows = rows(&[
        "bench",
        "ciphers",
        "--cipher",
        spec,
        "--key-size",
        "512",
        "--json",
    ]);
    let row = rows
        .iter()
        .find(|row| {
            row["sector_size_bytes"] == 4096
                && row["request_bytes"] == 65_536
                && row["direction"] == "encrypt"
        })
        .expect("the row");
    let number = |name: &str| row[name].as_f64().expect("a number");
    let per_cpu_s = number("measured_bytes") / number("cpu_s");

    let key: Vec<u8> = (0..64).collect();
    let spec = CipherSpec::parse(spec).expect("good");
    let cipher =
        SectorCipher::new(&spec, &key, SectorSize::MAX, IvOptions::default()).expect("supported");
    let mut data = vec![1; 65_536];
    let outside = (0..9)
        .map(|_| {
            let (started, calls) = (cpu_s(), 100);
            for call in 0..calls {
                cipher.encrypt(&mut data, call * 128);
            }
            calls as f64 * 65_536.0 / (cpu_s() - started)
        })
        .fold(0.0, f64::max);
    for inside in [per_cpu_s, number("bytes_per_s")] {
        let ratio = inside / outside;
        assert!(
            (0.5..2.0).contains(&ratio),
            "{inside} and {outside}: {ratio}"
        );
    }
}

/// CPU time of this thread.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[test]
fn ciphers_are_refused_by_name() {
    for (args, code, word) in [
        (&["--cipher", "rot13-xts-plain64"][..], 4, "no cipher rot13"),
        (&["--cipher", "aes-xts-plainest"], 4, "no IV plainest"),
        (&["--cipher", "aes-gcm-plain64"], 4, "no mode gcm"),
        (&["--cipher", "aes-cbc-essiv"], 4, "essiv needs a hash"),
        (&["--cipher", ""], 1, "no cipher specification"),
        (&["--cipher", "aes:4294967295-cbc-lmk"], 1, "keys"),
        (
            &["--cipher", "aes-xts-plain64", "--key-size", "128"],
            4,
            "128",
        ),
        (
            &["--cipher", "aes-xts-plain64", "--key-size", "7"],
            1,
            "7 bits",
        ),
        (&["--key-size", "256"], 1, "--cipher"),
        (&["--engine", "abacus"], 1, "abacus"),
        (&["--engine", "cpu:abacus"], 1, "cpu:soft"),
    ] {
        let output = luks(&[&["bench", "ciphers"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[test]
fn kdf_measures_the_named_hash_and_argon2() {
    let args = [
        "--hash",
        "sha256",
        "--pbkdf-memory",
        "1024",
        "--pbkdf-parallel",
        "1",
    ];
    let rows = rows(&[&["bench", "kdf", "--json"], &args[..]].concat());
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row["kdf"].as_str()).collect();
    assert_eq!(kinds, ["pbkdf2", "argon2i", "argon2id"]);
    assert_eq!(rows[0]["hash"], "sha256");
    assert!(rows[0]["iterations_per_s"].as_f64().expect("a number") > 100.0);
    assert_eq!(rows[1]["memory_kib"], 1024);
    assert!(rows[2]["seconds"].as_f64().expect("a number") > 0.0);

    let output = luks(&["bench", "kdf", "--hash", "crc32"]);
    assert_eq!(output.status.code(), Some(1));
}

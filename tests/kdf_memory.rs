//! A KDF that can't have its memory says so and goes on living: tried for real, in a process of its
//! own under a limit on address space.

use std::process::Command;

use nbdcrypt::error::ErrorKind;
use nbdcrypt::kdf::Kdf;

fn argon2(memory_kib: u32) -> Kdf {
    Kdf::Argon2 {
        id: true,
        time: 1,
        memory_kib,
        cpus: 2,
        salt: vec![1; 32],
    }
}

#[test]
fn a_limit_on_address_space_is_an_error_that_names_both_figures() {
    let this = std::env::current_exe().expect("the test binary");
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -v 700000 && exec \"$0\" --exact --ignored --nocapture limited",
        ])
        .arg(this)
        .output()
        .expect("sh runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

#[test]
#[ignore = "run by the test above, under its limit"]
fn limited() {
    let error = argon2(1 << 20)
        .derive(b"passphrase", 64)
        .expect_err("a GiB under the limit");
    assert_eq!(error.kind(), ErrorKind::Memory);
    let what = error.what();
    assert!(
        what.starts_with("key slot needs 1024 MiB for Argon2, "),
        "{what}"
    );
    assert!(
        what.ends_with(" MiB are available under the limit on address space"),
        "{what}"
    );

    argon2(1 << 10)
        .derive(b"passphrase", 64)
        .expect("a MiB is to be had");
}

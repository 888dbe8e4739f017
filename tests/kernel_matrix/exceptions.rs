//! Where the kernel takes what we refuse, or the other way, and that is meant.

use nbdcrypt::cipher::CipherSpec;

use super::Outcome;
use super::combinations::Combination;

/// Why `outcome` is as it should be; `None` where it isn't.
pub(crate) fn why(combination: &Combination, outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::NotInThisKernel => Some("built without it"),
        Outcome::KernelOnly => refused_by_us(combination),
        Outcome::OursOnly => refused_by_the_kernel(&combination.spec),
        _ => None,
    }
}

fn refused_by_us(combination: &Combination) -> Option<&'static str> {
    let text = combination.spec.as_str();
    let inside = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if matches!(text, "capi:cbc(aes)" | "capi:xts(aes)") {
        return Some("no IV: every sector alike, and a slip of the pen");
    }
    if inside(&["cipher_null"]) && text != "cipher_null-ecb" {
        return Some("the null cipher in a mode, which is no cipher and not the identity");
    }
    if inside(&["fcrypt", "anubis", "khazad", "seed", "tea"]) {
        return Some("a cipher that no maintained crate has, and no disk");
    }
    if inside(&["aes-generic", "xts-aes-aesni"]) {
        return Some("a driver by its own name, which another machine needn't have");
    }
    if inside(&["capi:chacha", "capi:xchacha", "rfc3686(", "xctr("]) {
        return Some("a stream cipher: two writes to a sector give both away");
    }
    if inside(&["cts("]) {
        return Some("ciphertext stealing, which sectors of whole blocks have no use for");
    }
    if inside(&["adiantum(xchacha12,serpent)", "adiantum(xchacha20,twofish)"]) {
        return Some("Adiantum with another block cipher than its authors'");
    }
    // With plain64 it is ESSIV itself, which must open.
    if inside(&["capi:essiv("]) && !text.ends_with("-plain64") {
        return Some("an IV rule within an IV rule");
    }
    if inside(&[
        "essiv:md4",
        "essiv:streebog",
        "essiv:crc32c",
        "essiv:xxhash64",
    ]) {
        return Some("ESSIV with what is no hash for keys, or that no crate in use here has");
    }
    let spec = CipherSpec::parse(text).ok()?;
    match (spec.mode()?, spec.iv()?, spec.key_count()) {
        (_, "plain64" | "null", 1) if matches!(spec.iv_options(), Some("8" | "x")) => {
            Some("options to a rule that has none, which the kernel overlooks")
        }
        (_, "plain64", 2) if combination.key.len() % 2 == 1 => {
            Some("a key that can't be halved, of which the kernel leaves a byte out")
        }
        (_, "eboiv" | "elephant", 2..) => Some("several keys in turn with BitLocker's IV"),
        (mode, "lmk" | "elephant" | "tcw", _) if mode != "cbc" => {
            Some("another system's format in a mode that it never had")
        }
        ("lrw", "eboiv", _) => Some("BitLocker's IV in LRW"),
        _ => None,
    }
}

fn refused_by_the_kernel(text: &str) -> Option<&'static str> {
    if text.starts_with("capi:xts(ecb(") || text.starts_with("capi:lrw(ecb(") {
        return Some("how the kernel spells it to itself, and only one thing can be meant");
    }
    (text == "cipher_null-ecb-essiv:sha256")
        .then_some("the null cipher with an IV, which makes no difference to plaintext")
}

//! What the kernel is asked for: ciphers with their keys, modes, IVs, sectors, and numbers to begin
//! with, each with each.

/// A request to dm-crypt and to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Combination {
    pub(crate) spec: String,
    pub(crate) key: Vec<u8>,
    pub(crate) sector_bytes: u64,
    pub(crate) large_sectors: bool,
    /// In 512-byte sectors.
    pub(crate) iv_offset: u64,
}

/// The kernel's ciphers, and lengths of keys in bytes.
const CIPHERS: &[(&str, &[usize])] = &[
    ("aes", &[16, 24, 32]),
    ("serpent", &[0, 1, 16, 24, 32]),
    ("twofish", &[16, 24, 32]),
    ("camellia", &[16, 24, 32]),
    ("cast6", &[16, 20, 24, 28, 32]),
    ("sm4", &[16]),
    ("aria", &[16, 24, 32]),
    ("cast5", &[5, 10, 11, 16]),
    ("blowfish", &[4, 5, 16, 32, 56]),
    ("des", &[8]),
    ("des3_ede", &[24]),
    ("anubis", &[16]),
    ("khazad", &[16]),
    ("seed", &[16]),
    ("tea", &[16]),
    ("fcrypt", &[8]),
];

const MODES: &[&str] = &["xts", "lrw", "cbc", "ecb", "ctr", "pcbc"];

const IVS: &[&str] = &[
    "plain",
    "plain64",
    "plain64be",
    "benbi",
    "null",
    "eboiv",
    "essiv:sha256",
    "elephant",
    "tcw",
    "lmk",
    "random",
];

/// Every hash that a kernel may have for ESSIV, by the kernel's names.
const ESSIV_HASHES: &[&str] = &[
    "md4",
    "md5",
    "sha1",
    "sha224",
    "sha384",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "rmd160",
    "wp256",
    "wp384",
    "wp512",
    "blake2b-160",
    "blake2b-256",
    "blake2b-384",
    "blake2b-512",
    "sm3",
    "streebog256",
    "streebog512",
    "crc32c",
    "xxhash64",
];

/// Sector sizes in bytes, and whether IVs count such sectors.
const SECTORS: &[(u64, bool)] = &[
    (512, false),
    (512, true),
    (1024, false),
    (1024, true),
    (2048, false),
    (2048, true),
    (4096, false),
    (4096, true),
];

/// The names of block ciphers.
pub(crate) fn ciphers() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    CIPHERS
        .iter()
        .map(|&(cipher, lengths)| (cipher, key(cipher, lengths[lengths.len() - 1])))
}

/// A specification, a key, and with how many sector sizes.
type Spec = (String, Vec<u8>, Sizes);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// One of [`SECTORS`] in turn.
    One,
    /// Each size, with one way to count in turn.
    EachSize,
    /// All of them, with each number to begin with.
    All,
}

/// All of them, with volumes of `volume_sectors` (of 512 bytes) in mind, but for ciphers that
/// `absent` names.
pub(crate) fn all(volume_sectors: u64, absent: &[&str]) -> Vec<Combination> {
    let mut one = [essiv_hashes(), loop_aes(), others(), weak_keys()]
        .concat()
        .into_iter()
        .map(|(spec, key)| (spec, key, Sizes::One))
        .collect::<Vec<_>>();
    let mut specs = block_ciphers(absent);
    specs.append(&mut one);
    let mut all = Vec::new();
    for (index, (spec, key, sizes)) in specs.into_iter().enumerate() {
        let mut add = |(sector_bytes, large_sectors), start: usize| {
            // The number passes 2^32 and 2^64 in the middle of the volume, as the IV counts it,
            // or begins at 0.
            let unit = if large_sectors { sector_bytes / 512 } else { 1 };
            let iv_offset = match start % 3 {
                0 => (unit << 32) - volume_sectors / 2,
                1 => 0,
                _ => (volume_sectors / 2).wrapping_neg(),
            };
            all.push(Combination {
                spec: spec.clone(),
                key: key.clone(),
                sector_bytes,
                large_sectors,
                iv_offset,
            });
        };
        match sizes {
            Sizes::One => add(SECTORS[index % SECTORS.len()], index / SECTORS.len()),
            Sizes::EachSize => {
                for (turn, pair) in SECTORS.chunks(2).enumerate() {
                    add(pair[(index + turn) % 2], index + turn);
                }
            }
            Sizes::All => {
                for (sectors, start) in SECTORS.iter().flat_map(|s| (0..3).map(move |i| (s, i))) {
                    add(*sectors, start);
                }
            }
        }
    }
    all
}

/// A key with no pattern in it; two calls differ.
pub(crate) fn key(seed: &str, bytes: usize) -> Vec<u8> {
    let seed = seed.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut key = vec![0; bytes];
    super::fill(&mut key, seed);
    key
}

fn block_ciphers(absent: &[&str]) -> Vec<Spec> {
    let mut specs = Vec::new();
    for &(cipher, lengths) in CIPHERS {
        if absent.contains(&cipher) {
            continue;
        }
        let block_bytes = match cipher {
            "cast5" | "blowfish" | "des" | "des3_ede" | "khazad" | "tea" | "fcrypt" => 8,
            _ => 16,
        };
        let most = lengths[lengths.len() - 1];
        for &length in lengths {
            for &mode in MODES {
                let bytes = match mode {
                    "xts" => 2 * length,
                    "lrw" => length + 16,
                    _ => length,
                };
                for &iv in IVS {
                    let bytes = match iv {
                        "elephant" => 2 * bytes,
                        "tcw" => bytes + block_bytes + 16,
                        _ => bytes,
                    };
                    let sizes = match (cipher, mode) {
                        _ if length != most => Sizes::One,
                        ("aes", "xts" | "cbc") => Sizes::All,
                        _ => Sizes::EachSize,
                    };
                    let spec = format!("{cipher}-{mode}-{iv}");
                    specs.push((spec.clone(), key(&spec, bytes), sizes));
                }
            }
        }
        for spec in [
            format!("{cipher}-ecb"),
            cipher.to_owned(),
            format!("{cipher}-plain"),
            format!("capi:ctr({cipher})-plain64be"),
            format!("capi:cbc({cipher})-essiv:sha256"),
        ] {
            specs.push((spec.clone(), key(&spec, most), Sizes::One));
        }
    }
    specs
}

fn essiv_hashes() -> Vec<(String, Vec<u8>)> {
    let mut specs = Vec::new();
    for hash in ESSIV_HASHES {
        for (mode, bytes) in [
            ("aes-cbc", 32),
            ("aes-xts", 64),
            ("aes-pcbc", 16),
            ("serpent-cbc", 32),
            ("cast6-cbc", 16),
            ("blowfish-cbc", 16),
            ("cast5-cbc", 16),
            ("camellia-lrw", 48),
            ("twofish-ctr", 32),
            ("des3_ede-cbc", 24),
        ] {
            let spec = format!("{mode}-essiv:{hash}");
            specs.push((spec.clone(), key(&spec, bytes)));
        }
    }
    specs
}

/// Several keys in turn, and loop-AES's three formats.
fn loop_aes() -> Vec<(String, Vec<u8>)> {
    let mut specs = Vec::new();
    for (cipher, bytes) in [
        ("aes", 16),
        ("aes", 32),
        ("serpent", 32),
        ("twofish", 24),
        ("blowfish", 16),
        ("des3_ede", 24),
    ] {
        for (count, keys) in [(1, 1), (1, 2), (2, 3), (64, 64), (64, 65), (64, 1), (4, 4)] {
            let spec = format!("{cipher}:{count}-cbc-lmk");
            specs.push((spec.clone(), key(&spec, keys * bytes)));
        }
        specs.push((format!("capi:cbc({cipher})-lmk"), key("capi", 64 * bytes)));
        for iv in IVS.iter().filter(|&&iv| iv != "lmk") {
            for mode in ["cbc", "xts", "ecb"] {
                let spec = format!("{cipher}:4-{mode}-{iv}");
                specs.push((spec.clone(), key(&spec, 4 * bytes)));
                specs.push((spec.clone(), key(&spec, 8 * bytes)));
            }
        }
        specs.push((format!("{cipher}:3-cbc-plain64"), key("three", 3 * bytes)));
        specs.push((format!("{cipher}:2-cbc-plain64"), key("odd", 2 * bytes + 1)));
    }
    // An extra key over 16 bytes long: how much of it is used shows here only.
    specs.push(("aes:64-cbc-lmk".into(), key("extra", 65 * 24)));
    specs
}

fn others() -> Vec<(String, Vec<u8>)> {
    let mut specs = Vec::new();
    for iv in IVS {
        for (cipher, bytes) in [
            ("capi:adiantum(xchacha12,aes)", 32),
            ("capi:adiantum(xchacha20,aes)", 32),
            ("xchacha12,aes-adiantum", 32),
            ("xchacha20,aes-adiantum", 32),
            ("capi:adiantum(xchacha12,serpent)", 32),
            ("capi:adiantum(xchacha20,twofish)", 32),
            ("aes-hctr2", 32),
            ("capi:hctr2(aes)", 16),
            ("cipher_null-ecb", 0),
            ("cipher_null-cbc", 0),
            ("capi:xts(aes)", 64),
            ("capi:xts(ecb(serpent))", 64),
            ("capi:lrw(ecb(twofish))", 48),
            ("capi:cbc(ecb(aes))", 32),
            ("capi:ecb(aes)", 32),
            ("capi:pcbc(camellia)", 32),
            ("capi:essiv(cbc(aes),sha256)", 32),
            ("capi:essiv(cbc(serpent),sha3-256)", 32),
            ("capi:essiv(xts(aes),sha256)", 64),
            ("capi:cts(cbc(aes))", 32),
            ("capi:rfc3686(ctr(aes))", 36),
            ("capi:xctr(aes)", 32),
            ("capi:chacha20", 32),
            ("capi:xchacha12", 32),
            ("capi:xchacha20", 32),
            ("capi:arc4", 16),
            ("capi:cfb(aes)", 32),
            ("capi:ofb(aes)", 32),
            ("aes-cts", 32),
            ("aes-gcm", 32),
            ("capi:gcm(aes)", 32),
            ("capi:authenc(hmac(sha256),xts(aes))", 96),
            ("capi:cbc(aes-generic)", 32),
            ("capi:xts-aes-aesni", 64),
            ("xchacha12,aes", 32),
        ] {
            specs.push((format!("{cipher}-{iv}"), key(cipher, bytes)));
        }
    }
    for spec in [
        "cipher_null",
        "cipher_null-ecb",
        "cipher_null-plain",
        "null-ecb",
        "aes-xts",
        "aes-plain64",
        "AES-xts-plain64",
        "aes-XTS-plain64",
        "aes-xts-plain64:8",
        "aes-xts-plain128",
        "aes-cbc-essiv",
        "aes-cbc-essiv:",
        "aes-cbc-null:x",
        "aes-cbc-plain64-x",
        "aes-xts-plain64-x",
        "aes:1-xts-plain64",
        "aes:0-cbc-plain",
        "aes:-cbc-plain",
        "aes:2x-cbc-plain",
        "capi:xts(aes)",
        "capi:ecb(aes)",
        "capi:cbc(aes)-essiv",
        "capi:cbc(aes)",
        "capi:aes-cbc-plain64",
    ] {
        for bytes in [0, 16, 32, 64] {
            specs.push((spec.to_owned(), key(spec, bytes)));
        }
    }
    for (spec, bytes) in [
        (
            "aes-xts-plain64",
            &[16, 24, 31, 33, 40, 48, 63, 65, 96, 128][..],
        ),
        ("aes-cbc-plain", &[0, 1, 15, 17, 33]),
        ("aes-cbc-tcw", &[16, 32, 33, 40, 49]),
        ("aes-cbc-elephant", &[16, 24, 33, 40]),
        ("aes-lrw-benbi", &[16, 24, 33]),
        ("serpent-xts-plain64", &[2, 30, 33, 66]),
        ("twofish-cbc-plain", &[8, 20, 33]),
        ("cast6-cbc-plain", &[18, 36]),
        ("cast5-cbc-plain", &[4, 6, 17]),
        ("blowfish-cbc-plain", &[3, 57]),
        ("des3_ede-cbc-plain", &[8, 16]),
        ("camellia-cbc-plain", &[20]),
        ("xchacha12,aes-adiantum-plain64", &[16, 31, 64]),
    ] {
        specs.extend(
            bytes
                .iter()
                .map(|&bytes| (spec.to_owned(), key(spec, bytes))),
        );
    }
    specs
}

/// Keys that a cipher's authors or FIPS warn of. dm-crypt takes them.
fn weak_keys() -> Vec<(String, Vec<u8>)> {
    let half = key("half", 32);
    let des = [key("one", 8), key("two", 8)];
    let mut specs = Vec::new();
    for cipher in ["aes", "serpent", "twofish", "camellia", "cast6"] {
        specs.push((format!("{cipher}-xts-plain64"), half.repeat(2)));
        specs.push((format!("{cipher}-xts-plain64"), vec![0; 64]));
    }
    for weak in [
        "0101010101010101",
        "fefefefefefefefe",
        "e0e0e0e0f1f1f1f1",
        "1f1f1f1f0e0e0e0e",
        "01fe01fe01fe01fe",
        "0000000000000000",
    ] {
        let weak = hex::decode(weak).expect("hex");
        specs.push(("des-cbc-plain64".into(), weak.clone()));
        specs.push(("des3_ede-cbc-plain64".into(), weak.repeat(3)));
    }
    for order in [[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 1, 0]] {
        let key = order.map(|part| des[part].clone()).concat();
        specs.push(("des3_ede-cbc-plain64".into(), key));
    }
    // Blowfish keys with equal entries in an S-box, by Vaudenay's analysis, can't be told before
    // the key schedule is made; the kernel takes all. LRW with a second key of zeros adds no mask.
    specs.push(("aes-lrw-benbi".into(), [half, vec![0; 16]].concat()));
    specs.push(("blowfish-cbc-plain64".into(), vec![0; 56]));
    specs
}

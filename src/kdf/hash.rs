//! The hashes that LUKS and cryptsetup name.

use blake2::{Blake2b, Blake2b512, Blake2s, Blake2s128, Blake2s256};
use digest::Digest;
use digest::consts::{U20, U28, U32, U48};
use hmac::{Hmac, KeyInit, Mac, SimpleHmac};
use md5::Md5;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};
use sm3::Sm3;
use whirlpool::Whirlpool;

/// Longest digest of any [`HashAlgorithm`], in bytes.
pub const DIGEST_BYTES_MAX: usize = 64;

macro_rules! hash_algorithms {
    ($($variant:ident, $name:literal, $hash:ty, $hmac:ident;)*) => {
        /// A hash by its cryptsetup name. Source: cryptsetup(8), `--hash`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // Each is its name.
        pub enum HashAlgorithm {
            $($variant,)*
        }

        impl HashAlgorithm {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its canonical cryptsetup name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Digest length in bytes, at most [`DIGEST_BYTES_MAX`].
            pub fn output_bytes(self) -> usize {
                match self {
                    $(Self::$variant => <$hash as Digest>::output_size(),)*
                }
            }

            /// Digest of the concatenation of `parts` into `out`.
            ///
            /// # Panics
            /// Unless `out` is `output_bytes` long.
            pub fn digest(self, parts: &[&[u8]], out: &mut [u8]) {
                match self {
                    $(Self::$variant => {
                        let mut hash = <$hash>::new();
                        for part in parts {
                            Digest::update(&mut hash, part);
                        }
                        out.copy_from_slice(&hash.finalize());
                    })*
                }
            }

            /// HMAC of the concatenation of `parts` under `key` into `out`. Source: RFC 2104.
            ///
            /// # Panics
            /// Unless `out` is `output_bytes` long.
            pub fn hmac(self, key: &[u8], parts: &[&[u8]], out: &mut [u8]) {
                match self {
                    $(Self::$variant => {
                        let mut mac = <$hmac<$hash> as KeyInit>::new_from_slice(key)
                            .expect("HMAC takes keys of any length");
                        for part in parts {
                            mac.update(part);
                        }
                        out.copy_from_slice(&mac.finalize().into_bytes());
                    })*
                }
            }

            /// PBKDF2 with HMAC of this hash into the whole of `out`, `iterations` at least 1.
            /// Source: RFC 8018, section 5.2.
            pub(super) fn pbkdf2(
                self,
                passphrase: &[u8],
                salt: &[u8],
                iterations: u32,
                out: &mut [u8],
            ) {
                match self {
                    $(Self::$variant => {
                        pbkdf2::pbkdf2::<$hmac<$hash>>(passphrase, salt, iterations, out)
                            .expect("HMAC takes keys of any length");
                    })*
                }
            }
        }
    };
}

// `Hmac` keeps the two keyed states and so halves PBKDF2's work; it needs a hash whose blocks are
// compressed as soon as they are full, which BLAKE2 and this SHA-3 don't offer.
hash_algorithms! {
    Sha1, "sha1", Sha1, Hmac;
    Sha224, "sha224", Sha224, Hmac;
    Sha256, "sha256", Sha256, Hmac;
    Sha384, "sha384", Sha384, Hmac;
    Sha512, "sha512", Sha512, Hmac;
    Sha3_224, "sha3-224", Sha3_224, SimpleHmac;
    Sha3_256, "sha3-256", Sha3_256, SimpleHmac;
    Sha3_384, "sha3-384", Sha3_384, SimpleHmac;
    Sha3_512, "sha3-512", Sha3_512, SimpleHmac;
    Ripemd160, "ripemd160", Ripemd160, Hmac;
    Whirlpool, "whirlpool", Whirlpool, Hmac;
    Blake2b160, "blake2b-160", Blake2b<U20>, SimpleHmac;
    Blake2b256, "blake2b-256", Blake2b<U32>, SimpleHmac;
    Blake2b384, "blake2b-384", Blake2b<U48>, SimpleHmac;
    Blake2b512, "blake2b-512", Blake2b512, SimpleHmac;
    Blake2s128, "blake2s-128", Blake2s128, SimpleHmac;
    Blake2s160, "blake2s-160", Blake2s<U20>, SimpleHmac;
    Blake2s224, "blake2s-224", Blake2s<U28>, SimpleHmac;
    Blake2s256, "blake2s-256", Blake2s256, SimpleHmac;
    Sm3, "sm3", Sm3, Hmac;
    Md5, "md5", Md5, Hmac;
}

impl HashAlgorithm {
    /// The hash named so, or `None`. Upper and lower case are one, as in libgcrypt, which
    /// cryptsetup hands the name to.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|hash| hash.name().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex_digest(hash: HashAlgorithm, parts: &[&[u8]]) -> String {
        let mut out = [0; DIGEST_BYTES_MAX];
        let out = &mut out[..hash.output_bytes()];
        hash.digest(parts, out);
        hex::encode(out)
    }

    #[test]
    fn names_parse_to_themselves_in_any_case() {
        for &hash in HashAlgorithm::ALL {
            assert_eq!(HashAlgorithm::parse(hash.name()), Some(hash));
            assert_eq!(
                HashAlgorithm::parse(&hash.name().to_uppercase()),
                Some(hash)
            );
            assert!(hash.output_bytes() <= DIGEST_BYTES_MAX);
        }
        for unknown in [
            "",
            "sha",
            "sha2566",
            "sha256 ",
            "md4",
            "crc32",
            "blake2b-999",
        ] {
            assert_eq!(HashAlgorithm::parse(unknown), None, "{unknown}");
        }
    }

    /// The digests of "abc" as their publishers give them: FIPS 180-4 and 202 examples, RFC 1321, 7693
    /// appendices A and B, the RIPEMD-160 and Whirlpool authors' pages, GB/T 32905 appendix A.1;
    /// the shorter BLAKE2 by Python's hashlib and libgcrypt.
    #[test]
    fn digests_of_abc() {
        let known: &[(&str, &str)] = &[
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "sha224",
                "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
            ),
            (
                "sha256",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "sha384",
                "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded163\
                 1a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            ),
            (
                "sha512",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            (
                "sha3-224",
                "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf",
            ),
            (
                "sha3-256",
                "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
            ),
            (
                "sha3-384",
                "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c25\
                 96da7cf0e49be4b298d88cea927ac7f539f1edf228376d25",
            ),
            (
                "sha3-512",
                "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e\
                 10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
            ),
            ("ripemd160", "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc"),
            (
                "whirlpool",
                "4e2448a4c6f486bb16b6562c73b4020bf3043e3a731bce721ae1b303d97e6d4c\
                 7181eebdb6c57e277d0e34957114cbd6c797fc9d95d8b582d225292076d4eef5",
            ),
            ("blake2b-160", "384264f676f39536840523f284921cdc68b6846b"),
            (
                "blake2b-256",
                "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
            ),
            (
                "blake2b-384",
                "6f56a82c8e7ef526dfe182eb5212f7db9df1317e57815dbd\
                 a46083fc30f54ee6c66ba83be64b302d7cba6ce15bb556f4",
            ),
            (
                "blake2b-512",
                "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1\
                 7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
            ),
            ("blake2s-128", "aa4938119b1dc7b87cbad0ffd200d0ae"),
            ("blake2s-160", "5ae3b99be29b01834c3b508521ede60438f8de17"),
            (
                "blake2s-224",
                "0b033fc226df7abde29f67a05d3dc62cf271ef3dfea4d387407fbd55",
            ),
            (
                "blake2s-256",
                "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
            ),
            (
                "sm3",
                "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0",
            ),
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ];
        assert_eq!(known.len(), HashAlgorithm::ALL.len());
        for (name, expected) in known {
            let hash = HashAlgorithm::parse(name).expect("a name of the list");
            assert_eq!(hex_digest(hash, &[b"abc"]), *expected, "{name}");
            assert_eq!(
                hex_digest(hash, &[b"a", b"", b"bc"]),
                *expected,
                "{name} in parts"
            );
        }
    }

    /// RFC 2202 (sha1, test case 2), RFC 2286 (ripemd160, 2), RFC 4231 (sha256 and sha512, 2).
    #[test]
    fn hmac_known_answers() {
        for (hash, expected) in [
            (
                HashAlgorithm::Sha1,
                "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            ),
            (
                HashAlgorithm::Ripemd160,
                "dda6c0213a485a9e24f4742064a7f033b43c4069",
            ),
            (
                HashAlgorithm::Sha256,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                HashAlgorithm::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            let mut out = [0; DIGEST_BYTES_MAX];
            let out = &mut out[..hash.output_bytes()];
            hash.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"], out);
            assert_eq!(hex::encode(out), expected, "{}", hash.name());
        }
    }
}

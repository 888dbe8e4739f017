//! `digests`: what proves a key right.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq as _;

use super::json::{Fault, Object};
use super::keyslot::iterations_u32;
use crate::error::{Error, Result};
use crate::kdf::{HashAlgorithm, Kdf};
use crate::luks::text::printable;

/// The shortest digest taken, in bytes: LUKS1's. Shorter ones would let wrong keys pass.
const DIGEST_BYTES_MIN: usize = 20;
/// The longest, in bytes: SHA-512's.
const DIGEST_BYTES_MAX: usize = 64;

/// Source: LUKS2 on-disk format, "Digests object".
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    /// Its type; only `pbkdf2` is known.
    pub(crate) kind: String,
    /// The key slots whose key it checks.
    pub(crate) keyslots: Vec<u32>,
    /// The segments that key opens; none for a key that is only kept here (unbound).
    pub(crate) segments: Vec<u32>,
    /// Its parameters, where the type is known and they are all there.
    pub(crate) pbkdf2: Option<Pbkdf2Digest>,
}

/// Parameters as stored; judged when they are used, so that a header with a strange one can
/// still be dumped.
#[derive(Debug, Clone)]
pub(crate) struct Pbkdf2Digest {
    /// The hash's name.
    pub(crate) hash: String,
    /// Iterations.
    pub(crate) iterations: i64,
    /// Salt, base64.
    pub(crate) salt: String,
    /// Digest, base64.
    pub(crate) digest: String,
}

impl Digest {
    pub(super) fn parse(digest: &Object<'_>) -> std::result::Result<Self, Fault> {
        let kind = digest.string("type")?.to_owned();
        let pbkdf2 = match kind.as_str() {
            "pbkdf2" => Pbkdf2Digest::parse(digest).ok(),
            _ => None,
        };
        let keyslots = digest.ids("keyslots")?;
        let segments = digest.ids("segments")?;
        Ok(Self {
            kind,
            keyslots,
            segments,
            pbkdf2,
        })
    }

    /// Whether `key` is the key this digest is of.
    ///
    /// Errors: `Device` for a type, hash or parameter that isn't supported or is out of range.
    pub(crate) fn verify(&self, key: &[u8]) -> Result<bool> {
        let Some(parameters) = &self.pbkdf2 else {
            let kind = printable(&self.kind);
            return Err(Error::device(match kind.as_str() {
                "pbkdf2" => "header damaged: digest parameters are missing".to_owned(),
                kind => format!("digest type {kind:?} is not supported"),
            }));
        };
        let (kdf, expected) = parameters.decode()?;
        let computed = kdf.derive(key, expected.len())?;
        Ok(computed.ct_eq(&expected).into())
    }
}

impl Pbkdf2Digest {
    fn parse(digest: &Object<'_>) -> std::result::Result<Self, Fault> {
        Ok(Self {
            hash: digest.string("hash")?.to_owned(),
            iterations: digest.integer("iterations")?,
            salt: digest.string("salt")?.to_owned(),
            digest: digest.string("digest")?.to_owned(),
        })
    }

    fn decode(&self) -> Result<(Kdf, Vec<u8>)> {
        let hash = HashAlgorithm::parse(&self.hash).ok_or_else(|| {
            let hash = printable(&self.hash);
            Error::device(format!("digest hash {hash:?} is not supported"))
        })?;
        let iterations = iterations_u32(self.iterations)
            .ok_or_else(|| Error::device("header damaged: digest iterations are out of range"))?;
        let salt = BASE64
            .decode(&self.salt)
            .map_err(|_| Error::device("header damaged: digest salt is not base64"))?;
        let expected = BASE64
            .decode(&self.digest)
            .map_err(|_| Error::device("header damaged: digest is not base64"))?;
        if !(DIGEST_BYTES_MIN..=DIGEST_BYTES_MAX).contains(&expected.len()) {
            return Err(Error::device(format!(
                "header damaged: a digest of {} bytes",
                expected.len()
            )));
        }
        Ok((
            Kdf::Pbkdf2 {
                hash,
                iterations,
                salt,
            },
            expected,
        ))
    }
}

//! The anti-forensic splitter. Source: LUKS1 on-disk format, section 2.4 (AFsplit, AFmerge).

use super::HashAlgorithm;
use crate::secret::Secret;

/// Merges `stripes` stripes of `key_bytes` each back into the key. `material` is exactly
/// `key_bytes * stripes` long.
pub fn af_merge(
    _material: &[u8],
    _key_bytes: usize,
    _stripes: u32,
    _hash: HashAlgorithm,
) -> Secret {
    todo!()
}

/// Splits `key` into `stripes` stripes with fresh randomness.
pub fn af_split(_key: &[u8], _stripes: u32, _hash: HashAlgorithm) -> Secret {
    todo!()
}

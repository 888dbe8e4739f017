//! The anti-forensic splitter. Source: LUKS1 on-disk format, section 2.4 (AFsplit, AFmerge).

use zeroize::Zeroize;

use super::HashAlgorithm;
use super::hash::DIGEST_BYTES_MAX;
use crate::secret::Secret;

/// Merges `stripes` stripes of `key_bytes` each back into the key.
///
/// # Panics
/// Unless `material` is exactly `key_bytes * stripes` long and neither is 0; callers check what a
/// header says first.
pub fn af_merge(material: &[u8], key_bytes: usize, stripes: u32, hash: HashAlgorithm) -> Secret {
    assert!(
        key_bytes > 0 && stripes > 0,
        "a key and at least one stripe"
    );
    assert_eq!(
        Some(material.len()),
        key_bytes.checked_mul(stripes as usize)
    );
    let (diffused, last) = material.split_at(material.len() - key_bytes);
    let mut key = mix(diffused, key_bytes, hash);
    xor(&mut key, last);
    key
}

/// Splits `key` into `stripes` stripes with fresh randomness: `key.len() * stripes` bytes.
///
/// # Panics
/// Where key or stripes are empty, or the system has no randomness.
pub fn af_split(key: &[u8], stripes: u32, hash: HashAlgorithm) -> Secret {
    assert!(
        !key.is_empty() && stripes > 0,
        "a key and at least one stripe"
    );
    let mut material = Secret::zeroed(key.len() * stripes as usize);
    let last_offset = material.len() - key.len();
    let (diffused, last) = material.split_at_mut(last_offset);
    getrandom::fill(diffused).expect("the system's random source");
    last.copy_from_slice(key);
    xor(last, &mix(diffused, key.len(), hash));
    material
}

/// Folds the stripes but the last: each is added to what came before, and the sum is diffused.
fn mix(stripes: &[u8], key_bytes: usize, hash: HashAlgorithm) -> Secret {
    let mut mixed = Secret::zeroed(key_bytes);
    for stripe in stripes.chunks_exact(key_bytes) {
        xor(&mut mixed, stripe);
        diffuse(&mut mixed, hash);
    }
    mixed
}

/// Replaces each digest-sized piece by the hash of its big-endian number and itself; a short last
/// piece by the head of the hash of its number and its own bytes.
fn diffuse(bytes: &mut [u8], hash: HashAlgorithm) {
    let mut digest = [0; DIGEST_BYTES_MAX];
    let digest = &mut digest[..hash.output_bytes()];
    for (number, piece) in (0_u32..).zip(bytes.chunks_mut(digest.len())) {
        hash.digest(&[&number.to_be_bytes(), piece], digest);
        piece.copy_from_slice(&digest[..piece.len()]);
    }
    digest.zeroize();
}

fn xor(into: &mut [u8], from: &[u8]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a ^= b;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition again in its own words, for SHA-1 and a key of 32 bytes: one piece of 20
    /// bytes and a short one of 12 in each diffusion.
    #[test]
    fn a_short_last_piece_is_hashed_alone_and_cut() {
        use sha1::{Digest, Sha1};
        let material: Vec<u8> = (0..96).collect();
        let mut first = material[..32].to_vec();
        for _ in 0..2 {
            let long = Sha1::new()
                .chain_update([0, 0, 0, 0])
                .chain_update(&first[..20]);
            let short = Sha1::new()
                .chain_update([0, 0, 0, 1])
                .chain_update(&first[20..]);
            let diffused = [&long.finalize()[..], &short.finalize()[..12]].concat();
            // After the second round `first` holds the diffused sum of stripes 0 and 1.
            first = diffused
                .iter()
                .zip(&material[32..64])
                .map(|(a, b)| a ^ b)
                .collect();
        }
        // The loop added stripe 1 once too often; take it off and add the last stripe.
        let expected: Vec<u8> = (0..32)
            .map(|i| first[i] ^ material[32 + i] ^ material[64 + i])
            .collect();
        assert_eq!(
            &*af_merge(&material, 32, 3, HashAlgorithm::Sha1),
            &expected[..]
        );
    }

    #[test]
    fn one_stripe_is_the_key_itself() {
        assert_eq!(
            &*af_merge(b"0123456789abcdef", 16, 1, HashAlgorithm::Sha256),
            b"0123456789abcdef"
        );
    }

    proptest! {
        #[test]
        fn merging_undoes_splitting(
            key in prop::collection::vec(any::<u8>(), 1..130),
            stripes in 1_u32..20,
            hash in prop::sample::select(HashAlgorithm::ALL),
        ) {
            let material = af_split(&key, stripes, hash);
            prop_assert_eq!(material.len(), key.len() * stripes as usize);
            prop_assert_eq!(&*af_merge(&material, key.len(), stripes, hash), &key[..]);
        }
    }
}

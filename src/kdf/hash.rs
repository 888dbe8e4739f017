//! The hashes that LUKS and cryptsetup name.

/// A hash by its cryptsetup name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {}

impl HashAlgorithm {
    /// The hash named so (case as cryptsetup takes it), or `None`.
    pub fn parse(_name: &str) -> Option<Self> {
        todo!()
    }

    /// Its canonical cryptsetup name.
    pub fn name(self) -> &'static str {
        todo!()
    }

    /// Digest length in bytes.
    pub fn output_bytes(self) -> usize {
        todo!()
    }

    /// Digest of the concatenation of `parts` into `out`, which is `output_bytes` long.
    pub fn digest(self, _parts: &[&[u8]], _out: &mut [u8]) {
        todo!()
    }
}

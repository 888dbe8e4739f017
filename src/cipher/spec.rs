//! Cipher specifications as dm-crypt and cryptsetup spell them.

use crate::error::Result;

/// A parsed cipher specification, e.g. `aes-xts-plain64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherSpec {}

impl CipherSpec {
    /// Parses `cipher[-mode[-iv[:options]]]`.
    pub fn parse(_text: &str) -> Result<Self> {
        todo!()
    }
}

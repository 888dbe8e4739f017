//! `tokens`: how a passphrase may be had elsewhere. Kept as they are, known or not.

use serde_json::Value;

use super::json::{Fault, Object};

/// Source: LUKS2 on-disk format, "Tokens object".
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// Its type.
    pub(crate) kind: String,
    /// The key slots it is for.
    pub(crate) keyslots: Vec<u32>,
    /// All of it, as stored.
    pub(crate) json: Value,
}

impl Token {
    pub(super) fn parse(token: &Object<'_>) -> Result<Self, Fault> {
        Ok(Self {
            kind: token.string("type")?.to_owned(),
            keyslots: token.ids("keyslots")?,
            json: Value::Object(token.map().clone()),
        })
    }
}

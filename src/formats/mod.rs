//! Formats other than LUKS.

pub mod plain;

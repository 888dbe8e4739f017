//! Formats other than LUKS.

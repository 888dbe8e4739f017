//! What this machine has to encrypt with, read and write with, and show a volume with: probed,
//! with the reason where something can't be had.

use serde_json::{Value, json};

mod probe;

/// What a part is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Encrypting sectors.
    Crypto,
    /// Reading and writing the image.
    Io,
    /// Showing the volume to other programs.
    Front,
}

impl Purpose {
    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crypto => "crypto",
            Self::Io => "io",
            Self::Front => "front",
        }
    }
}

/// One part that a machine may have, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is for.
    pub purpose: Purpose,
    /// Its name.
    pub name: &'static str,
    /// Whether it can be used here and now.
    pub usable: bool,
    /// What was found, or why it can't be used.
    pub detail: String,
}

/// Every part, probed now. Nothing is loaded, mounted or changed by looking.
pub fn report() -> Vec<Part> {
    let (crypto, io, front) = (Purpose::Crypto, Purpose::Io, Purpose::Front);
    [
        (crypto, "cpu", probe::cpu()),
        (crypto, "af_alg", probe::af_alg()),
        (io, "pread", Ok("always here".to_owned())),
        (io, "io_uring", probe::io_uring()),
        (
            front,
            "nbd",
            Ok("always here: the server speaks NBD".to_owned()),
        ),
        (front, "kernel-nbd", probe::kernel_nbd()),
        (front, "fuse", probe::fuse()),
        (front, "loop", probe::loop_devices()),
    ]
    .into_iter()
    .map(|(purpose, name, found)| {
        let usable = found.is_ok();
        Part {
            purpose,
            name,
            usable,
            detail: found.unwrap_or_else(|reason| reason),
        }
    })
    .collect()
}

/// The report as `engines --json` prints it.
pub fn to_json(parts: &[Part]) -> Value {
    let list: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({
                "purpose": part.purpose.name(),
                "name": part.name,
                "usable": part.usable,
                "detail": part.detail,
            })
        })
        .collect();
    json!({ "schema": 1, "engines": list })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_says_what_was_found_or_why_not() {
        let parts = report();
        assert!(
            parts.iter().all(|part| !part.detail.is_empty()),
            "{parts:?}"
        );
        assert!(parts.iter().any(|part| part.name == "cpu" && part.usable));
        assert_eq!(
            to_json(&parts)["engines"].as_array().map(Vec::len),
            Some(parts.len())
        );
    }
}

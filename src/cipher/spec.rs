//! Cipher specifications as dm-crypt and cryptsetup spell them.
//! Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst`, cryptsetup(8).

use std::fmt;

use crate::error::{Error, Result};

/// Longest specification read, in bytes: the kernel's names end at 128, and there are two in one.
const SPEC_BYTES_MAX: usize = 256;

/// Keys of loop-AES's format, which dm-crypt takes for granted where a `capi:` specification can't
/// say it.
const LMK_KEYS: u32 = 64;

/// A parsed cipher specification, e.g. `aes-xts-plain64`. That it parses says nothing of whether
/// the cipher is supported: [`super::SectorCipher::new`] says that, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherSpec {
    transform: Transform,
    /// Keys that are used in turn, sector by sector (`aes:64-cbc-lmk`); mostly 1.
    key_count: u32,
    iv: Option<String>,
    iv_options: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Transform {
    /// A cipher in a mode; both spellings, `aes-xts` and `capi:xts(aes)`, end here.
    Named { cipher: String, mode: String },
    /// Anything else that the kernel's crypto API composes: `authenc(hmac(sha256),xts(aes))`.
    Template(String),
}

impl Transform {
    /// `mode(cipher)`, or `mode(ecb(cipher))`, which is the same where there is such a template.
    fn in_one_mode(template: &str) -> Option<Self> {
        let (mode, cipher) = template.strip_suffix(')')?.split_once('(')?;
        let cipher = match mode {
            "xts" | "lrw" => cipher
                .strip_prefix("ecb(")
                .and_then(|cipher| cipher.strip_suffix(')'))
                .unwrap_or(cipher),
            // Adiantum's third part may be left out, and there is no other.
            "adiantum" => cipher.strip_suffix(",nhpoly1305").unwrap_or(cipher),
            _ => cipher,
        };
        (!cipher.contains(['(', ')'])).then(|| Self::Named {
            cipher: cipher.to_owned(),
            mode: mode.to_owned(),
        })
    }
}

/// What is inside `essiv(…,hash)`, and the hash.
fn essiv(template: &str) -> Option<(&str, &str)> {
    let inside = template.strip_prefix("essiv(")?.strip_suffix(')')?;
    inside.rsplit_once(',')
}

impl CipherSpec {
    /// Parses `cipher[:keycount][-mode[-iv[:options]]]` or `capi:TEMPLATE-iv[:options]`. A cipher
    /// alone means `cbc-plain`, as it does to dm-crypt.
    ///
    /// Errors: `Device` (exit 4) where the text isn't of that form.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > SPEC_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed(
                text,
                "it is over-long or holds other than printable ASCII",
            ));
        }
        match text.strip_prefix("capi:") {
            Some(template) => Self::parse_capi(text, template),
            None => Self::parse_dashed(text),
        }
    }

    /// The specification that a LUKS1 header states in two fields, e.g. `aes` and `xts-plain64`.
    ///
    /// Errors: as [`Self::parse`]; an empty mode is one.
    pub fn from_parts(cipher: &str, mode: &str) -> Result<Self> {
        if mode.is_empty() {
            return Err(malformed(cipher, "its mode is empty"));
        }
        Self::parse(&format!("{cipher}-{mode}"))
    }

    /// Whether it is the null cipher, which leaves data as they are.
    pub fn is_null(&self) -> bool {
        matches!(&self.transform, Transform::Named { cipher, .. } if cipher == "cipher_null")
    }

    /// The block cipher's name, e.g. `aes`; for what isn't a cipher in a mode, the whole template.
    pub fn cipher(&self) -> &str {
        match &self.transform {
            Transform::Named { cipher, .. } => cipher,
            Transform::Template(template) => template,
        }
    }

    /// The mode's name, e.g. `xts`, or `None` for what isn't a cipher in a mode.
    pub fn mode(&self) -> Option<&str> {
        match &self.transform {
            Transform::Named { mode, .. } => Some(mode),
            Transform::Template(_) => None,
        }
    }

    /// The IV generator's name, e.g. `plain64`.
    pub fn iv(&self) -> Option<&str> {
        self.iv.as_deref()
    }

    /// What follows the IV generator, e.g. `sha256` after `essiv:`.
    pub fn iv_options(&self) -> Option<&str> {
        self.iv_options.as_deref()
    }

    /// Keys used in turn: 1 but for the loop-AES formats.
    pub fn key_count(&self) -> u32 {
        self.key_count
    }

    fn parse_dashed(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, '-');
        let (cipher, keys) = split_options(parts.next().unwrap_or_default());
        let key_count = match keys {
            None => 1,
            Some(keys) => keys
                .parse()
                .ok()
                .filter(|keys: &u32| keys.is_power_of_two())
                .ok_or_else(|| malformed(text, "its number of keys is no power of two"))?,
        };
        let (mode, iv) = match (parts.next(), parts.next()) {
            (None | Some("plain"), None) => ("cbc", Some("plain")),
            (mode, iv) => (mode.unwrap_or_default(), iv),
        };
        let transform = Transform::Named {
            cipher: cipher.to_owned(),
            mode: mode.to_owned(),
        };
        let (iv, iv_options) = iv.map(split_options).unzip();
        Self::checked(text, transform, key_count, iv, iv_options.flatten())
    }

    fn parse_capi(text: &str, rest: &str) -> Result<Self> {
        // Options may hold dashes (`essiv:sha3-256`), so they come off first, from the right.
        let (rest, iv_options) = match rest.rsplit_once(':') {
            Some((rest, options)) => (rest, Some(options)),
            None => (rest, None),
        };
        let (template, iv) = match rest.rsplit_once('-') {
            Some((template, iv)) => (template, Some(iv)),
            None => (rest, None),
        };
        // dm-crypt itself spells ESSIV so to the crypto API, and takes it so.
        if let (Some("plain64"), None, Some((inner, hash))) = (iv, iv_options, essiv(template))
            && let Some(transform) = Transform::in_one_mode(inner)
        {
            return Self::checked(text, transform, 1, Some("essiv"), Some(hash));
        }
        let transform = Transform::in_one_mode(template)
            .unwrap_or_else(|| Transform::Template(template.to_owned()));
        let key_count = if iv == Some("lmk") { LMK_KEYS } else { 1 };
        Self::checked(text, transform, key_count, iv, iv_options)
    }

    fn checked(
        text: &str,
        transform: Transform,
        key_count: u32,
        iv: Option<&str>,
        iv_options: Option<&str>,
    ) -> Result<Self> {
        let (named, takes_iv) = match &transform {
            Transform::Named { cipher, mode } => {
                (!cipher.is_empty() && !mode.is_empty(), mode != "ecb")
            }
            Transform::Template(template) => (!template.is_empty(), true),
        };
        if !named || iv == Some("") || iv_options == Some("") {
            return Err(malformed(text, "a part of it is empty"));
        }
        if iv.is_none() && takes_iv {
            return Err(malformed(text, "it names no IV generator"));
        }
        let (iv, iv_options) = (iv.map(str::to_owned), iv_options.map(str::to_owned));
        Ok(Self {
            transform,
            key_count,
            iv,
            iv_options,
        })
    }
}

/// dm-crypt's own spelling: dashed where that can say it, else `capi:`.
impl fmt::Display for CipherSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transform {
            Transform::Named { cipher, mode } if self.key_count == 1 => {
                write!(f, "{cipher}-{mode}")?;
            }
            Transform::Named { cipher, mode } => write!(f, "{cipher}:{}-{mode}", self.key_count)?,
            Transform::Template(template) => write!(f, "capi:{template}")?,
        }
        if let Some(iv) = &self.iv {
            write!(f, "-{iv}")?;
        }
        if let Some(options) = &self.iv_options {
            write!(f, ":{options}")?;
        }
        Ok(())
    }
}

fn split_options(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((name, options)) => (name, Some(options)),
        None => (text, None),
    }
}

fn malformed(text: &str, why: &str) -> Error {
    // A header's field may hold anything: escaped, and no more of it than fits a line.
    let shown: String = text
        .chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect();
    Error::device(format!("\"{shown}\" is no cipher specification: {why}"))
        .hint("a specification reads like aes-xts-plain64 or aes-cbc-essiv:sha256")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<String>, Option<String>, Option<String>, u32) {
        let spec = CipherSpec::parse(text).expect(text);
        (
            spec.cipher().to_owned(),
            spec.mode().map(str::to_owned),
            spec.iv().map(str::to_owned),
            spec.iv_options().map(str::to_owned),
            spec.key_count(),
        )
    }

    fn named(
        cipher: &str,
        mode: &str,
        iv: Option<&str>,
        options: Option<&str>,
        keys: u32,
    ) -> (String, Option<String>, Option<String>, Option<String>, u32) {
        let owned = |text: &str| text.to_owned();
        (
            owned(cipher),
            Some(owned(mode)),
            iv.map(owned),
            options.map(owned),
            keys,
        )
    }

    #[test]
    fn every_spelling_parses() {
        let plain64 = Some("plain64");
        assert_eq!(
            parts("aes-xts-plain64"),
            named("aes", "xts", plain64, None, 1)
        );
        assert_eq!(
            parts("capi:xts(aes)-plain64"),
            named("aes", "xts", plain64, None, 1)
        );
        assert_eq!(parts("aes"), named("aes", "cbc", Some("plain"), None, 1));
        assert_eq!(
            parts("aes-plain"),
            named("aes", "cbc", Some("plain"), None, 1)
        );
        assert_eq!(parts("aes-ecb"), named("aes", "ecb", None, None, 1));
        assert_eq!(parts("capi:ecb(aes)"), named("aes", "ecb", None, None, 1));
        let essiv = named("aes", "cbc", Some("essiv"), Some("sha3-256"), 1);
        assert_eq!(parts("aes-cbc-essiv:sha3-256"), essiv);
        assert_eq!(parts("capi:cbc(aes)-essiv:sha3-256"), essiv);
        assert_eq!(
            parts("aes:64-cbc-lmk"),
            named("aes", "cbc", Some("lmk"), None, 64)
        );
        let adiantum = named("xchacha12,aes", "adiantum", plain64, None, 1);
        assert_eq!(parts("xchacha12,aes-adiantum-plain64"), adiantum);
        assert_eq!(
            parts("capi:adiantum(xchacha12,aes)-plain64"),
            adiantum.clone()
        );
        assert_eq!(
            parts("capi:essiv(cbc(aes),sha3-256)-plain64"),
            named("aes", "cbc", Some("essiv"), Some("sha3-256"), 1)
        );
        assert_eq!(
            parts("capi:xts(ecb(twofish))-plain64"),
            named("twofish", "xts", plain64, None, 1)
        );
        assert_eq!(
            parts("capi:adiantum(xchacha12,aes,nhpoly1305)-plain64"),
            adiantum
        );
        assert_eq!(
            parts("capi:cbc(aes)-lmk"),
            named("aes", "cbc", Some("lmk"), None, 64)
        );
        for other in [
            "essiv(authenc(hmac(sha256),cbc(aes)),sha256)",
            "cbc(ecb(aes))",
        ] {
            let spec = CipherSpec::parse(&format!("capi:{other}-plain64")).expect(other);
            assert_eq!((spec.cipher(), spec.mode()), (other, None));
        }
        let template = "authenc(hmac(sha256),xts(aes))";
        assert_eq!(
            parts(&format!("capi:{template}-random")),
            (
                template.to_owned(),
                None,
                Some("random".to_owned()),
                None,
                1
            )
        );
    }

    #[test]
    fn display_is_canonical_and_parses_back() {
        for (text, canonical) in [
            ("aes", "aes-cbc-plain"),
            ("capi:xts(aes)-plain64", "aes-xts-plain64"),
            ("capi:cbc(aes)-essiv:sha256", "aes-cbc-essiv:sha256"),
            ("aes:64-cbc-lmk", "aes:64-cbc-lmk"),
            ("cipher_null-ecb", "cipher_null-ecb"),
            ("capi:authenc(hmac(sha256),xts(aes))-random", ""),
        ] {
            let spec = CipherSpec::parse(text).expect(text);
            let canonical = if canonical.is_empty() {
                text
            } else {
                canonical
            };
            assert_eq!(spec.to_string(), canonical);
            assert_eq!(CipherSpec::parse(canonical).expect(canonical), spec);
        }
    }

    #[test]
    fn luks1_states_cipher_and_mode_apart() {
        let spec = CipherSpec::from_parts("aes", "cbc-essiv:sha256").expect("a good one");
        assert_eq!(spec.to_string(), "aes-cbc-essiv:sha256");
        assert!(CipherSpec::from_parts("aes", "").is_err());
        assert!(CipherSpec::from_parts("", "xts-plain64").is_err());
        assert!(
            CipherSpec::from_parts("cipher_null", "ecb")
                .expect("a good one")
                .is_null()
        );
        assert!(!spec.is_null());
    }

    #[test]
    fn malformed_ones_are_refused_and_shown_escaped() {
        let long = "a".repeat(SPEC_BYTES_MAX + 1);
        for text in [
            "",
            "-",
            "aes-",
            "aes-xts",
            "aes-xts-",
            "-xts-plain64",
            "aes--plain64",
            "aes-cbc-essiv:",
            "aes-cbc-:sha256",
            "aes:0-cbc-lmk",
            "aes:3-cbc-lmk",
            "aes:-cbc-lmk",
            "capi:",
            "capi:xts(aes)",
            "capi:(aes)-plain64",
            "capi:xts()-plain64",
            "aes xts",
            "aes-xts-pl\0",
            "\u{e4}es-xts-plain64",
            &long,
        ] {
            let error = CipherSpec::parse(text).expect_err(text);
            assert!(
                error.to_string().is_ascii() && error.what().len() < 500,
                "{error}"
            );
            assert!(!error.what().contains(|c: char| c.is_ascii_control()));
        }
    }
}

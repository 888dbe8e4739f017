//! `keyslots`: the volume key, wrapped by a passphrase.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::json::{Fault, Object};
use crate::error::{Error, Result};
use crate::kdf::{HashAlgorithm, Kdf};
use crate::luks::material::Area;
use crate::luks::text::printable;
use crate::secret::Secret;
use crate::storage::Storage;

/// Source: LUKS2 on-disk format, "Keyslots object".
#[derive(Debug, Clone)]
pub(crate) struct Keyslot {
    /// `luks2`, `reencrypt`, or what is not known.
    pub(crate) kind: String,
    /// Length of the key it holds, in bytes, as stored.
    pub(crate) key_bytes: i64,
    /// When it is tried.
    pub(crate) priority: Priority,
    /// Where its data lie: type, offset and size in bytes.
    pub(crate) area: Option<AreaPlace>,
    /// How the key is wrapped, where the type is `luks2`.
    pub(crate) wrap: Option<Wrap>,
}

/// When a key slot is tried. The order is the order of trying, backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Only when it is named.
    Ignore,
    /// After the preferred ones.
    Normal,
    /// First.
    Prefer,
}

/// A stretch of the key slots area.
#[derive(Debug, Clone)]
pub(crate) struct AreaPlace {
    /// `raw` for key slots of type `luks2`.
    pub(crate) kind: String,
    /// From the start of the device, in bytes.
    pub(crate) offset_bytes: u64,
    /// In bytes.
    pub(crate) size_bytes: u64,
}

/// Parameters of a `luks2` key slot, as stored; judged when they are used, so that a header with
/// a strange one can still be dumped, and the other slots tried.
#[derive(Debug, Clone)]
pub(crate) struct Wrap {
    /// Cipher specification of the area.
    pub(crate) encryption: String,
    /// Length of the area's key in bytes.
    pub(crate) area_key_bytes: i64,
    /// The KDF.
    pub(crate) kdf: SlotKdf,
    /// The anti-forensic split.
    pub(crate) af: Af,
}

/// A KDF as stored.
#[derive(Debug, Clone)]
pub(crate) struct SlotKdf {
    /// `pbkdf2`, `argon2i`, `argon2id`, or what is not known.
    pub(crate) kind: String,
    /// Salt, base64.
    pub(crate) salt: String,
    /// PBKDF2's.
    pub(crate) pbkdf2: Option<(String, i64)>,
    /// Argon2's passes, memory in KiB, lanes.
    pub(crate) argon2: Option<(i64, i64, i64)>,
}

/// The anti-forensic split as stored; its type is `luks1`, the only one.
#[derive(Debug, Clone)]
pub(crate) struct Af {
    /// Stripes. Whatever is stored, 4000 are used, as in cryptsetup
    /// (`docs/decisions/0002-lenient-headers.md`).
    pub(crate) stripes: i64,
    /// The hash's name.
    pub(crate) hash: String,
}

impl Keyslot {
    pub(super) fn parse(slot: &Object<'_>) -> std::result::Result<Self, Fault> {
        let kind = slot.string("type")?.to_owned();
        let key_bytes = slot.integer("key_size")?;
        if !(0..=i64::from(i32::MAX)).contains(&key_bytes) {
            return Err(format!(
                "{}.key_size {key_bytes} is out of range",
                slot.place()
            ));
        }
        let priority = match slot.has("priority") {
            false => Priority::Normal,
            true => match slot.integer("priority")? {
                0 => Priority::Ignore,
                1 => Priority::Normal,
                2 => Priority::Prefer,
                n => return Err(format!("{}.priority {n} is not 0, 1 or 2", slot.place())),
            },
        };
        let is_luks2 = kind == "luks2";
        let area = match is_luks2 || slot.has("area") {
            true => Some(AreaPlace::parse(&slot.object("area")?, is_luks2)?),
            false => None,
        };
        let wrap = if is_luks2 {
            Some(Wrap::parse(slot)?)
        } else {
            None
        };
        Ok(Self {
            kind,
            key_bytes,
            priority,
            area,
            wrap,
        })
    }

    /// Whether it is one that a passphrase may open.
    pub(crate) fn is_usable(&self) -> bool {
        self.wrap.is_some()
    }

    /// The key that `passphrase` unwraps; right or wrong, only a digest can tell. `None` where it
    /// can't be right.
    ///
    /// Errors: `Memory` where the KDF's isn't to be had; `Device` for what isn't supported or out
    /// of range.
    pub(crate) fn unwrap_key(
        &self,
        storage: &dyn Storage,
        passphrase: &[u8],
        allow_null_cipher: bool,
    ) -> Result<Option<Secret>> {
        let (Some(wrap), Some(place)) = (&self.wrap, &self.area) else {
            let kind = printable(&self.kind);
            return Err(Error::device(format!(
                "key slot type {kind:?} is not supported"
            )));
        };
        let af_hash = HashAlgorithm::parse(&wrap.af.hash).ok_or_else(|| {
            let hash = printable(&wrap.af.hash);
            Error::device(format!("anti-forensic hash {hash:?} is not supported"))
        })?;
        let area = Area {
            offset_bytes: place.offset_bytes,
            size_bytes: place.size_bytes,
            cipher: &wrap.encryption,
            key_bytes: self.key_bytes,
            area_key_bytes: wrap.area_key_bytes,
            af_hash,
        };
        area.check(allow_null_cipher)?;
        area.unwrap_key(storage, &wrap.kdf.decode()?, passphrase)
    }
}

impl AreaPlace {
    fn parse(area: &Object<'_>, raw_only: bool) -> std::result::Result<Self, Fault> {
        let kind = area.string("type")?.to_owned();
        if raw_only && kind != "raw" {
            return Err(format!(
                "{}.type {:?} is not raw",
                area.place(),
                printable(&kind)
            ));
        }
        let offset_bytes = area.number("offset")?;
        let size_bytes = area.number("size")?;
        if size_bytes == 0 {
            return Err(format!("{}.size is 0", area.place()));
        }
        Ok(Self {
            kind,
            offset_bytes,
            size_bytes,
        })
    }
}

impl Wrap {
    fn parse(slot: &Object<'_>) -> std::result::Result<Self, Fault> {
        let area = slot.object("area")?;
        let af = slot.object("af")?;
        Ok(Self {
            encryption: area.string("encryption")?.to_owned(),
            area_key_bytes: area.integer("key_size")?,
            kdf: SlotKdf::parse(&slot.object("kdf")?)?,
            af: Af::parse(&af)?,
        })
    }
}

impl Af {
    fn parse(af: &Object<'_>) -> std::result::Result<Self, Fault> {
        match af.string("type")? {
            "luks1" => Ok(Self {
                stripes: af.integer("stripes")?,
                hash: af.string("hash")?.to_owned(),
            }),
            kind => Err(format!(
                "{}.type {:?} is not luks1",
                af.place(),
                printable(kind)
            )),
        }
    }
}

impl SlotKdf {
    fn parse(kdf: &Object<'_>) -> std::result::Result<Self, Fault> {
        let kind = kdf.string("type")?.to_owned();
        let is_known = ["pbkdf2", "argon2i", "argon2id"].contains(&kind.as_str());
        let salt = match is_known {
            true => kdf.string("salt")?.to_owned(),
            false => kdf.string("salt").unwrap_or_default().to_owned(),
        };
        // Parameters of another type may be left over; they have no effect.
        let pbkdf2 = match kind.as_str() {
            "pbkdf2" => Some((kdf.string("hash")?.to_owned(), kdf.integer("iterations")?)),
            _ => None,
        };
        let argon2 = || -> std::result::Result<_, Fault> {
            Ok((
                kdf.integer("time")?,
                kdf.integer("memory")?,
                kdf.integer("cpus")?,
            ))
        };
        let argon2 = match kind.as_str() {
            "argon2i" | "argon2id" => Some(argon2()?),
            "pbkdf2" => None,
            // Of a type that isn't known, `dump` shows what looks familiar.
            _ => argon2().ok(),
        };
        Ok(Self {
            kind,
            salt,
            pbkdf2,
            argon2,
        })
    }

    fn decode(&self) -> Result<Kdf> {
        match self.kind.as_str() {
            "pbkdf2" => self.decode_pbkdf2(),
            "argon2i" | "argon2id" => self.decode_argon2(),
            kind => Err(Error::device(format!(
                "KDF {:?} is not supported",
                printable(kind)
            ))),
        }
    }

    fn decode_pbkdf2(&self) -> Result<Kdf> {
        let (hash, iterations) = self.pbkdf2.as_ref().ok_or_else(parameters_missing)?;
        let hash = HashAlgorithm::parse(hash).ok_or_else(|| {
            Error::device(format!(
                "PBKDF2 hash {:?} is not supported",
                printable(hash)
            ))
        })?;
        let iterations = iterations_u32(*iterations)
            .ok_or_else(|| out_of_range("iteration count", *iterations))?;
        Ok(Kdf::Pbkdf2 {
            hash,
            iterations,
            salt: self.salt()?,
        })
    }

    fn decode_argon2(&self) -> Result<Kdf> {
        let (time, memory_kib, cpus) = self.argon2.ok_or_else(parameters_missing)?;
        let positive = |what: &str, n: i64| {
            u32::try_from(n)
                .ok()
                .filter(|&n| n > 0)
                .ok_or_else(|| out_of_range(what, n))
        };
        Ok(Kdf::Argon2 {
            id: self.kind == "argon2id",
            time: positive("time", time)?,
            memory_kib: positive("memory", memory_kib)?,
            cpus: positive("lane count", cpus)?,
            salt: self.salt()?,
        })
    }

    fn salt(&self) -> Result<Vec<u8>> {
        let salt = BASE64
            .decode(&self.salt)
            .ok()
            .filter(|salt| !salt.is_empty());
        salt.ok_or_else(|| Error::device("header damaged: its salt is not base64"))
    }
}

fn out_of_range(what: &str, n: i64) -> Error {
    Error::device(format!(
        "header damaged: its KDF's {what} {n} is out of range"
    ))
}

fn parameters_missing() -> Error {
    Error::device("header damaged: its KDF's parameters are missing")
}

/// A PBKDF2 iteration count: 1 to 2^31-1, the range in which cryptsetup reads it.
pub(super) fn iterations_u32(iterations: i64) -> Option<u32> {
    i32::try_from(iterations)
        .ok()
        .filter(|&n| n > 0)
        .map(i32::unsigned_abs)
}

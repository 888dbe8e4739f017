//! The JSON area's grammar: stricter than JSON (no duplicate keys, bounded depth), with accessors
//! that say where a fault is.
//!
//! Source: LUKS2 on-disk format, "JSON area": 64-bit numbers are strings of decimal digits, small
//! ones are JSON integers.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits::{LUKS2_JSON_DEPTH_MAX, LUKS2_OBJECTS_MAX};
use crate::luks::text::printable;

/// Why a header copy is not valid, in words.
pub(crate) type Fault = String;

/// Parses one JSON object that begins at the first byte.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, Fault> {
    if !text.starts_with('{') {
        return Err("the JSON area doesn't begin with an object".into());
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = StrictValue {
        depth_left: LUKS2_JSON_DEPTH_MAX,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|e| format!("the JSON area doesn't parse: {}", printable(&e.to_string())))?;
    match value {
        Value::Object(map) => Ok(map),
        _ => Err("the JSON area is not an object".into()),
    }
}

/// An object of the JSON area and its place, for faults.
#[derive(Clone)]
pub(super) struct Object<'a> {
    map: &'a Map<String, Value>,
    place: String,
}

impl<'a> Object<'a> {
    /// The top object.
    pub(super) fn top(map: &'a Map<String, Value>) -> Self {
        Self {
            map,
            place: String::new(),
        }
    }

    /// The object's place, such as `keyslots.3.area`.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// As it is stored.
    pub(super) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// Whether the key is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// A member that must be an object.
    pub(super) fn object(&self, key: &str) -> Result<Object<'a>, Fault> {
        match self.get(key)? {
            Value::Object(map) => Ok(Object {
                map,
                place: self.join(key),
            }),
            _ => Err(format!("{} is not an object", self.join(key))),
        }
    }

    /// A member that must be a string, and not empty.
    pub(super) fn string(&self, key: &str) -> Result<&'a str, Fault> {
        match self.get(key)? {
            Value::String(text) if text.is_empty() => Err(format!("{} is empty", self.join(key))),
            Value::String(text) => Ok(text),
            _ => Err(format!("{} is not a string", self.join(key))),
        }
    }

    /// A member that must be a JSON integer (in the range of 64 signed bits).
    pub(super) fn integer(&self, key: &str) -> Result<i64, Fault> {
        match self.get(key)? {
            Value::Number(number) => number
                .as_i64()
                .ok_or_else(|| format!("{} is not an integer", self.join(key))),
            _ => Err(format!("{} is not an integer", self.join(key))),
        }
    }

    /// A member that must be a 64-bit number as a string of decimal digits.
    pub(super) fn number(&self, key: &str) -> Result<u64, Fault> {
        let text = self.string(key)?;
        decimal(text).ok_or_else(|| format!("{} is not a 64-bit decimal number", self.join(key)))
    }

    /// A member that must be an array of strings.
    pub(super) fn strings(&self, key: &str) -> Result<Vec<&'a str>, Fault> {
        let fault = || format!("{} is not an array of strings", self.join(key));
        let Value::Array(items) = self.get(key)? else {
            return Err(fault());
        };
        items
            .iter()
            .map(|item| item.as_str().ok_or_else(fault))
            .collect()
    }

    /// A member that is an array of strings where it is there.
    pub(super) fn strings_or_none(&self, key: &str) -> Result<Vec<&'a str>, Fault> {
        if self.has(key) {
            self.strings(key)
        } else {
            Ok(Vec::new())
        }
    }

    /// A member that must be an array of ids.
    pub(super) fn ids(&self, key: &str) -> Result<Vec<u32>, Fault> {
        let texts = self.strings(key)?;
        texts
            .into_iter()
            .map(|text| id(text).ok_or_else(|| format!("{} holds a wrong id", self.join(key))))
            .collect()
    }

    /// The members, which must be objects named by ids below [`LUKS2_OBJECTS_MAX`].
    pub(super) fn numbered(&self) -> Result<Vec<(u32, Object<'a>)>, Fault> {
        let members = self.numbered_unbounded()?;
        match members.iter().find(|(id, _)| *id >= LUKS2_OBJECTS_MAX) {
            Some((id, _)) => Err(format!("{} has an object with id {id}", self.place)),
            None => Ok(members),
        }
    }

    /// The members, which must be objects named by numbers.
    pub(super) fn numbered_unbounded(&self) -> Result<Vec<(u32, Object<'a>)>, Fault> {
        self.map
            .iter()
            .map(|(key, value)| {
                let id = id(key)
                    .ok_or_else(|| format!("{} has an object without a number", self.place))?;
                match value {
                    Value::Object(map) => Ok((
                        id,
                        Object {
                            map,
                            place: self.join(key),
                        },
                    )),
                    _ => Err(format!("{} is not an object", self.join(key))),
                }
            })
            .collect()
    }

    fn get(&self, key: &str) -> Result<&'a Value, Fault> {
        self.map
            .get(key)
            .ok_or_else(|| format!("{} is missing", self.join(key)))
    }

    fn join(&self, key: &str) -> String {
        if self.place.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.place)
        }
    }
}

/// A decimal number of 64 bits; no sign, no blanks.
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// An object's id: decimal without leading zeros, so that no two keys mean the same.
fn id(text: &str) -> Option<u32> {
    let canonical = text == "0" || !text.starts_with('0');
    canonical
        .then(|| decimal(text))
        .flatten()
        .and_then(|n| u32::try_from(n).ok())
}

/// Builds a [`Value`], refusing duplicate keys and deep nesting.
struct StrictValue {
    depth_left: usize,
}

impl StrictValue {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left }),
            None => Err(E::custom("nested too deeply")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for StrictValue {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.deeper()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(self.deeper()?)?;
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom("an object has the same key twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_json_without_duplicates_and_depth() {
        assert!(parse(r#"{"a": [1, "x", {"b": null}]}"#).is_ok());
        assert!(parse(r#" {"a": 1}"#).is_err());
        assert!(parse(r#"[1]"#).is_err());
        assert!(parse(r#"{"a": 1} x"#).is_err());
        assert!(
            parse(r#"{"a": 1, "b": {"c": 1, "c": 1}}"#)
                .unwrap_err()
                .contains("twice")
        );
        let nested = |n: usize| format!(r#"{{"a": {}{}}}"#, "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(20)).is_ok());
        assert!(parse(&nested(2000)).unwrap_err().contains("deep"));
        assert!(parse(&nested(1_000_000)).unwrap_err().contains("deep"));
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
        for wrong in [
            "",
            "-1",
            "+1",
            " 1",
            "1 ",
            "0x1",
            "18446744073709551616",
            "1e3",
            "١",
        ] {
            assert_eq!(decimal(wrong), None, "{wrong:?}");
        }
        assert_eq!(
            (id("0"), id("31"), id("00"), id("01"), id("")),
            (Some(0), Some(31), None, None, None)
        );
    }
}

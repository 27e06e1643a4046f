//! A policy's parameters, as the command line gives them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::CliError;

/// Reads a JSON object.
///
/// JSON has neither NaN nor infinity; the message shows the place, with the key before it.
pub(crate) fn parse(option: &'static str, text: &str) -> Result<Map<String, Value>, CliError> {
    match serde_json::from_str(text) {
        Ok(Once(Value::Object(parameters))) => Ok(parameters),
        // Nothing else is of the wrong kind: a value may be anything.
        Err(error) if error.is_data() => {
            let said = error.to_string();
            let key = said.rsplit_once(" at line ").map_or(said.as_str(), |(key, _)| key);
            Err(CliError::KeyTwice { option, key: key.to_owned() })
        }
        Ok(_) => Err(CliError::Parameters { option, message: "give one such as '{\"temperature\": 0.5}'".to_owned() }),
        Err(error) => Err(CliError::Parameters { option, message: format!("{error}, at `{}`", around(text, &error)) }),
    }
}

/// A JSON value whose objects have each key once; the error is the key.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any).map(Self)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Once(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(key));
            }
            let Once(value) = entries.next_value()?;
            values.insert(key, value);
        }
        Ok(values.into())
    }
}

/// The characters before and at the error.
fn around(text: &str, error: &serde_json::Error) -> String {
    const BEFORE: usize = 40;
    const AFTER: usize = 12;
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or(text);
    let from = error.column().saturating_sub(BEFORE);
    // serde_json counts bytes; a character more or less does no harm here.
    line.chars().skip(from).take(error.column() - from + AFTER).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_json_lacks_is_shown_with_its_key() {
        for text in ["{\"temperature\": NaN}", "{\"temperature\": 1e999}", "{\"a\": 1,\n\"temperature\": Infinity}"] {
            let error = parse("--parameters", text).unwrap_err().to_string();
            assert!(error.starts_with("--parameters is not a JSON object:"), "{error}");
            assert!(error.contains("\"temperature\":"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_named() {
        for text in [r#"{"a": 1, "a": 2}"#, r#"{"b": [{"a": 1, "c": 2, "a": 1}]}"#] {
            let error = parse("--parameters", text).unwrap_err().to_string();
            assert_eq!(error, "--parameters: the key `a` comes twice in one object; keep one of the two");
        }
        let text = r#"{"a": [1, -1, 0.5, "b", null, true, {"a": 18446744073709551615}]}"#;
        assert_eq!(Value::Object(parse("--parameters", text).unwrap()), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn only_an_object_is_taken() {
        for text in ["", "[]", "null", "3", "{} {}"] {
            assert!(parse("--parameters", text).is_err(), "{text}");
        }
        assert_eq!(parse("--parameters", " {\"a\": 1} ").unwrap().len(), 1);
    }
}

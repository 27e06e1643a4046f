//! Parameters: JSON Schema, unknown keys, and errors that name the key.

use std::cell::RefCell;
use std::fmt::Write;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::PolicyError;

/// The parameters of a policy that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// Refuses a parameter unless `ok`, saying "`name` must be `rule`".
///
/// # Errors
/// That sentence.
pub fn require(ok: bool, name: &str, rule: &str) -> Result<(), PolicyError> {
    if ok { Ok(()) } else { Err(PolicyError::failed(format!("{name} must be {rule}"))) }
}

/// Refuses a parameter that is not finite or below 0, in Dynamo's words.
///
/// # Errors
/// "`name` must be finite and non-negative".
pub fn finite_and_non_negative(name: &str, value: f64) -> Result<f64, PolicyError> {
    require(value.is_finite() && value >= 0.0, name, "finite and non-negative")?;
    Ok(value)
}

/// The JSON Schema (2020-12) of `T`, which allows no keys but those it names.
pub(crate) fn schema<T: JsonSchema>() -> Schema {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>();
    if closed(&schema) {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    schema
}

/// Whether the schema's own `properties` are all there are: it says nothing of others and is put together of nothing.
fn closed(schema: &Schema) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
        && !["additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "oneOf", "anyOf", "allOf"]
            .iter()
            .any(|key| schema.get(*key).is_some())
}

/// Reads the parameters from a JSON object.
pub(crate) fn parse<T: DeserializeOwned + JsonSchema>(json: &str) -> Result<T, PolicyError> {
    let value: Value =
        serde_json::from_str(json).map_err(|error| PolicyError::failed(format!("parameters are not JSON: {error}")))?;
    let Value::Object(keys) = value else {
        return Err(PolicyError::failed("parameters must be a JSON object"));
    };
    refuse_unknown(&keys, &schema::<T>())?;
    let current = RefCell::new(String::new());
    T::deserialize(Object { keys, current: &current }).map_err(|error| {
        let key = current.borrow();
        PolicyError::failed(if key.is_empty() { format!("parameters: {error}") } else { format!("{key}: {error}") })
    })
}

fn refuse_unknown(keys: &Map<String, Value>, schema: &Schema) -> Result<(), PolicyError> {
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Ok(());
    }
    let known = schema.get("properties").and_then(Value::as_object);
    let Some(key) = keys.keys().find(|key| !known.is_some_and(|known| known.contains_key(*key))) else {
        return Ok(());
    };
    let mut message = format!("unknown parameter `{key}`");
    match known.filter(|known| !known.is_empty()) {
        None => message.push_str("; this policy takes none"),
        Some(known) => {
            let last = known.len() - 1;
            for (place, name) in known.keys().enumerate() {
                let before = match place {
                    0 => "; use",
                    _ if place == last => " or",
                    _ => ",",
                };
                let _ = write!(message, "{before} `{name}`");
            }
        }
    }
    Err(PolicyError::failed(message))
}

/// An object that remembers which key is being read.
struct Object<'a> {
    keys: Map<String, Value>,
    current: &'a RefCell<String>,
}

impl<'de> Deserializer<'de> for Object<'_> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(Entries { entries: self.keys.into_iter(), value: None, current: self.current })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        Value::Object(self.keys).deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Entries<'a> {
    entries: serde_json::map::IntoIter,
    value: Option<Value>,
    current: &'a RefCell<String>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        self.current.borrow_mut().clear();
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let answer = seed.deserialize(Value::String(key.clone())).map(Some);
        if answer.is_ok() {
            *self.current.borrow_mut() = key;
        }
        answer
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Self::Error> {
        let value = self.value.take().ok_or_else(|| serde_json::Error::custom("a value was read before its key"))?;
        seed.deserialize(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Open {
        max_active_requests: u32,
        #[serde(default)]
        scale: Option<f64>,
    }

    fn error<T: DeserializeOwned + JsonSchema + std::fmt::Debug>(json: &str) -> String {
        parse::<T>(json).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_though_the_struct_denies_none() {
        assert_eq!(
            error::<Open>(r#"{"max_active_requests":1,"scal":2}"#),
            "unknown parameter `scal`; use `max_active_requests` or `scale`"
        );
        assert_eq!(error::<NoParameters>(r#"{"x":1}"#), "unknown parameter `x`; this policy takes none");
    }

    #[test]
    fn a_wrong_type_or_range_names_the_key() {
        assert!(error::<Open>(r#"{"max_active_requests":-1}"#).starts_with("max_active_requests: invalid value"));
        assert!(
            error::<Open>(r#"{"max_active_requests":1,"scale":"a"}"#)
                .starts_with("scale: invalid type: string \"a\", expected f64")
        );
    }

    #[test]
    fn a_missing_key_is_named() {
        assert_eq!(error::<Open>("{}"), "parameters: missing field `max_active_requests`");
    }

    #[test]
    fn anything_but_an_object_is_refused() {
        assert_eq!(error::<Open>("[1]"), "parameters must be a JSON object");
        assert!(error::<Open>("{").starts_with("parameters are not JSON: "));
    }

    #[test]
    fn the_schema_says_2020_12_and_allows_no_other_key() {
        let schema = serde_json::to_value(schema::<Open>()).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["max_active_requests"]["type"], "integer");
        assert_eq!(schema["required"], serde_json::json!(["max_active_requests"]));
    }

    #[test]
    fn parameters_that_take_any_key_are_left_alone() {
        type Any = std::collections::BTreeMap<String, f64>;
        assert_eq!(parse::<Any>(r#"{"a":1}"#).unwrap().get("a"), Some(&1.0));
        assert_eq!(error::<Any>(r#"{"a":"b"}"#), "a: invalid type: string \"b\", expected f64");
    }

    #[test]
    fn a_number_is_read_to_the_last_bit() {
        // serde_json's fast path misses these by one unit in the last place.
        for number in [0.36956435638042917, 1.3048368289977825, 2.4125637847434174] {
            let json = format!(r#"{{"max_active_requests":1,"scale":{number:?}}}"#);
            assert_eq!(parse::<Open>(&json).unwrap().scale, Some(number));
        }
    }

    #[test]
    fn dynamos_wording() {
        for value in [f64::NAN, f64::INFINITY, -0.5] {
            assert_eq!(
                finite_and_non_negative("scale", value).unwrap_err().message(),
                "scale must be finite and non-negative"
            );
        }
        assert_eq!(finite_and_non_negative("scale", 0.0), Ok(0.0));
        assert_eq!(require(false, "ratio", "in [0, 1]").unwrap_err().message(), "ratio must be in [0, 1]");
    }
}

//! Reads a table's values and checks what each is, with the place of what is wrong.
//!
//! The check rides on the parser, so that the line and column of a wrong value are the parser's own, for JSON and YAML
//! alike.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};

/// Starts a sentence of this module within a parser's error; no parser writes it.
const OWN: char = '\u{1}';

const FILE: &[(&str, Kind)] = &[
    ("partition", Kind::Fields(PARTITION)),
    ("router_config", Kind::Fields(ROUTER)),
    ("facts", Kind::Named(&Kind::Number)),
    ("texts", Kind::Named(&Kind::Text)),
    ("workers", Kind::List(&Kind::Fields(WORKER))),
];
const PARTITION: &[(&str, Kind)] = &[
    ("model", Kind::Text),
    ("routing_group", Kind::Text),
    ("role", Kind::Text),
    ("block_size", Kind::Whole(u32::MAX as u64)),
    ("seed", Kind::Whole(u32::MAX as u64)),
];
const ROUTER: &[(&str, Kind)] = &[
    ("overlap_score_credit", Kind::Number),
    ("overlap_score_credit_decay", Kind::Number),
    ("prefill_load_scale", Kind::Number),
    ("decode_active_request_weight", Kind::Number),
    ("host_cache_hit_weight", Kind::Number),
    ("disk_cache_hit_weight", Kind::Number),
    ("shared_cache_multiplier", Kind::Number),
    ("router_temperature", Kind::Number),
    ("conditional_disaggregation", Kind::Flag),
];
const WORKER: &[(&str, Kind)] = &[
    ("worker", Kind::Whole(u64::MAX)),
    ("rank", Kind::Whole(u32::MAX as u64)),
    ("signals", Kind::Named(&Kind::Number)),
];
/// The one field that cannot be left out.
const REQUIRED: &str = "worker";

/// What a value must be.
#[derive(Clone, Copy)]
enum Kind {
    /// These fields, and no others.
    Fields(&'static [(&'static str, Kind)]),
    /// Values under names of the contract.
    Named(&'static Kind),
    List(&'static Kind),
    Text,
    /// A whole number from 0 to this.
    Whole(u64),
    /// A number, or null where it is missing.
    Number,
    Flag,
    /// Nothing: the field itself is refused.
    Nothing,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields(fields) => {
                let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
                write!(f, "give an object with fields of {}", names.join(", "))
            }
            Self::Named(_) => f.write_str("give an object of names and values"),
            Self::List(_) => f.write_str("give a list"),
            Self::Text => f.write_str("give a text in quotes"),
            Self::Whole(most) => write!(f, "give a whole number from 0 to {most}"),
            Self::Number => f.write_str("give a finite number, or leave it out where it is missing"),
            Self::Flag => f.write_str("give true or false"),
            Self::Nothing => f.write_str("remove it"),
        }
    }
}

/// A table of the right form: every field is known, comes once, and is of its kind.
struct Table(Value);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Place::new(Kind::Fields(FILE), String::new()).deserialize(deserializer).map(Self)
    }
}

/// Reads JSON or YAML; the error is a sentence with line and column.
pub(super) fn read(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    if is_json(text) { read_json(text) } else { read_yaml(text) }
}

/// Whether JSON is meant. YAML has braces too, and its keys there need no quotes.
fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    let object = text.strip_prefix('{').map(str::trim_start);
    text.starts_with('[') || object.is_some_and(|inner| inner.is_empty() || inner.starts_with(['"', '}']))
}

fn read_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map(|Table(value)| value).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let whole = error.to_string();
        let said = whole.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&whole);
        match said.split_once(OWN) {
            Some((_, own)) => format!("line {line}, column {column}: {own}"),
            None if error.is_eof() => format!("line {line}, column {column}: the JSON ends too early; complete it"),
            None => format!("line {line}, column {column}: this is not valid JSON: {said}; correct it there"),
        }
    })
}

fn read_yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        // Keys that come twice are found here, with a sentence of their own.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map(|Table(value)| value).map_err(|error| {
        let place = error.location().filter(|place| place.line() > 0);
        let place =
            place.map_or_else(String::new, |place| format!("line {}, column {}: ", place.line(), place.column()));
        let said = match error.without_snippet() {
            serde_saphyr::Error::Message { msg, .. } if msg.contains(OWN) => {
                msg.rsplit(OWN).next().unwrap_or_default().to_owned()
            }
            serde_saphyr::Error::MultipleDocuments { .. } => {
                "a second document starts here; keep one document in the file".to_owned()
            }
            serde_saphyr::Error::Budget { .. } => {
                "the table is too large or nests too deep to be read as YAML; write it as JSON".to_owned()
            }
            _ => "this is not valid YAML; correct the line, or those above it".to_owned(),
        };
        format!("{place}{said}")
    })
}

/// A value's kind and where it stands.
struct Place {
    kind: Kind,
    path: String,
    /// Why the field is refused. It is said where the value stands, since a parser may know no place but that.
    refusal: Option<String>,
}

impl Place {
    fn new(kind: Kind, path: String) -> Self {
        Self { kind, path, refusal: None }
    }

    fn refused(message: String) -> Self {
        Self { kind: Kind::Nothing, path: String::new(), refusal: Some(message) }
    }

    fn wrong<E: Error>(&self, found: impl fmt::Display) -> E {
        if let Some(message) = &self.refusal {
            return E::custom(format!("{OWN}{message}"));
        }
        let path = if self.path.is_empty() { "the table" } else { &self.path };
        E::custom(format!("{OWN}{path} is {found}; {}", self.kind))
    }

    fn child(&self, name: &str, kind: Kind) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self::new(kind, path)
    }
}

impl<'de> DeserializeSeed<'de> for Place {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        if matches!(self.kind, Kind::Flag) { Ok(Value::from(flag)) } else { Err(self.wrong(flag)) }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) if matches!(self.kind, Kind::Number) => Ok(Value::from(number)),
            Err(_) => Err(self.wrong(number)),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        match self.kind {
            Kind::Number => Ok(Value::from(number)),
            Kind::Whole(most) if number <= most => Ok(Value::from(number)),
            _ => Err(self.wrong(number)),
        }
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        match self.kind {
            Kind::Number if number.is_infinite() => Err(self.wrong("infinite")),
            // The missing value.
            Kind::Number if number.is_nan() => Ok(Value::Null),
            Kind::Number => Ok(Value::from(number)),
            _ => Err(self.wrong(format_args!("{number:?}"))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        const MOST: usize = 60;
        if matches!(self.kind, Kind::Text) {
            return Ok(Value::from(text));
        }
        let start: String = text.chars().take(MOST).collect();
        Err(self.wrong(format_args!("the text `{start}`")))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        match self.kind {
            Kind::Number => Ok(Value::Null),
            // A YAML section without lines.
            Kind::Named(_) => Ok(Value::Object(Map::new())),
            Kind::Fields(fields) if fields.iter().all(|(name, _)| *name != REQUIRED) => Ok(Value::Object(Map::new())),
            Kind::List(_) => Ok(Value::Array(Vec::new())),
            _ => Err(self.wrong("null")),
        }
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Kind::List(kind) = self.kind else { return Err(self.wrong("a list")) };
        let mut values = Vec::new();
        while let Some(value) =
            items.next_element_seed(Place::new(*kind, format!("{}[{}]", self.path, values.len())))?
        {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if !matches!(self.kind, Kind::Fields(_) | Kind::Named(_)) {
            return Err(self.wrong("an object"));
        }
        let place = if self.path.is_empty() { "the table" } else { &self.path };
        let (mut values, mut names) = (Map::new(), HashSet::new());
        while let Some(name) = entries.next_key::<String>()? {
            let kind = match self.kind {
                Kind::Named(kind) => Some(*kind),
                Kind::Fields(fields) => fields.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind),
                _ => None,
            };
            let child = match kind {
                None => Place::refused(format!("{place} has the unknown field `{name}`; {}", self.kind)),
                Some(kind) if names.insert(name.clone()) => self.child(&name, kind),
                Some(kind) => {
                    Place::refused(format!("{} comes twice; keep one of the two", self.child(&name, kind).path))
                }
            };
            let value = entries.next_value_seed(child)?;
            values.insert(name, value);
        }
        if let Kind::Fields(fields) = self.kind
            && fields.iter().any(|(name, _)| *name == REQUIRED)
            && !names.contains(REQUIRED)
        {
            return Err(A::Error::custom(format!("{OWN}{place} lacks the field `{REQUIRED}`; give the worker's id")));
        }
        Ok(Value::Object(values))
    }
}

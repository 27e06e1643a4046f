use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

#[derive(Debug, PartialEq, Parameters)]
struct Open {
    max_active_requests: u32,
    scale: Option<f64>,
}

fn error<T: Parameters + std::fmt::Debug>(json: &str) -> String {
    parse::<T>(json).unwrap_err().to_string()
}

fn schema_of<T: Parameters>() -> Value {
    serde_json::from_str(&schema::<T>()).unwrap()
}

#[test]
fn an_unknown_key_is_refused_with_a_list_of_those_known() {
    assert_eq!(
        error::<Open>(r#"{"max_active_requests":1,"scal":2}"#),
        "unknown parameter `scal`; use `max_active_requests` or `scale`"
    );
    assert_eq!(error::<NoParameters>(r#"{"x":1}"#), "unknown parameter `x`; this policy takes none");
    assert_eq!(parse::<NoParameters>("{}"), Ok(NoParameters {}));
}

#[test]
fn a_wrong_type_or_range_names_the_key() {
    assert_eq!(
        error::<Open>(r#"{"max_active_requests":-1}"#),
        "max_active_requests: expected a whole number from 0 to 4294967295, found -1"
    );
    let found = |value: &str| error::<Open>(&format!(r#"{{"max_active_requests":1,"scale":{value}}}"#));
    for (value, found_text) in
        [(r#""a""#, "a string"), ("true", "a boolean"), ("false", "a boolean"), ("[1]", "a list"), ("{}", "an object")]
    {
        assert_eq!(found(value), format!("scale: expected a number, found {found_text}"));
    }
    assert_eq!(error::<Open>(r#"{"max_active_requests":null}"#), "max_active_requests: expected a number, found null");
}

#[test]
fn a_missing_key_is_named() {
    assert_eq!(error::<Open>("{}"), "missing parameter `max_active_requests`");
}

#[test]
fn a_key_that_comes_twice_is_named() {
    assert_eq!(
        error::<Open>(r#"{"max_active_requests":1,"scale":1,"scal\u0065":2}"#),
        "parameter `scale` comes twice; keep one of the two"
    );
    assert_eq!(
        error::<BTreeMap<String, bool>>(r#"{"a":true,"a":true}"#),
        "parameter `a` comes twice; keep one of the two"
    );
}

#[test]
fn anything_but_an_object_is_refused() {
    for json in ["[1]", "1", "null", r#""a""#, "true"] {
        assert_eq!(error::<Open>(json), "parameters must be a JSON object");
    }
}

#[test]
fn what_is_no_json_is_refused_at_its_place() {
    let full = |value: &str| format!(r#"{{"max_active_requests":{value}}}"#);
    for (json, place) in [
        ("", "a value at byte 0"),
        ("nope", "a value at byte 0"),
        ("{", "a key at byte 1"),
        ("{max_active_requests:1}", "a key at byte 1"),
        (r#"{"max_active_requests" 1}"#, "`:` at byte 23"),
        (r#"{"max_active_requests":1,}"#, "a key at byte 25"),
        (r#"{"max_active_requests":1 "scale":1}"#, "`,` or `}` at byte 25"),
        (r#"{"max_active_requests":1} {}"#, "the end at byte 26"),
        (&full("01"), "`,` or `}` at byte 24"),
        (&full("-"), "a digit at byte 24"),
        (&full("1."), "a digit at byte 25"),
        (&full("1e+"), "a digit at byte 26"),
        (&full("+1"), "a value at byte 23"),
        (&full(".5"), "a value at byte 23"),
        (&full("NaN"), "a value at byte 23"),
        (&full("Infinity"), "a value at byte 23"),
    ] {
        assert_eq!(error::<Open>(json), format!("parameters are not JSON: expected {place}"), "{json}");
    }
}

#[test]
fn white_space_is_where_json_has_it() {
    let parameters = parse("\r\n { \"max_active_requests\" :\t1 , \"scale\" : null } \n");
    assert_eq!(parameters, Ok(Open { max_active_requests: 1, scale: None }));
    assert!(error::<Open>("{\u{a0}}").contains("a key at byte 1"));
}

#[test]
fn parameters_that_take_any_key() {
    type Any = BTreeMap<String, f64>;
    assert_eq!(parse::<Any>(r#"{"a":1}"#).unwrap().get("a"), Some(&1.0));
    assert_eq!(error::<Any>(r#"{"a":"b"}"#), "a: expected a number, found a string");
}

#[test]
fn a_number_is_read_to_the_last_bit() {
    // A reader that multiplies by a rounded power of ten misses these by one unit in the last place.
    for number in [0.36956435638042917, 1.3048368289977825, 2.4125637847434174] {
        let json = format!(r#"{{"max_active_requests":1,"scale":{number:?}}}"#);
        assert_eq!(parse::<Open>(&json).unwrap().scale, Some(number));
    }
}

#[derive(Debug, Default, PartialEq, Parameters)]
struct Numbers {
    #[parameter(default)]
    f64: f64,
    #[parameter(default)]
    f32: f32,
    #[parameter(default)]
    u8: u8,
    #[parameter(default)]
    u16: u16,
    #[parameter(default)]
    u32: u32,
    #[parameter(default)]
    u64: u64,
    #[parameter(default)]
    i8: i8,
    #[parameter(default)]
    i16: i16,
    #[parameter(default)]
    i32: i32,
    #[parameter(default)]
    i64: i64,
}

#[test]
fn a_float_is_any_number_that_is_not_too_large() {
    let read = |json: &str| parse::<Numbers>(json).unwrap();
    for json in ["1", "1.0", "1e0", "10E-1", "0.1e+1"] {
        assert_eq!(
            read(&format!(r#"{{"f64":{json},"f32":{json}}}"#)),
            Numbers { f64: 1.0, f32: 1.0, ..Numbers::default() }
        );
    }
    assert!(read(r#"{"f64":-0}"#).f64.is_sign_negative());
    // To the nearest f64 and from there to the nearest f32 would be one unit higher.
    assert_eq!(read(r#"{"f32":1.00000017881393432617187499}"#).f32, 1.000_000_1);
    assert_eq!(error::<Numbers>(r#"{"f64":-1e309}"#), "f64: the number -1e309 is too large");
    assert_eq!(error::<Numbers>(r#"{"f32":1e39}"#), "f32: the number 1e39 is too large");
}

#[test]
fn an_integer_is_one_in_its_range_without_fraction_or_exponent() {
    macro_rules! check {
        ($($type:ident)+) => {$(
            let name = stringify!($type);
            let property = &schema_of::<Numbers>()["properties"][name];
            assert_eq!(property["type"], "integer");
            assert_eq!(property["minimum"], $type::MIN);
            assert_eq!(property["maximum"], $type::MAX);
            for number in [$type::MIN, 7, $type::MAX] {
                assert_eq!(parse::<Numbers>(&format!(r#"{{"{name}":{number}}}"#)).unwrap().$type, number);
            }
            let (below, above) = (i128::from($type::MIN) - 1, i128::from($type::MAX) + 1);
            for number in [below.to_string(), above.to_string(), "1.0".to_owned(), "1e0".to_owned(), "1.5".to_owned()] {
                let range = format!("from {} to {}", $type::MIN, $type::MAX);
                assert_eq!(
                    error::<Numbers>(&format!(r#"{{"{name}":{number}}}"#)),
                    format!("{name}: expected a whole number {range}, found {number}")
                );
            }
        )+};
    }
    check!(u8 u16 u32 u64 i8 i16 i32 i64);
}

#[derive(Debug, PartialEq, Parameters)]
struct Texts {
    text: String,
}

#[test]
fn a_text_has_every_escape_of_json() {
    let read = |text: &str| parse::<Texts>(&format!(r#"{{"text":"{text}"}}"#)).map(|texts| texts.text);
    for (json, text) in [
        ("", ""),
        ("grüße 😀", "grüße 😀"),
        (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r"\u0041\u00e9\u20AC\u0000", "Aé€\0"),
        (r"\ud83d\ude00-\uD83D\uDE00", "😀-😀"),
        (r"\ud800\udc00\udbff\udfff", "\u{10000}\u{10ffff}"),
    ] {
        assert_eq!(read(json).as_deref(), Ok(text));
    }
    for wrong in [
        r"\x",
        r"\u12",
        r"\u12g4",
        r"\u+123",
        r"\ud83d",
        r"\ud83d\n",
        r"\ud83dx",
        r"\ude00",
        r"\ud83d\ud83d",
        "\n",
        "\0",
        r"\",
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.starts_with("parameters are not JSON: expected "), "{wrong}: {error}");
    }
}

#[derive(Debug, PartialEq, Parameters)]
struct Nested {
    /// The tiers.
    tiers: Vec<Tier>,
    #[parameter(default)]
    by_name: BTreeMap<String, Tier>,
    #[parameter(default)]
    lists: Vec<Vec<u8>>,
    other: Option<Tier>,
}

/// One tier.
#[derive(Debug, PartialEq, Parameters)]
struct Tier {
    #[parameter(above = 0.0)]
    weight: f64,
    #[parameter(default)]
    on: bool,
}

#[test]
fn structs_lists_and_maps_nest() {
    let tier = |weight, on| Tier { weight, on };
    assert_eq!(
        parse(
            r#"{"tiers":[{"weight":1},{"on":true,"weight":2}],"by_name":{"a":{"weight":3}},"lists":[[],[1,2]],
               "other":{"weight":4}}"#
        ),
        Ok(Nested {
            tiers: vec![tier(1.0, false), tier(2.0, true)],
            by_name: BTreeMap::from([("a".to_owned(), tier(3.0, false))]),
            lists: vec![vec![], vec![1, 2]],
            other: Some(tier(4.0, false)),
        })
    );
    let empty = Nested { tiers: vec![], by_name: BTreeMap::new(), lists: vec![], other: None };
    assert_eq!(parse(r#"{"tiers":[ ],"other":null}"#), Ok(empty));
}

#[test]
fn a_problem_within_names_the_way_to_it() {
    for (json, message) in [
        (r#"{"tiers":[{"weight":1},{"weight":0}]}"#, "tiers[1].weight must be above 0"),
        (r#"{"tiers":[{"weight":1,"x":1}]}"#, "tiers[0]: unknown parameter `x`; use `weight` or `on`"),
        (r#"{"tiers":[],"by_name":{"b":{}}}"#, "by_name.b: missing parameter `weight`"),
        (r#"{"tiers":[],"lists":[[1],[2,-3]]}"#, "lists[1][1]: expected a whole number from 0 to 255, found -3"),
        (r#"{"tiers":[],"other":{"weight":1,"on":0}}"#, "other.on: expected true or false, found a number"),
        (r#"{"tiers":{}}"#, "tiers: expected a list, found an object"),
        (r#"{"tiers":[1]}"#, "tiers[0]: expected an object, found a number"),
        (r#"{"tiers":[{"weight":1,"weight":1}]}"#, "tiers[0]: parameter `weight` comes twice; keep one of the two"),
    ] {
        assert_eq!(error::<Nested>(json), message);
    }
}

#[test]
fn nesting_beyond_the_types_is_refused_at_once() {
    let deep = format!(r#"{{"tiers":{}"#, "[".repeat(1_000_000));
    assert_eq!(error::<Nested>(&deep), "tiers[0]: expected an object, found a list");
    let deep = format!(r#"{{"tiers":[],"x":{}"#, "{\"a\":".repeat(1_000_000));
    assert!(error::<Nested>(&deep).starts_with("unknown parameter `x`"));
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Parameters)]
enum Mode {
    First,
    #[default]
    AtRandom,
    #[parameter(rename = "by \"name\"")]
    Named,
}

#[derive(Debug, PartialEq, Parameters)]
struct Defaults {
    #[parameter(default = 0.5)]
    share: f64,
    #[parameter(default = -3)]
    offset: i32,
    #[parameter(default = true)]
    on: bool,
    #[parameter(default = "a \"b\" \\")]
    text: String,
    #[parameter(default)]
    mode: Mode,
    #[parameter(default)]
    list: Vec<f64>,
    #[parameter(default, rename = "type")]
    kind: Option<Mode>,
}

#[test]
fn a_default_stands_in_and_is_in_the_schema() {
    let defaults = parse::<Defaults>("{}").unwrap();
    assert_eq!(
        defaults,
        Defaults {
            share: 0.5,
            offset: -3,
            on: true,
            text: "a \"b\" \\".to_owned(),
            mode: Mode::AtRandom,
            list: vec![],
            kind: None
        }
    );
    let schema = schema_of::<Defaults>();
    assert_eq!(schema["required"], Value::Null);
    let properties = schema["properties"].as_object().unwrap();
    let in_schema: BTreeMap<_, _> = properties.iter().map(|(name, property)| (name, &property["default"])).collect();
    // The schema's defaults, given, are the defaults.
    assert_eq!(parse(&json!(in_schema).to_string()), Ok(defaults));
}

#[test]
fn an_enum_is_the_name_of_a_variant() {
    for (name, mode) in [("first", Mode::First), ("at-random", Mode::AtRandom), (r#"by \"name\""#, Mode::Named)] {
        let parameters = parse::<Defaults>(&format!(r#"{{"mode":"{name}","type":"{name}"}}"#)).unwrap();
        assert_eq!((parameters.mode, parameters.kind), (mode, Some(mode)));
    }
    assert_eq!(
        error::<Defaults>(r#"{"mode":"AtRandom"}"#),
        "mode: expected `first`, `at-random` or `by \"name\"`, found `AtRandom`"
    );
    assert_eq!(error::<Defaults>(r#"{"type":1}"#), "type: expected a string, found a number");
}

#[derive(Debug, PartialEq, Parameters)]
struct Bounds {
    #[parameter(default = 1, min = 1)]
    at_least: u64,
    #[parameter(default = 1.0, max = 1.5)]
    at_most: f64,
    #[parameter(default = 0.5, min = 0.0, max = 1.0)]
    between: f64,
    #[parameter(default = 1, above = -1, below = 10)]
    inside: i8,
    #[parameter(default = -5, below = -1)]
    negative: i8,
    #[parameter(min = 0.0, rule = "finite and non-negative")]
    ruled: Option<f64>,
    #[parameter(default = 1, min = 0)]
    own: u8,
}

#[test]
fn a_number_out_of_bounds_is_told_the_rule() {
    for (json, message) in [
        (r#"{"at_least":0}"#, "at_least must be at least 1"),
        (r#"{"at_most":1.6}"#, "at_most must be at most 1.5"),
        (r#"{"between":-0.1}"#, "between must be between 0 and 1"),
        (r#"{"between":1.1}"#, "between must be between 0 and 1"),
        (r#"{"inside":-1}"#, "inside must be above -1 and below 10"),
        (r#"{"inside":10}"#, "inside must be above -1 and below 10"),
        (r#"{"negative":-1}"#, "negative must be below -1"),
        (r#"{"ruled":-0.5}"#, "ruled must be finite and non-negative"),
    ] {
        assert_eq!(error::<Bounds>(json), message);
    }
    let edges = r#"{"at_least":1,"at_most":1.5,"between":0,"inside":9,"ruled":-0.0,"own":0}"#;
    assert_eq!(
        parse(edges),
        Ok(Bounds { at_least: 1, at_most: 1.5, between: 0.0, inside: 9, negative: -5, ruled: Some(-0.0), own: 0 })
    );
    assert_eq!(parse::<Bounds>(r#"{"ruled":null}"#).unwrap().ruled, None);
}

/// What an operator reads.
///
/// In two paragraphs, of
/// several lines.
#[derive(Parameters)]
#[allow(dead_code, reason = "only its schema is looked at")]
struct Described {
    /// A `"quoted"` \ description.
    #[parameter(min = 0.5, below = 2.0)]
    number: f64,
    /// Perhaps.
    perhaps: Option<u16>,
    mode: Option<Mode>,
    r#type: Tier,
    tiers: BTreeMap<String, Vec<Tier>>,
    #[parameter(above = 0)]
    above: u64,
}

#[test]
fn the_schema_says_all_there_is() {
    let tier = json!({
        "description": "One tier.",
        "type": "object",
        "properties": {
            "weight": {"type": "number", "format": "double", "exclusiveMinimum": 0.0},
            "on": {"type": "boolean", "default": false},
        },
        "required": ["weight"],
        "additionalProperties": false,
    });
    let expected = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Described",
        "description": "What an operator reads.\n\nIn two paragraphs, of several lines.",
        "type": "object",
        "properties": {
            "number": {
                "description": "A `\"quoted\"` \\ description.",
                "type": "number",
                "format": "double",
                "minimum": 0.5,
                "exclusiveMaximum": 2.0,
            },
            "perhaps": {
                "description": "Perhaps.",
                "type": ["integer", "null"],
                "format": "uint16",
                "minimum": 0,
                "maximum": 65535,
            },
            "mode": {"type": ["string", "null"], "enum": ["first", "at-random", "by \"name\"", null]},
            "type": tier,
            "tiers": {"type": "object", "additionalProperties": {"type": "array", "items": tier}},
            "above": {
                "type": "integer", "format": "uint64", "exclusiveMinimum": 0, "minimum": 0, "maximum": u64::MAX,
            },
        },
        "required": ["number", "type", "tiers", "above"],
        "additionalProperties": false,
    });
    assert_eq!(schema_of::<Described>(), expected);
}

#[test]
fn the_schema_of_no_parameters_allows_none() {
    let schema = schema_of::<NoParameters>();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"], json!({}));
}

/// Whether the schema allows the value, by the keywords that our schemas have.
fn allows(schema: &Value, value: &Value) -> bool {
    let is_a = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type {other}"),
    };
    schema.as_object().unwrap().iter().all(|(keyword, is)| match (keyword.as_str(), value) {
        ("type", _) => match is {
            Value::Array(names) => names.iter().any(|name| is_a(name.as_str().unwrap())),
            name => is_a(name.as_str().unwrap()),
        },
        ("enum", _) => is.as_array().unwrap().contains(value),
        ("minimum", Value::Number(number)) => number.as_f64() >= is.as_f64(),
        ("exclusiveMinimum", Value::Number(number)) => number.as_f64() > is.as_f64(),
        ("maximum", Value::Number(number)) => number.as_f64() <= is.as_f64(),
        ("exclusiveMaximum", Value::Number(number)) => number.as_f64() < is.as_f64(),
        ("items", Value::Array(items)) => items.iter().all(|item| allows(is, item)),
        ("required", Value::Object(map)) => {
            is.as_array().unwrap().iter().all(|key| map.contains_key(key.as_str().unwrap()))
        }
        ("properties", Value::Object(map)) => {
            map.iter().all(|(key, value)| is.get(key).is_none_or(|property| allows(property, value)))
        }
        ("additionalProperties", Value::Object(map)) => {
            let known = schema.get("properties");
            let mut others = map.iter().filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()));
            others.all(|(_, value)| *is != false && allows(is, value))
        }
        ("$schema" | "title" | "description" | "format" | "default", _)
        | (
            "minimum"
            | "exclusiveMinimum"
            | "maximum"
            | "exclusiveMaximum"
            | "items"
            | "required"
            | "properties"
            | "additionalProperties",
            _,
        ) => true,
        (other, _) => panic!("no keyword {other}"),
    })
}

/// The schema and the reader are of one mind about the parameters with `key` set to each value.
fn agree<T: Parameters>(base: &Value, keys: &[&str]) {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(10),
        json!(255),
        json!(256),
        json!(4_294_967_296_u64),
        json!(0.5),
        json!(1.6),
        json!(-1.5),
        json!(2.5),
        json!(1e40),
        json!(""),
        json!("first"),
        json!([]),
        json!([1]),
        json!([[1, 300]]),
        json!([[1, 30]]),
        json!([{"weight": 1}]),
        json!([{"weight": 0}]),
        json!({}),
        json!({"weight": 2}),
        json!({"a": {"weight": 2}}),
        json!({"a": 1}),
        json!({"weight": 2, "on": 1}),
        json!({"weight": 2, "on": true}),
    ];
    let schema = schema_of::<T>();
    let mut agreed = [0, 0];
    let mut check = |value: &Value| {
        let read = parse::<T>(&value.to_string());
        assert_eq!(allows(&schema, value), read.is_ok(), "{value}: {:?}", read.err());
        agreed[usize::from(read.is_ok())] += 1;
    };
    check(base);
    for key in keys {
        let mut parameters = base.clone();
        parameters.as_object_mut().unwrap().remove(*key);
        check(&parameters);
        for value in &values {
            parameters[*key] = value.clone();
            check(&parameters);
        }
    }
    assert!(agreed.iter().all(|count| *count > 0), "{agreed:?}");
}

#[test]
fn the_schema_allows_what_the_reader_takes_and_no_more() {
    agree::<Open>(&json!({"max_active_requests": 1}), &["max_active_requests", "scale", "other"]);
    agree::<Nested>(&json!({"tiers": []}), &["tiers", "by_name", "lists", "other"]);
    agree::<Defaults>(&json!({}), &["share", "offset", "on", "text", "mode", "list", "type"]);
    agree::<Bounds>(&json!({}), &["at_least", "at_most", "between", "inside", "negative", "ruled", "own"]);
    agree::<Numbers>(&json!({}), &["f64", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]);
    agree::<BTreeMap<String, Tier>>(&json!({}), &["a"]);
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

//! A policy's parameters, as the command line gives them.

use serde_json::{Map, Value};

use crate::error::CliError;

/// Reads a JSON object.
///
/// JSON has neither NaN nor infinity; the message shows the place, with the key before it.
pub(crate) fn parse(option: &'static str, text: &str) -> Result<Map<String, Value>, CliError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(parameters)) => Ok(parameters),
        Ok(_) => Err(CliError::Parameters { option, message: "give one such as '{\"temperature\": 0.5}'".to_owned() }),
        Err(error) => Err(CliError::Parameters { option, message: format!("{error}, at `{}`", around(text, &error)) }),
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
    fn only_an_object_is_taken() {
        for text in ["", "[]", "null", "3", "{} {}"] {
            assert!(parse("--parameters", text).is_err(), "{text}");
        }
        assert_eq!(parse("--parameters", " {\"a\": 1} ").unwrap().len(), 1);
    }
}

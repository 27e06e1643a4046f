//! Prometheus's text format, as far as numbers and labels go.

/// One line with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    pub(crate) name: &'a str,
    /// What is between the braces.
    labels: &'a str,
    pub(crate) value: f64,
}

/// The samples of a text; lines that are none are left out.
pub(crate) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = line.split_at(line.find(|c: char| c == '{' || c.is_whitespace())?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let (labels, rest) = rest.split_at(closing_brace(rest)?);
            (labels, rest.get(1..)?)
        }
        None => ("", rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Where the labels end; a brace in a label's text does not end them.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().position(|byte| {
        let ends = byte == b'}' && !quoted;
        if byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

impl<'a> Sample<'a> {
    /// A label's text as it is written, escapes included.
    pub(crate) fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, value) = rest.split_once("=\"")?;
            let mut escaped = false;
            let end = value.bytes().position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            })?;
            let (value, after) = value.split_at(end);
            if key.trim_start_matches([',', ' ']).trim_end() == name {
                return Some(value);
            }
            rest = after.get(1..)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_numbers_are_read_and_everything_else_is_left_out() {
        let text = "# HELP a_b Help.\n# TYPE a_b gauge\na_b 1\n\nvllm:c{engine=\"0\", model_name=\"x}\\\"y,z=\\\\\"} 2.5e1 1700\n\
                    d{} +Inf\ne NaN\nbroken{engine=\"0\n}\nnothing\nf abc\n";
        let found: Vec<_> = samples(text).map(|sample| (sample.name, sample.value)).collect();
        assert_eq!(found[..3], [("a_b", 1.0), ("vllm:c", 25.0), ("d", f64::INFINITY)]);
        assert!(found.len() == 4 && found[3].1.is_nan());
        let labelled = samples(text).nth(1).unwrap();
        assert_eq!(labelled.label("engine"), Some("0"));
        assert_eq!(labelled.label("model_name"), Some("x}\\\"y,z=\\\\"));
        assert_eq!(labelled.label("model"), None);
        assert_eq!(samples(text).next().unwrap().label("engine"), None);
    }
}

//! YAML text -> a tree that keeps every line.
//!
//! The tree is built from the parser's events, without recursion and within bounds, so that a later walk over it may
//! recurse. What YAML allows and a policy file does not is found here: several documents, keys that are no text or come
//! twice, tags. Scalars are resolved as Dynamo's parser resolves them, so that its files mean the same here.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::problem::{Report, shown};

/// The largest file, in bytes.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// How deep lists and mappings may nest.
const MOST_DEPTH: usize = 64;
/// The most values, those that anchors and aliases repeat included.
const MOST_NODES: usize = 100_000;

/// A value and the line that it starts on.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
    /// Whether the file stops being readable inside the value, so that more may belong to it.
    pub(super) cut: bool,
}

impl Node {
    fn new(line: usize, value: Value) -> Self {
        Self { line, value, cut: false }
    }

    fn null(line: usize) -> Self {
        Self::new(line, Value::Scalar(String::new(), Scalar::Null))
    }

    /// The line of the field that the path leads to; where it is left out, that of the deepest value on the way.
    pub(super) fn line_of(&self, path: &str) -> usize {
        self.follow(path).1
    }

    /// The place of a text in the list that the path leads to.
    pub(super) fn place_of(&self, path: &str, text: &str) -> Option<usize> {
        let Value::List(items) = &self.follow(path).0.value else { return None };
        items.iter().position(|item| matches!(&item.value, Value::Scalar(found, _) if found == text))
    }

    /// The deepest value on the way to the field, and the line of its key.
    fn follow<'n>(&'n self, path: &str) -> (&'n Self, usize) {
        let (mut node, mut line, mut path) = (self, self.line, path);
        loop {
            let next = match &node.value {
                Value::Scalar(..) => None,
                Value::List(items) => path.strip_prefix('[').and_then(|rest| {
                    let (place, rest) = rest.split_once(']')?;
                    let item = items.get(place.parse::<usize>().ok()?)?;
                    Some((item, item.line, rest))
                }),
                Value::Map(entries) => {
                    let path = path.strip_prefix('.').unwrap_or(path);
                    entries.iter().find_map(|entry| {
                        let rest = path.strip_prefix(join("", &entry.key).as_str())?;
                        let whole = rest.is_empty() || rest.starts_with(['.', '[']);
                        whole.then_some((&entry.node, entry.line, rest))
                    })
                }
            };
            match next {
                Some((inner, at, rest)) if !path.is_empty() => (node, line, path) = (inner, at, rest),
                _ => return (node, line),
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// The scalar as it is written, without quotes, and what it stands for.
    Scalar(String, Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Below 0.
    Negative(i64),
    Float(f64),
    /// A number that neither 64-bit integers nor finite floats hold.
    TooLarge,
    Text,
}

/// One field of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

/// The one document of `text`, up to where its syntax is wrong; none where it cannot be read at all. The reason is then in
/// the report.
pub(super) fn read(text: &str, report: &mut Report) -> Option<Node> {
    if text.len() > MOST_BYTES {
        report.add(0, "", too_long());
        return None;
    }
    let (last_line, _) = end(text);
    let mut builder =
        Builder { report, last_line, open: Vec::new(), anchors: FxHashMap::default(), nodes: 0, root: None };
    let mut parser = Parser::new_from_str(text);
    loop {
        match parser.next_event() {
            // A file without a document says as much as an empty one.
            None | Some(Ok((Event::StreamEnd, _))) => return builder.root.or(Some(Node::null(1))),
            Some(Ok((event, span))) => {
                if let Err(Stop { line, message }) = builder.take(event, span) {
                    builder.report.add(line, "", message);
                    return None;
                }
            }
            Some(Err(error)) => {
                let Stop { line, message } = syntax(&error, text);
                builder.report.add(line, "", message);
                return builder.cut();
            }
        }
    }
}

pub(super) fn too_long() -> String {
    format!("the file is longer than {MOST_BYTES} bytes; make it smaller")
}

/// The path of a field below `parent`.
pub(super) fn join(parent: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    match (plain, parent.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{parent}.{key}"),
        (false, _) => format!("{parent}[{}]", shown(key)),
    }
}

/// What makes the rest of the file unreadable.
struct Stop {
    line: usize,
    message: String,
}

/// The last line and the column after its end. To the parser, a text ends at the beginning of a line that need not be there.
fn end(text: &str) -> (usize, usize) {
    let text = text.replace("\r\n", "\n");
    let mut lines = text.split(['\n', '\r']);
    (lines.clone().count(), lines.next_back().unwrap_or_default().chars().count() + 1)
}

fn syntax(error: &ScanError, text: &str) -> Stop {
    let (mut line, mut column) = (error.marker().line(), error.marker().col() + 1);
    let (last_line, end) = end(text);
    if line > last_line {
        (line, column) = (last_line, end);
    }
    let fix = if error.info().contains("tab") {
        // A text of several lines is refused at its beginning, which is not where the tab is.
        let tab = |line: &str| {
            line.find(|char: char| char != ' ')
                .filter(|place| line.get(*place..).is_some_and(|rest| rest.starts_with('\t')))
        };
        let tabs = text.lines().enumerate().skip(line.saturating_sub(1));
        if let Some((at, place)) = tabs.into_iter().find_map(|(at, line)| Some((at, tab(line)?))) {
            (line, column) = (at + 1, place + 1);
        }
        "indent with spaces"
    } else if error.info().contains("unknown anchor") {
        "define the anchor above its alias"
    } else {
        "correct the syntax there or in the lines above"
    };
    let message = format!("this is not valid YAML at column {}: {}; {fix}", column, error.info());
    Stop { line, message }
}

/// A list or mapping that is being read.
struct Open {
    line: usize,
    anchor: usize,
    content: Content,
    size: usize,
    height: usize,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        lines: FxHashMap<String, usize>,
        /// The key whose value comes next, without its text where the key was refused.
        key: Option<(Option<String>, usize)>,
    },
}

/// A finished value, with what a later alias costs.
#[derive(Clone)]
struct Built {
    node: Node,
    size: usize,
    height: usize,
}

struct Builder<'r> {
    report: &'r mut Report,
    last_line: usize,
    open: Vec<Open>,
    anchors: FxHashMap<usize, Built>,
    nodes: usize,
    root: Option<Node>,
}

impl Builder<'_> {
    /// What was read before the file stopped being readable.
    fn cut(mut self) -> Option<Node> {
        // Where the syntax is wrong, so may be the reading of the text right before.
        let suspect = |node: &mut Node| matches!(node.value, Value::Scalar(..));
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::List(items)) => drop(items.pop_if(suspect)),
            Some(Content::Map { entries, .. }) => drop(entries.pop_if(|entry| suspect(&mut entry.node))),
            None => {}
        }
        let mut inner: Option<Node> = None;
        while let Some(open) = self.open.pop() {
            let value = match open.content {
                Content::List(mut items) => {
                    items.extend(inner);
                    Value::List(items)
                }
                Content::Map { mut entries, key, .. } => {
                    if let (Some(node), Some((Some(key), line))) = (inner, key) {
                        entries.push(Entry { key, line, node: on_key_line(node, line) });
                    }
                    Value::Map(entries)
                }
            };
            inner = Some(Node { line: open.line, value, cut: true });
        }
        inner.or(self.root)
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let line = span.start.line().min(self.last_line);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(Stop { line, message: "a second document starts here; keep one document in the file".to_owned() })
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = self.scalar(&text, style, tag.as_deref(), line);
                let node = Node::new(line, Value::Scalar(text.into_owned(), scalar));
                self.built(Built { node, size: 1, height: 0 }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag, "seq", line);
                self.start(line, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag, "map", line);
                self.start(line, anchor, Content::Map { entries: Vec::new(), lines: FxHashMap::default(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.content {
                    Content::List(items) => Value::List(items),
                    Content::Map { entries, .. } => Value::Map(entries),
                };
                let node = Node::new(open.line, value);
                self.built(Built { node, size: open.size + 1, height: open.height + 1 }, open.anchor)
            }
            Event::Alias(anchor) => {
                let Some(mut built) = self.anchors.get(&anchor).cloned() else {
                    let message = "this alias stands inside the value that its anchor names; write the value out";
                    return Err(Stop { line, message: message.to_owned() });
                };
                built.node.line = line;
                self.count(built.size, line)?;
                self.place(built)
            }
        }
    }

    fn start(&mut self, line: usize, anchor: usize, content: Content) -> Result<(), Stop> {
        self.open.push(Open { line, anchor, content, size: 0, height: 0 });
        self.bound_depth(0, line)
    }

    /// Takes a value that was just read.
    fn built(&mut self, built: Built, anchor: usize) -> Result<(), Stop> {
        self.count(1, built.node.line)?;
        if anchor > 0 {
            self.count(built.size, built.node.line)?;
            self.anchors.insert(anchor, built.clone());
        }
        self.place(built)
    }

    fn count(&mut self, size: usize, line: usize) -> Result<(), Stop> {
        self.nodes += size;
        if self.nodes <= MOST_NODES {
            return Ok(());
        }
        let message = format!(
            "the file holds more than {MOST_NODES} values by here, counting what aliases repeat; make it smaller"
        );
        Err(Stop { line, message })
    }

    fn bound_depth(&self, height: usize, line: usize) -> Result<(), Stop> {
        if self.open.len() + height <= MOST_DEPTH {
            return Ok(());
        }
        Err(Stop { line, message: format!("values nest more than {MOST_DEPTH} deep here; nest them less") })
    }

    /// Puts a value where it belongs: in the list or mapping that is open, or at the root.
    fn place(&mut self, built: Built) -> Result<(), Stop> {
        self.bound_depth(built.height, built.node.line)?;
        let path = self.path();
        let Some(open) = self.open.last_mut() else {
            self.root = Some(built.node);
            return Ok(());
        };
        open.size += built.size;
        open.height = open.height.max(built.height);
        let (entries, lines, key) = match &mut open.content {
            Content::List(items) => {
                items.push(built.node);
                return Ok(());
            }
            Content::Map { entries, lines, key } => (entries, lines, key),
        };
        match key.take() {
            None => {
                *key = Some((accept_key(built.node.value, built.node.line, lines, &path, self.report), built.node.line))
            }
            Some((None, _)) => {}
            Some((Some(text), line)) => entries.push(Entry { key: text, line, node: on_key_line(built.node, line) }),
        }
        Ok(())
    }

    /// The path of the value that comes next.
    fn path(&self) -> String {
        self.open.iter().fold(String::new(), |path, open| match &open.content {
            Content::List(items) => format!("{path}[{}]", items.len()),
            Content::Map { key: Some((Some(key), _)), .. } => join(&path, key),
            Content::Map { .. } => path,
        })
    }

    fn refuse_tag(&mut self, tag: Option<Cow<'_, Tag>>, own: &str, line: usize) {
        if let Some(tag) = tag
            && !(tag.is_yaml_core_schema() && tag.suffix == own)
        {
            let path = self.path();
            self.report.add(line, &path, format!("the tag {} has no meaning here; remove it", shown(&tag.to_string())));
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Scalar {
        let plain = style == ScalarStyle::Plain;
        let Some(tag) = tag else { return if plain { resolve(text) } else { Scalar::Text } };
        let resolved = resolve(text);
        let fits = match (tag.is_yaml_core_schema(), tag.suffix.as_str(), resolved) {
            (true, "str", _) => return Scalar::Text,
            (true, "null", Scalar::Null) | (true, "bool", Scalar::Bool(_)) => true,
            (true, "int", Scalar::Unsigned(_) | Scalar::Negative(_)) | (true, "float", Scalar::Float(_)) => true,
            _ => false,
        };
        if !fits {
            let path = self.path();
            let tag = shown(&tag.to_string());
            self.report.add(line, &path, format!("the tag {tag} does not fit {}; remove the tag", shown(text)));
        }
        resolved
    }
}

/// The text of a key that may stand in the mapping; none, with the reason in the report, for another.
fn accept_key(
    value: Value,
    line: usize,
    lines: &mut FxHashMap<String, usize>,
    path: &str,
    report: &mut Report,
) -> Option<String> {
    let text = match value {
        Value::Scalar(text, Scalar::Text) => text,
        Value::Scalar(text, _) => {
            report.add(line, path, format!("the key {} is not text; put it in quotes", shown(&text)));
            return None;
        }
        Value::List(_) | Value::Map(_) => {
            report.add(line, path, "a list or mapping cannot be a key; use text");
            return None;
        }
    };
    if let Some(first) = lines.get(&text) {
        let message = format!("this field is already on line {first}; remove one of the two");
        report.add(line, &join(path, &text), message);
        return None;
    }
    lines.insert(text.clone(), line);
    Some(text)
}

/// The parser puts a value that is left out, and a list or mapping in block style, on a later line than its key.
fn on_key_line(mut node: Node, line: usize) -> Node {
    if !matches!(&node.value, Value::Scalar(text, scalar) if *scalar != Scalar::Null && !text.is_empty()) {
        node.line = line;
    }
    node
}

/// What a plain scalar stands for.
///
/// YAML 1.2's core schema with the two readings of Dynamo's parser: digits after a leading zero are text, and `0b` and
/// signed `0x` and `0o` are integers.
fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.starts_with(['+', '-']) {
        return Scalar::Text;
    }
    let radix = [("0x", 16), ("0o", 8), ("0b", 2)];
    if let Some((digits, radix)) =
        radix.into_iter().find_map(|(prefix, radix)| digits.strip_prefix(prefix).map(|digits| (digits, radix)))
    {
        let integer = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
        return if integer { integer_of(negative, digits, radix) } else { Scalar::Text };
    }
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        return if leading_zero { Scalar::Text } else { integer_of(negative, digits, 10) };
    }
    // Rust reads `inf` and `nan` as numbers, YAML does not.
    let number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    match text.parse::<f64>() {
        Ok(value) if number && value.is_finite() => Scalar::Float(value),
        Ok(_) if number => Scalar::TooLarge,
        _ => Scalar::Text,
    }
}

fn integer_of(negative: bool, digits: &str, radix: u32) -> Scalar {
    match u64::from_str_radix(digits, radix) {
        Ok(0) => Scalar::Unsigned(0),
        Ok(value) if negative => 0i64.checked_sub_unsigned(value).map_or(Scalar::TooLarge, Scalar::Negative),
        Ok(value) => Scalar::Unsigned(value),
        Err(_) => Scalar::TooLarge,
    }
}

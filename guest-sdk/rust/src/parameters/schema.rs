//! What JSON a parameter takes: a static tree, and the JSON Schema that it stands for.

/// A node of the tree. It is constant, so a type that contains itself does not compile, and nothing nests deeper than
/// the types do.
#[derive(Debug)]
pub enum Schema {
    /// A number of a format such as `double`.
    Number(&'static str),
    /// A whole number.
    Integer(&'static Integer),
    /// True or false.
    Boolean,
    /// A text.
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A list of these.
    List(&'static Schema),
    /// An object of any keys, with these for values.
    Map(&'static Schema),
    /// This or null.
    Nullable(&'static Schema),
    /// An object of these keys and no others.
    Object(&'static Object),
}

/// What a whole number is.
#[derive(Debug)]
pub struct Integer {
    /// As JSON Schema names it.
    pub format: &'static str,
    /// The bounds of the type.
    pub range: &'static [Keyword],
}

/// A keyword of JSON Schema and its number.
type Keyword = (&'static str, &'static str);

/// The fields of a struct.
#[derive(Debug)]
pub struct Object {
    /// The type's name.
    pub title: &'static str,
    /// The type's doc comment.
    pub description: &'static str,
    /// In the order of declaration.
    pub fields: &'static [Field],
}

/// One field of a struct.
#[derive(Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// The doc comment.
    pub description: &'static str,
    /// That of the type.
    pub schema: &'static Schema,
    /// Whether the key must be there.
    pub required: bool,
    /// JSON, where it is known.
    pub default: Option<&'static str>,
    /// The bounds, which take the place of the type's own.
    pub range: &'static [Keyword],
}

impl Schema {
    /// Whether null is a value, and so are no words at all.
    #[must_use]
    pub const fn is_nullable(&self) -> bool {
        matches!(self, Self::Nullable(_))
    }

    /// The JSON Schema (2020-12).
    pub(crate) fn to_json(&self) -> String {
        let mut json = Json(String::new());
        json.open('{');
        json.key("$schema");
        json.text("https://json-schema.org/draft/2020-12/schema");
        if let Self::Object(object) = self {
            json.key("title");
            json.text(object.title);
        }
        self.keywords("", &[], &mut json);
        json.close('}');
        json.0
    }

    fn keywords(&self, description: &str, range: &[Keyword], json: &mut Json) {
        let (bare, nullable) = match self {
            Self::Nullable(bare) => (*bare, true),
            bare => (bare, false),
        };
        let description = match bare {
            Self::Object(object) if description.is_empty() => object.description,
            _ => description,
        };
        if !description.is_empty() {
            json.key("description");
            json.text(description);
        }
        json.key("type");
        if nullable {
            json.texts(&[bare.type_name(), "null"], false);
        } else {
            json.text(bare.type_name());
        }
        bare.more_keywords(nullable, range, json);
    }

    const fn type_name(&self) -> &'static str {
        match self {
            Self::Number(_) => "number",
            Self::Integer(_) => "integer",
            Self::Boolean => "boolean",
            Self::Text | Self::Choice(_) => "string",
            Self::List(_) => "array",
            Self::Map(_) | Self::Object(_) => "object",
            Self::Nullable(inner) => inner.type_name(),
        }
    }

    fn more_keywords(&self, nullable: bool, range: &[Keyword], json: &mut Json) {
        match self {
            Self::Boolean | Self::Text | Self::Nullable(_) => {}
            Self::Number(format) => {
                json.key("format");
                json.text(format);
                json.numbers(range);
            }
            Self::Integer(integer) => {
                json.key("format");
                json.text(integer.format);
                json.numbers(range);
                for own in integer.range {
                    if !range.iter().any(|(keyword, _)| *keyword == own.0) {
                        json.numbers(&[*own]);
                    }
                }
            }
            Self::Choice(names) => {
                json.key("enum");
                json.texts(names, nullable);
            }
            Self::List(items) => json.schema("items", items),
            Self::Map(values) => json.schema("additionalProperties", values),
            Self::Object(object) => object.keywords(json),
        }
    }
}

impl Object {
    fn keywords(&self, json: &mut Json) {
        json.key("properties");
        json.open('{');
        for field in self.fields {
            json.key(field.name);
            json.open('{');
            field.schema.keywords(field.description, field.range, json);
            if let Some(default) = field.default {
                json.key("default");
                json.0.push_str(default);
            }
            json.close('}');
        }
        json.close('}');
        if self.fields.iter().any(|field| field.required) {
            json.key("required");
            json.open('[');
            for field in self.fields {
                if field.required {
                    json.comma();
                    json.text(field.name);
                }
            }
            json.close(']');
        }
        json.key("additionalProperties");
        json.0.push_str("false");
    }
}

/// JSON as it is written.
struct Json(String);

impl Json {
    fn open(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    fn close(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    /// Before everything but the first of an object or list.
    fn comma(&mut self) {
        if !self.0.ends_with(['{', '[']) {
            self.0.push(',');
        }
    }

    fn key(&mut self, key: &str) {
        self.comma();
        self.text(key);
        self.0.push(':');
    }

    fn text(&mut self, text: &str) {
        self.0.push('"');
        for char in text.chars() {
            match char {
                '"' | '\\' => self.0.extend(['\\', char]),
                '\n' => self.0.push_str("\\n"),
                // No other control character has a place in a text for readers.
                control if control < ' ' => self.0.push(' '),
                plain => self.0.push(plain),
            }
        }
        self.0.push('"');
    }

    fn texts(&mut self, texts: &[&str], null: bool) {
        self.open('[');
        for text in texts {
            self.comma();
            self.text(text);
        }
        if null {
            self.comma();
            self.0.push_str("null");
        }
        self.close(']');
    }

    fn numbers(&mut self, keywords: &[Keyword]) {
        for (keyword, number) in keywords {
            self.key(keyword);
            self.0.push_str(number);
        }
    }

    fn schema(&mut self, keyword: &str, schema: &Schema) {
        self.key(keyword);
        self.open('{');
        schema.keywords("", &[], self);
        self.close('}');
    }
}

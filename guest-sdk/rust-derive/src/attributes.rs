//! The attributes `#[parameter(...)]`, and doc comments.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitStr, Meta, Token};

/// What is said of a field.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) default: Option<DefaultValue>,
    pub(crate) bounds: Vec<Bound>,
    rule: Option<LitStr>,
    rename: Option<LitStr>,
}

pub(crate) enum DefaultValue {
    /// What the type's `Default` gives.
    OfType,
    Is(Literal),
}

/// A bound, in the order of [`BOUNDS`].
pub(crate) struct Bound {
    kind: &'static BoundKind,
    number: Literal,
}

struct BoundKind {
    attribute: &'static str,
    keyword: &'static str,
    operator: &'static str,
    words: &'static str,
    holds: fn(f64, f64) -> bool,
}

const BOUNDS: [BoundKind; 4] = [
    BoundKind {
        attribute: "min",
        keyword: "minimum",
        operator: ">=",
        words: "at least",
        holds: |number, bound| number >= bound,
    },
    BoundKind {
        attribute: "above",
        keyword: "exclusiveMinimum",
        operator: ">",
        words: "above",
        holds: |number, bound| number > bound,
    },
    BoundKind {
        attribute: "max",
        keyword: "maximum",
        operator: "<=",
        words: "at most",
        holds: |number, bound| number <= bound,
    },
    BoundKind {
        attribute: "below",
        keyword: "exclusiveMaximum",
        operator: "<",
        words: "below",
        holds: |number, bound| number < bound,
    },
];

impl Attributes {
    /// Those of a field.
    pub(crate) fn of_field(attributes: &[Attribute]) -> Result<Self, Error> {
        let mut all = Self::default();
        visit(attributes, &mut |meta| all.add(meta))?;
        all.check()?;
        Ok(all)
    }

    fn add(&mut self, meta: &ParseNestedMeta<'_>) -> Result<(), Error> {
        let name = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
        if let Some(kind) = BOUNDS.iter().find(|kind| kind.attribute == name) {
            if self.bounds.iter().any(|bound| bound.kind.attribute == name) {
                return Err(twice(meta));
            }
            self.bounds.push(Bound { kind, number: meta.value()?.parse::<Literal>()?.number()? });
            self.bounds.sort_by_key(|bound| BOUNDS.iter().position(|kind| kind.attribute == bound.kind.attribute));
            return Ok(());
        }
        match name.as_str() {
            "default" if meta.input.peek(Token![=]) => {
                set(&mut self.default, meta, DefaultValue::Is(meta.value()?.parse()?))
            }
            "default" => set(&mut self.default, meta, DefaultValue::OfType),
            "rule" => set(&mut self.rule, meta, meta.value()?.parse()?),
            "rename" => set(&mut self.rename, meta, new_name(meta)?),
            _ => {
                Err(meta.error("unknown attribute; use `default`, `min`, `max`, `above`, `below`, `rule` or `rename`"))
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        if let (Some(rule), []) = (&self.rule, self.bounds.as_slice()) {
            return Err(Error::new_spanned(
                rule,
                "there is no bound for this rule; add `min`, `max`, `above` or `below`",
            ));
        }
        let Some(DefaultValue::Is(default)) = &self.default else { return Ok(()) };
        let Some(value) = default.value() else { return Ok(()) };
        match self.bounds.iter().find(|bound| bound.number.value().is_some_and(|to| !(bound.kind.holds)(value, to))) {
            Some(bound) => {
                let must = format!("this default must be {} {}", bound.kind.words, bound.number.words());
                Err(Error::new(default.span, must))
            }
            None => Ok(()),
        }
    }

    /// The name in JSON.
    pub(crate) fn name(&self, field: &Ident) -> String {
        self.rename.as_ref().map_or_else(|| field.unraw().to_string(), LitStr::value)
    }

    /// What a number outside the bounds must be.
    pub(crate) fn rule(&self) -> String {
        match (&self.rule, self.bounds.as_slice()) {
            (Some(rule), _) => rule.value(),
            (None, [from, to]) if from.kind.attribute == "min" && to.kind.attribute == "max" => {
                format!("between {} and {}", from.number.words(), to.number.words())
            }
            (None, bounds) => {
                let words: Vec<_> =
                    bounds.iter().map(|bound| format!("{} {}", bound.kind.words, bound.number.words())).collect();
                words.join(" and ")
            }
        }
    }
}

impl Bound {
    /// The keyword of JSON Schema, and its number.
    pub(crate) fn keyword(&self) -> TokenStream {
        let (keyword, number) = (self.kind.keyword, &self.number.text);
        quote!((#keyword, #number))
    }

    /// Whether `number` is within, as an expression.
    pub(crate) fn check(&self, number: &Ident) -> Result<TokenStream, Error> {
        let (operator, bound): (TokenStream, _) = (self.kind.operator.parse()?, &self.number);
        Ok(quote!(#number #operator #bound))
    }
}

/// The new name of a variant, if it has one.
pub(crate) fn rename_of_variant(attributes: &[Attribute]) -> Result<Option<String>, Error> {
    let mut rename = None;
    visit(attributes, &mut |meta| {
        if !meta.path.is_ident("rename") {
            return Err(meta.error("unknown attribute; a variant has `rename` alone"));
        }
        set(&mut rename, meta, new_name(meta)?.value())
    })?;
    Ok(rename)
}

/// Refuses every attribute of a struct or enum itself.
pub(crate) fn none(attributes: &[Attribute]) -> Result<(), Error> {
    visit(attributes, &mut |meta| Err(meta.error("this attribute is for fields and variants")))
}

fn visit(
    attributes: &[Attribute],
    visit: &mut dyn FnMut(&ParseNestedMeta<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("parameter")) {
        attribute.parse_nested_meta(|meta| visit(&meta))?;
    }
    Ok(())
}

fn set<T>(slot: &mut Option<T>, meta: &ParseNestedMeta<'_>, value: T) -> Result<(), Error> {
    if slot.replace(value).is_some() { Err(twice(meta)) } else { Ok(()) }
}

fn twice(meta: &ParseNestedMeta<'_>) -> Error {
    meta.error("this attribute comes twice; keep one of the two")
}

fn new_name(meta: &ParseNestedMeta<'_>) -> Result<LitStr, Error> {
    let name: LitStr = meta.value()?.parse()?;
    if name.value().is_empty() || name.value().contains(char::is_control) {
        return Err(Error::new_spanned(name, "a name has a character, and no control character"));
    }
    Ok(name)
}

/// The text of the doc comment: lines that follow one another are one paragraph.
pub(crate) fn description(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let Meta::NameValue(doc) = &attribute.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &doc.value else { continue };
        let line = line.value();
        let separator = if line.trim().is_empty() { "\n\n" } else { " " };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(separator);
        }
        text.push_str(line.trim());
    }
    text.trim_end().to_owned()
}

/// A number with its sign, a text, true or false.
pub(crate) struct Literal {
    negative: bool,
    literal: Lit,
    /// As JSON.
    pub(crate) text: String,
    span: Span,
}

impl Parse for Literal {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let span = input.span();
        let negative = input.parse::<Option<Token![-]>>()?.is_some();
        let literal: Lit = input.parse().map_err(|error| Error::new(error.span(), Self::EXPECTED))?;
        let digits = match &literal {
            Lit::Int(int) => int.base10_digits().to_owned(),
            Lit::Float(float) => json_float(float.base10_digits()),
            Lit::Bool(bool) if !negative => bool.value.to_string(),
            Lit::Str(text) if !negative => json_text(text)?,
            _ => return Err(Error::new(span, Self::EXPECTED)),
        };
        let text = if negative { format!("-{digits}") } else { digits };
        Ok(Self { negative, literal, text, span })
    }
}

impl Literal {
    const EXPECTED: &'static str = "expected a number, a text, `true` or `false`";

    fn number(self) -> Result<Self, Error> {
        if self.value().is_some() { Ok(self) } else { Err(Error::new(self.span, "expected a number")) }
    }

    /// As a sentence has it.
    fn words(&self) -> &str {
        self.text.strip_suffix(".0").unwrap_or(&self.text)
    }

    fn value(&self) -> Option<f64> {
        match self.literal {
            Lit::Int(_) | Lit::Float(_) => self.text.parse().ok(),
            _ => None,
        }
    }

    /// The expression of a value of this type.
    pub(crate) fn value_of(&self) -> TokenStream {
        match &self.literal {
            Lit::Str(text) => quote!(::std::string::String::from(#text)),
            _ => self.to_token_stream(),
        }
    }
}

impl ToTokens for Literal {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let literal = &self.literal;
        tokens.extend(if self.negative { quote!(-#literal) } else { quote!(#literal) });
    }
}

/// JSON has a digit after the point.
fn json_float(digits: &str) -> String {
    if digits.ends_with('.') { format!("{digits}0") } else { digits.to_owned() }
}

fn json_text(text: &LitStr) -> Result<String, Error> {
    let value = text.value();
    if value.contains(char::is_control) {
        return Err(Error::new_spanned(text, "a default has no control character"));
    }
    Ok(quoted(&value))
}

/// A text without control characters, as JSON.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

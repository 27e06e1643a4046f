//! Parameters: types that read themselves from JSON, their JSON Schema, and errors that name the parameter.

mod decimal;
mod problem;
mod reader;
mod schema;
mod types;

/// Makes parameters of a struct with named fields: how they are read from JSON, and their JSON Schema. A doc comment is
/// the description that the operator sees.
///
/// ```
/// use pointsman_sdk::prelude::*;
///
/// /// The weights of a cost.
/// #[derive(Parameters)]
/// struct Weights {
///     /// Required.
///     prefill: f64,
///     /// Left out, it is none.
///     decode: Option<f64>,
///     /// Left out, it is 0.5.
///     #[parameter(default = 0.5, min = 0.0, max = 1.0)]
///     share: f64,
///     /// Left out, it is what `Default` gives: here `Ties::First`.
///     #[parameter(default)]
///     ties: Ties,
/// }
///
/// #[derive(Default, Parameters)]
/// enum Ties {
///     #[default]
///     First,
///     AtRandom,
/// }
/// ```
///
/// | attribute | meaning |
/// |---|---|
/// | `default` | may be left out; then it is the type's `Default`, which no bound is held against |
/// | `default = 0.5` | may be left out; then it is this number, text or bool |
/// | `min = 0.0`, `max = 1.0` | a number from `min` to `max`; of an option, where there is one |
/// | `above = 0.0`, `below = 1.0` | the same without the bound itself |
/// | `rule = "finite and non-negative"` | what the error says that a number outside its bounds must be |
/// | `rename = "kv-weight"` | the name in JSON, of a field or of a variant |
///
/// A field without a default is required, unless it is an `Option`. [`Parameter`] lists the types. An enum has variants
/// without fields and is one of their names, in kebab-case: `at-random`.
///
/// Whatever is wrong is refused in one sentence: a key that the struct does not name ("unknown parameter `decoed`; use
/// `prefill`, `decode`, `share` or `ties`"), one that comes twice, one that is missing, a wrong type ("share: expected
/// a number, found a string"), a number out of bounds ("share must be between 0 and 1").
///
/// An attribute that there is not does not compile:
///
/// ```compile_fail
/// #[derive(pointsman_sdk::Parameters)]
/// struct Weights {
///     #[parameter(minimum = 0.0)]
///     prefill: f64,
/// }
/// ```
///
/// Nor does a default outside the bounds, nor a bound of what is no number:
///
/// ```compile_fail
/// #[derive(pointsman_sdk::Parameters)]
/// struct Weights {
///     #[parameter(default = 2.0, max = 1.0)]
///     prefill: f64,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(pointsman_sdk::Parameters)]
/// struct Weights {
///     #[parameter(min = 1)]
///     name: String,
/// }
/// ```
pub use pointsman_sdk_derive::Parameters;
pub use problem::Problem;
pub use reader::Reader;
pub use schema::{Field, Object, Schema};

use crate::PolicyError;

/// The parameters of a policy: a JSON object. Derived for a struct with named fields; see
/// [the derive macro](derive@crate::Parameters).
///
/// A `BTreeMap<String, T>` takes keys of any name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no set of parameters",
    note = "put `#[derive(pointsman_sdk::Parameters)]` on a struct with named fields"
)]
pub trait Parameters: Parameter {}

/// One parameter's type.
///
/// | type | JSON |
/// |---|---|
/// | `f64`, `f32` | a number, rounded to the nearest that the type has; one too large is refused |
/// | `u8` to `u64`, `i8` to `i64` | a number in the type's range, without fraction or exponent: 1, not 1.0 or 1e0 |
/// | `bool` | `true` or `false` |
/// | `String` | a string |
/// | `Option<T>` | `T`'s, or null, or nothing |
/// | `Vec<T>` | a list |
/// | `BTreeMap<String, T>` | an object of any keys |
/// | a struct that derives [`Parameters`](derive@crate::Parameters) | an object of its fields |
/// | an enum that derives [`Parameters`](derive@crate::Parameters) | the name of one of its variants |
///
/// `usize` is not among them: it is another type in the component than in its native twin.
#[diagnostic::on_unimplemented(
    message = "a parameter cannot be of the type `{Self}`",
    note = "a parameter is a number of a fixed size, a bool, a String, an Option, a Vec, a BTreeMap<String, _>, or a \
            struct or enum that derives pointsman_sdk::Parameters"
)]
pub trait Parameter: Sized {
    #[doc(hidden)]
    const SCHEMA: &'static Schema;
    /// What `Default` gives, as JSON, where that is known.
    #[doc(hidden)]
    const DEFAULT: Option<&'static str> = None;

    #[doc(hidden)]
    fn read(reader: &mut Reader<'_>) -> Result<Self, Problem>;

    /// The value of a parameter that is not there.
    #[doc(hidden)]
    fn absent() -> Option<Self> {
        None
    }
}

/// A type that the bounds of a parameter apply to.
#[doc(hidden)]
#[diagnostic::on_unimplemented(message = "bounds are for numbers, and `{Self}` is none")]
pub trait Bounded {
    type Number;

    /// The number, where there is one.
    fn number(&self) -> Option<Self::Number>;
}

/// Reads a value and holds it against its bounds; `rule` says what it must be.
#[doc(hidden)]
pub fn read_within<T: Parameter + Bounded>(
    reader: &mut Reader<'_>,
    within: impl FnOnce(T::Number) -> bool,
    rule: &'static str,
) -> Result<T, Problem> {
    let value = T::read(reader)?;
    if value.number().is_none_or(within) { Ok(value) } else { Err(Problem::rule(rule)) }
}

/// The value of a field without a default.
#[doc(hidden)]
pub fn given<T: Parameter>(value: Option<T>, name: &str) -> Result<T, Problem> {
    value.or_else(T::absent).ok_or_else(|| reader::missing(name))
}

/// The parameters of a policy that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Parameters)]
pub struct NoParameters {}

/// Refuses a parameter unless `ok`, saying "`name` must be `rule`".
///
/// For what [the derive macro](derive@crate::Parameters) cannot say, such as a bound that follows from another
/// parameter.
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

/// The JSON Schema (2020-12) of `T`.
pub(crate) fn schema<T: Parameters>() -> String {
    T::SCHEMA.to_json()
}

/// Reads the parameters from a JSON object.
pub(crate) fn parse<T: Parameters>(json: &str) -> Result<T, PolicyError> {
    let mut reader = Reader::new(json);
    if !reader.is_object() {
        return Err(match reader.expected("an object") {
            Problem::Wrong(..) => PolicyError::failed("parameters must be a JSON object"),
            not_json => not_json.into(),
        });
    }
    let parameters = T::read(&mut reader)?;
    reader.end()?;
    Ok(parameters)
}

#[cfg(test)]
mod tests;

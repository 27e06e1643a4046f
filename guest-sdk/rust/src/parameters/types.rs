//! The types that a parameter may have.

use std::collections::BTreeMap;

use super::decimal;
use super::problem::Problem;
use super::reader::{Reader, twice};
use super::schema::{Integer, Schema};
use super::{Bounded, Parameter, Parameters};

macro_rules! floats {
    ($($type:ident $bits:ident $name:literal $format:ident),+) => {$(
        impl Parameter for $type {
            const SCHEMA: &'static Schema = &Schema::Number($name);
            const DEFAULT: Option<&'static str> = Some("0.0");

            fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
                Ok(Self::from_bits(reader.float(decimal::$format)? as $bits))
            }
        }

        bounded!($type);
    )+};
}

/// The range is of literals, for the text of the schema and of errors; a test holds them against the types'.
macro_rules! integers {
    ($($type:ident $format:literal $smallest:literal $largest:literal),+) => {$(
        impl Parameter for $type {
            const SCHEMA: &'static Schema = &Schema::Integer(&Integer {
                format: $format,
                range: &[("minimum", $smallest), ("maximum", $largest)],
            });
            const DEFAULT: Option<&'static str> = Some("0");

            fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
                reader.integer(concat!("from ", $smallest, " to ", $largest))
            }
        }

        bounded!($type);
    )+};
}

macro_rules! bounded {
    ($type:ident) => {
        impl Bounded for $type {
            type Number = Self;

            fn number(&self) -> Option<Self> {
                Some(*self)
            }
        }
    };
}

floats!(f32 u32 "float" F32, f64 u64 "double" F64);

integers!(
    u8 "uint8" "0" "255",
    u16 "uint16" "0" "65535",
    u32 "uint32" "0" "4294967295",
    u64 "uint64" "0" "18446744073709551615",
    i8 "int8" "-128" "127",
    i16 "int16" "-32768" "32767",
    i32 "int32" "-2147483648" "2147483647",
    i64 "int64" "-9223372036854775808" "9223372036854775807"
);

impl Parameter for bool {
    const SCHEMA: &'static Schema = &Schema::Boolean;
    const DEFAULT: Option<&'static str> = Some("false");

    fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        reader.boolean()
    }
}

impl Parameter for String {
    const SCHEMA: &'static Schema = &Schema::Text;
    const DEFAULT: Option<&'static str> = Some("\"\"");

    fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        reader.string()
    }
}

impl<T: Parameter> Parameter for Option<T> {
    const SCHEMA: &'static Schema = &Schema::Nullable(T::SCHEMA);
    const DEFAULT: Option<&'static str> = Some("null");

    fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        if reader.null() { Ok(None) } else { T::read(reader).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Bounded> Bounded for Option<T> {
    type Number = T::Number;

    fn number(&self) -> Option<T::Number> {
        self.as_ref().and_then(T::number)
    }
}

impl<T: Parameter> Parameter for Vec<T> {
    const SCHEMA: &'static Schema = &Schema::List(T::SCHEMA);
    const DEFAULT: Option<&'static str> = Some("[]");

    fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        let mut items = Self::new();
        reader.list(&mut |reader| {
            items.push(T::read(reader)?);
            Ok(())
        })?;
        Ok(items)
    }
}

impl<T: Parameter> Parameter for BTreeMap<String, T> {
    const SCHEMA: &'static Schema = &Schema::Map(T::SCHEMA);
    const DEFAULT: Option<&'static str> = Some("{}");

    fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        let mut map = Self::new();
        reader.object(&mut |reader, key| {
            if map.contains_key(&key) {
                return Err(twice(&key));
            }
            let value = T::read(reader).map_err(|problem| problem.within(&key))?;
            map.insert(key, value);
            Ok(())
        })?;
        Ok(map)
    }
}

impl<T: Parameter> Parameters for BTreeMap<String, T> {}

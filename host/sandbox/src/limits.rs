//! What one guest may use. One table holds every limit: its key in the YAML, its default in both profiles, its meaning.

/// Which kind of guest an instance is: decides the engine and the defaults of the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Small compiled policies (Rust, C): pooled.
    #[default]
    Compact,
    /// Policies that carry a language engine (JavaScript, Python): on demand.
    Engine,
}

impl Profile {
    /// The profile's name in the YAML.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Engine => "engine",
        }
    }

    /// The profile of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Compact, Self::Engine].into_iter().find(|profile| profile.as_str() == name)
    }
}

/// One row of the table of limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitRow {
    /// The key in an instance's `limits`.
    pub key: &'static str,
    /// Default in the profile `compact`.
    pub compact: u64,
    /// Default in the profile `engine`.
    pub engine: u64,
    /// The largest value that an operator may set.
    pub most: u64,
    /// Unit and meaning.
    pub meaning: &'static str,
    /// What follows where it fires: the name of an [`crate::Outcome`], or some words.
    pub ends_in: &'static str,
}

/// A table of rows with a value for each profile, and the struct of one profile's values. What stands in the braces are
/// further fields of the struct that are the profile itself.
macro_rules! by_profile {
    ($table:ident, $table_doc:literal; $values:ident($profile:ident) { $($of:ident: $of_doc:literal)? }, $values_doc:literal;
     $($field:ident: $compact:expr, $engine:expr, $most:expr, $meaning:literal => $ends_in:literal;)*) => {
        #[doc = $table_doc]
        pub const $table: &[$crate::limits::LimitRow] = &[$($crate::limits::LimitRow {
            key: stringify!($field), compact: $compact, engine: $engine, most: $most, meaning: $meaning,
            ends_in: $ends_in,
        },)*];

        #[doc = $values_doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $values {
            $(#[doc = $of_doc] pub $of: $crate::limits::Profile,)?
            $(#[doc = $meaning] pub $field: u64,)*
        }

        impl $values {
            /// The defaults of a profile.
            #[must_use]
            pub const fn of($profile: $crate::limits::Profile) -> Self {
                match $profile {
                    $crate::limits::Profile::Compact => Self { $($of,)? $($field: $compact,)* },
                    $crate::limits::Profile::Engine => Self { $($of,)? $($field: $engine,)* },
                }
            }

            /// Sets the value of that key; false where there is no such key.
            #[must_use]
            pub fn set(&mut self, key: &str, value: u64) -> bool {
                match key { $(stringify!($field) => self.$field = value,)* _ => return false }
                true
            }

            /// The value of that key.
            #[must_use]
            pub fn get(&self, key: &str) -> Option<u64> {
                match key { $(stringify!($field) => Some(self.$field),)* _ => None }
            }
        }
    };
}
pub(crate) use by_profile;

const MIB: u64 = 1 << 20;

/// As good as never: at a million calls a second it takes thirty years.
const NEVER: u64 = 1_000_000_000_000_000;

by_profile! {
    LIMITS, "Every limit of a guest but its profile.";
    Limits(profile) { profile: "Which engine runs the guest." }, "What one guest may use.";
    memory_bytes: 8 * MIB, 64 * MIB, 4096 * MIB,
        "bytes of linear memory, all memories of the guest together" => "memory";
    table_elements: 1_024, 8_192, 1_000_000,
        "elements of one table" => "memory";
    fuel_base: 1_000_000, 20_000_000, 1_000_000_000_000,
        "fuel of one call, before its rows" => "out-of-fuel";
    fuel_per_row: 1_000, 100_000, 1_000_000_000,
        "further fuel of one call for each row" => "out-of-fuel";
    deadline_us: 50_000, 200_000, 60_000_000,
        "wall-clock microseconds of one call; a backstop, counted in ticks of one millisecond" => "deadline";
    start_fuel: 10_000_000, 2_000_000_000, 1_000_000_000_000,
        "fuel to instantiate a guest and have it describe or configure itself" => "out-of-fuel";
    start_deadline_us: 10_000_000, 10_000_000, 60_000_000,
        "wall-clock microseconds of the same" => "deadline";
    parameter_bytes: 65_536, 65_536, MIB,
        "bytes of the parameters, as the JSON that configure is given" => "not-loaded";
    answer_bytes: MIB, MIB, 64 * MIB,
        "bytes that one answer may make the host allocate" => "bad-answer";
    error_bytes: 512, 512, 65_536,
        "bytes that are kept of an error that the policy answers" => "cut";
    classify_fuel: 1_000_000, 20_000_000, 1_000_000_000_000,
        "fuel of one call of a classifier's classify" => "out-of-fuel";
    event_fuel: 10_000_000, 200_000_000, 1_000_000_000_000,
        "fuel of one call of a classifier's on-event" => "out-of-fuel";
    tick_fuel: 400_000_000, 4_000_000_000, 1_000_000_000_000,
        "fuel of one call of a classifier's on-tick" => "out-of-fuel";
    tick_deadline_us: 200_000, 1_000_000, 60_000_000,
        "wall-clock microseconds of one call of a classifier's on-tick; deadline_us bounds its other calls"
        => "deadline";
    log_bytes: 4_096, 4_096, MIB,
        "bytes that one call may log" => "cut";
    log_bytes_per_second: 16_384, 16_384, 64 * MIB,
        "bytes that may be logged within a second, over all calls; at first a whole second's" => "dropped";
    recycle_calls: NEVER, NEVER, NEVER,
        "calls after which a guest is rebuilt before its next one; classifiers never are" => "a new guest";
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(Profile::Compact)
    }
}

impl Limits {
    /// These limits, each at most as `most` says of its key; a key that is no limit's is passed over.
    #[must_use]
    pub fn narrowed_by(mut self, most: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        for (key, most) in most {
            if self.get(key).is_some_and(|value| value > most) {
                let _ = self.set(key, most);
            }
        }
        self
    }

    /// Fuel of one call over `rows` rows.
    #[must_use]
    pub const fn fuel(&self, rows: u32) -> u64 {
        self.fuel_base.saturating_add(self.fuel_per_row.saturating_mul(rows as u64))
    }
}

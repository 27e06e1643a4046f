//! The arguments of `pointsman replay` whose order counts, and those with a form of their own.

use std::path::PathBuf;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pointsman_replay::Fleet;

/// What decides in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// A built-in policy, or `default`.
    Named(String),
    /// A component's file.
    Component(PathBuf),
    /// A router-policy file.
    Config(PathBuf),
}

/// The policies in the order of the command line, each with its parameters as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policies(pub(super) Vec<(Policy, Option<String>)>);

const POLICY: &str = "policy";
const COMPONENT: &str = "component";
const CONFIG: &str = "router-policy-config";
const PARAMETERS: &str = "parameters";

impl Args for Policies {
    fn augment_args(command: Command) -> Command {
        let repeated = |name: &'static str, value: &'static str, help: &'static str| {
            Arg::new(name).long(name).value_name(value).action(ArgAction::Append).help(help)
        };
        command.args([
            repeated(POLICY, "NAME", "A built-in policy, or `default` for the router's native one; may be repeated"),
            repeated(COMPONENT, "FILE.wasm", "A policy's component; may be repeated"),
            repeated(
                CONFIG,
                "FILE",
                "A router-policy file, YAML; may be repeated [env: DYN_ROUTER_POLICY_CONFIG, where no policy is given]",
            ),
            repeated(PARAMETERS, "JSON", "The parameters of the --policy or --component before it"),
        ])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Policies {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut values: Vec<(usize, &str, &String)> = Vec::new();
        for name in [POLICY, COMPONENT, CONFIG, PARAMETERS] {
            let places = matches.indices_of(name).into_iter().flatten();
            let texts = matches.get_many::<String>(name).into_iter().flatten();
            values.extend(places.zip(texts).map(|(place, text)| (place, name, text)));
        }
        values.sort_unstable();
        let refuse = |message: &str| Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        let mut policies = Vec::new();
        for (_, name, text) in values {
            match name {
                POLICY => policies.push((Policy::Named(text.clone()), None)),
                COMPONENT => policies.push((Policy::Component(text.into()), None)),
                CONFIG => policies.push((Policy::Config(text.into()), None)),
                _ => match policies.last_mut() {
                    None => {
                        return refuse(
                            "--parameters belongs to the --policy or --component before it, and there is none",
                        );
                    }
                    Some((Policy::Config(_), _)) => {
                        return refuse(
                            "--parameters cannot follow --router-policy-config: the parameters are in the file",
                        );
                    }
                    Some((_, Some(_))) => return refuse("--parameters is given twice for one policy"),
                    Some((_, parameters)) => *parameters = Some(text.clone()),
                },
            }
        }
        Ok(Self(policies))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `PREFILL:DECODE`, workers of the two pools.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pools(pub(super) Fleet);

impl FromStr for Pools {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pools = text.split_once(':').and_then(|(prefill, decode)| {
            Some(Fleet::Disaggregated { prefill: prefill.parse().ok()?, decode: decode.parse().ok()? })
        });
        pools.map(Self).ok_or("give PREFILL:DECODE, the workers of each pool, such as 4:12")
    }
}

/// `--speed`, also as it was written: 1e-300 has 300 digits otherwise.
#[derive(Clone, Debug)]
pub(super) struct Speed {
    pub(super) given: String,
    pub(super) value: f64,
}

impl FromStr for Speed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value = text.parse().map_err(|_| "give a number from 0.001 to 1000000, such as 2.5")?;
        Ok(Self { given: text.to_owned(), value })
    }
}

/// `--workers`; whether so many can be simulated is asked later.
pub(super) fn workers(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "give a whole number from 1 to 100000")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Policies, String> {
        let command = Policies::augment_args(Command::new("replay").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        Policies::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_belong_to_the_policy_before_them() {
        let arguments = [
            "--policy",
            "b",
            "--parameters",
            "{1}",
            "--component",
            "a.wasm",
            "--policy=c",
            "--parameters={2}",
            "--router-policy-config",
            "d.yaml",
            "--component",
            "e.wasm",
            "--parameters",
            "{3}",
        ];
        let named = |name: &str| Policy::Named(name.to_owned());
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            parse(&arguments).unwrap().0,
            [
                (named("b"), text("{1}")),
                (Policy::Component("a.wasm".into()), None),
                (named("c"), text("{2}")),
                (Policy::Config("d.yaml".into()), None),
                (Policy::Component("e.wasm".into()), text("{3}")),
            ]
        );
    }

    #[test]
    fn parameters_of_no_policy_are_refused() {
        for (arguments, expected) in [
            (&["--parameters", "{}", "--policy", "a"][..], "there is none"),
            (&["--router-policy-config", "a.yaml", "--parameters", "{}"], "in the file"),
            (&["--policy", "a", "--parameters", "{}", "--parameters", "{}"], "twice"),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn pools_are_two_numbers() {
        let Pools(fleet) = "4:12".parse().unwrap();
        assert_eq!(fleet, Fleet::Disaggregated { prefill: 4, decode: 12 });
        for text in ["", "4", "4:", ":4", "4:-1", "4:x", "4:1:2"] {
            assert!(text.parse::<Pools>().is_err(), "{text}");
        }
    }
}

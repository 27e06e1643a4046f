//! The `pointsman` command: builds, inspects, tries out and compares routing policies.

#![forbid(unsafe_code)]

mod compile;
mod config;
mod error;
mod files;
mod logging;
mod mock_worker;
mod observing;
mod output;
mod parameters;
mod policy;
mod record;
mod register;
mod replay;
mod select_service;
mod serve;
mod source;
mod stop;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::CliError;

/// Routing policies for LLM requests, as WebAssembly components.
#[derive(Parser)]
#[command(name = "pointsman", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    SelectService(Box<select_service::SelectService>),
    Replay(Box<replay::Replay>),
    /// Makes, builds, inspects, tests and measures policies.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Checks router-policy files.
    #[command(subcommand)]
    Config(config::Command),
    /// Shows recorded decisions and makes them again.
    #[command(subcommand)]
    Record(record::Command),
    MockWorker(Box<mock_worker::MockWorker>),
}

fn main() -> ExitCode {
    pointsman_sandbox::init_compile_worker();
    let cli = parse();
    if !matches!(cli.command, Command::Serve(_) | Command::SelectService(_)) {
        logging::to_stderr();
    }
    let result = match cli.command {
        Command::Serve(command) => command.run(),
        Command::SelectService(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Policy(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Record(command) => command.run(),
        Command::MockWorker(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            for sentence in error.sentences() {
                // Nothing is left to tell where even this fails.
                let _ = writeln!(stderr, "error: {sentence}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line, or ends with what is wrong with it.
fn parse() -> Cli {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    try_parse(&arguments).unwrap_or_else(|error| {
        // The message repeats the arguments: with those that a terminal would obey made harmless, it is the same one.
        let harmless = arguments.iter().map(|text| output::printable(&text.to_string_lossy()).into_owned().into());
        try_parse(&harmless.collect::<Vec<_>>()).err().unwrap_or(error).exit()
    })
}

fn try_parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| {
        // The usage is that of the subcommand that was meant.
        let (mut meant, mut matches) = (&mut command, &matches);
        while let Some((name, inner)) = matches.subcommand() {
            matches = inner;
            match meant.find_subcommand_mut(name) {
                Some(found) => meant = found,
                None => return error,
            }
        }
        error.format(meant)
    })
}

//! The `pointsman` command: builds, inspects, tries out and compares routing policies.

#![forbid(unsafe_code)]

mod config;
mod error;
mod output;
mod parameters;
mod policy;
mod register;
mod replay;
mod source;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
    Replay(Box<replay::Replay>),
    /// Builds, lists, inspects and tries out policies.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Checks router-policy files.
    #[command(subcommand)]
    Config(config::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    let result = match cli.command {
        Command::Replay(command) => command.run(),
        Command::Policy(command) => command.run(),
        Command::Config(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            for line in error.to_string().lines() {
                // Nothing is left to tell where even this fails.
                let _ = writeln!(stderr, "error: {}", output::printable(line));
            }
            ExitCode::FAILURE
        }
    }
}

/// Logs of the level that `RUST_LOG` names, as `info` or `pointsman_sandbox=debug,warn`; warnings unless it does.
fn log_to_stderr() {
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(filter);
    tracing_subscriber::registry().with(layer).init();
}

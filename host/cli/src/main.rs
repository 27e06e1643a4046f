//! The `pointsman` command.

fn main() {}

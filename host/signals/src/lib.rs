//! What a router knows of prompts and workers beyond its own bookings: tokens and KV block hashes of a prompt, the
//! prefix that each worker holds of it, and the metrics that workers publish.
//!
//! It decides nothing and serves nothing.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod prompt;

pub use prompt::{Prompt, PromptInput, PromptReader, TokenizerError};

//! What a router knows of prompts and workers beyond its own bookings: tokens and KV block hashes of a prompt, the
//! prefix that each worker holds of it, and the metrics that workers publish.
//!
//! It decides nothing and serves nothing. Times of the index come with each call; the readers of events and metrics run
//! on tokio.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod events;
mod exposition;
mod index;
mod prompt;
mod scrape;

pub use events::{EndpointError, KvEventSource, KvEventStats, KvEventStream};
pub use index::{IndexSettings, PrefixIndex, PrefixOverlap};
pub use prompt::{Prompt, PromptInput, PromptReader, TokenizerError};
pub use scrape::{MetricName, MetricValue, Scrape, ScrapeError, ScrapeSettings, ScrapeTarget, scrape, scrape_all};

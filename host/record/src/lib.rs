//! Decisions kept and made again: a file of what each was made of and how it ended, a replay of such a file, and a
//! candidate policy that decides in the shadow of the live one.
//!
//! A [`Recorder`] listens to partitions and writes; a [`Record`] is what it wrote; [`replay`] decides it again. A
//! [`Shadow`] has a candidate decide a share of the live decisions, on a thread of its own.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod code;
mod entry;
mod error;
mod frame;
mod reader;
mod recorder;
mod replay;
mod shadow;
mod spearman;

pub use error::RecordError;
pub use reader::{End, Policy, Record, Recorded, Summary};
pub use recorder::{Recorder, Written};
pub use replay::{Answer, Difference, Replacement, ReplayOptions, ReplayReport, replay};
pub use shadow::{Shadow, ShadowOptions, ShadowReport, WhenFull};

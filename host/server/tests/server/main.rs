//! The server as its users meet it: a real one on loopback, in front of simulated engines.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod config;
mod document;
mod door;
mod failing;
mod keys;
mod limits;
mod ops;
mod sessions;
mod signals;
mod tls;
mod world;

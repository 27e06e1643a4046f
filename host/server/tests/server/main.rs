//! The server as its users meet it: a real one on loopback, in front of simulated engines.

mod config;
mod door;
mod failing;
mod keys;
mod limits;
mod sessions;
mod tls;
mod world;

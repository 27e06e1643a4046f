//! The server as its users meet it: a real one on loopback, in front of simulated engines.

mod config;
mod door;
mod failing;
mod keys;
mod limits;
mod ops;
mod sessions;
mod signals;
mod tls;
mod world;

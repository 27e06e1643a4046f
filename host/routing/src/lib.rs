//! pointsman-routing

pub mod config;

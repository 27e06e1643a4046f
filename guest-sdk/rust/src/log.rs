//! Messages to the host's log.
//!
//! A component that calls none of these does not import the host's log. The host cuts long messages and never blocks.
//! Natively the messages go to the sink that `native::log_to` set, and to the test kit.

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// A request was or will be served worse.
    Error,
    /// Something an operator should look at.
    Warn,
    /// Rare and useful.
    Info,
    /// For the author.
    Debug,
    /// For the author, often.
    Trace,
}

/// Writes one message.
pub fn write(level: Level, message: &str) {
    #[cfg(target_family = "wasm")]
    crate::wasm::log(level, message);
    #[cfg(not(target_family = "wasm"))]
    crate::native::log(level, message);
}

/// Writes a message of [`Level::Error`].
pub fn error(message: &str) {
    write(Level::Error, message);
}

/// Writes a message of [`Level::Warn`].
pub fn warn(message: &str) {
    write(Level::Warn, message);
}

/// Writes a message of [`Level::Info`].
pub fn info(message: &str) {
    write(Level::Info, message);
}

/// Writes a message of [`Level::Debug`].
pub fn debug(message: &str) {
    write(Level::Debug, message);
}

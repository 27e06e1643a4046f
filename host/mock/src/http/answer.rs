//! The tokens of one answer as they come, up to where the request is to fail.

use tokio::sync::mpsc::UnboundedReceiver;

use crate::connection::Connection;
use crate::failures::Failures;
use crate::scheduler::Output;

#[derive(Debug)]
pub(crate) struct Answer {
    outputs: UnboundedReceiver<Output>,
    connection: Connection,
    failures: Failures,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: u32,
    /// Tokens of the prompt that were cached, once that is known.
    pub(crate) cached_tokens: u32,
    /// Tokens of the answer so far.
    pub(crate) tokens: u32,
}

impl Answer {
    pub(crate) fn new(
        outputs: UnboundedReceiver<Output>,
        prompt_tokens: u32,
        connection: Connection,
        failures: Failures,
    ) -> Self {
        Self { outputs, connection, failures, prompt_tokens, cached_tokens: 0, tokens: 0 }
    }

    /// The next token; none at the end. Where the request is to fail here, it does not return, as when the engine stops.
    pub(crate) async fn next(&mut self) -> Option<u32> {
        if self.failures.die_after_tokens.is_some_and(|most| self.tokens >= most) {
            return self.connection.close().await;
        }
        if self.failures.stall_after_tokens.is_some_and(|most| self.tokens >= most) {
            return std::future::pending().await;
        }
        loop {
            match self.outputs.recv().await {
                Some(Output::Admitted { cached_tokens }) => self.cached_tokens = cached_tokens,
                Some(Output::Token(token)) => {
                    self.tokens += 1;
                    return Some(token);
                }
                Some(Output::Finished) => return None,
                None => return self.connection.close().await,
            }
        }
    }
}

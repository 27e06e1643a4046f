//! A simulated inference engine that speaks OpenAI's API.

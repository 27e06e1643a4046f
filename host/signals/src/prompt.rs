//! What a prompt is to a router: how many tokens it has, and the hashes of its KV blocks.
//!
//! Tokens are those of the model's `tokenizer.json`, or else an estimate of four bytes a token, whose ids are the bytes
//! themselves, so that equal texts have equal ids. Hashes are those of Dynamo's KV router, so that the events of an
//! engine, which carry token ids, lead to the same ones.

use std::borrow::Cow;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dynamo_kv_router::protocols::{BlockHashOptions, compute_block_hash_for_seq, compute_seq_hash_for_block};
use serde_json::Value;
use tokenizers::Tokenizer;
use tokio::sync::Semaphore;

/// Bytes of text that count as one token where the model has no tokenizer.
const BYTES_PER_TOKEN: usize = 4;

/// Texts up to so many bytes are tokenised where they are; longer ones on a thread of their own.
const INLINE_BYTES: usize = 4 << 10;

/// The prompt of a request as its body has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptInput {
    content: Content,
    cache_salt: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Tokens(Vec<u32>),
}

impl PromptInput {
    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Content::Text(text.into()), cache_salt: None }
    }

    /// Token ids, as the model's tokenizer makes them.
    #[must_use]
    pub fn tokens(tokens: Vec<u32>) -> Self {
        Self { content: Content::Tokens(tokens), cache_salt: None }
    }

    /// A chat of these roles and contents, as [`of_chat`](Self::of_chat) has it.
    #[must_use]
    pub fn chat<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut text = String::new();
        for (role, content) in messages {
            line(&mut text, role);
            line(&mut text, content);
        }
        Self::text(text)
    }

    /// The prompt of a chat completion: `tools` as JSON, then each message's role and content, each on a line of its own.
    /// What is no text, such as an image or a tool call, counts as a line with its hash. No template is applied.
    #[must_use]
    pub fn of_chat(body: &Value) -> Self {
        let mut text = String::new();
        if let Some(tools) = body.get("tools").filter(|tools| !tools.is_null()) {
            line(&mut text, &tools.to_string());
        }
        for message in body.get("messages").and_then(Value::as_array).into_iter().flatten() {
            line(&mut text, message.get("role").and_then(Value::as_str).unwrap_or_default());
            content_lines(&mut text, message.get("content").unwrap_or(&Value::Null));
            for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                line(&mut text, &fingerprint(call));
            }
        }
        Self { content: Content::Text(text), cache_salt: salt(body) }
    }

    /// The prompt of a completion, its field `prompt`: a text, token ids, or a list of either, which counts as one.
    #[must_use]
    pub fn of_completion(body: &Value) -> Self {
        Self { content: content(body.get("prompt").unwrap_or(&Value::Null)), cache_salt: salt(body) }
    }

    /// The input of an embedding, its field `input`, which is like a completion's prompt.
    #[must_use]
    pub fn of_embedding(body: &Value) -> Self {
        Self { content: content(body.get("input").unwrap_or(&Value::Null)), cache_salt: salt(body) }
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn content_lines(text: &mut String, content: &Value) {
    match content {
        Value::String(content) => line(text, content),
        Value::Array(parts) => {
            for part in parts {
                match part.get("text").and_then(Value::as_str) {
                    Some(part) => line(text, part),
                    None => line(text, &fingerprint(part)),
                }
            }
        }
        _ => {}
    }
}

/// A short stand-in for what may be megabytes of an image.
fn fingerprint(value: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{:016x}", hasher.finish());
    text
}

fn salt(body: &Value) -> Option<String> {
    body.get("cache_salt").and_then(Value::as_str).filter(|salt| !salt.is_empty()).map(str::to_owned)
}

fn content(value: &Value) -> Content {
    match value {
        Value::String(text) => Content::Text(text.clone()),
        Value::Array(items) if items.iter().any(|item| item.is_number() || item.is_array()) => {
            let mut tokens = Vec::with_capacity(items.len());
            for item in items {
                let inner = item.as_array().map_or(std::slice::from_ref(item), Vec::as_slice);
                tokens.extend(inner.iter().filter_map(Value::as_u64).map(|token| token as u32));
            }
            Content::Tokens(tokens)
        }
        Value::Array(items) => {
            Content::Text(items.iter().filter_map(Value::as_str).flat_map(|text| [text, "\n"]).collect())
        }
        _ => Content::Text(String::new()),
    }
}

/// A prompt's tokens and KV blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// How many tokens it has; past the reader's bound they are estimated.
    pub tokens: u64,
    /// The hashes of its whole blocks, each of which stands for its block and all blocks before it.
    pub block_hashes: Vec<u64>,
}

/// Why a tokenizer is not read.
#[derive(Debug, thiserror::Error)]
#[error("the tokenizer {} cannot be read: {message}; give a tokenizer.json in Hugging Face's format", path.display())]
pub struct TokenizerError {
    path: PathBuf,
    message: String,
}

/// Reads prompts of one model.
#[derive(Clone, Debug)]
pub struct PromptReader {
    tokenizer: Option<Arc<Tokenizer>>,
    block_size: u32,
    max_bytes: usize,
    /// Threads that tokenise at the same time.
    threads: Arc<Semaphore>,
}

impl PromptReader {
    /// A reader that estimates tokens, for KV blocks of `block_size` tokens. It looks at the first MiB of a prompt.
    #[must_use]
    pub fn new(block_size: u32) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { tokenizer: None, block_size, max_bytes: 1 << 20, threads: Arc::new(Semaphore::new(threads)) }
    }

    /// Reads tokens with a model's `tokenizer.json`.
    ///
    /// # Errors
    /// No such file, or no tokenizer in it.
    pub fn with_tokenizer(mut self, path: &Path) -> Result<Self, TokenizerError> {
        let tokenizer = Tokenizer::from_file(path)
            .map_err(|error| TokenizerError { path: path.to_owned(), message: error.to_string() })?;
        self.tokenizer = Some(Arc::new(tokenizer));
        Ok(self)
    }

    /// Looks at so many bytes of a prompt, or four times fewer token ids; what lies past them has an estimated number of
    /// tokens and no hashes.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The same, for KV blocks of `block_size` tokens.
    #[must_use]
    pub fn with_block_size(mut self, block_size: u32) -> Self {
        self.block_size = block_size;
        self
    }

    /// Tokens of one KV block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Reads a prompt; a long one on a thread of its own.
    pub async fn read(&self, input: PromptInput) -> Prompt {
        let long = matches!(&input.content, Content::Text(text) if text.len() > INLINE_BYTES);
        if !long || self.tokenizer.is_none() {
            return self.read_now(&input);
        }
        // The semaphore is never closed; were it, reading at once would do no harm.
        let permit = Arc::clone(&self.threads).acquire_owned().await.ok();
        let reader = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let prompt = reader.read_now(&input);
            drop(permit);
            prompt
        });
        read.await.unwrap_or_default()
    }

    /// Reads a prompt where it is called.
    #[must_use]
    pub fn read_now(&self, input: &PromptInput) -> Prompt {
        let (tokens, rest) = self.bounded_tokens(input);
        let options = BlockHashOptions { cache_namespace: input.cache_salt.as_deref(), ..BlockHashOptions::default() };
        let hashes = compute_block_hash_for_seq(&tokens, self.block_size, options);
        Prompt { tokens: (tokens.len() + rest) as u64, block_hashes: compute_seq_hash_for_block(&hashes) }
    }

    /// The prompt's token ids, without a bound.
    #[must_use]
    pub fn token_ids<'a>(&self, input: &'a PromptInput) -> Cow<'a, [u32]> {
        match &input.content {
            Content::Tokens(tokens) => Cow::Borrowed(tokens),
            Content::Text(text) => Cow::Owned(self.tokenize(text)),
        }
    }

    /// The leading tokens, and an estimate of how many there are besides.
    fn bounded_tokens<'a>(&self, input: &'a PromptInput) -> (Cow<'a, [u32]>, usize) {
        match &input.content {
            Content::Tokens(tokens) => {
                let (head, tail) = tokens.split_at(tokens.len().min(self.max_bytes / BYTES_PER_TOKEN));
                (Cow::Borrowed(head), tail.len())
            }
            Content::Text(text) => {
                let (head, tail) = text.split_at(text.floor_char_boundary(self.max_bytes));
                (Cow::Owned(self.tokenize(head)), tail.len().div_ceil(BYTES_PER_TOKEN))
            }
        }
    }

    fn tokenize(&self, text: &str) -> Vec<u32> {
        let encoded = self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.encode(text, true).ok());
        encoded.map_or_else(|| estimated_tokens(text), |encoding| encoding.get_ids().to_vec())
    }
}

/// One id for four bytes: the bytes themselves, the last ones filled up with zeros.
fn estimated_tokens(text: &str) -> Vec<u32> {
    let id = |bytes: &[u8]| bytes.iter().rev().fold(0, |id, byte| id << 8 | u32::from(*byte));
    text.as_bytes().chunks(BYTES_PER_TOKEN).map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(input: &PromptInput) -> Prompt {
        PromptReader::new(2).read_now(input)
    }

    #[test]
    fn four_bytes_are_a_token_and_their_id() {
        assert_eq!(estimated_tokens("abcde"), [u32::from_le_bytes(*b"abcd"), u32::from(b'e')]);
        let prompt = read(&PromptInput::text("0123456789abcdefg"));
        assert_eq!((prompt.tokens, prompt.block_hashes.len()), (5, 2), "whole blocks alone have hashes");
        let other = read(&PromptInput::text("0123456789abcdeX"));
        assert_eq!(prompt.block_hashes.first(), other.block_hashes.first());
        assert_ne!(prompt.block_hashes.get(1), other.block_hashes.get(1));
    }

    #[test]
    fn token_ids_have_the_hashes_that_their_text_has() {
        let ids = estimated_tokens("0123456789abcdef");
        assert_eq!(read(&PromptInput::tokens(ids)), read(&PromptInput::text("0123456789abcdef")));
    }

    #[test]
    fn a_chat_is_its_roles_and_contents() {
        let body = json!({"messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        ]});
        assert_eq!(PromptInput::of_chat(&body), PromptInput::text("system\nbe brief\nuser\nhello\n"));
        assert_eq!(PromptInput::of_chat(&body), PromptInput::chat([("system", "be brief"), ("user", "hello")]));
    }

    #[test]
    fn another_image_tool_or_salt_is_another_prompt() {
        let with = |extra: Value| {
            let mut body = json!({"messages": [{"role": "user", "content": "x".repeat(64)}]});
            for (key, value) in extra.as_object().unwrap() {
                body[key] = value.clone();
            }
            read(&PromptInput::of_chat(&body)).block_hashes[0]
        };
        let plain = with(json!({}));
        assert_ne!(plain, with(json!({"cache_salt": "tenant"})));
        assert_ne!(plain, with(json!({"tools": [{"type": "function"}]})));
        let image = |url: &str| {
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            PromptInput::of_chat(&json!({"messages": [{"role": "user", "content": [part]}]}))
        };
        assert_ne!(image("a"), image("b"));
        assert_eq!(image("a"), image("a"));
    }

    #[test]
    fn completions_take_text_tokens_and_lists_of_them() {
        let of = |prompt: Value| PromptInput::of_completion(&json!({"prompt": prompt}));
        assert_eq!(of(json!("ab")), PromptInput::text("ab"));
        assert_eq!(of(json!([1, 2])), PromptInput::tokens(vec![1, 2]));
        assert_eq!(of(json!([[1, 2], [3]])), PromptInput::tokens(vec![1, 2, 3]));
        assert_eq!(of(json!(["ab", "c"])), PromptInput::text("ab\nc\n"));
        assert_eq!(of(Value::Null), PromptInput::text(""));
    }

    #[test]
    fn what_lies_past_the_bound_is_counted_and_not_hashed() {
        let reader = PromptReader::new(2).with_max_bytes(17);
        let prompt = reader.read_now(&PromptInput::text("é".repeat(20)));
        assert_eq!(prompt.tokens, 4 + 6, "16 bytes are whole characters, 24 are left");
        assert_eq!(prompt.block_hashes.len(), 2);
        let prompt = reader.read_now(&PromptInput::tokens(vec![7; 20]));
        assert_eq!((prompt.tokens, prompt.block_hashes.len()), (20, 2));
    }
}

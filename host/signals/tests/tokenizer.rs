//! Prompts read with a model's tokenizer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::PathBuf;

use pointsman_signals::{PromptInput, PromptReader};
use tempfile::TempDir;

/// A tokenizer of three words, which begins every text with a token of its own.
const WORDS: &str = r#"{
    "version": "1.0",
    "added_tokens": [
        {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
    ],
    "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}
    },
    "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"<s>": 0, "red": 1, "fox": 2, "ran": 3, "?": 4}, "unk_token": "?"}
}"#;

fn tokenizer(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn a_text_has_the_tokens_of_the_model_wherever_it_is_read() {
    let folder = TempDir::new().unwrap();
    let reader = PromptReader::new(2).with_tokenizer(&tokenizer(&folder, WORDS)).unwrap();
    let text = PromptInput::text("red fox ran red");
    assert_eq!(*reader.token_ids(&text), [0, 1, 2, 3, 1]);
    let by_ids = reader.read_now(&PromptInput::tokens(vec![0, 1, 2, 3, 1]));
    assert_eq!((by_ids.tokens, by_ids.block_hashes.len()), (5, 2));
    assert_eq!(reader.read(text).await, by_ids);

    let long = PromptInput::text("fox ".repeat(10_000));
    let prompt = reader.read(long.clone()).await;
    assert_eq!((prompt.tokens, &prompt), (10_001, &reader.read_now(&long)), "on a thread of its own as in place");
}

#[test]
fn a_text_past_the_bound_is_not_tokenised() {
    let folder = TempDir::new().unwrap();
    let reader = PromptReader::new(1).with_tokenizer(&tokenizer(&folder, WORDS)).unwrap().with_max_bytes(8);
    let prompt = reader.read_now(&PromptInput::text("red fox ran red fox"));
    assert_eq!((prompt.tokens, prompt.block_hashes.len()), (3 + 3, 3), "three tokens of 8 bytes, 11 bytes are left");
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused_with_a_sentence() {
    let folder = TempDir::new().unwrap();
    for path in [tokenizer(&folder, "{}"), folder.path().join("missing.json")] {
        let sentence = PromptReader::new(2).with_tokenizer(&path).unwrap_err().to_string();
        assert!(sentence.starts_with(&format!("the tokenizer {} cannot be read: ", path.display())), "{sentence}");
    }
}

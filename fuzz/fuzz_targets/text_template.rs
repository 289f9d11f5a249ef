//! Any template: compiling and rendering it ends in text or in an error that can be printed.
#![no_main]

use std::sync::LazyLock;

use cudafast_text::{ChatTemplate, RenderOptions};
use libfuzzer_sys::{Corpus, fuzz_target};
use serde_json::{Value, json};

/// Longer templates find little more, and find it slowly.
const MOST_BYTES: usize = 512;

/// `ChatTemplate` documents that comparing lists which share their items many levels deep is not bounded. These build such
/// a list in a loop, given some 65 bytes; without them it takes a `set` per level, which mutation does not come upon.
const CARRIERS: [&str; 3] = ["namespace", "macro", "recursive"];
const MOST_BYTES_WITH_CARRIER: usize = 64;

/// One of everything a client sends.
static MESSAGES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let call =
        json!({"type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, 2.5, null], \"é\": true}"}});
    vec![
        json!({"role": "system", "content": "Be short."}),
        json!({"role": "user", "content": [{"type": "text", "text": " 한 <|im_end|>\r\n"}]}),
        json!({"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes", "tool_calls": [call]}),
        json!({"role": "tool", "content": "{}", "name": null}),
        json!({"role": "user", "content": ""}),
    ]
});

fuzz_target!(|source: &str| -> Corpus {
    let most = if CARRIERS.iter().any(|word| source.contains(word)) { MOST_BYTES_WITH_CARRIER } else { MOST_BYTES };
    if source.len() > most {
        return Corpus::Reject;
    }
    let template = match ChatTemplate::new(source) {
        Ok(template) => template.with_tokens(None, Some("<|im_end|>".into())),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Corpus::Keep;
        }
    };
    let all = RenderOptions {
        add_generation_prompt: true,
        enable_thinking: Some(false),
        tools: Some(json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])),
        now_unix_s: Some(1_000_000_000),
        ..RenderOptions::default()
    };
    let none = RenderOptions { now_unix_s: Some(0), ..RenderOptions::default() };
    for (messages, options) in [(MESSAGES.as_slice(), &all), (&[], &none)] {
        match template.render(messages, options) {
            // What a template gives depends on its input alone.
            Ok(text) => assert_eq!(template.render(messages, options).ok(), Some(text)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    Corpus::Keep
});

//! The text crate from outside: published vectors, the tiny model's own tokenizer, laws, refusals, templates.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod chat_templates;
mod fixture;
mod laws;
mod long_inputs;
mod python_expressions;
mod qwen35;
mod refusals;
mod streaming;
mod template_limits;
mod vectors;

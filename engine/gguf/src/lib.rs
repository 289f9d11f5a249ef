//! GGUF sets as bytes, names and offsets. No maths, no model knowledge.

//! The embedded default model.

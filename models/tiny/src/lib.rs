//! The default model as bytes: a trained trunk in the production types (UD-Q4_K_XL) and its draft head.
//!
//! Start at [`model`] and [`draft_head`]. With the feature `embed` (default) both files are part of the program, each at
//! an address that is a multiple of [`ALIGNMENT`]; without it they are named where the source tree has them, and nothing
//! is read here. Data, licence and measured acceptance: README.md beside this crate.

use std::path::{Path, PathBuf};

/// File name of the trunk.
pub const MODEL_FILE: &str = "tiny-story-UD-Q4_K_XL.gguf";

/// File name of the draft head that was trained with it.
pub const DRAFT_HEAD_FILE: &str = "mtp-tiny-story-Q8_0.gguf";

/// File name of the reference outputs: prompts, logits, greedy tokens and draft chains (models/tiny/README.md).
pub const REFERENCE_FILE: &str = "reference.json";

/// Address alignment of embedded bytes, at least GGUF's own 32: what holds for a tensor's offset in the file then holds
/// for its address.
pub const ALIGNMENT: usize = 64;

/// Where one file of the model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Part of the program.
    Embedded {
        /// What messages call it.
        label: &'static str,
        /// The whole file, aligned to [`ALIGNMENT`].
        bytes: &'static [u8],
    },
    /// In the tree that built the program; it may have moved since.
    Tree {
        /// Absolute path at build time.
        path: PathBuf,
    },
}

/// The trunk.
pub fn model() -> Source {
    source(MODEL_FILE)
}

/// The draft head of [`model`].
pub fn draft_head() -> Source {
    source(DRAFT_HEAD_FILE)
}

/// Path of one of this crate's files in the tree that built the program. Tests read [`REFERENCE_FILE`] through it.
pub fn tree_path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

#[cfg(feature = "embed")]
fn source(file: &str) -> Source {
    let (label, bytes) = match file {
        DRAFT_HEAD_FILE => ("embedded:mtp-tiny-story-Q8_0.gguf", embedded::DRAFT_HEAD),
        _ => ("embedded:tiny-story-UD-Q4_K_XL.gguf", embedded::MODEL),
    };
    Source::Embedded { label, bytes }
}

#[cfg(not(feature = "embed"))]
fn source(file: &str) -> Source {
    Source::Tree { path: tree_path(file) }
}

#[cfg(feature = "embed")]
mod embedded {
    /// `include_bytes!` alone promises an alignment of one byte. A literal, as `repr` takes no constant; the tests hold
    /// it to [`ALIGNMENT`](super::ALIGNMENT).
    #[repr(C, align(64))]
    struct Aligned<B: ?Sized>(B);

    static MODEL_FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../tiny-story-UD-Q4_K_XL.gguf"));
    static DRAFT_HEAD_FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../mtp-tiny-story-Q8_0.gguf"));

    pub(super) static MODEL: &[u8] = &MODEL_FILE.0;
    pub(super) static DRAFT_HEAD: &[u8] = &DRAFT_HEAD_FILE.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "embed")]
    fn bytes(source: Source) -> &'static [u8] {
        match source {
            Source::Embedded { bytes, .. } => bytes,
            Source::Tree { path } => panic!("{} is not embedded", path.display()),
        }
    }

    #[cfg(feature = "embed")]
    #[test]
    fn embedded_bytes_are_the_files_of_the_tree_and_aligned() {
        for (source, file) in [(model(), MODEL_FILE), (draft_head(), DRAFT_HEAD_FILE)] {
            let bytes = bytes(source);
            assert_eq!(bytes.as_ptr() as usize % ALIGNMENT, 0, "{file}");
            assert!(bytes == std::fs::read(tree_path(file)).unwrap(), "{file} differs from the tree");
            assert_eq!(bytes[..8], *b"GGUF\x03\0\0\0", "{file}");
        }
    }

    #[cfg(feature = "embed")]
    #[test]
    fn labels_name_the_files() {
        for (source, file) in [(model(), MODEL_FILE), (draft_head(), DRAFT_HEAD_FILE)] {
            let Source::Embedded { label, .. } = source else { panic!("{file} is not embedded") };
            assert_eq!(label, format!("embedded:{file}"));
        }
    }

    #[cfg(not(feature = "embed"))]
    #[test]
    fn without_embedding_both_files_are_named_where_the_tree_has_them() {
        for (source, file) in [(model(), MODEL_FILE), (draft_head(), DRAFT_HEAD_FILE)] {
            let Source::Tree { path } = source else { panic!("{file} is embedded") };
            assert_eq!(path, tree_path(file));
            assert!(path.is_file(), "{}", path.display());
        }
    }

    #[test]
    fn reference_outputs_are_beside_the_model() {
        assert!(tree_path(REFERENCE_FILE).is_file());
    }
}

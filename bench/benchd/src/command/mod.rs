//! The commands, one file each noun.

pub(crate) mod benchmark;
pub(crate) mod build;
pub(crate) mod correctness;
pub(crate) mod declaration;
pub(crate) mod exactness;
pub(crate) mod golden;
pub(crate) mod iterate;
pub(crate) mod record;
pub(crate) mod tree;
pub(crate) mod weights;

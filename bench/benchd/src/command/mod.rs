//! The commands, one file each noun.

pub(crate) mod build;
pub(crate) mod declaration;
pub(crate) mod golden;
pub(crate) mod tree;
pub(crate) mod weights;

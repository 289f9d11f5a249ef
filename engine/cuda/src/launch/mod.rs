//! One checked launcher an operation: sizes, alignment and limits of its kernel, then the launch.
//!
//! `fn op(stream, kernels, args) -> Result<(), CudaError>`, in a file named as the kernels' file. A launcher trusts what
//! device memory holds (ids below their table's rows, numbers that are finite) where its kernel is safe without that.

pub(crate) mod attention;
pub(crate) mod attention_prefill;
pub(crate) mod cycle;
pub(crate) mod gdn;
pub(crate) mod gdn_chunk;
pub(crate) mod gemm;
pub(crate) mod head;
pub(crate) mod hyper;
mod matvec;
pub(crate) mod moe;
pub(crate) mod ngram;
pub(crate) mod router;
pub(crate) mod select;
mod synth;
mod util;

pub(crate) use matvec::{Input, Product, matvec};
pub(crate) use synth::{Synth, synth};
pub(crate) use util::{Argmax, Ids, RowsById, argmax, inject_fault, quantise_rows, rows_by_id};

use cudafast_quant::{Format, GROUP, Kind};

use crate::{driver::DeviceSlice, error::CudaError};

/// Most rows of a decoding step: one fed, up to six drafted, and one to spare for a power of two.
pub(crate) const MAX_ROWS: usize = 8;

/// Activation rows as int8 in groups of 32 (quant-formats.md 4a).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Q8Rows<'a> {
    /// Codes `[T, cols]`, 16-byte aligned.
    pub(crate) q: DeviceSlice<'a, i8>,
    /// Scales `[T, cols / 32]`.
    pub(crate) d: DeviceSlice<'a, f32>,
    /// Elements a row, a multiple of 32.
    pub(crate) cols: usize,
}

impl Q8Rows<'_> {
    /// Refuses buffers that do not fit `rows` rows exactly.
    pub(crate) fn check(&self, op: &'static str, rows: usize) -> Result<(), CudaError> {
        check::multiple(op, "columns of int8 rows", self.cols, GROUP)?;
        check::len(op, "codes of int8 rows", self.q.len(), rows * self.cols)?;
        check::len(op, "scales of int8 rows", self.d.len(), rows * self.cols / GROUP)?;
        check::aligned(op, "codes of int8 rows", self.q.address(), 16)
    }
}

/// A `[rows, cols]` matrix on the device, as shipped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceMatrix<'a> {
    /// Number format.
    pub(crate) format: &'static Format,
    /// Outputs.
    pub(crate) rows: usize,
    /// Inputs.
    pub(crate) cols: usize,
    /// `rows` rows of whole blocks, 16-byte aligned.
    pub(crate) bytes: DeviceSlice<'a, u8>,
}

impl DeviceMatrix<'_> {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.cols / self.format.block_elems * self.format.block_bytes
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.format.kind == Kind::Plain
    }

    /// Refuses bytes that do not fit the sizes.
    pub(crate) fn check(&self, op: &'static str) -> Result<(), CudaError> {
        check::multiple(op, "columns of a matrix", self.cols, self.format.block_elems)?;
        check::len(op, "bytes of a matrix", self.bytes.len(), self.rows * self.row_bytes())?;
        check::aligned(op, "bytes of a matrix", self.bytes.address(), 16)
    }
}

/// `[experts, rows, cols]` on the device, as shipped: a slab an expert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceExperts<'a> {
    /// Number format.
    pub(crate) format: &'static Format,
    /// Slabs.
    pub(crate) experts: usize,
    /// Outputs of one.
    pub(crate) rows: usize,
    /// Inputs of one.
    pub(crate) cols: usize,
    /// All of them, 16-byte aligned.
    pub(crate) bytes: DeviceSlice<'a, u8>,
}

impl<'a> DeviceExperts<'a> {
    /// All rows of all experts as one matrix.
    pub(crate) fn stacked(&self) -> DeviceMatrix<'a> {
        let Self { format, experts, rows, cols, bytes } = *self;
        DeviceMatrix { format, rows: experts * rows, cols, bytes }
    }
}

/// What a kernel's symbol calls a format.
pub(crate) fn format_symbol(format: &Format) -> String {
    format.name.to_ascii_lowercase()
}

/// Refusals that say which argument and why.
pub(crate) mod check {
    use std::ops::RangeInclusive;

    use crate::error::CudaError;

    fn refuse(op: &'static str, what: &'static str, found: String, expected: String) -> Result<(), CudaError> {
        Err(CudaError::Argument { op, what, found, expected })
    }

    pub(crate) fn len(op: &'static str, what: &'static str, found: usize, expected: usize) -> Result<(), CudaError> {
        if found == expected { Ok(()) } else { refuse(op, what, found.to_string(), expected.to_string()) }
    }

    pub(crate) fn least(op: &'static str, what: &'static str, found: usize, least: usize) -> Result<(), CudaError> {
        if found >= least { Ok(()) } else { refuse(op, what, found.to_string(), format!("at least {least}")) }
    }

    pub(crate) fn multiple(op: &'static str, what: &'static str, found: usize, of: usize) -> Result<(), CudaError> {
        let fits = found > 0 && found.is_multiple_of(of);
        if fits { Ok(()) } else { refuse(op, what, found.to_string(), format!("a multiple of {of}")) }
    }

    pub(crate) fn within(
        op: &'static str,
        what: &'static str,
        found: usize,
        range: RangeInclusive<usize>,
    ) -> Result<(), CudaError> {
        let expected = || format!("{} to {}", range.start(), range.end());
        if range.contains(&found) { Ok(()) } else { refuse(op, what, found.to_string(), expected()) }
    }

    pub(crate) fn aligned(op: &'static str, what: &'static str, at: u64, to: u64) -> Result<(), CudaError> {
        let fits = at.is_multiple_of(to);
        if fits { Ok(()) } else { refuse(op, what, format!("at {at:#x}"), format!("a multiple of {to}")) }
    }
}

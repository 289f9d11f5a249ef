//! What a block format is, and everything that is the same for all of them: written once, monomorphised per format.

use bytemuck::{Pod, Zeroable};

use crate::{Error, GROUP};

/// One block of a format, as it lies in the file.
///
/// In group form every value is `wa[s] * code + wb[s]`, `s` its sub-block (quant-formats.md 0). An implementor is a
/// `repr(C)` struct of bytes (alignment 1), so a row is a `&[Self]` cast from any byte slice, and says three things:
/// its name, its codes, its scales. Sizes follow from the types.
pub trait Block: Pod {
    /// Name of the type, as files' tools spell it: `Q4_K`.
    const NAME: &'static str;
    /// Type number in a tensor directory.
    const GGML_ID: u32;
    /// Whether [`scales`](Self::scales) writes offsets. Without, `wb` is zero and must be ignored.
    const OFFSET: bool;
    /// `[i8; N]`, N elements a block.
    type Codes: Pod + AsRef<[i8]> + AsMut<[i8]>;
    /// `[f32; S]`, S sub-blocks a block.
    type Scales: Pod + AsRef<[f32]> + AsMut<[f32]>;

    /// Bytes a block.
    const BYTES: usize = size_of::<Self>();
    /// Elements a block.
    const ELEMS: usize = size_of::<Self::Codes>();
    /// Elements that share one `(wa, wb)`: 16, 32, 128 or 256.
    const SUB: usize = Self::ELEMS / (size_of::<Self::Scales>() / size_of::<f32>());

    /// Writes the integer code of every element.
    fn codes(&self, codes: &mut Self::Codes);

    /// Writes `wa` of every sub-block, each rounded to f32 once, and `wb` when [`OFFSET`](Self::OFFSET).
    fn scales(&self, wa: &mut Self::Scales, wb: &mut Self::Scales);
}

/// A format with a bit-exact encoder (quant-formats.md 3).
pub trait Encode: Block {
    /// The block that holds `x`, which is `ELEMS` finite values.
    fn encode(x: &[f32]) -> Self;
}

/// One weight row in group form. Buffers are reused by [`unpack_row`]: no allocation once the widest row was seen.
#[derive(Clone, Debug, Default)]
pub struct UnpackedRow {
    /// One code an element.
    pub codes: Vec<i8>,
    /// `halves` scales a group of 32. A format with a coarser scale repeats it.
    pub wa: Vec<f32>,
    /// Offsets, as many as `wa`; empty when the format has none.
    pub wb: Vec<f32>,
    /// 2 for formats with sub-blocks of 16, else 1.
    pub halves: usize,
}

impl UnpackedRow {
    /// An empty row, to be filled by [`unpack_row`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Elements in the row.
    pub fn cols(&self) -> usize {
        self.codes.len()
    }

    /// Makes room for a row of `cols` elements of a format, as [`unpack_row`] fills it.
    #[inline(always)]
    pub fn reshape<B: Block>(&mut self, cols: usize) {
        self.halves = if B::SUB < GROUP { 2 } else { 1 };
        let scales = cols / GROUP * self.halves;
        self.codes.resize(cols, 0);
        self.wa.resize(scales, 0.0);
        self.wb.resize(if B::OFFSET { scales } else { 0 }, 0.0);
    }
}

/// The values of `blocks`, bit-exact: `p = f32(wa * code)`, then `f32(p + wb)` when the format has offsets. No FMA.
///
/// # Panics
/// When `out` does not hold exactly `blocks.len() * B::ELEMS` values.
pub fn decode<B: Block>(blocks: &[B], out: &mut [f32]) {
    assert_eq!(out.len(), blocks.len() * B::ELEMS, "{}: output length", B::NAME);
    let (mut codes, mut wa, mut wb) = (B::Codes::zeroed(), B::Scales::zeroed(), B::Scales::zeroed());
    for (block, values) in blocks.iter().zip(out.chunks_exact_mut(B::ELEMS)) {
        block.codes(&mut codes);
        block.scales(&mut wa, &mut wb);
        let scales = wa.as_ref().iter().zip(wb.as_ref());
        let subs = values.chunks_exact_mut(B::SUB).zip(codes.as_ref().chunks_exact(B::SUB));
        for ((values, codes), (&wa, &wb)) in subs.zip(scales) {
            for (value, &code) in values.iter_mut().zip(codes) {
                let product = wa * f32::from(code);
                *value = if B::OFFSET { product + wb } else { product };
            }
        }
    }
}

/// One row in group form; `row` is resized to it.
pub fn unpack_row<B: Block>(blocks: &[B], row: &mut UnpackedRow) {
    unpack_row_with(blocks, row, B::codes, B::scales);
}

/// [`unpack_row`] by the caller's versions of [`Block::codes`] and [`Block::scales`], compiled for another instruction set.
pub fn unpack_row_with<B: Block>(
    blocks: &[B],
    row: &mut UnpackedRow,
    block_codes: impl Fn(&B, &mut B::Codes),
    block_scales: impl Fn(&B, &mut B::Scales, &mut B::Scales),
) {
    const { assert!(align_of::<B>() == 1 && (B::SUB <= GROUP || !B::OFFSET)) };
    row.reshape::<B>(blocks.len() * B::ELEMS);
    // Groups that share a scale, and scales a block: a coarse scale is repeated.
    let share = (B::SUB / GROUP).max(1);
    let per_block = B::ELEMS / GROUP * row.halves;
    let codes = bytemuck::cast_slice_mut::<i8, B::Codes>(&mut row.codes);
    let (mut wa, mut wb) = (B::Scales::zeroed(), B::Scales::zeroed());
    for (i, (block, codes)) in blocks.iter().zip(codes).enumerate() {
        block_codes(block, codes);
        block_scales(block, &mut wa, &mut wb);
        let of_block = i * per_block..(i + 1) * per_block;
        for (groups, scale) in row.wa[of_block.clone()].chunks_exact_mut(share).zip(wa.as_ref()) {
            groups.fill(*scale);
        }
        if B::OFFSET {
            row.wb[of_block].copy_from_slice(wb.as_ref());
        }
    }
}

/// Appends the blocks that hold `x`; on an error `out` is as it was.
pub(crate) fn encode<B: Encode>(x: &[f32], out: &mut Vec<u8>) -> Result<(), Error> {
    if let Some((index, &value)) = x.iter().enumerate().find(|(_, v)| !v.is_finite()) {
        return Err(Error::NotFinite { format: B::NAME, index, value });
    }
    let start = out.len();
    let (mut wa, mut wb) = (B::Scales::zeroed(), B::Scales::zeroed());
    for (at, values) in x.chunks_exact(B::ELEMS).enumerate() {
        let block = B::encode(values);
        block.scales(&mut wa, &mut wb);
        if !wa.as_ref().iter().chain(wb.as_ref()).all(|s| s.is_finite()) {
            out.truncate(start);
            return Err(Error::ScaleOverflow { format: B::NAME, index: at * B::ELEMS });
        }
        out.extend_from_slice(bytemuck::bytes_of(&block));
    }
    Ok(())
}

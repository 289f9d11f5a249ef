//! Weight rows in group form, compiled for wider instruction sets: `Format::unpack_row` with the same results.

use cudafast_quant::{Block, BlockVisitor, Format, UnpackedRow, unpack_row};

struct Unpack<'a> {
    bytes: &'a [u8],
    row: &'a mut UnpackedRow,
}

impl BlockVisitor for Unpack<'_> {
    type Out = ();
    #[inline(always)]
    fn visit<B: Block>(self) {
        unpack_row::<B>(bytemuck::cast_slice(self.bytes), self.row);
    }
}

/// As `Format::unpack_row`, for block formats.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2(format: &Format, bytes: &[u8], row: &mut UnpackedRow) {
    format.with_block(Unpack { bytes, row });
}

/// As [`avx2`].
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn avx512(format: &Format, bytes: &[u8], row: &mut UnpackedRow) {
    format.with_block(Unpack { bytes, row });
}

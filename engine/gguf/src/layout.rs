//! The type table: how many bytes a run of elements takes. What the bytes mean is another crate's business.

/// Size of one tensor type. Rows are whole blocks, packed without padding (quant-formats.md 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeLayout {
    /// Number in the tensor table of a file.
    pub id: u32,
    /// Name as ggml spells it.
    pub name: &'static str,
    /// Elements of one block; 1 for plain numbers.
    pub block_elems: u64,
    /// Bytes of one block.
    pub block_bytes: u64,
}

const fn row(id: u32, name: &'static str, block_elems: u64, block_bytes: u64) -> TypeLayout {
    TypeLayout { id, name, block_elems, block_bytes }
}

/// Ascending ids. The gaps (4, 5, 31..33, 36..38) are numbers ggml has retired; 142 and 143 are private to one fork
/// (quant-formats.md 1).
const TABLE: [TypeLayout; 36] = [
    row(0, "F32", 1, 4),
    row(1, "F16", 1, 2),
    row(2, "Q4_0", 32, 18),
    row(3, "Q4_1", 32, 20),
    row(6, "Q5_0", 32, 22),
    row(7, "Q5_1", 32, 24),
    row(8, "Q8_0", 32, 34),
    row(9, "Q8_1", 32, 36),
    row(10, "Q2_K", 256, 84),
    row(11, "Q3_K", 256, 110),
    row(12, "Q4_K", 256, 144),
    row(13, "Q5_K", 256, 176),
    row(14, "Q6_K", 256, 210),
    row(15, "Q8_K", 256, 292),
    row(16, "IQ2_XXS", 256, 66),
    row(17, "IQ2_XS", 256, 74),
    row(18, "IQ3_XXS", 256, 98),
    row(19, "IQ1_S", 256, 50),
    row(20, "IQ4_NL", 32, 18),
    row(21, "IQ3_S", 256, 110),
    row(22, "IQ2_S", 256, 82),
    row(23, "IQ4_XS", 256, 136),
    row(24, "I8", 1, 1),
    row(25, "I16", 1, 2),
    row(26, "I32", 1, 4),
    row(27, "I64", 1, 8),
    row(28, "F64", 1, 8),
    row(29, "IQ1_M", 256, 56),
    row(30, "BF16", 1, 2),
    row(34, "TQ1_0", 256, 54),
    row(35, "TQ2_0", 256, 66),
    row(39, "MXFP4", 32, 17),
    row(40, "NVFP4", 64, 36),
    row(41, "Q1_0", 128, 18),
    row(142, "PQ2_0", 128, 34),
    row(143, "PTQ1_0", 128, 28),
];

/// Every type a file may name, ascending ids.
pub fn type_layouts() -> &'static [TypeLayout] {
    &TABLE
}

/// The type numbered `id`, or `None` for a number this build does not know: such a tensor is refused, never skipped.
pub fn type_layout(id: u32) -> Option<TypeLayout> {
    TABLE.iter().find(|layout| layout.id == id).copied()
}

impl TypeLayout {
    /// Bytes of a tensor of shape `ne` (fastest first), or why it has none: the shape rules of gguf-qwen4exp.md 7.
    pub(crate) fn tensor_bytes(&self, ne: &[u64]) -> Result<u64, String> {
        let Some(&row) = ne.first() else { return Err("it has no dimensions, expected 1 to 4".into()) };
        if ne.len() > 4 {
            return Err(format!("it has {} dimensions, expected 1 to 4", ne.len()));
        }
        if ne.contains(&0) {
            return Err("a dimension is 0, expected at least 1".into());
        }
        if !row.is_multiple_of(self.block_elems) {
            return Err(format!("rows of {row} are not whole blocks of {} ({})", self.block_elems, self.name));
        }
        let elems = ne.iter().try_fold(1u64, |elems, &n| elems.checked_mul(n));
        let bytes = elems.and_then(|elems| (elems / self.block_elems).checked_mul(self.block_bytes));
        bytes.ok_or_else(|| "its size does not fit 64 bits".into())
    }
}

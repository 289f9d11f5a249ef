//! Tensors as numbers: bytes with a format and sizes that were checked against each other once.

use cudafast_gguf::TensorData;
use cudafast_quant::Format;

use crate::error::Error;

// `Vector` reads the file's little-endian floats in place; sizes read from a file are bounded below 2^63, not 2^31.
const _: () = assert!(cfg!(target_endian = "little") && usize::BITS == 64, "needs a 64-bit little-endian machine");

/// A borrowed `[rows, cols]` row-major matrix of one format.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRef<'a> {
    /// Number format of the bytes.
    pub format: &'static Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs, in elements.
    pub cols: usize,
    /// `rows * row_bytes` bytes.
    pub bytes: &'a [u8],
}

impl<'a> MatrixRef<'a> {
    /// Bytes of one row.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        // whole blocks, as checked when the matrix was made; unlike the division of `bytes`, right for 0 rows too
        self.cols / self.format.block_elems * self.format.block_bytes
    }

    /// The bytes of row `r`.
    ///
    /// # Panics
    /// When `r >= rows`.
    #[inline]
    pub fn row(&self, r: usize) -> &'a [u8] {
        let len = self.row_bytes();
        &self.bytes[r * len..(r + 1) * len]
    }
}

/// A `[rows, cols]` row-major matrix as shipped: `y[r] = sum_c W[r, c] x[c]`.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Name in the file.
    pub name: String,
    /// Number format of the bytes.
    pub format: &'static Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs, in elements.
    pub cols: usize,
    /// `rows * row_bytes` bytes.
    pub data: TensorData,
}

impl Matrix {
    /// Refuses bytes that are not `rows` rows of whole blocks.
    pub fn new(name: &str, format: &'static Format, rows: usize, cols: usize, data: TensorData) -> Result<Self, Error> {
        check_bytes(name, format, [1, rows, cols], &data)?;
        Ok(Self { name: name.into(), format, rows, cols, data })
    }

    /// The matrix without its name.
    #[inline]
    pub fn view(&self) -> MatrixRef<'_> {
        MatrixRef { format: self.format, rows: self.rows, cols: self.cols, bytes: &self.data }
    }
}

/// `[experts, rows, cols]`: one contiguous slab per expert.
#[derive(Clone, Debug)]
pub struct Experts {
    /// Name in the file.
    pub name: String,
    /// Number format of the bytes.
    pub format: &'static Format,
    /// Number of slabs.
    pub experts: usize,
    /// Outputs of one expert.
    pub rows: usize,
    /// Inputs of one expert, in elements.
    pub cols: usize,
    /// All slabs.
    pub data: TensorData,
}

impl Experts {
    /// Refuses bytes that are not `experts * rows` rows of whole blocks.
    pub fn new(
        name: &str,
        format: &'static Format,
        [experts, rows, cols]: [usize; 3],
        data: TensorData,
    ) -> Result<Self, Error> {
        check_bytes(name, format, [experts, rows, cols], &data)?;
        Ok(Self { name: name.into(), format, experts, rows, cols, data })
    }

    /// The matrix of expert `e`.
    ///
    /// # Panics
    /// When `e >= experts`.
    #[inline]
    pub fn expert(&self, e: usize) -> MatrixRef<'_> {
        let slab = self.cols / self.format.block_elems * self.format.block_bytes * self.rows;
        let bytes = &self.data[e * slab..(e + 1) * slab];
        MatrixRef { format: self.format, rows: self.rows, cols: self.cols, bytes }
    }
}

fn check_bytes(name: &str, format: &Format, shape: [usize; 3], data: &TensorData) -> Result<(), Error> {
    let [experts, rows, cols] = shape;
    let bytes = format.row_bytes(cols).and_then(|row| row.checked_mul(rows)?.checked_mul(experts));
    if bytes == Some(data.len()) {
        return Ok(());
    }
    Err(Error::TensorBytes {
        name: name.into(),
        shape: format!("[{experts}, {rows}, {cols}] of {}", format.name),
        found: data.len(),
        expected: bytes.map_or("no whole number of blocks".into(), |n| n.to_string()),
    })
}

/// An F32 tensor used as numbers: norm gains, `ssm_a`, convolution taps.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Name in the file.
    pub name: String,
    /// The bytes, 4-byte aligned.
    pub data: TensorData,
}

impl Vector {
    /// Refuses bytes that cannot be read in place as f32. They never move, so what holds here holds for good.
    pub fn new(name: &str, data: TensorData) -> Result<Self, Error> {
        match bytemuck::try_cast_slice::<u8, f32>(&data) {
            Ok(_) => Ok(Self { name: name.into(), data }),
            Err(_) => Err(Error::NotFloats { name: name.into(), found: data.len(), address: data.as_ptr().addr() }),
        }
    }

    /// The numbers. Empty only if `data` was replaced by bytes that [`new`](Self::new) would have refused.
    pub fn as_slice(&self) -> &[f32] {
        bytemuck::try_cast_slice(&self.data).unwrap_or_default()
    }

    /// Count of numbers.
    pub fn len(&self) -> usize {
        self.data.len() / size_of::<f32>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use cudafast_quant::format_by_name;

    use super::*;

    fn bytes(n: usize) -> TensorData {
        TensorData::from_vec((0..n).map(|i| i as u8).collect())
    }

    #[test]
    fn rows_and_experts_are_consecutive_whole_blocks() {
        let q8 = format_by_name("Q8_0").unwrap();
        let experts = Experts::new("e", q8, [3, 2, 64], bytes(3 * 2 * 68)).unwrap();
        let second = experts.expert(1);
        assert_eq!((second.rows, second.cols, second.row_bytes()), (2, 64, 68));
        assert_eq!(second.bytes.as_ptr(), experts.data[136..].as_ptr());
        assert_eq!(second.row(1).as_ptr(), experts.data[136 + 68..].as_ptr());
        assert_eq!(second.row(1).len(), 68);
        let matrix = Matrix::new("m", q8, 6, 64, bytes(6 * 68)).unwrap();
        assert_eq!(matrix.view().row(5), &matrix.data[5 * 68..]);
    }

    #[test]
    fn bytes_that_do_not_match_the_shape_are_refused_with_both_numbers() {
        let q8 = format_by_name("Q8_0").unwrap();
        let short = Matrix::new("m", q8, 6, 64, bytes(407)).err().unwrap().to_string();
        assert!(short.contains("`m`: 407 bytes given, [1, 6, 64] of Q8_0 takes 408"), "{short}");
        let ragged = Matrix::new("m", q8, 6, 65, bytes(408)).err().unwrap().to_string();
        assert!(ragged.contains("no whole number of blocks"), "{ragged}");
        assert!(matches!(Experts::new("e", q8, [usize::MAX, 2, 64], bytes(136)), Err(Error::TensorBytes { .. })));
    }

    #[test]
    fn a_vector_is_its_bytes_as_little_endian_floats() {
        let data: Vec<u8> = [1.0_f32, -2.5, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let vector = Vector::new("v", TensorData::from_vec(data)).unwrap();
        assert_eq!((vector.as_slice(), vector.len(), vector.is_empty()), (&[1.0, -2.5, 0.0][..], 3, false));
        assert!(matches!(Vector::new("v", bytes(7)), Err(Error::NotFloats { found: 7, .. })));
    }
}

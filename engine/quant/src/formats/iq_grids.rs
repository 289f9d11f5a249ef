//! The grids of the IQ formats, from their packed words.

use super::iq_words::{IQ2_XS_PACKED, IQ2_XXS_PACKED, IQ3_XXS_PACKED};

/// Levels of the IQ2 grids, numbered in two bits.
const LEVELS_2: [i8; 3] = [8, 25, 43];
/// Levels of the IQ3 grid, numbered in three bits.
const LEVELS_3: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// Rows of IQ2_XXS.
pub(crate) static IQ2_XXS: [[i8; 8]; 256] = expand::<2, 8, 256>(&IQ2_XXS_PACKED, &LEVELS_2);
/// Rows of IQ2_XS.
pub(crate) static IQ2_XS: [[i8; 8]; 512] = expand::<2, 8, 512>(&IQ2_XS_PACKED, &LEVELS_2);
/// Rows of IQ3_XXS.
pub(crate) static IQ3_XXS: [[i8; 4]; 256] = expand::<3, 4, 256>(&IQ3_XXS_PACKED, &LEVELS_3);

const fn expand<const BITS: u32, const COLS: usize, const ROWS: usize>(
    packed: &[u16; ROWS],
    levels: &[i8],
) -> [[i8; COLS]; ROWS] {
    let mut grid = [[0; COLS]; ROWS];
    let mut row = 0;
    while row < ROWS {
        let mut col = 0;
        while col < COLS {
            let level = packed[row] >> (BITS * col as u32) & ((1 << BITS) - 1);
            grid[row][col] = levels[level as usize];
            col += 1;
        }
        row += 1;
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{iq::even_signs, iq4::STEPS, mxfp4::E2M1_DOUBLED};

    #[test]
    fn every_table_equals_the_published_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/quants/iq_tables.json");
        let tables: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let hex = |bytes: &[i8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(tables["iq2_xxs_grid_256x8"], hex(IQ2_XXS.as_flattened()));
        assert_eq!(tables["iq2_xs_grid_512x8"], hex(IQ2_XS.as_flattened()));
        assert_eq!(tables["iq3_xxs_grid_256x4"], hex(IQ3_XXS.as_flattened()));
        let signs: Vec<i8> = (0..128).map(|i| even_signs(i).cast_signed()).collect();
        assert_eq!(tables["ksigns_128"], hex(&signs));
        assert_eq!(tables["iq4_nl_kvalues"], serde_json::json!(STEPS));
        assert_eq!(tables["e2m1_doubled_kvalues"], serde_json::json!(E2M1_DOUBLED));
    }
}

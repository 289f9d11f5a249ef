//! The type table against the list of the reference package.

use std::{collections::BTreeMap, fs, path::Path};

use cudafast_gguf::{TypeLayout, type_layout, type_layouts};

#[test]
fn every_type_has_the_sizes_of_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/quants/index.json");
    let index: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut expected = BTreeMap::new();
    for (name, row) in index["all_ggml_types"].as_object().unwrap() {
        let number = |key: &str| row[key].as_u64().unwrap();
        // The list has 40 bytes for Q8_1, with two f32; the block itself has two f16 (quant-formats.md 1 and 4b). It is an
        // activation format: no file holds it.
        let block_bytes = if name == "Q8_1" { 36 } else { number("block_bytes") };
        expected.insert(number("id") as u32, (name.as_str(), number("block_elements"), block_bytes));
    }
    assert!(expected.contains_key(&142) && expected.contains_key(&143));
    let table = type_layouts().iter().map(|t| (t.id, (t.name, t.block_elems, t.block_bytes)));
    assert_eq!(table.collect::<BTreeMap<_, _>>(), expected);
}

#[test]
fn only_listed_types_are_known() {
    let known = (0..1000).filter_map(type_layout).collect::<Vec<TypeLayout>>();
    assert_eq!(known, type_layouts());
    assert_eq!(type_layout(4), None, "retired");
}

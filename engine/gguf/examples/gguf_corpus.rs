//! Writes `testdata/gguf-corpus` anew from `tests/corpus/cases.rs`: the files, and the index of how each must end.
#![allow(clippy::unwrap_used)] // shares its cases with a test

#[path = "../tests/corpus/cases.rs"]
mod cases;

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gguf-corpus");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let mut cases = cases::all();
    cases.sort_by_key(|case| case.name);
    let mut index = String::new();
    for case in cases {
        fs::write(dir.join(format!("{}.gguf", case.name)), case.bytes)?;
        index += &format!("{}.gguf {}\n", case.name, case.ends);
    }
    fs::write(dir.join("index.txt"), index)
}

//! Any bytes as a manifest: what is read leads nowhere and is written and read back the same, what is not is one line.
#![no_main]

use std::path::{Component, Path};

use bench_pins::{Manifest, Pin};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let manifest = match Manifest::parse("M", bytes) {
        Ok(manifest) => manifest,
        Err(error) => {
            assert!(error.to_string().starts_with('M'));
            return;
        }
    };
    assert!(!manifest.pins().is_empty());
    for pin in manifest.pins() {
        assert!(Path::new(&pin.path).components().all(|part| matches!(part, Component::Normal(_))));
    }

    let read = Manifest::parse("M", manifest.to_text().as_bytes()).unwrap();
    let without_sizes = manifest.pins().iter().map(|pin| Pin { bytes: None, ..pin.clone() });
    assert!(read.pins().iter().cloned().eq(without_sizes));
    if manifest.pins().iter().all(|pin| pin.bytes.is_some()) {
        let text = manifest.to_json("M").unwrap();
        assert_eq!(Manifest::parse("M", text.as_bytes()).unwrap(), manifest);
    }
});

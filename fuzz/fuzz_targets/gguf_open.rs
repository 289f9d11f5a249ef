//! Any bytes: opening them ends in a set whose every key and tensor can be read, or in an error that can be printed.
#![no_main]

use cudafast_gguf::{ShardSet, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let set = match ShardSet::from_vec("fuzz", bytes.to_vec()) {
        Ok(set) => set,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("fuzz: ") && !text.contains('\n'), "{text}");
            return;
        }
    };
    let metadata = set.metadata();
    for (key, value) in metadata.iter() {
        assert!(metadata.get(key).is_some());
        assert!(value.to_string().len() < 2000);
        // Each getter answers or refuses; which, depends on the value.
        let _ = (metadata.u64(key), metadata.u32(key), metadata.i64(key), metadata.f32(key), metadata.bool(key));
        let _ = (metadata.str(key), metadata.u64_array(key), metadata.i64_array(key), metadata.f32_array(key));
        if let Ok(strings) = metadata.str_array(key) {
            assert_eq!(strings.iter().count(), strings.len());
        }
        if let Value::Array(array) = value {
            assert_eq!(array.is_empty(), array.len() == 0);
        }
    }
    for tensor in set.tensors() {
        let data = tensor.data();
        assert_eq!(data.len() as u64, tensor.byte_len());
        assert!(data.as_ptr().addr().is_multiple_of(8));
        assert!(set.tensor(tensor.name()).is_some());
        // The sum touches every byte, so that the address sanitizer sees each.
        std::hint::black_box(data.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
});

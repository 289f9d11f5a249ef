//! Laws: what is written is read back; no change of a byte makes reading panic.

use std::collections::BTreeMap;

use cudafast_gguf::{ShardSet, Split, StrArray, Value, Writer, type_layouts};
use proptest::{collection::vec, prelude::*, sample::Index};

fn value() -> impl Strategy<Value = Value> {
    let scalars = prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let arrays = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Value::from),
        vec(any::<i8>(), 0..9).prop_map(Value::from),
        vec(any::<u16>(), 0..9).prop_map(Value::from),
        vec(any::<i16>(), 0..9).prop_map(Value::from),
        vec(any::<u32>(), 0..9).prop_map(Value::from),
        vec(any::<i32>(), 0..9).prop_map(Value::from),
        vec(any::<u64>(), 0..9).prop_map(Value::from),
        vec(any::<i64>(), 0..9).prop_map(Value::from),
        vec(any::<f32>(), 0..9).prop_map(Value::from),
        vec(any::<f64>(), 0..9).prop_map(Value::from),
        vec(any::<bool>(), 0..9).prop_map(Value::from),
        vec(any::<String>(), 0..9).prop_map(Value::from),
    ];
    prop_oneof![scalars, arrays]
}

/// A shape of whole blocks, a type, and the seed of its bytes.
#[derive(Clone, Debug)]
struct Shape {
    ne: Vec<u64>,
    type_id: u32,
    bytes: Vec<u8>,
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<Index>(), vec(1u64..4, 1..=4), any::<u8>()).prop_map(|(at, mut ne, seed)| {
        let layout = at.get(type_layouts());
        let len = ne.iter().product::<u64>() * layout.block_bytes;
        ne[0] *= layout.block_elems;
        Shape { ne, type_id: layout.id, bytes: (0..len).map(|i| seed.wrapping_add(i as u8)).collect() }
    })
}

#[derive(Clone, Debug)]
struct Model {
    alignment: Option<u32>,
    keys: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Shape>,
}

fn model() -> impl Strategy<Value = Model> {
    let alignment = proptest::option::of((3u32..9).prop_map(|bits| 1 << bits));
    let name = "[a-zäß重.]{0,12}";
    let keys = proptest::collection::btree_map(name, value(), 0..8);
    let tensors = proptest::collection::btree_map(name, shape(), 0..8);
    (alignment, keys, tensors).prop_map(|(alignment, keys, tensors)| Model { alignment, keys, tensors })
}

impl Model {
    fn writer(&self) -> Writer<'_> {
        let mut w = Writer::new();
        if let Some(alignment) = self.alignment {
            w = w.kv("general.alignment", alignment);
        }
        w = self.keys.iter().fold(w, |w, (key, value)| w.kv(key, value.clone()));
        self.tensors.iter().fold(w, |w, (name, t)| w.tensor(name, &t.ne, t.type_id, &t.bytes))
    }

    fn check(&self, set: &ShardSet) {
        for (key, value) in &self.keys {
            assert_eq!(set.metadata().get(key), Some(value));
        }
        assert_eq!(set.tensors().len(), self.tensors.len());
        for ((name, t), read) in self.tensors.iter().zip(set.tensors()) {
            assert_eq!((read.name(), read.ne(), read.type_id()), (name.as_str(), &t.ne[..], t.type_id));
            assert_eq!(*read.data(), t.bytes[..]);
            assert!(read.data().as_ptr().addr().is_multiple_of(8));
            assert_eq!(read.file_offset() % u64::from(self.alignment.unwrap_or(32)), 0);
            assert!(set.tensor(name).is_some());
        }
    }
}

/// Opens and touches whatever opens.
fn open_and_walk(bytes: Vec<u8>) {
    if let Ok(set) = ShardSet::from_vec("spoilt", bytes) {
        set.metadata().iter().for_each(|(_, value)| drop(value.to_string()));
        set.tensors().iter().for_each(|t| assert_eq!(t.data().len() as u64, t.byte_len()));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(model in model()) {
        let set = ShardSet::from_vec("m", model.writer().to_vec().unwrap()).unwrap();
        model.check(&set);
        prop_assert_eq!(set.metadata().len(), model.keys.len() + usize::from(model.alignment.is_some()));
    }

    #[test]
    fn a_set_is_read_back_as_the_file_it_was_cut_from(model in model(), max_shard_bytes in 0u64..4000, keys_alone: bool) {
        let dir = tempfile::tempdir().unwrap();
        let paths = model.writer().write_set(dir.path(), "m", Split { max_shard_bytes, keys_alone }).unwrap();
        for path in &paths {
            model.check(&ShardSet::open(path).unwrap());
        }
    }

    #[test]
    fn no_changed_byte_of_a_header_makes_reading_panic(model in model(), at: Index, flip in 1u8..) {
        let raw = model.writer().to_raw().unwrap();
        let mut bytes = raw.to_bytes();
        let at = at.index(raw.header().len());
        bytes[at] ^= flip;
        open_and_walk(bytes);
    }

    #[test]
    fn no_cut_makes_reading_panic(model in model(), at: Index) {
        let mut bytes = model.writer().to_vec().unwrap();
        bytes.truncate(at.index(bytes.len()));
        open_and_walk(bytes);
    }

    #[test]
    fn a_string_array_is_its_strings(strings: Vec<String>) {
        let array = StrArray::from(strings.clone());
        prop_assert_eq!(array.len(), strings.len());
        prop_assert_eq!(array.iter().collect::<Vec<_>>(), strings.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(array.get(strings.len()), None);
    }
}

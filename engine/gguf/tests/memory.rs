//! Opening costs at most 64 MB beside the mapped file, whatever its bytes claim (see `cudafast_gguf::limits`).
//!
//! A binary of its own with one test, because the allocator that counts is the whole process's.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Instant,
};

use cudafast_gguf::{
    RawFile, RawKv, RawTensor, ShardSet, Value,
    limits::{MAX_HEADER_BYTES, MAX_KEYS, MAX_TENSORS},
};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to `System` unchanged, which keeps the contract; the counters touch no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller's promises about `layout` are the ones `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `ptr` is from `alloc` above, so from `System`, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const BOUND: usize = 64_000_000;

/// Opens `path` and returns how it ended, after holding its peak and its time against the bounds.
fn open_within_bounds(path: &Path) -> String {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let start = Instant::now();
    let opened = ShardSet::open(path);
    let (peak, took) = (PEAK.load(Relaxed) - before, start.elapsed());
    println!("{}: {peak} bytes, {took:?}", path.display());
    assert!(peak < BOUND, "{}: {peak} bytes at the peak", path.display());
    match opened {
        Ok(_) => "Ok".into(),
        Err(error) => format!("{error:?}").split(' ').next().unwrap().to_owned(),
    }
}

/// A file of `header` and then zeros up to `len`, which take no disk.
fn sparse(path: &Path, header: &[u8], len: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(header).unwrap();
    file.into_inner().unwrap().set_len(len).unwrap();
}

fn header(kv: Vec<RawKv>) -> Vec<u8> {
    RawFile { kv, ..RawFile::default() }.header()
}

/// An array whose elements are the zeros that follow in the file.
fn array_of_zeros(elements: u32, count: u64) -> RawKv {
    let value = [&elements.to_le_bytes()[..], &count.to_le_bytes()].concat();
    RawKv { key: b"a".into(), type_id: 9, value }
}

fn many_keys(count: u64) -> Vec<RawKv> {
    (0..count).map(|i| RawKv::new(&format!("{i:x}"), &Value::String("v".into()))).collect()
}

fn many_tensors(count: u64) -> Vec<RawTensor> {
    let tensor = |i| RawTensor { name: format!("{i:x}").into(), n_dims: None, ne: vec![1], type_id: 0, offset: i * 32 };
    (0..count).map(tensor).collect()
}

#[test]
fn opening_any_file_takes_less_than_64_mb_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hostile.gguf");
    let gib = 1 << 30;
    let full = MAX_HEADER_BYTES - 64;

    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gguf-corpus")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().unwrap() == "gguf" {
            open_within_bounds(&file);
        }
    }

    // As much tokenizer as the shipped set has.
    let tokens: Vec<String> = (0..248_320).map(|i| format!("token {i}")).collect();
    let merges: Vec<String> = (0..247_587).map(|i| format!("left {i} right")).collect();
    let keys = [
        RawKv::new("tokenizer.ggml.tokens", &tokens.into()),
        RawKv::new("tokenizer.ggml.token_type", &vec![1i32; 248_320].into()),
        RawKv::new("tokenizer.ggml.merges", &merges.into()),
    ];
    let tokenizer = header(keys.into());
    assert!(tokenizer.len() > 10_000_000);
    sparse(&path, &tokenizer, tokenizer.len() as u64);
    assert_eq!(open_within_bounds(&path), "Ok");
    drop(tokenizer);

    // Claims without bytes behind them, in a file that is large enough to make a lesser claim true.
    let claim = |kv_count, tensor_count| RawFile { kv_count, tensor_count, ..RawFile::default() }.header();
    sparse(&path, &claim(Some(1 << 60), None), gib);
    assert_eq!(open_within_bounds(&path), "CountTooLarge");
    sparse(&path, &claim(None, Some(1 << 60)), gib);
    assert_eq!(open_within_bounds(&path), "CountTooLarge");
    sparse(&path, &claim(Some(gib / 16), None), gib);
    assert_eq!(open_within_bounds(&path), "TooMany");
    sparse(&path, &claim(None, Some(gib / 64)), gib);
    assert_eq!(open_within_bounds(&path), "TooMany");

    // Claims with bytes behind them, past the limit and up to it: bytes, bools, and strings that are all empty.
    for (elements, size) in [(0, 1), (7, 1), (10, 8), (8, 8)] {
        sparse(&path, &header(vec![array_of_zeros(elements, (gib - 1000) / size)]), gib);
        assert_eq!(open_within_bounds(&path), "HeaderTooLarge");
        sparse(&path, &header(vec![array_of_zeros(elements, full / size)]), gib);
        assert_eq!(open_within_bounds(&path), "Ok");
    }

    // What an error may quote: a name, a string, a string of an array.
    let long = full.to_le_bytes();
    sparse(&path, &[&claim(Some(1), None)[..], &long].concat(), gib);
    assert_eq!(open_within_bounds(&path), "TooMany");
    for (type_id, head) in [(8, vec![]), (9, [&8u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat())] {
        let value = [&head[..], &(full - 100).to_le_bytes(), b"\xff"].concat();
        sparse(&path, &header(vec![RawKv { key: b"a".into(), type_id, value }]), gib);
        assert_eq!(open_within_bounds(&path), "NotUtf8");
    }

    // All limits at once: every key and tensor there may be, and an array that fills the rest of the header.
    let mut raw = RawFile { kv: many_keys(MAX_KEYS - 1), tensors: many_tensors(MAX_TENSORS), ..RawFile::default() };
    let rest = full - raw.header().len() as u64;
    raw.kv.push(RawKv::new("rest", &Value::from(vec![0u8; rest as usize])));
    sparse(&path, &raw.header(), gib);
    drop(raw);
    assert_eq!(open_within_bounds(&path), "Ok");
}

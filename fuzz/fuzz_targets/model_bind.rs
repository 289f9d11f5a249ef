//! Any file as a model and as a draft head: it binds whole, or is refused in words that name it.
#![no_main]

use std::sync::LazyLock;

use cudafast_gguf::ShardSet;
use cudafast_model::{DraftHead, Error, Hyperparams, Inspection, MemoryPlan, WeightSource, Weights};
use libfuzzer_sys::fuzz_target;

/// What heads are bound to; also a seed, made by `examples/small_model.rs`.
static TARGET: LazyLock<(WeightSource, Hyperparams, Weights)> = LazyLock::new(|| {
    let bytes = include_bytes!("../../testdata/model-corpus/small.gguf");
    let source = WeightSource::from(ShardSet::from_static("small.gguf", bytes).unwrap());
    let (hyperparams, weights) = bind(&source).unwrap();
    (source, hyperparams, weights)
});

fn bind(source: &WeightSource) -> Result<(Hyperparams, Weights), Error> {
    let hyperparams = Hyperparams::from_source(source)?;
    let weights = Weights::bind(source, &hyperparams)?;
    Ok((hyperparams, weights))
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(set) = ShardSet::from_vec("fuzz", bytes.to_vec()) else { return };
    let source = WeightSource::from(set);
    // `inspect` lists what does not bind.
    let inspection = Inspection::of(&source);
    assert_eq!(inspection.tensors.len(), source.tensors().count());

    match bind(&source) {
        Ok((hyperparams, weights)) => {
            let mut rows = vec![0; hyperparams.ngram.heads()];
            hyperparams.ngram.row_ids(&[0, hyperparams.ngram.eos, u32::MAX], &mut rows);
            assert!(rows.iter().all(|row| *row < hyperparams.ngram.used_rows()));
            assert_eq!(weights.layers.len(), hyperparams.layers.len());
            assert_eq!(weights.tensors().len(), source.tensors().count());
            for context in [1, hyperparams.context_tokens, usize::MAX] {
                let plan = MemoryPlan::new(&hyperparams, &weights, None, context, 2);
                let _ = (plan.check(0), plan.check(u64::MAX), plan.largest_context(1 << 30));
            }
        }
        Err(error) => names_the_file(&error),
    }

    let (target, hyperparams, weights) = &*TARGET;
    match DraftHead::bind(&source, target, hyperparams, weights) {
        Ok(head) => {
            let _ = MemoryPlan::new(hyperparams, weights, Some(&head), 64, 2).total();
        }
        Err(error) => names_the_file(&error),
    }
});

/// Not asked for one line: a key is shown as it is, and may hold a line break. The program escapes what it prints.
fn names_the_file(error: &Error) {
    let text = error.to_string();
    assert!(text.contains("fuzz"), "{text}");
}

//! Which table rows a token reads: against the oracle, and laws that hold for any tokens.

use std::{fs, io::Read, path::PathBuf};

use cudafast_model::NgramParams;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use safetensors::SafeTensors;

use crate::{fixture::Fixture, real_files::oracle};

fn ids(ngram: &NgramParams, history: &[u32]) -> Vec<u64> {
    let mut out = vec![u64::MAX; ngram.heads()];
    ngram.row_ids(history, &mut out);
    out
}

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle").join(name);
    fs::read(path).unwrap()
}

#[test]
fn row_ids_of_every_prompt_token_are_the_oracles() {
    for (set, file) in [("tiny", "tiny.gguf"), ("mix", "mix-00001-of-00004.gguf")] {
        let ngram = oracle(file).0.ngram;
        let prompts: serde_json::Value = serde_json::from_slice(&data(&format!("{set}.json"))).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(&data(&format!("{set}.ref.gz"))[..]).read_to_end(&mut bytes).unwrap();
        let reference = SafeTensors::deserialize(&bytes).unwrap();
        let mut compared = 0;
        for (i, prompt) in prompts["prompts"].as_array().unwrap().iter().enumerate() {
            let prompt: Vec<u32> = prompt.as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect();
            let rows = reference.tensor(&format!("p{i}.ple_rows")).unwrap();
            assert_eq!(rows.shape(), [prompt.len(), ngram.heads()]);
            let rows: Vec<u64> =
                rows.data().chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()).into()).collect();
            for (t, expected) in rows.chunks_exact(ngram.heads()).enumerate() {
                assert_eq!(ids(&ngram, &prompt[..=t]), expected, "{set} prompt {i} token {t}");
                compared += 1;
            }
        }
        assert_eq!(compared, 5 + 37 + 200);
    }
}

fn fixture() -> NgramParams {
    Fixture::target().bind().unwrap().0.ngram
}

#[test]
fn a_missing_predecessor_reads_as_the_cutting_id() {
    let ngram = fixture();
    let eos = ngram.eos;
    assert_eq!(ids(&ngram, &[17]), ids(&ngram, &[eos, eos, 17]));
    assert_eq!(ids(&ngram, &[9, 17]), ids(&ngram, &[eos, 9, 17]));
    assert_eq!(ids(&ngram, &[]), ids(&ngram, &[eos]));
}

#[test]
fn the_current_token_cuts_nothing_for_itself() {
    let ngram = fixture();
    assert_ne!(ids(&ngram, &[3, 9, ngram.eos]), ids(&ngram, &[ngram.eos]));
}

#[test]
fn an_id_outside_the_vocabulary_reads_some_row_of_the_table() {
    let ngram = fixture();
    assert!(ids(&ngram, &[u32::MAX; 3]).iter().all(|&row| row < ngram.used_rows()));
}

proptest! {
    #[test]
    fn the_cutting_id_hides_everything_older(
        older in prop::collection::vec(0_u32..512, 0..6),
        newer in prop::collection::vec(0_u32..512, 1..4),
    ) {
        let ngram = fixture_once();
        let cut = [&[ngram.eos][..], &newer].concat();
        let long = [&older[..], &cut].concat();
        prop_assert_eq!(ids(ngram, &long), ids(ngram, &newer));
    }

    #[test]
    fn only_the_last_ngram_tokens_matter(history in prop::collection::vec(0_u32..512, 3..12)) {
        let ngram = fixture_once();
        prop_assert_eq!(ids(ngram, &history), ids(ngram, &history[history.len() - 3..]));
    }

    #[test]
    fn each_head_reads_its_own_part_of_the_table(history in prop::collection::vec(0_u32..512, 0..5)) {
        let ngram = fixture_once();
        for (h, row) in ids(ngram, &history).into_iter().enumerate() {
            let first = ngram.head_offsets[h];
            prop_assert!((first..first + ngram.head_sizes[h]).contains(&row), "head {} row {}", h, row);
        }
    }

    #[test]
    fn bigram_heads_do_not_see_the_third_token(a in 0_u32..512, b in 0_u32..512, rest in [0_u32..512, 0..512]) {
        let ngram = fixture_once();
        let (x, y) = (ids(ngram, &[a, rest[0], rest[1]]), ids(ngram, &[b, rest[0], rest[1]]));
        prop_assert_eq!(&x[..ngram.heads_per_ngram], &y[..ngram.heads_per_ngram]);
    }
}

fn fixture_once() -> &'static NgramParams {
    static NGRAM: std::sync::OnceLock<NgramParams> = std::sync::OnceLock::new();
    NGRAM.get_or_init(fixture)
}

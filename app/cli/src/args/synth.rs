//! `synth`, and synthetic models in place of files: a model by its numbers.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use cudafast_model::{Error, SynthShape, SynthSpec, SynthTypes};

use super::{file, whole};

const SYNTH_HELP: &str = "\
Examples:
  cudafast synth --out DIR --layers 4 --ngram-rows 1000000       four layers at the real width, 11 GB
  cudafast synth --out DIR --layers 4 --ngram-rows 1000000 --types Q8_0 --seed 7
  cudafast synth --out DIR --shape small                         2 MB, for tests
  cudafast synth --out DIR                                       all of it: 111 GB and the head's 2.8 GB

The weights are random numbers: such a model runs and can be timed, and writes noise. The same numbers give the same bytes,
on any machine. The files appear whole or not at all; a set that does not fit the disk is refused before it is begun.";

#[derive(Debug, Args)]
#[command(after_help = SYNTH_HELP)]
pub(crate) struct SynthArgs {
    /// The folder to write to; made if it is not there
    #[arg(long, value_name = "DIR", value_parser = file())]
    pub(crate) out: PathBuf,
    /// Layers, at least 2; every fourth attends. Left out: 48, of a small model 4
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = layers)]
    layers: Option<usize>,
    /// Tokens of the vocabulary, at least 289. Left out: 248320, of a small model 512
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = vocab)]
    vocab: Option<usize>,
    /// Rows of the n-gram table, about. Left out: 320000000, of a small model 1024
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = ngram_rows)]
    ngram_rows: Option<u64>,
    /// Another seed, other weights
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>(0))]
    seed: u64,
    /// Number formats: UD-Q4_K_XL or Q8_0 as published, or one format for all matrices it fits, e.g. Q6_K or F32
    #[arg(long, default_value = "UD-Q4_K_XL", value_name = "TYPES", value_parser = types)]
    types: SynthTypes,
    /// Widths: shipped or small
    #[arg(long, default_value = "shipped", value_name = "SHAPE", value_parser = shape)]
    shape: SynthShape,
    /// Write no draft head
    #[arg(long)]
    pub(crate) no_head: bool,
    /// Tensor bytes of a shard, at most; a single larger tensor has a shard of its own
    #[arg(long, default_value_t = 50_000_000_000, value_name = "N", allow_negative_numbers = true,
        value_parser = whole::<u64>(1))]
    pub(crate) shard_bytes: u64,
    /// Replace files of the same names
    #[arg(long)]
    pub(crate) force: bool,
}

impl SynthArgs {
    pub(crate) fn spec(&self) -> SynthSpec {
        let base = of_shape(self.shape);
        SynthSpec {
            seed: self.seed,
            layers: self.layers.unwrap_or(base.layers),
            vocab: self.vocab.unwrap_or(base.vocab),
            ngram_rows: self.ngram_rows.unwrap_or(base.ngram_rows),
            types: self.types,
            ..base
        }
    }
}

fn of_shape(shape: SynthShape) -> SynthSpec {
    match shape {
        SynthShape::Shipped => SynthSpec::shipped(),
        SynthShape::Small => SynthSpec::small(),
    }
}

/// A number that a spec of the published widths may have, by [`SynthSpec::hyperparams`], the only place that knows the ranges.
/// None of them begins at 0.
fn part(text: &str, with: impl Fn(u64) -> SynthSpec) -> Result<u64, String> {
    let number = text.parse().unwrap_or(0);
    match with(number).hyperparams() {
        Ok(_) => Ok(number),
        Err(Error::Synth { expected, .. }) => Err(format!("expected {expected}")),
        Err(error) => Err(error.to_string()),
    }
}

fn layers(text: &str) -> Result<usize, String> {
    part(text, |n| SynthSpec { layers: n as usize, ..SynthSpec::shipped() }).map(|n| n as usize)
}

fn vocab(text: &str) -> Result<usize, String> {
    part(text, |n| SynthSpec { vocab: n as usize, ..SynthSpec::shipped() }).map(|n| n as usize)
}

fn ngram_rows(text: &str) -> Result<u64, String> {
    part(text, |ngram_rows| SynthSpec { ngram_rows, ..SynthSpec::shipped() })
}

fn types(text: &str) -> Result<SynthTypes, String> {
    SynthTypes::by_name(text).ok_or_else(|| "expected UD-Q4_K_XL, Q8_0, or a format such as Q6_K or F32".into())
}

fn shape(text: &str) -> Result<SynthShape, String> {
    match text {
        "shipped" => Ok(SynthShape::Shipped),
        "small" => Ok(SynthShape::Small),
        _ => Err("expected shipped or small".into()),
    }
}

/// `layers=4,ngram-rows=1000000`: a synthetic model on one line. What is left out is as in `cudafast synth`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Synthetic(pub(crate) SynthSpec);

impl FromStr for Synthetic {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let form = || format!("`{pair}` is no NAME=VALUE; expected e.g. layers=4,ngram-rows=1000000");
            pair.split_once('=').ok_or_else(form)
        });
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if pairs[..at].iter().any(|(before, _)| before == name) {
                return Err(format!("`{name}` is given twice; give it once"));
            }
        }
        let given = pairs.iter().find(|(name, _)| *name == "shape").map_or(Ok(SynthShape::Shipped), |(_, s)| shape(s));
        let mut spec = of_shape(given?);
        for (name, value) in pairs {
            let refused = |expected| format!("{name}={value}: {expected}");
            match name {
                "shape" => {}
                "layers" => spec.layers = layers(value).map_err(refused)?,
                "vocab" => spec.vocab = vocab(value).map_err(refused)?,
                "ngram-rows" => spec.ngram_rows = ngram_rows(value).map_err(refused)?,
                "seed" => spec.seed = whole(0)(value).map_err(refused)?,
                "types" => spec.types = types(value)?,
                _ => return Err(format!("`{name}`: expected shape, layers, vocab, ngram-rows, seed or types")),
            }
        }
        match spec.hyperparams() {
            Ok(_) => Ok(Self(spec)),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synthetic_model_is_read_whole_or_refused() {
        let spec = "types=Q8_0,layers=8, shape=small,seed=3".parse::<Synthetic>().unwrap().0;
        assert_eq!((spec.layers, spec.seed, spec.vocab), (8, 3, SynthSpec::small().vocab));
        assert_eq!((spec.shape, spec.types.to_string().as_str()), (SynthShape::Small, "Q8_0"));
        assert_eq!("".parse::<Synthetic>().unwrap().0.layers, 48);
        for bad in [
            "layers",
            "layers=x",
            "depth=3",
            "types=Q9",
            "types=PQ2_0",
            "shape=large",
            "layers=-1",
            "layers=1",
            "vocab=0",
            "seed=-1",
            "layers=4,layers=4",
            "shape=small,shape=small",
            "shape=small,ngram-rows=8589934593",
        ] {
            assert!(bad.parse::<Synthetic>().is_err(), "{bad}");
        }
    }
}

//! `gpu-check`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

const AFTER_HELP: &str = "\
Examples:
  tools/gpu-check.sh BINARY --out DIR                       everything, from a source tree, with a built program
  tools/gpu-check.sh BINARY --out DIR --only ops            a part alone: each fits ten minutes
  tools/gpu-check.sh BINARY --out DIR --only sanitizer --lengths 301-600
  tools/gpu-check.sh BINARY --out DIR --skip-sanitizer --compare docs/perf/h200/bench.json

Each step is a run of this program in a process of its own, so that a fault ends one step. The table comes last; DIR gets
gpu-check.json (gpu-check-PARTS.json with --only) and a log of the same name. Exit code 1 if a step failed, ran out of time,
or is slower than --compare allows.";

/// A part of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Every kernel against plain code, and a fault on purpose
    Ops,
    /// Whole models against the CPU and against themselves
    Model,
    /// A small model under compute-sanitizer
    Sanitizer,
    /// Speed at the published sizes
    Bench,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Ops, Self::Model, Self::Sanitizer, Self::Bench];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ops => "ops",
            Self::Model => "model",
            Self::Sanitizer => "sanitizer",
            Self::Bench => "bench",
        })
    }
}

/// Prompt lengths as they are typed: `1-600`, or `1,63-65`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lengths(pub(crate) Vec<usize>);

/// Longest prompt that a check takes.
const LONGEST: usize = 4000;

impl FromStr for Lengths {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected lengths of 1 to {LONGEST} as N or FIRST-LAST, separated by commas");
        let mut lengths = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.trim().parse::<usize>().map_err(|_| expected());
            let (first, last) = (number(first)?, number(last)?);
            if first == 0 || last > LONGEST || first > last {
                return Err(expected());
            }
            lengths.extend(first..=last);
        }
        Ok(Self(lengths))
    }
}

impl fmt::Display for Lengths {
    /// As it could be typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            [one] => one.to_string(),
            [] => String::new(),
        });
        f.write_str(&runs.collect::<Vec<_>>().join(","))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct GpuCheckArgs {
    /// Folder for the record and the log
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Parts to run, separated by commas. Left out: all
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Leave compute-sanitizer out; the table says so
    #[arg(long)]
    pub(crate) skip_sanitizer: bool,
    /// The sanitizer
    #[arg(long, value_name = "PROGRAM", default_value = "compute-sanitizer")]
    pub(crate) sanitizer: PathBuf,
    /// Prompt lengths that memcheck runs one by one
    #[arg(long, value_name = "LENGTHS", default_value = "1-600")]
    pub(crate) lengths: Lengths,
    /// Number of the CUDA device
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cuda_device: u32,
    /// Seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Most seconds of a step
    #[arg(long, value_name = "N", default_value_t = 280)]
    pub(crate) step_seconds: u64,
    /// An earlier record, or the JSON of `bench`: a row that is more than 3 % slower at the median fails
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_and_written_alike() {
        for text in ["1-600", "1,63-65,128", "7"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
        for text in ["", "0-3", "5-4", "1-4001", "a", "1,,2"] {
            assert!(text.parse::<Lengths>().is_err(), "{text}");
        }
    }
}

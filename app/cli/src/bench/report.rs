//! The record of a run: everything the table shows and every sample behind it.

use std::time::{SystemTime, UNIX_EPOCH};

use cudafast_model::{Inspection, WeightSource};
use serde::Serialize;

use super::host::{Build, Host};
use super::machine::Machine;
use super::measure::{Lane, Sample, Test};
use super::reads::Reads;
use super::spread::Spread;
use crate::args::{BenchArgs, Depth};

/// The object of `-o json`; stable for other programs.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    /// Seconds since 1970.
    unix_time: u64,
    pub(crate) build: Build,
    pub(crate) command: Vec<String>,
    pub(crate) host: Host,
    pub(crate) model: ModelReport,
    pub(crate) draft_head: Option<ModelReport>,
    pub(crate) backends: Vec<String>,
    pub(crate) reps: usize,
    pub(crate) reads_per_token: Reads,
    pub(crate) machine: Vec<Machine>,
    pub(crate) rows: Vec<RowReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ModelReport {
    pub(crate) label: String,
    pub(crate) name: Option<String>,
    pub(crate) tensor_bytes: u64,
    pub(crate) parameters: u64,
}

/// One row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct RowReport {
    pub(crate) test: String,
    pub(crate) threads: usize,
    pub(crate) tok_s: Spread,
    /// Accepted over drafted, of all samples; null where nothing was drafted.
    pub(crate) acceptance: Option<f64>,
    /// Of all samples; null where there are no rounds, or only rounds that must not commit.
    pub(crate) tokens_per_round: Option<f64>,
    pub(crate) peak_bytes: Option<u64>,
    /// Weights read in a second, as the tensors' sizes have it; null where more than the tensors decides.
    pub(crate) weights_bytes_s: Option<f64>,
    pub(crate) macs_s: Option<f64>,
    /// Share of the measured read rate and of the measured dot rate; the larger one is what binds.
    pub(crate) read_share: Option<f64>,
    pub(crate) dot_share: Option<f64>,
    /// Of a verify: its time over that of one row.
    pub(crate) cost_of_one_row: Option<f64>,
    pub(crate) samples: Vec<Sample>,
    #[serde(skip)]
    rows: Option<usize>,
}

impl Report {
    pub(crate) fn new(
        model: &WeightSource,
        head: Option<&WeightSource>,
        backends: Vec<String>,
        args: &BenchArgs,
        reads_per_token: Reads,
        machine: Vec<Machine>,
        rows: Vec<RowReport>,
    ) -> Self {
        let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
        Self {
            schema: 1,
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            build: Build::this(),
            command: std::iter::once("cudafast".into()).chain(arguments).collect(),
            host: Host::here(),
            model: ModelReport::of(model),
            draft_head: head.map(ModelReport::of),
            backends,
            reps: args.reps,
            reads_per_token,
            machine,
            rows,
        }
    }
}

impl ModelReport {
    fn of(file: &WeightSource) -> Self {
        let inspection = Inspection::of(file);
        Self {
            label: file.label().to_owned(),
            name: file.metadata().str_opt("general.name").ok().flatten().map(str::to_owned),
            tensor_bytes: inspection.bytes,
            parameters: inspection.elements,
        }
    }
}

impl RowReport {
    pub(crate) fn of(lane: &Lane, samples: Vec<Sample>, reads: &Reads, machines: &[Machine]) -> Self {
        let sum = |count: fn(&Sample) -> usize| samples.iter().map(count).sum::<usize>() as f64;
        let (tokens, rounds) = (sum(|s| s.tokens), sum(|s| s.rounds));
        let (drafted, accepted) = (sum(|s| s.drafted), sum(|s| s.accepted));
        let tok_s = Spread::of(samples.iter().map(|s| s.tok_s));
        let generates = matches!(lane.test, Test::Generate { .. });
        // Only a serial token reads what `Reads` counts: rows that run together share weights.
        let serial = matches!(lane.test, Test::Generate { depth: Depth::Fixed(0), .. } | Test::Verify { rows: 1 });
        let machine = machines.iter().find(|machine| serial && machine.threads == lane.threads);
        Self {
            test: lane.test.to_string(),
            threads: lane.threads,
            tok_s,
            acceptance: (drafted > 0.0).then(|| accepted / drafted),
            tokens_per_round: (generates && rounds > 0.0).then(|| tokens / rounds),
            peak_bytes: samples.iter().filter_map(|s| s.peak_bytes).max(),
            weights_bytes_s: serial.then_some(reads.bytes * tok_s.median),
            macs_s: serial.then_some(reads.macs * tok_s.median),
            read_share: machine.map(|machine| machine.read_seconds(reads) * tok_s.median),
            dot_share: machine.map(|machine| machine.dot_seconds(reads) * tok_s.median),
            cost_of_one_row: None,
            samples,
            rows: if let Test::Verify { rows } = lane.test { Some(rows) } else { None },
        }
    }
}

/// Fills in what a verify costs over one of one row with as many threads, where that was measured.
pub(crate) fn add_cost_of_rows(rows: &mut [RowReport]) {
    let single: Vec<(usize, f64)> =
        rows.iter().filter(|row| row.rows == Some(1)).map(|row| (row.threads, row.tok_s.median)).collect();
    for row in rows {
        let one = single.iter().find(|(threads, _)| *threads == row.threads);
        if let (Some(count), Some((_, one))) = (row.rows, one) {
            row.cost_of_one_row = Some(count as f64 * one / row.tok_s.median);
        }
    }
}

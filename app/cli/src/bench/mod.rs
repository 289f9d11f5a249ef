//! `cudafast bench`: how fast a model runs here.
//!
//! Every row of the table is run once to warm up, then `--reps` times, all rows in turn, so that whatever else the machine
//! does hits all of them: rows with drafting and without compare.

pub(crate) mod host;
mod machine;
mod measure;
mod reads;
mod report;
mod spread;
mod table;

#[cfg(feature = "cuda")]
pub(crate) use self::host::Build;
use self::machine::Machine;
use self::measure::{Lane, Sample, Test};
use self::reads::Reads;
use self::report::{Report, RowReport};
use crate::args::{BenchArgs, BenchOutput, Depth};
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::progress::Progress;
use crate::source::Head;
use crate::{load, output, source};

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    args.check()?;
    let runner = args.draft.apply(args.backend.runner(0)?);
    args.check_device(&runner)?;
    let work = Work::begin();
    let (model, head) = source::open_with_head(&args.model, &args.head, &runner)?;
    let tests = tests(args, &head)?;
    let cores = host::cores();
    let threads = if runner.is_cpu() { &args.threads[..] } else { &[1] }; // the one that launches
    let threads: Vec<usize> = threads.iter().map(|n| if *n == 0 { cores } else { *n }).collect();

    // One engine for each number of threads: weights are mapped, so the second costs little.
    let mut engines = Vec::new();
    for count in &threads {
        engines.push((*count, load::load(model.clone(), &head, &runner.clone().with_threads(*count))?));
    }
    let reads = engines.first().map(|(_, loaded)| {
        let hp = loaded.engine.backend().hyperparams();
        Reads::of(&model, head.file(), hp)
    });
    let reads = reads.unwrap_or_default();
    let mut lanes = Vec::new();
    for (count, loaded) in &engines {
        for test in &tests {
            lanes.push(Lane::open(loaded, *count, *test, args)?);
        }
    }
    let mut machines: Vec<Machine> = threads.iter().map(|count| Machine::new(*count)).collect();
    if args.machine {
        machines.iter_mut().try_for_each(|machine| machine.measure(&reads.formats(), &work))?;
    }
    let samples = measure(&mut lanes, args.reps, &work)?;
    if args.machine {
        machines.iter_mut().try_for_each(|machine| machine.measure(&reads.formats(), &work))?;
    } else {
        machines.clear();
    }

    let rows = lanes.iter().zip(samples);
    let mut rows: Vec<RowReport> =
        rows.map(|(lane, samples)| RowReport::of(lane, samples, &reads, &machines)).collect();
    report::add_cost_of_rows(&mut rows);
    let backends = engines.iter().map(|(_, loaded)| loaded.engine.backend().describe()).collect();
    let report = Report::new(&model, head.file(), backends, args, reads, machines, rows);
    match args.output {
        BenchOutput::Md => output::text(&table::markdown(&report)),
        BenchOutput::Csv => output::text(&table::csv(&report)),
        BenchOutput::Json => output::json(&report),
    }
}

/// Every lane once to warm up, then all of them in turn, `reps` times.
fn measure(lanes: &mut [Lane], reps: usize, work: &Work) -> Result<Vec<Vec<Sample>>, Failure> {
    let total: usize = lanes.iter().map(|lane| lane.tokens()).sum();
    let progress = Progress::tokens("measuring", total * (reps + 1));
    let mut done = 0;
    let mut samples: Vec<Vec<Sample>> = lanes.iter().map(|_| Vec::with_capacity(reps)).collect();
    for rep in 0..=reps {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            let sample = lane.measure(&work.cancel);
            work.check()?;
            let sample = sample?;
            if rep > 0 {
                samples.push(sample);
            }
            done += lane.tokens() as u64;
            progress.set(done);
        }
    }
    Ok(samples)
}

/// The rows of the table for one number of threads, as they were asked for.
fn tests(args: &BenchArgs, head: &Head) -> Result<Vec<Test>, Failure> {
    let mut depths = args.depth.clone();
    if depths.is_empty() {
        depths.push(Depth::Fixed(0));
        if head.file().is_some() {
            depths.extend([Depth::Fixed(3), Depth::Auto]);
        }
    }
    if head.file().is_none()
        && let Some(depth) = depths.iter().find_map(|depth| match depth {
            Depth::Fixed(depth @ 1..) => Some(*depth),
            _ => None,
        })
    {
        return Err(match head.note() {
            Some(note) => Failure::SeveralHeads { note },
            None => cudafast_runtime::Error::NoDraftHead { depth }.into(),
        });
    }
    let prefill = args.prompt_tokens.iter().filter(|n| **n > 0).map(|n| Test::Prefill { tokens: *n });
    let generate = args.gen_tokens.iter().filter(|n| **n > 0);
    let generate = generate.flat_map(|n| depths.iter().map(|depth| Test::Generate { tokens: *n, depth: *depth }));
    let verify = args.verify_rows.iter().map(|rows| Test::Verify { rows: *rows });
    Ok(prefill.chain(generate).chain(verify).collect())
}

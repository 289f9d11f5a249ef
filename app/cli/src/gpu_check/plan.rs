//! Which steps a check has: command lines of this program, most of them self-tests.

use std::ffi::OsString;
use std::path::Path;

use crate::args::{GpuCheckArgs, Part};

/// Operations, each a process, so that a fault leaves the others.
const OPS: [&str; 16] = [
    "synth",
    "upload",
    "quantise_rows",
    "rows_by_id",
    "argmax",
    "matvec",
    "swiglu",
    "moe",
    "gemm",
    "hyper",
    "gdn",
    "attention",
    "select",
    "router",
    "ngram",
    "head",
];
/// Edges of every tile that cuts a prompt: rows of a launch, of a gemm tile, of a chunk of the delta net.
const EDGES: &str = "1,2,7-9,31-33,63-66,96,127-129,191-193,255-257,511-513";
const FOURS: &str = "testdata/oracle/mix-00001-of-00004.gguf";

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) part: Part,
    pub(super) name: String,
    /// Arguments of this program.
    pub(super) args: Vec<OsString>,
    /// The program and its arguments that run this one, if any.
    pub(super) under: Vec<OsString>,
    /// Why it will not run.
    pub(super) skipped: Option<String>,
}

impl Step {
    fn new(part: Part, name: impl Into<String>, args: &[&str]) -> Self {
        let args = args.iter().map(OsString::from).collect();
        Self { part, name: name.into(), args, under: Vec::new(), skipped: None }
    }

    fn with(mut self, flag: &str, value: impl ToString) -> Self {
        self.args.extend([flag.into(), value.to_string().into()]);
        self
    }

    /// Not run where a file it reads is not there.
    fn needs(mut self, root: &Path, file: &str) -> Self {
        if !root.join(file).is_file() {
            self.skipped = Some(format!("no {file} in this folder"));
        }
        self
    }
}

/// The steps of `args`, run in `root`.
pub(super) fn steps(args: &GpuCheckArgs, root: &Path) -> Vec<Step> {
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let mut steps = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| wanted(*part)) {
        match part {
            Part::Ops => ops(&mut steps),
            Part::Model => models(&mut steps, root),
            Part::Sanitizer => sanitizer(&mut steps, args),
            Part::Bench => bench(&mut steps),
        }
    }
    for step in &mut steps {
        let more = if step.part == Part::Bench {
            vec!["--device".into(), format!("cuda:{}", args.cuda_device)]
        } else {
            let (device, seed) = (args.cuda_device.to_string(), args.seed.to_string());
            vec!["--cuda-device".into(), device, "--seed".into(), seed, "--json".into()]
        };
        step.args.extend(more.into_iter().map(OsString::from));
    }
    steps
}

fn ops(steps: &mut Vec<Step>) {
    steps.extend(OPS.map(|op| Step::new(Part::Ops, op, &["selftest", "--time", "--only", op])));
    steps.push(Step::new(Part::Ops, "fault", &["selftest", "--fault", "--only", "fault"]));
}

fn models(steps: &mut Vec<Step>, root: &Path) {
    let model =
        |name: &str, rest: &[&str]| Step::new(Part::Model, name, &[&["selftest", "--only", "model"], rest].concat());
    let (tiny, head) = ("testdata/oracle/tiny.gguf", "testdata/oracle/mtp-tiny.gguf");
    steps.push(model("embedded", &[]));
    steps.push(model("tiny", &["-m", tiny, "--mtp-model", head]).needs(root, tiny));
    steps.push(model("mix", &["-m", FOURS, "--mtp-model", "testdata/oracle/mtp-mix.gguf"]).needs(root, FOURS));
    steps.push(model("published shape", &["--synth", "layers=4,ngram-rows=1000000"]));
    steps.push(Step::new(Part::Model, "lengths 1-600", &["selftest", "--only", "lengths", "--lengths", "1-600"]));
}

fn sanitizer(steps: &mut Vec<Step>, args: &GpuCheckArgs) {
    let lengths = args.lengths.to_string();
    for (tool, lengths) in [("memcheck", lengths.as_str()), ("racecheck", EDGES), ("initcheck", EDGES)] {
        let step = Step::new(Part::Sanitizer, tool, &["selftest", "--only", "lengths"]).with("--lengths", lengths);
        let under = [args.sanitizer.clone().into_os_string()];
        let flags = ["--tool", tool, "--error-exitcode", "86", "--print-limit", "20"];
        steps.push(Step {
            under: under.into_iter().chain(flags.map(OsString::from)).collect(),
            skipped: args.skip_sanitizer.then(|| "--skip-sanitizer".into()),
            ..step
        });
    }
}

fn bench(steps: &mut Vec<Step>) {
    let whole = ["bench", "-o", "json", "--synth", "layers=48,ngram-rows=1000000", "-r", "5"];
    let bench = |name: &str, rest: &[&str]| Step::new(Part::Bench, name, &[&whole[..], rest].concat());
    steps.push(bench("decode", &["-p", "0", "-n", "64", "--depth", "0,1,2,3", "--verify-rows", "1,2,3,4,7"]));
    steps.push(bench("prefill", &["-p", "512,4096", "-n", "0"]));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: GpuCheckArgs,
    }

    fn of(line: &[&str]) -> Vec<Step> {
        let typed = [&["gpu-check", "--out", "x"], line].concat();
        steps(&Line::try_parse_from(typed).unwrap().args, Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").as_path())
    }

    #[test]
    fn every_part_has_steps_and_each_command_line_can_be_followed() {
        let all = of(&[]);
        for part in Part::ALL {
            assert!(all.iter().any(|step| step.part == part), "{part}");
        }
        for step in &all {
            assert_eq!(step.skipped, None, "{}", step.name);
            let line = std::iter::once(OsString::from("cudafast")).chain(step.args.clone());
            assert!(crate::args::follows(line), "{:?}", step.args);
        }
    }

    #[test]
    fn a_part_alone_and_what_is_left_out() {
        assert!(of(&["--only", "bench"]).iter().all(|step| step.part == Part::Bench));
        let without = of(&["--only", "sanitizer", "--skip-sanitizer"]);
        assert_eq!(without.len(), 3);
        assert!(without.iter().all(|step| step.skipped.is_some()));
        let some = of(&["--only", "sanitizer", "--lengths", "1-3,9"]);
        assert!(some[0].args.contains(&"1-3,9".into()));
    }
}

//! The command line, and the environment variable of each flag that has one (track-contract.md 12.3).

use std::ffi::OsString;
use std::path::PathBuf;

use bench_core::Digest;
use bench_core::mode::Mode;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// The variable that names the track (benchd.md 2.1).
const TRACK: &str = "MLXFAST_QWEN_MTP_TRACK_ID";

/// Where a run takes its worker from (engine-protocol-v1.md 1).
pub(crate) const STAGED: &str = ".build/release/mlxfast-runtime-worker";

#[derive(Parser)]
#[command(name = "benchd", version, about = "Judges, records and times an engine of Engine Protocol v1")]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check that a golden is one and, with a pin, that one; no engine is started
    ValidateGolden(GoldenArgs),
    /// Check a folder of weights before an engine reads it; exit code 3 when it cannot be read
    ValidateWeights(WeightsArgs),
    /// Print a folder's identity: SHA-256:BYTES:FILES
    WeightsDigest(DigestArgs),
    /// Print the identity of everything in the repository that a submission may not change
    HarnessHash(RootArgs),
    /// Check benchmark.json, what it names and what it repeats of the fixture: one FAIL line for each defect
    LintManifest(RootArgs),
    /// What mtp-head.manifest.json declares: `speculative`, `draft-len`, `describe` or `validate`
    SpecDeclaration(DeclarationArgs),
    /// Time and check an engine against a golden; local modes give no score
    #[command(visible_alias = "candidate-only")]
    Iterate(IterateArgs),
    /// What benchmark.sh does: build, boot the resident, run at the declared depth, check, print
    Benchmark(BenchmarkArgs),
    /// What tools/local-baseline.sh does: one local reading of the staged build
    LocalBaseline(LocalBaselineArgs),
    /// Run a golden's correctness set on an engine: no times, no score
    Correctness(CorrectnessArgs),
    /// Record a golden on an engine: serial, and with --depths an oracle for each way of drafting
    #[command(visible_alias = "record-correctness-golden")]
    RecordGolden(RecordArgs),
    /// Decode serially and with drafts in fresh workers; the tokens must be the same
    Exactness(ExactnessArgs),
    /// Print what an engine decodes freely behind a golden's prompt
    Capture(CaptureArgs),
    /// Build the engine and stage it as a run's worker
    Build(BuildArgs),
    /// Copy the built cuda-engine to where a run takes its worker from
    StageEngine(StageArgs),
    /// Make the archive that is submitted, and print what is in it
    Pack(PackArgs),
    /// The static review of a submission: an archive, a change between two commits, or the whole surface
    CheckSubmission(ReviewArgs),
    /// Put a submission's archive in place of a clean tree's editable paths
    Overlay(OverlayArgs),
    /// A mode, not a command
    #[command(hide = true)]
    Official,
    /// Of other tracks
    #[command(hide = true)]
    MeasureJob(Ignored),
    /// Of other tracks
    #[command(hide = true)]
    OverlayTiming(Ignored),
    /// Of other tracks
    #[command(hide = true)]
    PrefillDecompose(Ignored),
}

/// Whatever follows a command that is refused as a whole.
#[derive(Args)]
pub(crate) struct Ignored {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _args: Vec<OsString>,
}

/// The repository.
#[derive(Args)]
pub(crate) struct RootArgs {
    /// Root of the repository
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

/// Which track's rules hold.
#[derive(Args)]
pub(crate) struct TrackArgs {
    /// The track's id; left out, the contract's
    #[arg(long, value_name = "ID", env = TRACK, hide_env_values = true)]
    pub(crate) track: Option<String>,
    /// The track's fixture; left out, the one in fixtures/ of this track
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
}

/// What a golden's bytes must be.
#[derive(Args)]
pub(crate) struct PinArgs {
    /// Refuse a golden of another SHA-256
    #[arg(long, value_name = "HEX", requires = "golden_bytes", value_parser = digest)]
    pub(crate) golden_sha256: Option<Digest>,
    /// Refuse a golden of another length
    #[arg(long, value_name = "N", requires = "golden_sha256")]
    pub(crate) golden_bytes: Option<u64>,
}

#[derive(Args)]
pub(crate) struct GoldenArgs {
    /// The golden
    #[arg(long, value_name = "FILE")]
    pub(crate) golden: PathBuf,
    #[command(flatten)]
    pub(crate) track: TrackArgs,
    #[command(flatten)]
    pub(crate) pin: PinArgs,
    /// Accept a golden without a timed block
    #[arg(long)]
    pub(crate) gates_only: bool,
}

#[derive(Args)]
pub(crate) struct WeightsArgs {
    /// The folder
    #[arg(long, value_name = "DIR")]
    pub(crate) weights: PathBuf,
    /// Most bytes in it; `0`, `none` or `unlimited` for any number. Left out: what the contract pins, else 25 GiB
    #[arg(long, value_name = "N", env = "MLXFAST_MAX_WEIGHTS_BYTES")]
    pub(crate) max_bytes: Option<String>,
    /// A fixture whose pinned files must be there, byte for byte
    #[arg(long, value_name = "FILE")]
    pub(crate) contract: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct DigestArgs {
    /// The folder
    #[arg(long, value_name = "DIR")]
    pub(crate) weights: PathBuf,
}

#[derive(Args)]
pub(crate) struct DeclarationArgs {
    /// speculative: 0 or 1; draft-len: drafts a round; describe: serial or mtpN; validate: nothing
    #[arg(value_name = "VERB")]
    pub(crate) verb: Option<String>,
    /// The declaration; an absent file declares serial
    #[arg(long, value_name = "FILE", env = "SPEC_DECLARATION_MANIFEST", default_value = "mtp-head.manifest.json")]
    pub(crate) manifest: PathBuf,
    /// The fixture that permits depths; left out, the one that benchmark.json names
    #[arg(long, value_name = "FILE", env = "SPEC_DECLARATION_CONTRACT")]
    pub(crate) contract: Option<PathBuf>,
}

/// The engine under test.
#[derive(Args)]
pub(crate) struct EngineArgs {
    /// The worker's program
    #[arg(long, visible_alias = "worker-bin", value_name = "FILE", env = "MLXFAST_ENGINE_BIN", default_value = STAGED)]
    pub(crate) engine: PathBuf,
    /// Its folder of weights
    #[arg(long, value_name = "DIR", env = "MLXFAST_WEIGHTS_PATH")]
    pub(crate) weights: PathBuf,
    /// A file that the worker may read under a name; repeatable
    #[arg(long = "engine-resource", value_name = "NAME=PATH", value_parser = resource)]
    pub(crate) resources: Vec<(String, PathBuf)>,
    /// Start the worker without a sandbox
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

/// `NAME=PATH`, the name of letters, digits, `.`, `_` and `-`.
fn resource(text: &str) -> Result<(String, PathBuf), String> {
    let plain = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    match text.split_once('=') {
        Some((name, path)) if plain(name) && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("expected NAME=PATH, the name of letters, digits and ._-".into()),
    }
}

/// How long and how strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Fast, never scored
    LocalIterate,
    /// Longer, before a submission
    LocalSubmit,
    /// Scored
    Official,
}

impl ModeArg {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::LocalIterate => Mode::LocalIterate,
            Self::LocalSubmit => Mode::LocalSubmit,
            Self::Official => Mode::Official,
        }
    }
}

#[derive(Args)]
pub(crate) struct IterateArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// The golden
    #[arg(long, value_name = "FILE")]
    pub(crate) golden: PathBuf,
    #[command(flatten)]
    pub(crate) track: TrackArgs,
    #[command(flatten)]
    pub(crate) pin: PinArgs,
    /// How long and how strictly
    #[arg(long, value_enum, default_value_t = ModeArg::LocalIterate)]
    pub(crate) mode: ModeArg,
    /// Where the result is written; left out, score.local-iterate.json, for other modes score.json
    #[arg(long, value_name = "FILE", env = "MLXFAST_SCORE_PATH")]
    pub(crate) score_path: Option<PathBuf>,
    /// Drafts a round; left out, serial
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32), conflicts_with = "mtp")]
    pub(crate) mtp_depth: Option<u32>,
    /// Two drafts a round
    #[arg(long)]
    pub(crate) mtp: bool,
    /// Anchors and free runs of the golden too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Boot a resident of the engine for the run, which its workers attach to; without it each worker loads the weights
    #[arg(long)]
    pub(crate) resident: bool,
    /// The commit that is measured, 7 to 40 digits; left out, the one checked out
    #[arg(long, value_name = "HEX", env = "MLXFAST_COMMIT_SHA")]
    pub(crate) commit: Option<String>,
}

/// A track of this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrackChoice {
    /// The ranked one: needs its weights
    Real,
    /// The embedded model, on any machine
    Tiny,
}

#[derive(Args)]
pub(crate) struct BenchmarkArgs {
    /// The default: fast, never scored
    #[arg(long, group = "mode")]
    pub(crate) local_iterate: bool,
    /// Longer, before a submission; never scored either
    #[arg(long, group = "mode")]
    pub(crate) local_submit: bool,
    /// The scored run
    #[arg(long, group = "mode")]
    pub(crate) official: bool,
    /// Use what is staged instead of building
    #[arg(long)]
    pub(crate) no_build: bool,
    #[command(flatten)]
    pub(crate) run: FacadeArgs,
}

#[derive(Args)]
pub(crate) struct LocalBaselineArgs {
    #[command(flatten)]
    pub(crate) run: FacadeArgs,
}

/// What benchmark.sh and tools/local-baseline.sh have in common.
#[derive(Args)]
pub(crate) struct FacadeArgs {
    /// Which track; left out, real when a snapshot of its weights is there, else tiny
    #[arg(long, value_enum)]
    pub(crate) track: Option<TrackChoice>,
    /// The worker's program
    #[arg(long, value_name = "FILE", env = "MLXFAST_ENGINE_BIN", default_value = STAGED)]
    pub(crate) engine: PathBuf,
    /// The folder of weights; left out, the track's
    #[arg(long = "weights-dir", value_name = "DIR", env = "MLXFAST_WEIGHTS_PATH")]
    pub(crate) weights: Option<PathBuf>,
    /// The real track's staged weights
    #[arg(long, value_name = "DIR", env = "MLXFAST_TARGET_SNAPSHOT_DIR")]
    pub(crate) snapshot: Option<PathBuf>,
    /// The golden; the real track has none here, the tiny track its public one
    #[arg(long = "golden-file", value_name = "FILE", env = "MLXFAST_CORRECTNESS_GOLDEN_PATH")]
    pub(crate) golden: Option<PathBuf>,
    /// Refuse a golden of another SHA-256
    #[arg(long, value_name = "HEX", env = "MLXFAST_CORRECTNESS_GOLDEN_SHA256", value_parser = digest)]
    pub(crate) golden_sha256: Option<Digest>,
    /// Refuse a golden of another length
    #[arg(long, value_name = "N", env = "MLXFAST_CORRECTNESS_GOLDEN_BYTES")]
    pub(crate) golden_bytes: Option<u64>,
    /// The declaration of speculation
    #[arg(long, value_name = "FILE", env = "SPEC_DECLARATION_MANIFEST", default_value = "mtp-head.manifest.json")]
    pub(crate) declaration: PathBuf,
    /// Where the result is written
    #[arg(long = "result", value_name = "FILE", env = "MLXFAST_SCORE_PATH")]
    pub(crate) score_path: Option<PathBuf>,
    /// A track id from outside that must be the track's
    #[arg(long, value_name = "ID", env = TRACK, hide_env_values = true)]
    pub(crate) track_id: Option<String>,
}

#[derive(Args)]
pub(crate) struct CorrectnessArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// The golden
    #[arg(long, value_name = "FILE")]
    pub(crate) golden: PathBuf,
    #[command(flatten)]
    pub(crate) track: TrackArgs,
    #[command(flatten)]
    pub(crate) pin: PinArgs,
}

#[derive(Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) track: TrackArgs,
    /// A prompt: token ids between blanks, commas or brackets. Repeatable; each with its --case-name
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) prompt_tokens: Vec<PathBuf>,
    /// What the case of the prompt at the same place is called
    #[arg(long, value_name = "NAME", required = true)]
    pub(crate) case_name: Vec<String>,
    /// Expected tokens of a case
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) steps: u32,
    /// Record the timed block too, from the first prompt
    #[arg(long)]
    pub(crate) benchmark_free_run: bool,
    /// Steps of the timed block
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(128..))]
    pub(crate) benchmark_steps: u32,
    /// Drafts a round to record an oracle for, besides the serial golden, e.g. 1,2,3
    #[arg(long, value_name = "N,N", value_delimiter = ',', requires = "benchmark_free_run")]
    pub(crate) depths: Vec<u32>,
    /// Name of the model that is recorded; left out, the contract's
    #[arg(long, value_name = "OWNER/NAME", requires = "model_provenance_rev")]
    pub(crate) model_provenance_repo: Option<String>,
    /// Its revision, 40 digits
    #[arg(long, value_name = "HEX", requires = "model_provenance_repo")]
    pub(crate) model_provenance_rev: Option<String>,
    /// Where it is written, PROMPT.golden.json; a depth's oracle is PROMPT.mtpN.golden.json beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Write nothing: exit 1 unless the files that are there have the bytes that would be written
    #[arg(long)]
    pub(crate) compare: bool,
}

#[derive(Args)]
pub(crate) struct ExactnessArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) track: TrackArgs,
    /// A folder whose *.golden.json are run; those of depths (.mtpN.) and negative controls are left out
    #[arg(long, value_name = "DIR")]
    pub(crate) golden_dir: Option<PathBuf>,
    /// Steps of each run
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1536))]
    pub(crate) steps: u32,
    /// Drafts a round
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) depth: u32,
    /// Goldens
    #[arg(value_name = "GOLDEN")]
    pub(crate) goldens: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) track: TrackArgs,
    /// The golden whose prompt is continued
    #[arg(long, value_name = "FILE")]
    pub(crate) seed_from: PathBuf,
    /// Drafts a round; left out, serial
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) depth: Option<u32>,
    /// Steps
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1536))]
    pub(crate) steps: u32,
}

#[derive(Args)]
pub(crate) struct BuildArgs {
    /// Compile everything that needs no nvcc, engine and adapter with and without each other, and stage nothing
    #[arg(long)]
    pub(crate) cpu_check: bool,
    #[command(flatten)]
    pub(crate) stage: StageArgs,
}

#[derive(Args)]
pub(crate) struct StageArgs {
    /// The built engine; left out, the one in cargo's target folder
    #[arg(long, value_name = "FILE", env = "CUDA_ENGINE_EXECUTABLE")]
    pub(crate) engine: Option<PathBuf>,
    /// Cargo's profile
    #[arg(long, value_name = "NAME", env = "CUDA_ENGINE_CARGO_PROFILE", default_value = "release")]
    pub(crate) profile: String,
    /// Cargo's target folder
    #[arg(long, value_name = "DIR", env = "CARGO_TARGET_DIR", default_value = "target")]
    pub(crate) target_dir: PathBuf,
    /// Where it is staged
    #[arg(long, value_name = "FILE", default_value = STAGED)]
    pub(crate) to: PathBuf,
}

#[derive(Args)]
pub(crate) struct PackArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// The archive; what it is of stands in a note beside it, OUT.json
    #[arg(long, value_name = "FILE", default_value = "submission.tar.gz")]
    pub(crate) out: PathBuf,
}

#[derive(Args)]
pub(crate) struct ReviewArgs {
    /// The trusted tree, or the repository of the two commits
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// An archive, held to the rules of the trusted tree
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base", "mode"])]
    pub(crate) archive: Option<PathBuf>,
    /// The commit before the change, whose rules hold
    #[arg(long, value_name = "COMMIT")]
    pub(crate) base: Option<String>,
    /// The commit of the change, checked out
    #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
    pub(crate) head: String,
    /// `diff` with a base, `whole-surface` without one
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// A track id that must be the manifest's
    #[arg(long, value_name = "ID", env = "MLXFAST_SUBMISSION_TRACK_ID")]
    pub(crate) track_id: Option<String>,
}

#[derive(Args)]
pub(crate) struct OverlayArgs {
    /// The submission
    #[arg(long, value_name = "FILE")]
    pub(crate) archive: PathBuf,
    /// A clean checkout of the commit it is measured on
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: PathBuf,
}

fn digest(text: &str) -> Result<Digest, String> {
    text.parse().map_err(|_| "64 hexadecimal digits are a SHA-256".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_says_what_it_is() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn half_a_pin_is_no_command_line() {
        let line = |rest: &[&str]| {
            let line = ["benchd", "validate-golden", "--golden", "g"].iter().chain(rest);
            Cli::try_parse_from(line).map(drop).map_err(|error| error.exit_code())
        };
        let hex = "A".repeat(64);
        assert_eq!(line(&["--golden-bytes", "3"]), Err(2));
        assert_eq!(line(&["--golden-sha256", &hex]), Err(2));
        assert_eq!(line(&["--golden-sha256", "abc", "--golden-bytes", "3"]), Err(2));
        assert_eq!(line(&["--golden-sha256", &hex, "--golden-bytes", "3"]), Ok(()));
    }
}

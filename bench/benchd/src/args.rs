//! The command line, and the environment variable of each flag that has one (track-contract.md 12.3).

use std::ffi::OsString;
use std::path::PathBuf;

use bench_core::Digest;
use clap::{Args, Parser, Subcommand};

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
    /// Build the engine and stage it as a run's worker
    Build(BuildArgs),
    /// Copy the built cuda-engine to where a run takes its worker from
    StageEngine(StageArgs),
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

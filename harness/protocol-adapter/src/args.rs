use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::resident::ResidentArgs;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cuda-engine", version, about = "The engine's side of Engine Protocol v1")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Load a model once and serve it over a Unix socket to one worker after the other
    Resident(Box<ResidentArgs>),
    /// Answer requests on standard input, one JSON object a line
    ///
    /// --weights PATH names the model, --device DEVICE (cpu, cuda, cuda:N) what it runs on, --engine demands one in this process, --mock answers without one, --nonce TEXT pins
    /// the nonce. Any other argument is ignored, as the protocol has it. BENCH_WORKER_RESIDENT_SOCKET, when set, names the
    /// resident to attach to.
    RuntimeWorker {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        args: Vec<OsString>,
    },
}

/// What a worker takes from its command line. All else is tolerated and ignored (engine-protocol-v1.md 2.1).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerArgs {
    /// The model, for an engine in this process.
    pub(crate) weights: Option<PathBuf>,
    /// Which engine, where no resident is named; the last of the flags wins.
    pub(crate) engine: Engine,
    /// What an engine in this process runs on.
    pub(crate) device: Option<String>,
    /// For tests: the nonce, which is otherwise made up.
    pub(crate) nonce: Option<String>,
}

/// What answers when there is no resident.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Engine {
    /// An engine in this process where the build has one, else the mock.
    #[default]
    OfTheBuild,
    /// An engine in this process, or nothing.
    Demanded,
    /// The mock, whatever the build has.
    Mock,
}

impl WorkerArgs {
    pub(crate) fn scan(args: Vec<OsString>) -> Self {
        let mut found = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let (name, value) = split(&arg);
            match name {
                b"--weights" => found.weights = value.or_else(|| args.next()).map(PathBuf::from),
                b"--device" => {
                    found.device = value.or_else(|| args.next()).map(|device| device.to_string_lossy().into_owned());
                }
                b"--nonce" => {
                    let nonce = value.or_else(|| args.next()).map(|nonce| nonce.to_string_lossy().into_owned());
                    // A nonce is never empty (rule 12).
                    found.nonce = nonce.filter(|nonce| !nonce.is_empty());
                }
                b"--engine" => found.engine = Engine::Demanded,
                b"--mock" => found.engine = Engine::Mock,
                _ => {}
            }
        }
        found
    }
}

/// `--name=value` in two; paths need not be UTF-8.
fn split(arg: &OsStr) -> (&[u8], Option<OsString>) {
    let bytes = arg.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(args: &[&str]) -> WorkerArgs {
        WorkerArgs::scan(args.iter().map(OsString::from).collect())
    }

    #[test]
    fn known_arguments_are_found_in_both_forms_and_all_others_are_ignored() {
        let spaced = scan(&["--resource", "A=b", "--weights", "dir", "--speculative-protocol", "v1.1", "--nonce", "n"]);
        let joined = scan(&["--what", "-x", "--weights=dir", "stray", "--nonce=n", "--help"]);
        assert_eq!(spaced, joined);
        assert_eq!((spaced.weights, spaced.nonce), (Some("dir".into()), Some("n".to_owned())));
        assert_eq!(scan(&["--weights"]), WorkerArgs::default());
        assert_eq!(scan(&["--nonce", ""]), WorkerArgs::default());
    }

    #[test]
    fn the_last_word_on_the_engine_wins() {
        assert_eq!(scan(&["--mock", "--engine"]).engine, Engine::Demanded);
        assert_eq!(scan(&["--engine", "--mock"]).engine, Engine::Mock);
    }

    #[test]
    fn a_path_that_is_no_text_is_kept_as_it_is() {
        let path = OsString::from_vec(b"--weights=a\xff=b".to_vec());
        let weights = WorkerArgs::scan(vec![path]).weights.map(|path| path.into_os_string().into_vec());
        assert_eq!(weights.as_deref(), Some(&b"a\xff=b"[..]));
    }

    #[test]
    fn the_command_line_of_the_benchmarker_parses() {
        let line = ["cuda-engine", "runtime-worker", "--weights", "w", "--speculative-protocol", "v1.1", "--help"];
        let Command::RuntimeWorker { args } = Cli::try_parse_from(line).unwrap().command else { panic!("{line:?}") };
        assert_eq!(args.len(), 5);
    }
}

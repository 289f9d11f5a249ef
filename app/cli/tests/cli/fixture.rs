//! The program as its users meet it: a command line in, two streams and an exit code out.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

/// The program, in an empty folder that goes away.
pub(crate) struct Cli {
    pub(crate) folder: tempfile::TempDir,
}

impl Cli {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes `name` in the folder stand for a file of the repository.
    pub(crate) fn link(&self, file: &Path, name: &str) -> PathBuf {
        let path = self.path(name);
        std::os::unix::fs::symlink(file, &path).unwrap();
        path
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudafast"));
        command.current_dir(self.folder.path()).args(line);
        command
    }

    pub(crate) fn run(&self, line: &[&str]) -> Ran {
        Ran::of(self.command(line).output().unwrap())
    }

    pub(crate) fn run_with(&self, line: &[&str], stdin: impl Into<Vec<u8>>) -> Ran {
        Ran::of(self.command(line).write_stdin(stdin).output().unwrap())
    }

    /// Names in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Refused with that code, nothing on stdout, and one line on stderr that has every one of `words`.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, words: &[&str]) {
        assert_eq!((self.code, &self.out[..]), (code, ""), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("cudafast: error: "), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no `{word}` in {self:?}");
        }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "one object on one line: {self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}

/// A file of the oracle's sets.
pub(crate) fn oracle(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle").join(file).canonicalize().unwrap()
}

/// A file of the embedded model.
pub(crate) fn tiny(file: &str) -> PathBuf {
    cudafast_tiny::tree_path(file)
}

pub(crate) fn tokens(report: &serde_json::Value) -> Vec<u64> {
    report["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect()
}

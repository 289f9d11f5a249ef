//! The repository's files, as the rules look at them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use bench_core::manifest::{Kind, Manifest, Node, Tree};

use crate::documents;
use crate::environment;
use crate::failure::Failure;

/// The manifest's name below the root.
pub(crate) const MANIFEST: &str = "benchmark.json";

/// A working copy.
pub(crate) struct Checkout {
    root: PathBuf,
}

impl Checkout {
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where its manifest is.
    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.root.join(MANIFEST)
    }

    /// Its manifest.
    pub(crate) fn manifest(&self) -> Result<Manifest, Failure> {
        let path = self.manifest_path();
        Manifest::parse(&documents::read(&path)?).map_err(|source| Failure::Manifest { path, source })
    }

    /// Files that no submission replaces, in the order of their paths' bytes: what git tracks, and what it would track next.
    /// Ignored files are outputs and belong to nobody.
    pub(crate) fn trusted_files(&self, manifest: &Manifest) -> Result<Vec<String>, Failure> {
        let listed = self.git("ls-files", &["-z", "--cached", "--others", "--exclude-standard"])?;
        let mut files = Vec::new();
        for path in listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            let on_disk = self.root.join(std::ffi::OsStr::from_bytes(path));
            let Ok(path) = std::str::from_utf8(path) else {
                return Err(Failure::NotAFile { path: on_disk, kind: "named in bytes that are no text" });
            };
            if manifest.editable.iter().any(|editable| editable.holds(path)) {
                continue;
            }
            match fs::symlink_metadata(&on_disk) {
                Ok(found) if found.is_file() => files.push(path.to_owned()),
                Ok(_) => return Err(Failure::NotAFile { path: on_disk, kind: "no regular file" }),
                Err(source) => return Err(Failure::Read { path: on_disk, source }),
            }
        }
        // A path in the middle of a merge is listed once for each side.
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// What git prints, or why it does not. Git sees no configuration but the repository's own, and runs no hook of it.
    pub(crate) fn git(&self, what: &'static str, args: &[&str]) -> Result<Vec<u8>, Failure> {
        let refused = |stderr: String| Failure::Git { what, root: self.root.clone(), stderr };
        let mut command = Command::new("git");
        command.env_clear().envs(environment::of_git());
        command.envs([("HOME", "/var/empty"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
        for setting in ["core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.ext.allow=never"] {
            command.args(["-c", setting]);
        }
        let output =
            command.args(["--no-pager", "--literal-pathspecs"]).arg("-C").arg(&self.root).arg(what).args(args).output();
        let output = output.map_err(|error| refused(format!("cannot be run: {error}")))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}

impl Tree for Checkout {
    fn look(&self, path: &str) -> Option<Node> {
        let found = fs::symlink_metadata(self.root.join(path)).ok()?;
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File { executable: found.permissions().mode() & 0o100 != 0 },
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        Some(Node { kind, identity: (found.dev(), found.ino()) })
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.root.join(path)).ok()
    }
}

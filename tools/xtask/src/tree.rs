//! The files of the repository, as git sees them.

use std::path::Path;
use std::process::Command;

/// One file that is tracked, or would be after `git add --all`.
pub(crate) struct File {
    /// Relative to the root, `/` between folders.
    pub(crate) path: String,
    /// Size on disk.
    pub(crate) bytes: u64,
}

impl File {
    /// What follows the last dot of the file name; empty without one.
    pub(crate) fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether a folder of the path has this name.
    pub(crate) fn is_inside(&self, folder: &str) -> bool {
        self.path.split('/').rev().skip(1).any(|part| part == folder)
    }
}

/// Tracked files and new ones that git does not ignore: a wall should be met before the commit, not after.
/// Files deleted but not yet committed as such are left out.
pub(crate) fn committable(root: &Path) -> Result<Vec<File>, String> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listing).current_dir(root).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let listed = String::from_utf8(output.stdout).map_err(|_| "a file name is not UTF-8; rename it".to_owned())?;
    let on_disk = |path: &str| {
        let bytes = root.join(path).symlink_metadata().ok()?.len();
        Some(File { path: path.to_owned(), bytes })
    };
    Ok(listed.split_terminator('\0').filter_map(on_disk).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_are_told_apart() {
        let file = File { path: "engine/gguf/tests/open.v2.rs".to_owned(), bytes: 0 };
        assert_eq!((file.name(), file.extension()), ("open.v2.rs", "rs"));
        assert!(file.is_inside("tests") && file.is_inside("engine"));
        assert!(!file.is_inside("open.v2.rs") && !file.is_inside("test"));
        assert_eq!(File { path: "LICENSE".to_owned(), bytes: 0 }.extension(), "");
    }
}

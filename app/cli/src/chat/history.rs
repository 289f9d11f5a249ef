//! What a person typed, kept for the next conversation in a file that nobody else may read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

/// Messages that are kept.
pub(super) const MOST: usize = 1000;

/// The person's own place for what programs remember: `~/.local/state`, unless the system was told another.
pub(super) fn place() -> io::Result<PathBuf> {
    let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
    Ok(base.state_dir().unwrap_or_else(|| base.data_dir()).join("cudafast").join("chat-history"))
}

/// How the line editor's files begin.
const FIRST_LINE: &[u8] = b"#V2\n";

/// Makes the file where there is none, and shuts out others where there is one. Refuses a file that is no history, which the
/// path may lead to by a link: it would be rewritten.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match fs::metadata(path) {
        // Opening a pipe would wait for its other end.
        Ok(found) if !found.is_file() => return Err(io::Error::other("is no file")),
        Ok(found) if found.len() > 0 => {
            let mut begin = Vec::new();
            File::open(path)?.take(FIRST_LINE.len() as u64).read_to_end(&mut begin)?;
            if begin != FIRST_LINE {
                return Err(io::Error::other("is no history of a chat"));
            }
        }
        _ => {}
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_may_read_the_history() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/cudafast/chat-history");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        prepare(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::write(&path, "#V2\nkept\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        prepare(&path).unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "#V2\nkept\n"));
        assert!(prepare(folder.path()).is_err());
    }

    #[test]
    fn a_link_is_followed_to_a_history_and_to_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (path, keys) = (folder.path().join("chat-history"), folder.path().join("keys"));
        std::os::unix::fs::symlink("keys", &path).unwrap();
        fs::write(&keys, "a key\n").unwrap();
        fs::set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
        assert!(prepare(&path).is_err());
        assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_to_string(&keys).unwrap(), "a key\n");
        fs::write(&keys, FIRST_LINE).unwrap();
        prepare(&path).unwrap();
    }
}

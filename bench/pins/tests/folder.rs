//! Folders against manifests: what is found, what is refused, what is written.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy
#![cfg(unix)]

use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use bench_pins::{Error, Folder, Manifest, State, Survey};

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn nothing(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A folder with `abc` in `a`, `sub/b` and, as a link, `link`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("a"), "abc").unwrap();
    std::fs::write(folder.path().join("sub/b"), "abc").unwrap();
    symlink("sub/b", folder.path().join("link")).unwrap();
    folder
}

fn listing(names: &[&str]) -> Manifest {
    let lines: Vec<String> = names.iter().map(|name| format!("{ABC}  {name}\n")).collect();
    Manifest::parse("M", lines.concat().as_bytes()).unwrap()
}

fn check(manifest: &Manifest, folder: &Path) -> Result<Vec<State>, Error> {
    Ok(Survey::of(manifest, folder)?.check(2, &nothing).unwrap())
}

#[test]
fn files_are_as_listed_or_the_state_says_why_not() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("other"), "abd").unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    let manifest = listing(&["a", "sub/b", "link", "other", "missing", "a/b", "dangling", "loop"]);
    let states = check(&manifest, folder.path()).unwrap();
    assert!(states[..3].iter().all(State::is_same));
    assert!(matches!(states[3], State::OtherHash { listed, .. } if listed.to_string() == ABC));
    assert!(states[4..7].iter().all(|state| matches!(state, State::Missing)), "{states:?}");
    assert!(matches!(states[7], State::Unreadable(_)));
}

#[test]
fn a_file_of_another_size_is_not_read() {
    let folder = folder();
    let text = format!(r#"{{"files":[{{"path":"a","size_bytes":4,"sha256":"{ABC}"}}]}}"#);
    let manifest = Manifest::parse("M", text.as_bytes()).unwrap();
    let survey = Survey::of(&manifest, folder.path()).unwrap();
    assert_eq!(survey.bytes(), 0);
    let states = survey.check(1, &nothing).unwrap();
    assert!(matches!(states[..], [State::OtherSize { found: 3, listed: 4 }]));
}

/// A corrupted download has the right size (huggingface_hub#3644).
#[test]
fn one_flipped_bit_is_another_hash() {
    let folder = folder();
    let manifest = listing(&["a"]);
    for bit in 0..24 {
        let mut bytes = *b"abc";
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(folder.path().join("a"), bytes).unwrap();
        assert!(matches!(check(&manifest, folder.path()).unwrap()[..], [State::OtherHash { .. }]));
    }
}

#[test]
fn what_no_manifest_may_list_is_refused_before_a_byte_is_read() {
    let folder = folder();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("f"), "abc").unwrap();
    symlink(outside.path().join("f"), folder.path().join("out")).unwrap();
    symlink(outside.path(), folder.path().join("outside")).unwrap();
    symlink("/dev/zero", folder.path().join("zero")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    for (name, word) in [
        ("sub", "a directory"),
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("out", "outside the folder"),
        ("outside/f", "outside the folder"),
        ("zero", "outside the folder"),
    ] {
        let error = check(&listing(&["a", name]), folder.path()).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_folder_that_is_none_is_named() {
    let folder = folder();
    for name in ["missing", "a"] {
        let path = folder.path().join(name);
        let error = check(&listing(&["a"]), &path).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(Folder::walk(&path, None).is_err());
    }
}

#[test]
fn reading_can_be_ended() {
    let folder = folder();
    let manifest = listing(&["a", "link"]);
    assert!(Survey::of(&manifest, folder.path()).unwrap().check(2, &|_| ControlFlow::Break(())).is_none());
    assert!(Folder::walk(folder.path(), None).unwrap().pin(2, &|_| ControlFlow::Break(())).unwrap().is_none());
}

#[test]
fn a_folder_is_what_its_own_manifest_says() {
    let folder = folder();
    std::fs::write(folder.path().join(".hidden"), "x").unwrap();
    std::fs::write(folder.path().join("SHA256SUMS"), "of before").unwrap();
    let but = folder.path().join("SHA256SUMS");
    let walked = Folder::walk(folder.path(), Some(&but)).unwrap();
    assert_eq!(walked.bytes(), 9);
    let manifest = walked.pin(2, &nothing).unwrap().unwrap();
    let paths: Vec<&str> = manifest.pins().iter().map(|pin| &pin.path[..]).collect();
    assert_eq!(paths, ["a", "link", "sub/b"]);
    assert!(check(&manifest, folder.path()).unwrap().iter().all(State::is_same));
    // The tool whose lines they are agrees.
    std::fs::write(&but, manifest.to_text()).unwrap();
    let tool = Command::new("sha256sum").args(["-c", "--strict", "SHA256SUMS"]).current_dir(folder.path()).output();
    assert!(tool.unwrap().status.success());
}

#[test]
fn a_folder_that_cannot_be_pinned_whole_is_refused_by_name() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Folder::walk(empty.path(), None), Err(Error::NothingToPin { .. })));
    for (name, target) in [("dangling", "nowhere"), ("folder", "sub"), ("out", "/etc/hostname")] {
        let folder = folder();
        symlink(target, folder.path().join(name)).unwrap();
        let error = Folder::walk(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    let folder = folder();
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    assert!(matches!(Folder::walk(folder.path(), None), Err(Error::NameNotUtf8 { .. })));
}

//! `verify`: files against manifests, from outside.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::fixture::Cli;

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// A folder with `set/a`, `set/b c` and `set/sub/d`, all `abc`, and its manifests in both forms.
fn pinned() -> Cli {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("set/sub")).unwrap();
    for name in ["set/a", "set/b c", "set/sub/d"] {
        std::fs::write(cli.path(name), "abc").unwrap();
    }
    let ran = cli.run(&["verify", "--write", "set/SHA256SUMS"]).ok();
    assert!(ran.out.is_empty() && ran.err.contains("3 files of set"), "{ran:?}");
    cli.run(&["verify", "--write", "set.json", "--dir", "set/sub"]).ok();
    cli
}

#[test]
fn a_folder_is_what_its_manifest_says_until_a_file_changes() {
    let cli = pinned();
    let ran = cli.run(&["verify", "set/SHA256SUMS"]).ok();
    assert_eq!(ran.out, "a: ok\nb c: ok\nsub/d: ok\n");
    assert!(ran.err.contains("3 files as listed"), "{ran:?}");
    assert_eq!(cli.run(&["verify", "set.json", "--dir", "set/sub"]).ok().out, "d: ok\n");
    let text = std::fs::read(cli.path("set/SHA256SUMS")).unwrap();
    cli.run_with(&["verify", "-", "--dir", "set", "--jobs", "1"], text).ok();

    std::fs::write(cli.path("set/a"), "abd").unwrap(); // of the right size
    std::fs::remove_file(cli.path("set/sub/d")).unwrap();
    let ran = cli.run(&["verify", "set/SHA256SUMS"]);
    assert!(ran.code == 1 && ran.err.lines().count() == 1, "{ran:?}");
    assert!(ran.err.contains("a (another hash), sub/d (missing)") && !ran.err.contains("b c"), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("a: has SHA-256 ") && lines[0].ends_with(&format!("{ABC} is listed")), "{ran:?}");
    assert_eq!(lines[1..], ["b c: ok", "sub/d: missing"]);

    std::fs::write(cli.path("set/sub/d"), "ab").unwrap();
    let ran = cli.run(&["verify", "set.json", "--dir", "set/sub"]);
    assert_eq!((ran.code, &ran.out[..]), (1, "d: has 2 bytes, 3 are listed\n"));
    assert!(ran.err.contains("d (another size)"), "{ran:?}");
}

#[test]
fn a_manifest_that_lies_is_refused_on_one_line() {
    let cli = pinned();
    assert!(Command::new("mkfifo").arg(cli.path("set/pipe")).status().unwrap().success());
    symlink("/etc/passwd", cli.path("set/out")).unwrap();
    for (text, words) in [
        (format!("{ABC}  a\n{ABC}  a\n"), &["M", "`a` twice"][..]),
        (format!("{ABC}  {}\n", cli.path("set/a").display()), &["M", "absolute"]),
        (format!("{ABC}  ../set/a\n"), &["M", "`..`"]),
        (format!("{}  a\n", &ABC[1..]), &["M:1", "64 hexadecimal"]),
        (String::new(), &["M", "no file"]),
        (format!("{ABC}  out\n"), &["set/out", "/etc/passwd", "outside"]),
        (format!("{ABC}  sub\n"), &["set/sub", "a directory"]),
        (format!("{ABC}  a\n{ABC}  pipe\n"), &["set/pipe", "a pipe"]),
        (r#"{"files":[{"path":"a","size_bytes":99999999999999999999,"sha256":""}]}"#.into(), &["M", "u64"]),
        ("garbage\n".repeat(1000), &["M:1"]),
    ] {
        std::fs::write(cli.path("set/M"), text).unwrap();
        cli.run(&["verify", "set/M"]).refused(1, words);
    }
    cli.run(&["verify", "set/pipe"]).refused(1, &["set/pipe: is a pipe"]); // and nobody ever writes to it
    for (name, word) in [("missing", "No such file"), ("set", "directory"), ("/dev/zero", "longer than")] {
        cli.run(&["verify", name]).refused(1, &[name, word]);
    }
    cli.run(&["verify", "set/SHA256SUMS", "--dir", "nowhere"]).refused(1, &["nowhere", "No such file"]);
    cli.run(&["verify", "--write", "set/M2"]).refused(1, &["set/", "is"]); // the pipe, the link: whichever comes first
    assert!(!cli.path("set/M2").exists());
}

#[test]
fn verify_asks_for_one_manifest_and_leaves_nothing_half_written() {
    let cli = pinned();
    cli.run(&["verify"]).refused(2, &["MANIFEST"]);
    cli.run(&["verify", "set/SHA256SUMS", "--write", "x"]).refused(2, &["--write"]);
    cli.run(&["verify", "set/SHA256SUMS", "--jobs", "65"]).refused(2, &["0 to 64"]);
    cli.run(&["verify", "--write", "no/M", "--dir", "set"]).refused(1, &["--write no/M", "No such file"]);
    cli.run(&["verify", "--write", "/dev/full", "--dir", "set"]).refused(1, &["--write /dev/full", "No space left"]);
    std::fs::create_dir(cli.path("empty")).unwrap();
    cli.run(&["verify", "--write", "M", "--dir", "empty"]).refused(1, &["empty", "no file"]);
    std::fs::write(cli.path("empty/nothing"), "").unwrap();
    cli.run(&["verify", "--write", "m.json", "--dir", "empty"]).refused(1, &["m.json", "`nothing`", "0 bytes"]);
    assert_eq!(cli.files(), ["empty", "set", "set.json"]);
}

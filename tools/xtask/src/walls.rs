//! Walls: limits on single files and on the repository as a whole (CONTRIBUTING.md, "Walls").

use std::path::Path;

use crate::cargo::README_COMMANDS;
use crate::check::{Verdict, files, verdict};
use crate::tree::File;

/// A file past this many lines holds two nouns.
const MOST_LINES: usize = 800;

/// Whole repository, MB = 10^6: a clone stays a matter of seconds, models and vectors included.
const MOST_BYTES: u64 = 45_000_000;

/// Rooms whose bytes are budgeted by the benchmark's contract: code and its documents only.
const BUDGETED: &[&str] = &["engine/", "harness/"];

/// What may stand in a budgeted room.
const CODE: &[&str] = &["rs", "toml", "md", "cu", "cuh", "h"];

/// Where an open end is looked for: code and scripts, not prose.
const CHECKED_FOR_OPEN_ENDS: &[&str] = &["rs", "cu", "cuh", "h", "toml", "sh"];

// In two halves, so that this file passes its own check.
const OPEN_ENDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

pub(crate) fn check_sources(root: &Path) -> Verdict {
    let mut problems = Vec::new();
    let mut count = 0;
    for file in files(root)?.iter().filter(|file| is_source(file)) {
        let text = std::fs::read_to_string(root.join(&file.path)).map_err(|e| vec![format!("{}: {e}", file.path)])?;
        problems.extend(source_problems(file, &text));
        count += 1;
    }
    verdict(problems, format!("{count} files"))
}

fn is_source(file: &File) -> bool {
    CHECKED_FOR_OPEN_ENDS.contains(&file.extension()) || file.path.starts_with(".ci/")
}

fn source_problems(file: &File, text: &str) -> Vec<String> {
    let path = &file.path;
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if matches!(file.extension(), "rs" | "cu" | "cuh") && lines > MOST_LINES {
        problems.push(format!("{path}: {lines} lines, the wall is {MOST_LINES}; move its second noun to a file"));
    }
    if file.extension() == "rs" && !may_read_environment(file) {
        for at in environment_lines(text) {
            problems.push(format!(
                "{path}:{at}: reads the environment; take a flag (only build scripts, tests and xtask may)"
            ));
        }
    }
    for (at, line) in numbered(text) {
        if OPEN_ENDS.iter().any(|mark| has_open_end(line, mark)) {
            problems
                .push(format!("{path}:{at}: open end without an issue; write it as {}(#12) or do it", OPEN_ENDS[0]));
        }
    }
    problems
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// What a worker finds in its environment: its one variable, which whoever boots its resident can hand down in no other way,
/// and what benchd passes on to it.
const ENVIRONMENT_READERS: &[&str] =
    &["bench/benchd/src/environment.rs", "harness/protocol-adapter/src/environment.rs"];

/// Build scripts, tests, this crate and [`ENVIRONMENT_READERS`]; a flag shows in `--help` and can be tested, a variable does
/// neither.
fn may_read_environment(file: &File) -> bool {
    let stem = file.name().trim_end_matches(".rs");
    stem == "build"
        || stem == "tests"
        || stem.ends_with("_tests")
        || ["tests", "benches"].iter().any(|folder| file.is_inside(folder))
        || ["tools/", "fuzz/"].iter().any(|room| file.path.starts_with(room))
        || ENVIRONMENT_READERS.iter().any(|path| file.path == *path)
}

/// Lines that read or change environment variables, up to the unit tests at the end of the file.
fn environment_lines(text: &str) -> Vec<usize> {
    let code = numbered(text).take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let reads = |line: &str| ["env::var", "env::set_var", "env::remove_var"].iter().any(|call| line.contains(call));
    code.filter(|(_, line)| !line.trim_start().starts_with("//") && reads(line)).map(|(at, _)| at).collect()
}

/// Whether the word stands in the line without `(#NUMBER)` right behind it.
fn has_open_end(line: &str, mark: &str) -> bool {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(mark).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + mark.len()..]);
        let issue = after.strip_prefix("(#").and_then(|rest| rest.split_once(')')).map(|(number, _)| number);
        let has_issue = issue.is_some_and(|number| number.parse::<u32>().is_ok());
        !in_word(before.chars().next_back()) && !in_word(after.chars().next()) && !has_issue
    })
}

pub(crate) fn check_data(root: &Path) -> Verdict {
    verdict(data_problems(&files(root)?), String::new())
}

fn data_problems(files: &[File]) -> Vec<String> {
    let budgeted = |file: &&File| BUDGETED.iter().any(|room| file.path.starts_with(room));
    // Seeds of failed property tests are small and belong beside their test.
    let is_code = |file: &File| CODE.contains(&file.extension()) || file.is_inside("proptest-regressions");
    let data = files.iter().filter(budgeted).filter(|file| !is_code(file));
    data.map(|file| format!("{}: data in a room whose bytes are budgeted; move it to testdata/", file.path)).collect()
}

pub(crate) fn check_size(root: &Path) -> Verdict {
    let files = files(root)?;
    let bytes = files.iter().map(|file| file.bytes).sum();
    verdict(size_problems(&files, bytes), format!("{:.1} of {} MB", megabytes(bytes), MOST_BYTES / 1_000_000))
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn size_problems(files: &[File], bytes: u64) -> Vec<String> {
    if bytes < MOST_BYTES {
        return Vec::new();
    }
    let mut largest: Vec<&File> = files.iter().collect();
    largest.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    let named: Vec<_> =
        largest.iter().take(5).map(|file| format!("{} ({:.1} MB)", file.path, megabytes(file.bytes))).collect();
    vec![format!(
        "{:.1} MB, the wall is {} MB; largest: {}",
        megabytes(bytes),
        MOST_BYTES / 1_000_000,
        named.join(", ")
    )]
}

pub(crate) fn check_readme(root: &Path) -> Verdict {
    let text = std::fs::read_to_string(root.join("README.md")).map_err(|error| vec![format!("README.md: {error}")])?;
    verdict(readme_problems(&text), String::new())
}

/// A reader types what README shows, so CI must run the same.
fn readme_problems(text: &str) -> Vec<String> {
    let shown = |command: &&&str| text.lines().any(|line| line.trim().trim_start_matches("$ ") == **command);
    let missing = README_COMMANDS.iter().filter(|command| !shown(command));
    missing.map(|command| format!("README.md: no line shows `{command}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> File {
        File { path: path.to_owned(), bytes: 0 }
    }

    fn problems(path: &str, text: &str) -> Vec<String> {
        source_problems(&file(path), text)
    }

    #[test]
    fn the_eight_hundredth_line_is_the_last() {
        let lines = |count: usize| "x\n".repeat(count);
        assert_eq!(problems("engine/cpu/src/moe.rs", &lines(800)), [""; 0]);
        let got = problems("engine/cpu/src/moe.rs", &lines(801));
        assert!(got.len() == 1 && got[0].starts_with("engine/cpu/src/moe.rs: 801 lines"), "{got:?}");
        assert_eq!(problems("engine/cuda/kernels/moe.cu", &lines(801)).len(), 1);
        assert_eq!(problems("deny.toml", &lines(801)), [""; 0]);
    }

    #[test]
    fn environment_reads_are_named_by_line() {
        let text = "fn f() {\n    let x = std::env::var(\"X\");\n    // env::var(\"Y\") would be wrong\n}\n";
        let got = problems("engine/cpu/src/pool.rs", text);
        assert!(got.len() == 1 && got[0].starts_with("engine/cpu/src/pool.rs:2: "), "{got:?}");
        assert_eq!(problems("app/cli/src/main.rs", "use std::env::var_os;\n").len(), 1);
        assert_eq!(problems("app/cli/src/main.rs", "std::env::args()\nenv!(\"CARGO_PKG_VERSION\")\n"), [""; 0]);
    }

    #[test]
    fn build_scripts_tests_and_the_one_file_of_the_list_may_read_the_environment() {
        let read = "std::env::var(\"OUT_DIR\")\n";
        let named =
            ["engine/cuda/build.rs", "engine/gguf/tests/open.rs", "tests/src/lib.rs", "engine/text/src/tests.rs"];
        for path in named.iter().chain(ENVIRONMENT_READERS) {
            assert_eq!(problems(path, read), [""; 0], "{path}");
        }
        assert_eq!(
            problems("engine/gguf/src/dir.rs", &format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{read}}}\n")),
            [""; 0]
        );
        assert_eq!(problems("engine/gguf/src/rebuild.rs", read).len(), 1);
    }

    #[test]
    fn an_open_end_needs_an_issue() {
        let mark = OPEN_ENDS[0];
        for open in [format!("// {mark}: later"), format!("# {mark}(12)"), format!("{mark}(#x)"), format!("{mark}()")] {
            assert_eq!(problems(".ci/run", &open).len(), 1, "{open}");
        }
        for closed in [format!("// {mark}(#12): later"), format!("IS{mark}"), format!("{mark}S"), "todo".to_owned()] {
            assert_eq!(problems("Cargo.toml", &closed), [""; 0], "{closed}");
        }
        assert_eq!(problems("engine/cuda/kernels/hc.cu", &format!("// {}\n", OPEN_ENDS[1])).len(), 1);
    }

    #[test]
    fn data_in_a_budgeted_room_is_named() {
        let clean = ["engine/gguf/src/lib.rs", "engine/cuda/KERNELS.md", "testdata/q.json", "models/tiny/a.gguf"];
        assert_eq!(data_problems(&clean.map(file)), [""; 0]);
        let data = ["engine/quant/testdata/q4_k.json", "harness/protocol-adapter/golden.bin", "engine/text/vocab"];
        assert_eq!(data_problems(&data.map(file)).len(), 3);
        assert_eq!(data_problems(&[file("engine/gguf/proptest-regressions/dir.txt")]), [""; 0]);
    }

    #[test]
    fn a_repository_at_the_wall_names_its_largest_files() {
        let files = [("a", 1), ("b.gguf", 44_000_000)].map(|(path, bytes)| File { bytes, ..file(path) });
        assert_eq!(size_problems(&files, 44_999_999), [""; 0]);
        let got = size_problems(&files, 45_000_000);
        assert!(got[0].contains("largest: b.gguf (44.0 MB), a (0.0 MB)"), "{got:?}");
    }

    #[test]
    fn readme_must_show_each_command_on_a_line_of_its_own() {
        let good: String = README_COMMANDS.iter().map(|command| format!("    $ {command}\n")).collect();
        assert_eq!(readme_problems(&good), [""; 0]);
        assert_eq!(readme_problems(&good.replace("--workspace", "")).len(), 1);
        assert_eq!(readme_problems("").len(), README_COMMANDS.len());
    }
}

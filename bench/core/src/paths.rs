//! Paths of the editable surface: one validator for lint, review and overlay (track-contract.md 2, benchd.md 14).

use std::fmt;

/// A path that stays inside the tree and means the same to git, a file system and this program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SurfacePath {
    /// As written, save empty segments: `a//b/` is `a/b`.
    path: String,
}

/// Why a text is no path of the surface. The text is quoted by the error around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Nothing, or nothing but blanks and slashes.
    #[error("is empty")]
    Empty,
    /// Blanks around it, which some readers would take off.
    #[error("has blanks around it")]
    Blanks,
    /// From the root.
    #[error("is absolute; write it relative to the repository")]
    Absolute,
    /// git reads `:` in front as an instruction.
    #[error("begins with `:`, which git takes for a pattern")]
    Colon,
    /// A separator elsewhere.
    #[error("has a backslash; separate segments with `/`")]
    Backslash,
    /// `.` or `..`.
    #[error("has a `.` or `..` segment")]
    Dots,
    /// Ends a C string, or a line.
    #[error("has a control character")]
    Control,
}

impl SurfacePath {
    /// Refuses what could lead elsewhere or be read in two ways.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        let path = segments(text).collect::<Vec<_>>().join("/");
        if text.trim().is_empty() {
            Err(BadPath::Empty)
        } else if text.contains(char::is_control) {
            Err(BadPath::Control)
        } else if text.trim() != text || path.trim() != path {
            Err(BadPath::Blanks)
        } else if text.starts_with('/') {
            Err(BadPath::Absolute)
        } else if text.starts_with(':') {
            Err(BadPath::Colon)
        } else if text.contains('\\') {
            Err(BadPath::Backslash)
        } else if text.split('/').any(|segment| matches!(segment, "." | "..")) {
            Err(BadPath::Dots)
        } else {
            Ok(Self { path })
        }
    }

    /// Without empty segments.
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// Whether the other is this one or below it; letter case counts.
    pub fn contains(&self, other: &Self) -> bool {
        is_prefix(&self.path, &other.path)
    }

    /// Whether a file at `path` (relative, `/` between segments) is this path or below it; letter case counts.
    pub fn holds(&self, path: &str) -> bool {
        is_prefix(&self.path, path)
    }

    /// Whether one of the two is, holds, or lies inside the other on a file system that ignores letter case.
    pub fn touches(&self, protected: &str) -> bool {
        let (own, other) = (fold(&self.path), fold(protected));
        is_prefix(&own, &other) || is_prefix(&other, &own)
    }
}

impl fmt::Display for SurfacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Segment by segment: `a/b` is a prefix of `a/b/c` and not of `a/bc`.
fn is_prefix(short: &str, long: &str) -> bool {
    let mut long = segments(long);
    segments(short).all(|segment| long.next() == Some(segment))
}

/// One text for all spellings of a name. Upper case first: some letters (the long s, the Kelvin sign, sharp s) meet their
/// like only there.
fn fold(path: &str) -> String {
    path.to_uppercase().to_lowercase()
}

/// What is wrong with a list of editable paths, one line each: illegal entries, repetitions, nesting.
pub fn problems_of_list(key: &str, entries: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut legal: Vec<SurfacePath> = Vec::new();
    for entry in entries {
        match SurfacePath::parse(entry) {
            Err(why) => problems.push(format!("{key}: {entry:?} {why}")),
            Ok(path) => {
                for other in &legal {
                    if *other == path {
                        problems.push(format!("{key}: `{path}` stands twice; leave one"));
                    } else if other.contains(&path) || path.contains(other) {
                        problems.push(format!("{key}: `{path}` and `{other}` lie one inside the other; leave one"));
                    }
                }
                legal.push(path);
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn illegal_paths_are_refused_by_their_defect() {
        for (text, want) in [
            ("", BadPath::Empty),
            ("  ", BadPath::Empty),
            (" a", BadPath::Blanks),
            ("a /", BadPath::Blanks),
            ("a\u{a0}", BadPath::Blanks),
            ("/", BadPath::Absolute),
            ("/etc", BadPath::Absolute),
            (":(top)a", BadPath::Colon),
            ("a\\b", BadPath::Backslash),
            ("a/./b", BadPath::Dots),
            ("..", BadPath::Dots),
            ("a/..", BadPath::Dots),
            ("a\0b", BadPath::Control),
            ("a\nb", BadPath::Control),
        ] {
            assert_eq!(SurfacePath::parse(text), Err(want), "{text:?}");
        }
        assert_eq!(SurfacePath::parse("a//b/").unwrap().as_str(), "a/b");
        assert_eq!(SurfacePath::parse("a:b/..c").unwrap().as_str(), "a:b/..c");
    }

    #[test]
    fn protection_ignores_case_and_holds_in_both_directions_at_segment_ends() {
        let touches = |path: &str, protected: &str| SurfacePath::parse(path).unwrap().touches(protected);
        for (path, protected) in [
            ("tools", "tools"),
            ("TOOLS", "tools"),
            ("tools/x", "tools"),
            ("bench", "bench/core"),
            ("Bench//Core", "bench/core"),
            ("\u{212a}it", "kit"),
            ("too\u{17f}", "toos"),
            ("stra\u{df}e", "STRASSE"),
        ] {
            assert!(touches(path, protected), "{path} {protected}");
        }
        for (path, protected) in [("toolsx", "tools"), ("a/tools", "tools"), ("bench/pins", "bench/core")] {
            assert!(!touches(path, protected), "{path} {protected}");
        }
    }

    #[test]
    fn a_list_names_each_bad_repeated_and_nested_entry() {
        let list: Vec<String> = ["engine", "engine/", "engine/cpu", "../x", "harness"].map(String::from).into();
        let want = [
            "editablePaths: `engine` stands twice; leave one",
            "editablePaths: `engine/cpu` and `engine` lie one inside the other; leave one",
            "editablePaths: `engine/cpu` and `engine` lie one inside the other; leave one",
            "editablePaths: \"../x\" has a `.` or `..` segment",
        ];
        assert_eq!(problems_of_list("editablePaths", &list), want);
    }

    proptest! {
        #[test]
        fn a_legal_path_stays_inside_the_tree_and_is_read_the_same_again(text in "[ab./: \\\\\u{0}]{0,8}|\\PC{0,8}") {
            if let Ok(path) = SurfacePath::parse(&text) {
                use std::path::{Component, Path};
                prop_assert!(Path::new(path.as_str()).components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert_eq!(SurfacePath::parse(path.as_str()), Ok(path));
            }
        }

        #[test]
        fn touching_is_mutual_and_blind_to_case(a in "[aAb](/[aAb]){0,3}", b in "[aAb](/[aAb]){0,3}") {
            let (left, right) = (SurfacePath::parse(&a).unwrap(), SurfacePath::parse(&b).unwrap());
            prop_assert_eq!(left.touches(&b), right.touches(&a));
            prop_assert_eq!(left.touches(&b), left.touches(&b.to_uppercase()));
            prop_assert!(!left.contains(&right) || left.touches(&b));
        }
    }
}

//! `benchmark.json`: what a submission may replace and how a run is started (track-contract.md 2).
//!
//! [`Manifest::parse`] reads it, closed; [`lint()`] says everything that is wrong with it and with the tree around it.

mod lint;

use crate::fields::{self, FieldError, Fields};
use crate::paths::{SurfacePath, problems_of_list};

pub use self::lint::{Kind, MAY_BE_ABSENT, Node, PROTECTED, Tree, lint};

/// A manifest that passed every check that needs nothing but its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// `trackId`, also `leaderboard.namespace` and `staticReviewTrackId`.
    pub track_id: String,
    /// The only paths a submission replaces.
    pub editable: Vec<SurfacePath>,
    /// Those of them that a submission may leave out.
    pub optional: Vec<SurfacePath>,
    /// How large the surface may be.
    pub budget: ByteBudget,
    /// The fixture.
    pub contract_path: SurfacePath,
    /// Argument vectors, run from the root in this order.
    pub setup: Vec<String>,
    /// Before a submission.
    pub pre_submit: Vec<String>,
    /// The measured run.
    pub benchmark: Vec<String>,
    /// The sealed artifact.
    pub score_path: SurfacePath,
    /// `runner.workflow`.
    pub workflow: String,
    /// The display copy of the scoring rules.
    pub scoring: Scoring,
}

/// `editableSurfaceByteBudget`. Exactly a cap passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteBudget {
    /// `maxTotalBytes`: all files.
    pub total: u64,
    /// `maxFileBytes`: each file.
    pub file: u64,
    /// `maxGrowthBytes`: candidate less base.
    pub growth: u64,
    /// `exemptPathMaxBytes`: all exempt files.
    pub exempt_total: u64,
    /// `exemptPathMaxFileBytes`: each exempt file.
    pub exempt_file: u64,
    /// `exemptPaths`: charged to the exempt caps.
    pub exempt: Vec<SurfacePath>,
}

impl ByteBudget {
    /// The caps of track-contract.md 8, in force where a manifest names none.
    pub const CAPS: [(&'static str, u64); 5] = [
        ("maxTotalBytes", 19_550_883),
        ("maxFileBytes", 4_473_321),
        ("maxGrowthBytes", 19_550_883),
        ("exemptPathMaxBytes", 512_000_000),
        ("exemptPathMaxFileBytes", 100_000_000),
    ];
}

/// `scoring`: what the fixture says, for people; never scored by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scoring {
    /// `pairsPerCohort`, and the same in `minPairsPerCohort`.
    pub pairs: u32,
    /// `decodeSpeedupFloor`.
    pub decode_floor: f64,
    /// `prefillSpeedupFloor`, if given.
    pub prefill_floor: Option<f64>,
    /// `decodeSpeedupCeiling`, if given.
    pub decode_ceiling: Option<f64>,
    /// `scoredExponents.decodeGainExponent`.
    pub decode_exponent: f64,
    /// `scoredExponents.prefillGainExponent`.
    pub prefill_exponent: f64,
}

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or a key twice.
    #[error("benchmark.json is not valid JSON")]
    Json(#[source] serde_json::Error),
    /// JSON, but no object.
    #[error("benchmark.json must be a JSON object")]
    NotAnObject,
    /// Everything found, one text each; at least one.
    #[error("benchmark.json: {}", problems.join("; "))]
    Invalid {
        /// In the order of the document's description.
        problems: Vec<String>,
    },
}

const KEYS: [&str; 18] = [
    "schemaVersion",
    "name",
    "trackId",
    "description",
    "category",
    "direction",
    "editablePaths",
    "optionalEditablePaths",
    "editableSurfaceByteBudget",
    "contractPath",
    "setupCommand",
    "preSubmitCommand",
    "benchmarkCommand",
    "runner",
    "scoreArtifact",
    "scorePath",
    "scoring",
    "leaderboard",
];
const REVIEW: &str = "staticReviewTrackId";
const TEXT: &str = "a text that is not blank";

impl Manifest {
    /// Reads a manifest. All of its defects are found, not only the first.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let value = fields::parse(bytes).map_err(ManifestError::Json)?;
        let root = Fields::root(&value).ok_or(ManifestError::NotAnObject)?;
        let mut reader = Reader { problems: Vec::new() };
        let manifest = reader.manifest(&root);
        match manifest {
            Some(manifest) if reader.problems.is_empty() => Ok(manifest),
            _ => Err(ManifestError::Invalid { problems: reader.problems }),
        }
    }
}

/// Collects problems; a `None` on the way always comes with one.
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    fn or_note<T>(&mut self, found: Result<T, FieldError>) -> Option<T> {
        found.map_err(|problem| self.problems.push(problem.to_string())).ok()
    }

    fn need<T>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        found: Result<Option<T>, FieldError>,
        wanted: &'static str,
    ) -> Option<T> {
        self.or_note(found.and_then(|found| fields.need(key, found, wanted)))
    }

    fn closed(&mut self, fields: &Fields<'_>, known: &[&str]) {
        for key in fields.unknown(known) {
            self.problems.push(format!("`{}` is no key of a manifest", fields.key(&key)));
        }
    }

    fn text<'a>(&mut self, fields: &Fields<'a>, key: &str) -> Option<&'a str> {
        self.need(fields, key, fields.text(key), TEXT)
    }

    fn path(&mut self, fields: &Fields<'_>, key: &str) -> Option<SurfacePath> {
        let text = self.text(fields, key)?;
        SurfacePath::parse(text).map_err(|why| self.problems.push(format!("`{key}`: {text:?} {why}"))).ok()
    }

    /// A list of legal paths, none twice, none in another.
    fn paths(&mut self, fields: &Fields<'_>, key: &str) -> Option<Vec<SurfacePath>> {
        let entries = self.or_note(fields.texts(key))?.unwrap_or_default();
        let problems = problems_of_list(&fields.key(key), &entries);
        let sound = problems.is_empty();
        self.problems.extend(problems);
        let paths = entries.iter().filter_map(|entry| SurfacePath::parse(entry).ok()).collect();
        sound.then_some(paths)
    }

    fn subset(&mut self, key: &str, paths: &[SurfacePath], editable: &[SurfacePath]) {
        for path in paths.iter().filter(|path| !editable.contains(path)) {
            self.problems.push(format!("{key}: `{path}` is not one of editablePaths"));
        }
    }

    fn manifest(&mut self, root: &Fields<'_>) -> Option<Manifest> {
        let known: Vec<&str> = KEYS.iter().copied().chain([REVIEW]).collect();
        self.closed(root, &known);
        self.need(root, "schemaVersion", root.integer("schemaVersion", 1, 1, "1"), "1");
        for key in ["name", "description", "category", "scoreArtifact"] {
            self.text(root, key);
        }
        let plus = "\"+\": a higher score is better";
        self.need(root, "direction", root.word("direction", &[("+", ())], plus), plus);

        let editable = self.paths(root, "editablePaths");
        if editable.as_ref().is_some_and(Vec::is_empty) {
            self.problems.push("editablePaths: is absent or empty; a submission would replace nothing".into());
        }
        let optional = self.paths(root, "optionalEditablePaths");
        let budget = self.budget(root);
        if let (Some(editable), Some(optional)) = (&editable, &optional) {
            self.subset("optionalEditablePaths", optional, editable);
        }
        if let (Some(editable), Some(budget)) = (&editable, &budget) {
            self.subset("editableSurfaceByteBudget.exemptPaths", &budget.exempt, editable);
            if !editable.is_empty() && editable.iter().all(|path| budget.exempt.contains(path)) {
                self.problems.push("editableSurfaceByteBudget.exemptPaths: all of editablePaths are exempt".into());
            }
        }
        let commands = ["setupCommand", "preSubmitCommand", "benchmarkCommand"].map(|key| self.command(root, key));
        let track_id = self.track_id(root);
        let contract_path = self.path(root, "contractPath");
        let score_path = self.path(root, "scorePath");
        let workflow = self.workflow(root);
        let scoring = self.scoring(root);
        let [setup, pre_submit, benchmark] = commands;
        Some(Manifest {
            track_id: track_id?,
            editable: editable?,
            optional: optional?,
            budget: budget?,
            contract_path: contract_path?,
            setup: setup?,
            pre_submit: pre_submit?,
            benchmark: benchmark?,
            score_path: score_path?,
            workflow: workflow?,
            scoring: scoring?,
        })
    }

    /// Three copies that must agree (track-contract.md 2).
    fn track_id(&mut self, root: &Fields<'_>) -> Option<String> {
        let track_id = self.text(root, "trackId")?;
        let board = self.need(root, "leaderboard", root.object("leaderboard"), "an object")?;
        self.closed(&board, &["namespace"]);
        for (key, copy) in
            [("leaderboard.namespace", self.text(&board, "namespace")), (REVIEW, self.text(root, REVIEW))]
        {
            if copy? != track_id {
                self.problems.push(format!("`{key}` is not `trackId` ({track_id})"));
            }
        }
        Some(track_id.into())
    }

    fn command(&mut self, root: &Fields<'_>, key: &str) -> Option<Vec<String>> {
        let wanted = "a list of an executable and its arguments";
        let argv = root.texts(key).map(|argv| argv.filter(|argv| !argv.is_empty() && !argv[0].is_empty()));
        self.need(root, key, argv, wanted)
    }

    fn workflow(&mut self, root: &Fields<'_>) -> Option<String> {
        let runner = self.need(root, "runner", root.object("runner"), "an object")?;
        self.closed(&runner, &["provider", "workflow"]);
        self.text(&runner, "provider");
        self.path(&runner, "workflow").map(|path| path.to_string())
    }

    /// Absent caps are those of [`ByteBudget::CAPS`]; what is there must be a positive integer.
    fn budget(&mut self, root: &Fields<'_>) -> Option<ByteBudget> {
        let key = "editableSurfaceByteBudget";
        let block = self.need(root, key, root.object(key), "an object")?;
        let known: Vec<&str> = ByteBudget::CAPS.iter().map(|(key, _)| *key).chain(["exemptPaths"]).collect();
        self.closed(&block, &known);
        let caps = ByteBudget::CAPS.map(|(key, fallback)| {
            let cap = block.integer(key, 1, u64::MAX, "a positive integer of bytes");
            self.or_note(cap).map(|cap| cap.unwrap_or(fallback))
        });
        let exempt = self.paths(&block, "exemptPaths");
        let [total, file, growth, exempt_total, exempt_file] = caps;
        let (total, file, growth) = (total?, file?, growth?);
        let (exempt_total, exempt_file) = (exempt_total?, exempt_file?);
        for (name, file, total) in
            [("maxFileBytes", file, total), ("exemptPathMaxFileBytes", exempt_file, exempt_total)]
        {
            if file > total {
                self.problems.push(format!("`{key}.{name}` is {file}, more than all files together may have, {total}"));
            }
        }
        Some(ByteBudget { total, file, growth, exempt_total, exempt_file, exempt: exempt? })
    }

    fn scoring(&mut self, root: &Fields<'_>) -> Option<Scoring> {
        let block = self.need(root, "scoring", root.object("scoring"), "an object")?;
        self.closed(
            &block,
            &[
                "mode",
                "formula",
                "scoredExponents",
                "scoredBatchSize",
                "kvBackend",
                "pairsPerCohort",
                "minPairsPerCohort",
                "decodeSpeedupFloor",
                "prefillSpeedupFloor",
                "decodeSpeedupCeiling",
            ],
        );
        self.text(&block, "mode");
        self.text(&block, "formula");
        self.need(&block, "scoredBatchSize", block.integer("scoredBatchSize", 1, 1, "1"), "1");
        let contiguous = "`contiguous`";
        self.need(&block, "kvBackend", block.word("kvBackend", &[("contiguous", ())], contiguous), contiguous);
        let positive = "a positive integer";
        let pairs = self.need(&block, "pairsPerCohort", block.count("pairsPerCohort"), positive)?;
        let least = self.need(&block, "minPairsPerCohort", block.count("minPairsPerCohort"), positive)?;
        if pairs != least {
            self.problems.push(format!("`scoring.minPairsPerCohort` is {least}, `pairsPerCohort` {pairs}"));
        }
        let number = "a finite number above 0";
        let floor = self.need(&block, "decodeSpeedupFloor", block.positive("decodeSpeedupFloor"), number);
        let prefill_floor = self.or_note(block.positive("prefillSpeedupFloor"));
        let ceiling = self.or_note(block.positive("decodeSpeedupCeiling"));
        let exponents = self.need(&block, "scoredExponents", block.object("scoredExponents"), "an object")?;
        self.closed(&exponents, &["decodeGainExponent", "prefillGainExponent"]);
        let [decode, prefill] = ["decodeGainExponent", "prefillGainExponent"]
            .map(|key| self.need(&exponents, key, exponents.positive(key), number));
        Some(Scoring {
            pairs,
            decode_floor: floor?,
            prefill_floor: prefill_floor?,
            decode_ceiling: ceiling?,
            decode_exponent: decode?,
            prefill_exponent: prefill?,
        })
    }
}

#[cfg(test)]
mod tests;

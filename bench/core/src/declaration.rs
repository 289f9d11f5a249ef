//! The submission's declaration of speculation, `mtp-head.manifest.json` (track-contract.md 4). One reader for serve,
//! benchmark, measurement and preflight.

use std::fmt;

use serde_json::Value;

use crate::fields::{self, Fields, shown};

/// What a submission asks to be run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Declaration {
    drafts: u32,
}

/// Why a declaration is refused. The texts are interface; the file's name stands in front of each.
#[derive(Debug, thiserror::Error)]
pub enum DeclarationError {
    /// Not JSON, or a key twice.
    #[error("REFUSING -- {file} is not valid JSON")]
    Json {
        /// Which.
        file: String,
        /// Where.
        source: serde_json::Error,
    },
    /// A list, a text, a number.
    #[error("REFUSING -- {file} must be a JSON object")]
    NotAnObject {
        /// Which.
        file: String,
    },
    /// A key that nothing reads.
    #[error(
        "REFUSING -- {file}: unknown top-level key(s): {keys}; known are version, source, max_bytes, bytes, sha256, spec"
    )]
    TopLevelKeys {
        /// Which.
        file: String,
        /// Their names.
        keys: String,
    },
    /// A head of one's own.
    #[error(
        "REFUSING -- {file}: source {found} is not accepted; a submission brings no head, the only accepted source is \"pinned\""
    )]
    Source {
        /// Which.
        file: String,
        /// As JSON.
        found: String,
    },
    /// `spec` of another type.
    #[error("REFUSING -- {file}: spec must be a JSON object, found {found}")]
    Spec {
        /// Which.
        file: String,
        /// As JSON.
        found: String,
    },
    /// A key of `spec` that nothing reads.
    #[error("REFUSING -- {file}: spec has unknown key(s): {keys}; known are enabled, num_speculative_tokens")]
    SpecKeys {
        /// Which.
        file: String,
        /// Their names.
        keys: String,
    },
    /// `enabled` of another type.
    #[error("REFUSING -- {file}: spec.enabled must be a boolean, found {found}")]
    Enabled {
        /// Which.
        file: String,
        /// As JSON.
        found: String,
    },
    /// `num_speculative_tokens` of another type, or with a fraction; `3.0` too.
    #[error("REFUSING -- {file}: spec.num_speculative_tokens must be an integer, found {found}")]
    Integer {
        /// Which.
        file: String,
        /// As JSON.
        found: String,
    },
    /// No engine has that many.
    #[error("REFUSING -- {file}: spec.num_speculative_tokens {found} is outside the permitted range 0..8")]
    OutOfRange {
        /// Which.
        file: String,
        /// As JSON.
        found: String,
    },
    /// The contract does not permit it. Never clamped.
    #[error(
        "REFUSING -- {file}: spec.num_speculative_tokens {found} is not a contract-permitted draft depth \
         (permitted_draft_depths: {permitted})"
    )]
    NotPermitted {
        /// Which.
        file: String,
        /// Drafts a round.
        found: u32,
        /// Of the contract.
        permitted: String,
    },
}

const MOST: i64 = 8;

impl Declaration {
    /// No drafts: what an absent file declares.
    pub const SERIAL: Self = Self { drafts: 0 };

    /// Reads a declaration. `file` is its name in refusals, `permitted` the contract's `permitted_draft_depths`; an empty
    /// list, as of a contract that cannot be read, permits nothing.
    pub fn parse(file: &str, bytes: &[u8], permitted: &[u32]) -> Result<Self, DeclarationError> {
        let file = || file.to_owned();
        let value = fields::parse(bytes).map_err(|source| DeclarationError::Json { file: file(), source })?;
        let root = Fields::root(&value).ok_or_else(|| DeclarationError::NotAnObject { file: file() })?;
        let unknown = root.unknown(&["version", "source", "max_bytes", "bytes", "sha256", "spec"]);
        if !unknown.is_empty() {
            return Err(DeclarationError::TopLevelKeys { file: file(), keys: unknown.join(", ") });
        }
        if let Some(source) = root.get("source").filter(|source| *source != "pinned") {
            return Err(DeclarationError::Source { file: file(), found: shown(source) });
        }
        let Some(spec) = root.get("spec") else { return Ok(Self::SERIAL) };
        let Ok(Some(spec)) = root.object("spec") else {
            return Err(DeclarationError::Spec { file: file(), found: shown(spec) });
        };
        let unknown = spec.unknown(&["enabled", "num_speculative_tokens"]);
        if !unknown.is_empty() {
            return Err(DeclarationError::SpecKeys { file: file(), keys: unknown.join(", ") });
        }
        let enabled = match spec.get("enabled") {
            None => false,
            Some(Value::Bool(enabled)) => *enabled,
            Some(other) => return Err(DeclarationError::Enabled { file: file(), found: shown(other) }),
        };
        let drafts = match spec.get("num_speculative_tokens") {
            None => 0,
            Some(number) => {
                // serde_json reads an integer beyond 64 bits as a float; it is then refused as none.
                let integer = number.as_i64().or_else(|| number.as_u64().map(|_| i64::MAX));
                let integer =
                    integer.ok_or_else(|| DeclarationError::Integer { file: file(), found: shown(number) })?;
                let in_range = u32::try_from(integer).ok().filter(|_| integer <= MOST);
                in_range.ok_or_else(|| DeclarationError::OutOfRange { file: file(), found: shown(number) })?
            }
        };
        if !enabled || drafts == 0 {
            return Ok(Self::SERIAL);
        }
        if !permitted.contains(&drafts) {
            let permitted = listed(permitted);
            return Err(DeclarationError::NotPermitted { file: file(), found: drafts, permitted });
        }
        Ok(Self { drafts })
    }

    /// Whether drafts are made.
    pub fn is_speculative(self) -> bool {
        self.drafts > 0
    }

    /// Drafts a round; 0 for serial.
    pub fn draft_len(self) -> u32 {
        self.drafts
    }

    /// What the resident is started with: the drafts and the token before them.
    pub fn draft_tokens(self) -> u32 {
        self.drafts + 1
    }
}

/// `serial` or `mtpN`; also the key of the timed oracle.
impl fmt::Display for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.drafts {
            0 => f.write_str("serial"),
            drafts => write!(f, "mtp{drafts}"),
        }
    }
}

/// `1, 2, 3`, or that there are none.
pub(crate) fn listed(depths: &[u32]) -> String {
    match depths {
        [] => "none".into(),
        depths => depths.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERMITTED: [u32; 6] = [1, 2, 3, 4, 5, 6];

    fn read(text: &str) -> Result<String, String> {
        let found = Declaration::parse("F", text.as_bytes(), &PERMITTED);
        found.map(|declaration| declaration.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_contracts_table_comes_out() {
        let spec = |number: &str| format!(r#"{{"spec":{{"enabled":true,"num_speculative_tokens":{number}}}}}"#);
        assert_eq!(Declaration::SERIAL.to_string(), "serial");
        for (text, want) in [
            ("{}".to_owned(), "serial"),
            (r#"{"spec":{"enabled":false,"num_speculative_tokens":3}}"#.into(), "serial"),
            (r#"{"spec":{}}"#.into(), "serial"),
            (r#"{"spec":{"num_speculative_tokens":3}}"#.into(), "serial"),
            (r#"{"spec":{"enabled":true}}"#.into(), "serial"),
            (spec("0"), "serial"),
            (spec("6"), "mtp6"),
            (r#"{"version":[],"source":"pinned","max_bytes":null,"bytes":"x","sha256":0,"spec":{"enabled":true,"num_speculative_tokens":3}}"#.into(), "mtp3"),
        ] {
            assert_eq!(read(&text).as_deref(), Ok(want), "{text}");
        }
        for (text, want) in [
            ("not json".to_owned(), "is not valid JSON"),
            ("".into(), "is not valid JSON"),
            (r#"{"spec":{},"spec":{}}"#.into(), "is not valid JSON"),
            ("{} x".into(), "is not valid JSON"),
            ("[]".into(), "must be a JSON object"),
            ("null".into(), "must be a JSON object"),
            (r#"{"weights":"x","b":1}"#.into(), "unknown top-level key(s): b, weights"),
            (r#"{"source":"submitted"}"#.into(), r#"source "submitted" is not accepted; "#),
            (r#"{"source":"submitted"}"#.into(), r#"the only accepted source is "pinned""#),
            (r#"{"source":null}"#.into(), "source null is not accepted"),
            (r#"{"spec":null}"#.into(), "spec must be a JSON object"),
            (r#"{"spec":[]}"#.into(), "spec must be a JSON object"),
            (r#"{"spec":{"depth":1}}"#.into(), "unknown key(s): depth"),
            (r#"{"spec":{"enabled":1,"num_speculative_tokens":1}}"#.into(), "spec.enabled must be a boolean"),
            (r#"{"spec":{"enabled":null}}"#.into(), "spec.enabled must be a boolean"),
            (r#"{"spec":{"enabled":false,"num_speculative_tokens":9}}"#.into(), "is outside the permitted range 0..8"),
            (spec("2.5"), "must be an integer"),
            (spec("3.0"), "must be an integer"),
            (spec("\"3\""), "must be an integer"),
            (spec("null"), "must be an integer"),
            (spec("9"), "is outside the permitted range 0..8"),
            (spec("-1"), "is outside the permitted range 0..8"),
            (spec("18446744073709551615"), "is outside the permitted range 0..8"),
            (spec("7"), "is not a contract-permitted draft depth (permitted_draft_depths: 1, 2, 3, 4, 5, 6)"),
            (spec("8"), "is not a contract-permitted draft depth (permitted_draft_depths: 1, 2, 3, 4, 5, 6)"),
        ] {
            let refused = read(&text).unwrap_err();
            assert!(refused.starts_with("REFUSING -- F") && refused.contains(want), "{text}: {refused}");
        }
    }

    #[test]
    fn the_first_of_several_defects_is_the_one_named() {
        // Each line has the defect it is refused for and all that come later.
        for (text, want) in [
            (r#"{"x":1,"source":"s","spec":{"y":1,"enabled":1,"num_speculative_tokens":"z"}}"#, "top-level"),
            (r#"{"source":"s","spec":{"y":1,"enabled":1,"num_speculative_tokens":"z"}}"#, "source"),
            (r#"{"spec":{"y":1,"enabled":1,"num_speculative_tokens":"z"}}"#, "spec has unknown"),
            (r#"{"spec":{"enabled":1,"num_speculative_tokens":"z"}}"#, "boolean"),
            (r#"{"spec":{"enabled":true,"num_speculative_tokens":"z"}}"#, "integer"),
        ] {
            assert!(read(text).unwrap_err().contains(want), "{text}");
        }
    }

    #[test]
    fn without_a_readable_list_every_depth_is_refused_and_serial_is_not() {
        let with = |text: &str| Declaration::parse("F", text.as_bytes(), &[]).map_err(|error| error.to_string());
        let refused = with(r#"{"spec":{"enabled":true,"num_speculative_tokens":1}}"#).unwrap_err();
        assert!(refused.ends_with("(permitted_draft_depths: none)"), "{refused}");
        assert_eq!(with(r#"{"spec":{"enabled":false,"num_speculative_tokens":1}}"#), Ok(Declaration::SERIAL));
    }

    proptest! {
        #[test]
        fn a_declaration_is_serial_or_a_permitted_depth(drafts in 0_u32..12, enabled in any::<bool>()) {
            let text = format!(r#"{{"spec":{{"enabled":{enabled},"num_speculative_tokens":{drafts}}}}}"#);
            match Declaration::parse("F", text.as_bytes(), &PERMITTED) {
                Ok(found) => {
                    prop_assert_eq!(found.draft_len(), if enabled { drafts } else { 0 });
                    prop_assert_eq!(found.is_speculative(), found.draft_len() > 0);
                    prop_assert_eq!(found.draft_tokens(), found.draft_len() + 1);
                    prop_assert!(drafts <= 6 || !enabled);
                }
                Err(_) => prop_assert!(drafts > 8 || enabled && drafts > 6),
            }
        }
    }
}

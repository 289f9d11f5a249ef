//! A bench against an earlier one.

use serde_json::Value;

/// Most a row's median may lose.
const MOST: f64 = 0.03;

/// A row of both, or of the earlier alone.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) test: String,
    pub(super) before: f64,
    /// None where the row is gone.
    pub(super) now: Option<f64>,
}

impl Pair {
    /// Negative where it is slower.
    pub(super) fn change(&self) -> Option<f64> {
        self.now.map(|now| now / self.before - 1.0)
    }

    pub(super) fn ok(&self) -> bool {
        self.change().is_some_and(|change| change >= -MOST)
    }
}

/// Every row of a record: of `bench -o json`, or of the bench steps in one of ours. Empty where there are none.
pub(super) fn rows(record: &Value) -> Vec<(String, f64)> {
    let own = record.get("rows").and_then(Value::as_array).into_iter().flatten();
    let own =
        own.filter_map(|row| Some((row.get("test")?.as_str()?.to_owned(), row.pointer("/tok_s/median")?.as_f64()?)));
    let steps = record.get("steps").and_then(Value::as_array).into_iter().flatten();
    own.chain(steps.filter_map(|step| step.get("record")).flat_map(rows)).collect()
}

/// Every row of `before` with its like in `now`.
pub(super) fn pairs(before: &[(String, f64)], now: &[(String, f64)]) -> Vec<Pair> {
    let like = |test: &str| now.iter().find(|(name, _)| name == test).map(|(_, tok_s)| *tok_s);
    before.iter().map(|(test, tok_s)| Pair { test: test.clone(), before: *tok_s, now: like(test) }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_loss_over_three_percent_or_a_row_that_is_gone_fails() {
        let row =
            |test: &str, median: f64| json!({"test": test, "threads": 1, "tok_s": {"median": median, "spread": 1.0}});
        let before =
            rows(&json!({"schema": 1, "rows": [row("tg64", 100.0), row("pp512", 1000.0), row("verify 2", 90.0)]}));
        let step = json!({"record": {"rows": [row("tg64", 97.1), row("pp512", 969.0)]}});
        let now = rows(&json!({"steps": [step, {"name": "matvec"}]}));
        let ok: Vec<bool> = pairs(&before, &now).iter().map(Pair::ok).collect();
        assert_eq!(ok, [true, false, false]);
    }

    #[test]
    fn a_record_without_rows_has_none() {
        assert_eq!(rows(&json!({"steps": []})), []);
    }
}

//! `cudafast trace diff`: where two traces part, in the order they were computed in.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::file::{Event, Kind, Trace};
use crate::args::TraceDiffArgs;
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::output;

pub(crate) fn run(args: &TraceDiffArgs) -> Result<(), Failure> {
    let (a, b) = (Trace::open(&args.a)?, Trace::open(&args.b)?);
    check_comparable(&a, &b).map_err(|why| Failure::OtherTrace { a: args.a.clone(), b: args.b.clone(), why })?;
    let work = Work::begin();
    let found = compare(&a, &b, args.tol, &work)?;
    output::text(&found.text(&a, &b))?;
    match found.first {
        Some(first) => Err(Failure::TracesDiffer { first: first.place }),
        None if found.rows() == 0 => Err(Failure::OtherTrace {
            a: args.a.clone(),
            b: args.b.clone(),
            why: "they have no operation in common".into(),
        }),
        None => Ok(()),
    }
}

fn check_comparable(a: &Trace, b: &Trace) -> Result<(), String> {
    let (a, b) = (&a.about, &b.about);
    if a.geometry != b.geometry {
        return Err(format!("they are of models of other sizes, `{}` and `{}`", a.model, b.model));
    }
    let parted = a.tokens.iter().zip(&b.tokens).position(|(a, b)| a != b);
    match parted {
        Some(at) => Err(format!("they are of other prompts: token {at} is {} and {}", a.tokens[at], b.tokens[at])),
        None if a.tokens.len() != b.tokens.len() => {
            Err(format!("they are of prompts of {} and {} tokens", a.tokens.len(), b.tokens.len()))
        }
        None => Ok(()),
    }
}

/// Where a value is, and what it is in both.
#[derive(Debug, PartialEq)]
struct First {
    place: String,
    values: String,
}

/// The rows of one operation.
#[derive(Debug, Default, PartialEq)]
struct OpSum {
    op: String,
    rows: u64,
    differ: u64,
    /// Largest difference, and largest over the largest value of its row in A.
    abs: f64,
    rel: f64,
    first: Option<String>,
}

#[derive(Debug, Default)]
struct Found {
    /// In the order of A.
    ops: Vec<OpSum>,
    first: Option<First>,
    /// Rows that the other has no match for.
    only_a: u64,
    only_b: u64,
}

/// What a row is of. Rows run more than once (drafts that were not accepted) are told apart by their order.
type Key<'a> = (usize, &'a str, usize);

/// Rows of A in its execution order, each with B's row of the same layer, operation and position.
fn compare(a: &Trace, b: &Trace, tolerance: f64, work: &Work) -> Result<Found, Failure> {
    let mut rows_of_b: HashMap<Key<'_>, Vec<(usize, usize)>> = HashMap::new();
    for (i, (event, _)) in b.events.iter().enumerate().rev() {
        for row in (0..event.rows).rev() {
            rows_of_b.entry((event.layer, &event.op, event.position + row)).or_default().push((i, row));
        }
    }
    let mut found = Found::default();
    let (mut bytes_a, mut bytes_b) = (Vec::new(), Vec::new());
    for (i, (event, _)) in a.events.iter().enumerate() {
        work.check()?;
        for row in 0..event.rows {
            let position = event.position + row;
            let Some((j, other)) = rows_of_b.get_mut(&(event.layer, &event.op[..], position)).and_then(Vec::pop) else {
                found.only_a += 1;
                continue;
            };
            a.row(i, row, &mut bytes_a)?;
            b.row(j, other, &mut bytes_b)?;
            let other = &b.events[j].0;
            found.add(event, position, difference(event, &bytes_a, other, &bytes_b, tolerance));
        }
    }
    found.only_b = rows_of_b.values().map(|rows| rows.len() as u64).sum();
    Ok(found)
}

/// How two rows differ.
#[derive(Debug, Default, PartialEq)]
struct RowDifference {
    abs: f64,
    rel: f64,
    /// What is said about the first channel past the tolerance.
    first: Option<String>,
}

fn difference(a: &Event, bytes_a: &[u8], b: &Event, bytes_b: &[u8], tolerance: f64) -> RowDifference {
    if (a.kind, a.width) != (b.kind, b.width) {
        let told = format!("{} and {} values", a.width, b.width);
        return RowDifference { abs: 0.0, rel: 0.0, first: Some(told) };
    }
    match a.kind {
        Kind::Id => ids(bytes_a, bytes_b),
        Kind::Float => floats(bytes_a, bytes_b, tolerance),
    }
}

/// Ids are equal or not.
fn ids(a: &[u8], b: &[u8]) -> RowDifference {
    let pairs = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).enumerate();
    let first = pairs.map(|(i, (a, b))| (i, u64::from_le_bytes(*a), u64::from_le_bytes(*b))).find(|(_, a, b)| a != b);
    let first = first.map(|(i, a, b)| format!("number {i}: {a} and {b}"));
    RowDifference { abs: 0.0, rel: 0.0, first }
}

/// Without a tolerance bits are compared. With one, a difference may be that share of the row's largest value in A.
fn floats(a: &[u8], b: &[u8], tolerance: f64) -> RowDifference {
    let pair = |(a, b): (&[u8; 4], &[u8; 4])| (f32::from_le_bytes(*a), f32::from_le_bytes(*b));
    let pairs = || a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0).map(pair);
    let largest = pairs().map(|(a, _)| f64::from(a).abs()).fold(0.0, f64::max);
    let mut row = RowDifference::default();
    for (channel, (a, b)) in pairs().enumerate() {
        if a.to_bits() == b.to_bits() {
            continue;
        }
        let mut abs = (f64::from(a) - f64::from(b)).abs();
        if abs.is_nan() {
            abs = f64::INFINITY;
        }
        row.abs = row.abs.max(abs);
        let past = if tolerance == 0.0 { true } else { abs > tolerance * largest };
        if past && row.first.is_none() {
            row.first = Some(format!("channel {channel}: {a:e} and {b:e}"));
        }
    }
    row.rel = if row.abs == 0.0 { 0.0 } else { row.abs / largest.max(f64::MIN_POSITIVE) };
    row
}

impl Found {
    fn rows(&self) -> u64 {
        self.ops.iter().map(|sum| sum.rows).sum()
    }

    fn add(&mut self, event: &Event, position: usize, row: RowDifference) {
        let known = self.ops.iter().position(|sum| sum.op == event.op);
        let index = known.unwrap_or_else(|| {
            self.ops.push(OpSum { op: event.op.clone(), ..OpSum::default() });
            self.ops.len() - 1
        });
        let sum = &mut self.ops[index];
        sum.rows += 1;
        sum.abs = sum.abs.max(row.abs);
        sum.rel = sum.rel.max(row.rel);
        let Some(values) = row.first else { return };
        sum.differ += 1;
        let place = format!("layer {} position {position}", event.layer);
        sum.first.get_or_insert_with(|| place.clone());
        self.first.get_or_insert_with(|| First {
            place: format!("layer {}, {}, position {position}", event.layer, cudafast_gguf::shown(&event.op)),
            values,
        });
    }

    fn text(&self, a: &Trace, b: &Trace) -> String {
        let mut text = String::new();
        for (name, trace) in [("A", a), ("B", b)] {
            let (model, how) = (cudafast_gguf::shown(&trace.about.model), cudafast_gguf::shown(&trace.about.how));
            let _ = writeln!(text, "{name}: {model}, {how}");
        }
        let _ = writeln!(
            text,
            "{:<20} {:>8} {:>8} {:>10} {:>10}  first",
            "operation", "rows", "differ", "max abs", "max rel"
        );
        for sum in &self.ops {
            let _ = writeln!(
                text,
                "{:<20} {:>8} {:>8} {:>10.3e} {:>10.3e}  {}",
                cudafast_gguf::shown(&sum.op),
                sum.rows,
                sum.differ,
                sum.abs,
                sum.rel,
                sum.first.as_deref().unwrap_or("-")
            );
        }
        if self.only_a + self.only_b > 0 {
            let _ = writeln!(text, "not compared: {} rows only in A, {} only in B", self.only_a, self.only_b);
        }
        let _ = match &self.first {
            Some(First { place, values }) => writeln!(text, "first difference: {place}, {values}"),
            None => writeln!(text, "no difference in {} rows", self.rows()),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn without_a_tolerance_bits_are_compared() {
        let a = bytes(&[1.0, 0.0, f32::NAN]);
        assert_eq!(floats(&a, &a, 0.0), RowDifference::default());
        let signed = floats(&a, &bytes(&[1.0, -0.0, f32::NAN]), 0.0);
        assert_eq!((signed.abs, signed.first.as_deref()), (0.0, Some("channel 1: 0e0 and -0e0")));
        let broken = floats(&a, &bytes(&[f32::NAN, 0.0, f32::NAN]), 0.5);
        assert_eq!((broken.abs, broken.first.is_some()), (f64::INFINITY, true));
    }

    #[test]
    fn a_tolerance_is_a_share_of_the_rows_largest_value() {
        let (a, b) = (bytes(&[1.0, -8.0]), bytes(&[1.25, -8.0]));
        let within = floats(&a, &b, 0.04);
        assert_eq!((within.abs, within.rel, &within.first), (0.25, 0.03125, &None));
        assert!(floats(&a, &b, 0.03).first.is_some());
    }
}

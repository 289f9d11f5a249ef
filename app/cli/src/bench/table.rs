//! A report as a table for people and as one for spreadsheets.

use std::fmt::Write as _;

use super::report::{Report, RowReport};

const GIGA: f64 = 1e9;
const MIB: f64 = 1024.0 * 1024.0;

/// A column: its title, and what it shows of a row.
type Column<'a> = (&'static str, Box<dyn Fn(&RowReport) -> String + 'a>);

/// Columns that no row fills are left out.
fn columns(report: &Report) -> Vec<Column<'_>> {
    let model = &report.model;
    let name = match &model.name {
        Some(name) => cudafast_gguf::shown(name),
        None => model.label.clone(),
    };
    let device = report.backends.first().and_then(|text| text.split(',').next()).unwrap_or("").to_owned();
    let or_blank = |value: Option<String>| value.unwrap_or_default();
    vec![
        ("model", Box::new(move |_| name.clone())),
        ("size", Box::new(|_| format!("{:.2} MiB", model.tensor_bytes as f64 / MIB))),
        ("params", Box::new(|_| count(model.parameters))),
        ("device", Box::new(move |_| device.clone())),
        ("threads", Box::new(|row| row.threads.to_string())),
        ("test", Box::new(|row| row.test.clone())),
        ("t/s", Box::new(|row| format!("{} ± {}", figure(row.tok_s.median), figure(row.tok_s.spread)))),
        ("accepted", Box::new(move |row| or_blank(row.acceptance.map(percent)))),
        ("tokens/round", Box::new(move |row| or_blank(row.tokens_per_round.map(|n| format!("{n:.2}"))))),
        ("x one row", Box::new(move |row| or_blank(row.cost_of_one_row.map(|n| format!("{n:.2}"))))),
        ("peak MiB", Box::new(move |row| or_blank(row.peak_bytes.map(|n| format!("{:.0}", n as f64 / MIB))))),
        ("GB/s", Box::new(move |row| or_blank(row.weights_bytes_s.map(|n| figure(n / GIGA))))),
        ("GMAC/s", Box::new(move |row| or_blank(row.macs_s.map(|n| figure(n / GIGA))))),
        ("of read", Box::new(move |row| or_blank(row.read_share.map(percent)))),
        ("of dot", Box::new(move |row| or_blank(row.dot_share.map(percent)))),
    ]
}

/// A Markdown table that is aligned as text, too, and what has to be known to read it.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = String::new();
    let columns = columns(report);
    let mut cells: Vec<Vec<String>> = vec![Vec::new(); report.rows.len()];
    let mut titles = Vec::new();
    for (title, show) in &columns {
        let column: Vec<String> = report.rows.iter().map(|row| show(row).replace('|', "\\|")).collect();
        if column.iter().all(String::is_empty) {
            continue;
        }
        let width = column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0).max(title.chars().count());
        titles.push((*title, width));
        for (row, cell) in cells.iter_mut().zip(column) {
            row.push(cell);
        }
    }
    if !report.rows.is_empty() {
        let line = |text: &mut String, cells: &mut dyn Iterator<Item = &str>| {
            for ((_, width), cell) in titles.iter().zip(cells) {
                let _ = write!(text, "| {cell:<width$} ");
            }
            text.push_str("|\n");
        };
        line(&mut text, &mut titles.iter().map(|(title, _)| *title));
        let rules: Vec<String> = titles.iter().map(|(_, width)| "-".repeat(*width)).collect();
        line(&mut text, &mut rules.iter().map(String::as_str));
        for row in &cells {
            line(&mut text, &mut row.iter().map(String::as_str));
        }
        text.push('\n');
    }
    text += &notes(report);
    text
}

fn notes(report: &Report) -> String {
    let mut text = String::new();
    let (host, build, reads) = (&report.host, &report.build, &report.reads_per_token);
    let _ = writeln!(
        text,
        "t/s: median ± the largest distance of any of {} repetitions, rows interleaved, one warm-up each.",
        report.reps
    );
    let _ = writeln!(
        text,
        "A serial token reads {:.2} MB of weights and multiplies {:.2} M of them.",
        reads.bytes / 1e6,
        reads.macs / 1e6
    );
    for machine in &report.machine {
        let rates = machine.dot_macs_s.keys().map(|name| format!("{name} {}", figure(machine.dot_rate(name) / GIGA)));
        let _ = writeln!(
            text,
            "This machine, {} thread(s): reads {} GB/s; dots in the first cache, GMAC/s: {}.",
            machine.threads,
            figure(machine.read_rate() / GIGA),
            rates.collect::<Vec<_>>().join(", ")
        );
    }
    let commit = if build.commit.is_empty() { "unknown" } else { build.commit };
    let dirty = if build.dirty { " (changed)" } else { "" };
    let _ = writeln!(
        text,
        "{}, {} cores, {}, {}; cudafast {} at {commit}{dirty}.",
        host.cpu, host.cores, host.instruction_set, host.os, build.version
    );
    text
}

/// One line for each sample.
pub(crate) fn csv(report: &Report) -> String {
    let mut text = String::from(
        "model,tensor_bytes,parameters,threads,test,repetition,tokens,seconds,tok_s,rounds,drafted,accepted,peak_bytes,\
         commit,cpu\n",
    );
    for row in &report.rows {
        for (i, sample) in row.samples.iter().enumerate() {
            let cells = [
                quoted(&report.model.label),
                report.model.tensor_bytes.to_string(),
                report.model.parameters.to_string(),
                row.threads.to_string(),
                quoted(&row.test),
                (i + 1).to_string(),
                sample.tokens.to_string(),
                sample.seconds.to_string(),
                sample.tok_s.to_string(),
                sample.rounds.to_string(),
                sample.drafted.to_string(),
                sample.accepted.to_string(),
                sample.peak_bytes.map(|n| n.to_string()).unwrap_or_default(),
                report.build.commit.to_owned(),
                quoted(&report.host.cpu),
            ];
            text += &cells.join(",");
            text.push('\n');
        }
    }
    text
}

/// A field of a comma-separated line (RFC 4180).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Three figures, no more than the measurement has.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn count(parameters: u64) -> String {
    match parameters as f64 {
        n if n >= 1e9 => format!("{:.2} B", n / 1e9),
        n => format!("{:.2} M", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_places_and_fields_are_quoted() {
        assert_eq!([1234.4, 56.78, 0.123].map(figure), ["1234", "56.8", "0.12"]);
        assert_eq!([15_384_880, 176_000_000_000].map(count), ["15.38 M", "176.00 B"]);
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}

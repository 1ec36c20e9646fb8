//! `drivebay-agent rules`: the rules that evaluate SMART data, from the table that the agent executes. Pure.

use drivebay_common::table::{Align::Left, Table};

use super::{args::Format, explain::broken};
use drivebay_smart::{Thresholds, rules::table};

/// Columns of the widest line of a table.
pub(super) const WIDTH: usize = 80;
/// Columns of the widest verdict, the widest kind of drive, and the gaps.
const NARROW: usize = 24;

/// Renders the rules with the default thresholds.
pub fn render(format: Format) -> serde_json::Result<String> {
    let rows = table::rows(&Thresholds::default());
    if let Some(document) = format.document() {
        return document.write(&rows);
    }
    let mut text = String::new();
    if format == Format::Wide {
        for row in &rows {
            text.push_str(&format!("{} ({}, {})\n", row.code, row.drives, row.verdict));
            for (name, value) in [
                ("reads", row.field),
                ("holds", &row.condition),
                ("means", &row.meaning),
                ("do", row.action),
                ("acknowledge", row.acknowledge),
                ("source", row.source),
            ] {
                text.push_str(&broken(&format!("  {name:<12}"), value, WIDTH));
            }
        }
        return Ok(text);
    }
    let mut table = Table::new(&[
        ("VERDICT", Left),
        ("DRIVES", Left),
        ("ATTRIBUTE OR FIELD", Left),
    ]);
    for row in &rows {
        let mut below = Vec::new();
        for (name, value) in [
            ("when", row.condition.as_str()),
            ("code", row.code),
            ("from", row.source),
        ] {
            let lines = broken(&format!("{name:<5}"), value, WIDTH - NARROW + 5);
            below.extend(lines.lines().map(str::to_owned));
        }
        let cells = [row.verdict, row.drives, row.field].map(str::to_owned);
        table.row(cells.to_vec(), below);
    }
    Ok(table.render())
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn the_table_fits_a_terminal_and_has_every_rule() {
        for format in [Format::Table, Format::Wide] {
            let text = render(format).unwrap();
            for line in text.lines() {
                assert!(line.width() <= WIDTH, "{line}");
            }
            for row in table::rows(&Thresholds::default()) {
                assert!(text.contains(row.code), "{}", row.code);
            }
        }
        let json: serde_json::Value = serde_json::from_str(&render(Format::Json).unwrap()).unwrap();
        let rows = json.as_array().unwrap();
        assert_eq!(rows.len(), table::rows(&Thresholds::default()).len());
        assert!(
            rows.iter()
                .all(|row| row["meaning"].is_string() && row["source"].is_string())
        );
    }
}

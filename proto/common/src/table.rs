//! Tables for a terminal: columns aligned by display width, nothing in a cell that could move the cursor. Pure.

use unicode_width::UnicodeWidthStr;

/// Between two columns.
const GAP: &str = "  ";

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Texts.
    Left,
    /// Numbers and sizes.
    Right,
}

/// Rows under a header; a row may have lines of its own below it.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    widths: Vec<usize>,
    rows: Vec<(Vec<String>, Vec<String>)>,
    // Whether `take` has shown the header.
    begun: bool,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            widths: columns.iter().map(|(name, _)| name.width()).collect(),
            rows: Vec::new(),
            begun: false,
        }
    }

    /// Adds a row, and lines to be shown indented below it. An empty cell is shown as `-`.
    pub fn row(&mut self, cells: Vec<String>, below: Vec<String>) {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| {
                if cell.is_empty() {
                    "-".to_owned()
                } else {
                    printable(&cell)
                }
            })
            .collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.width());
        }
        let below = below.iter().map(|line| printable(line)).collect();
        self.rows.push((cells, below));
    }

    /// Rows that were added and not yet taken.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row that was not yet taken.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, each line ended by a newline; no spaces at line ends.
    pub fn render(&self) -> String {
        let mut text = self.header();
        self.body(&mut text);
        text
    }

    /// The rows so far, which are then forgotten, so that a table of any length fits into memory: the
    /// header comes once, and columns only ever grow wider. Nothing when there is no new row.
    pub fn take(&mut self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut text = if self.begun {
            String::new()
        } else {
            self.header()
        };
        self.begun = true;
        self.body(&mut text);
        self.rows.clear();
        text
    }

    fn header(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        self.line(&names)
    }

    fn body(&self, text: &mut String) {
        for (cells, below) in &self.rows {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            text.push_str(&self.line(&cells));
            for line in below {
                text.push_str("    ");
                text.push_str(line);
                text.push('\n');
            }
        }
    }

    fn line(&self, cells: &[&str]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(&self.widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match align {
                Align::Left => {
                    line.push_str(cell);
                    line.push_str(&padding);
                }
                Align::Right => {
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Text that came from a drive or a user, with everything that a terminal could act upon escaped:
/// control characters, and marks that turn the writing direction.
pub fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        let acts = c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if acts {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Bytes as a person reads them: binary units, one decimal below 10, cut and not rounded up (free space
/// shown must exist).
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut index = 0;
    while index + 1 < UNITS.len() && bytes >> (10 * (index + 2)) > 0 {
        index += 1;
    }
    let unit = 1_u64 << (10 * (index + 1));
    let (whole, rest) = (bytes / unit, bytes % unit);
    let tenth = u128::from(rest) * 10 / u128::from(unit);
    let name = UNITS.get(index).copied().unwrap_or("");
    if whole >= 100 || (whole >= 10 && tenth == 0) || rest == 0 {
        format!("{whole} {name}")
    } else {
        format!("{whole}.{tenth} {name}")
    }
}

/// Seconds as a person reads them: the two largest units, the second one only when it is not zero.
pub fn human_seconds(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let first = parts
        .iter()
        .position(|(count, _)| *count > 0)
        .unwrap_or(parts.len() - 1);
    let shown = parts.iter().skip(first).take(2).enumerate();
    shown
        .filter(|(index, (count, _))| *index == 0 || *count > 0)
        .map(|(index, (count, unit))| {
            if index == 0 {
                format!("{count}{unit}")
            } else {
                format!("{count:02}{unit}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_what_is_seen_not_by_bytes() {
        let mut table = Table::new(&[
            ("NAME", Align::Left),
            ("SIZE", Align::Right),
            ("X", Align::Left),
        ]);
        table.row(
            vec!["数据库".into(), "1 GiB".into(), String::new()],
            vec!["under it".into()],
        );
        table.row(vec!["a".into(), "10.5 GiB".into(), "é".into()], Vec::new());
        assert_eq!(
            table.render(),
            "NAME        SIZE  X\n\
             数据库     1 GiB  -\n    under it\n\
             a       10.5 GiB  é\n"
        );
    }

    #[test]
    fn a_table_in_pieces_is_the_whole_table_when_no_column_grows() {
        let rows = ["alpha", "b", "gamma"].map(|name| vec![name.to_owned(), "1".into()]);
        let columns = [("NAME", Align::Left), ("N", Align::Right)];
        let (mut whole, mut pieces) = (Table::new(&columns), Table::new(&columns));
        assert_eq!(pieces.take(), "", "no header over nothing");
        let mut taken = String::new();
        for row in rows {
            whole.row(row.clone(), vec!["below".into()]);
            pieces.row(row, vec!["below".into()]);
            taken.push_str(&pieces.take());
        }
        assert_eq!(taken, whole.render());
        assert!(pieces.is_empty() && pieces.take().is_empty());
        pieces.row(vec!["a longer name".into(), String::new()], Vec::new());
        pieces.row(vec!["c".into(), "1".into()], Vec::new());
        assert_eq!(pieces.take(), "a longer name  -\nc              1\n");
    }

    #[test]
    fn what_a_drive_says_of_itself_cannot_move_the_cursor() {
        assert_eq!(
            printable("A\u{1b}[2J\nB\u{202e}"),
            "A\\u{1b}[2J\\u{a}B\\u{202e}"
        );
        assert_eq!(printable("größe 数据"), "größe 数据");
    }

    #[test]
    fn sizes_are_cut_never_rounded_up() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (10 << 30, "10 GiB"),
            ((10 << 30) + (1 << 29), "10.5 GiB"),
            ((2 << 40) - 1, "1.9 TiB"),
            (500_000_000_000, "465 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }

    #[test]
    fn durations_show_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m01s"),
            (3661, "1h01m"),
            (3601, "1h"),
            (86_400, "1d"),
            (90_000, "1d01h"),
        ] {
            assert_eq!(human_seconds(seconds), text);
        }
    }
}

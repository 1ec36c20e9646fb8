//! Tables for a terminal: columns aligned by display width, nothing in a cell that could move the cursor. Pure.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{paint::Paint, terminal::Terminal, text::acts};

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

/// Columns whose cells are coloured by how bad it is.
const PAINTED: [&str; 3] = ["HEALTH", "CONDITION", "STATE"];

/// Rows under a header; a row may have lines of its own below it.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    widths: Vec<usize>,
    rows: Vec<Row>,
    terminal: Terminal,
    // Columns that are left out where not all fit, the first ones first.
    dispensable: Vec<&'static str>,
    left_out: Vec<&'static str>,
    header: bool,
    // Whether `take` has shown the header.
    begun: bool,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    // After the last column, cut at the terminal's width.
    tail: String,
    below: Vec<String>,
}

impl Table {
    /// A table with these columns, as a pipe gets it.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            widths: columns.iter().map(|(name, _)| name.width()).collect(),
            rows: Vec::new(),
            terminal: Terminal::NONE,
            dispensable: Vec::new(),
            left_out: Vec::new(),
            header: true,
            begun: false,
        }
    }

    /// Shown there. Where it is too narrow, columns are left out, in this order, and said to be.
    pub fn on(mut self, terminal: Terminal, dispensable: &[&'static str]) -> Self {
        self.terminal = terminal;
        self.dispensable = dispensable.to_vec();
        self
    }

    /// Rows alone.
    pub fn without_header(mut self) -> Self {
        self.header = false;
        self
    }

    /// Adds a row, and lines to be shown indented below it. An empty cell is shown as `-`.
    pub fn row(&mut self, cells: Vec<String>, below: Vec<String>) {
        let below = below.iter().map(|line| printable(line)).collect();
        self.add(cells, String::new(), below);
    }

    /// Adds a row that is one line: its first cells, and a few words instead of the others.
    pub fn line(&mut self, cells: Vec<String>, tail: &str) {
        self.add(cells, printable(tail), Vec::new());
    }

    fn add(&mut self, cells: Vec<String>, tail: String, below: Vec<String>) {
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
        self.rows.push(Row { cells, tail, below });
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
    pub fn render(mut self) -> String {
        self.fit();
        let mut text = self.head();
        self.body(&mut text);
        text + &self.footnote()
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
            self.fit();
            self.head()
        };
        self.begun = true;
        self.body(&mut text);
        self.rows.clear();
        text
    }

    /// Which columns were left out.
    pub fn footnote(&self) -> String {
        let note = match self.left_out.as_slice() {
            [] => return String::new(),
            [one] => format!("({one} does not fit; -o wide shows it)"),
            several => format!("({} do not fit; -o wide shows them)", several.join(", ")),
        };
        self.terminal.hanging("", " ", &note)
    }

    fn fit(&mut self) {
        let Some(most) = self.terminal.width else {
            return;
        };
        for name in self.dispensable.clone() {
            let shown = self
                .widths
                .iter()
                .enumerate()
                .filter(|(at, _)| self.shows(*at));
            let wide: usize = shown.map(|(_, width)| width + GAP.len()).sum();
            if wide.saturating_sub(GAP.len()) <= most {
                break;
            }
            if self.columns.iter().any(|(column, _)| *column == name) {
                self.left_out.push(name);
            }
        }
    }

    fn shows(&self, column: usize) -> bool {
        let name = self.columns.get(column).map(|(name, _)| name);
        name.is_some_and(|name| !self.left_out.contains(name))
    }

    fn head(&self) -> String {
        if !self.header {
            return String::new();
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        self.cells(&names, "", Paint::PLAIN)
    }

    fn body(&self, text: &mut String) {
        for row in &self.rows {
            let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
            text.push_str(&self.cells(&cells, &row.tail, self.terminal.paint));
            for line in &row.below {
                // What follows the code or the name at its beginning is below itself.
                let hang = "      ".to_owned();
                text.push_str(&self.terminal.hanging("    ", &hang, line));
            }
        }
    }

    fn cells(&self, cells: &[&str], tail: &str, paint: Paint) -> String {
        let mut line = String::new();
        let mut wide = 0;
        let columns = cells.iter().zip(&self.widths).zip(&self.columns);
        let shown = columns.enumerate().filter(|(at, _)| self.shows(*at));
        let mut padding_before = String::new();
        for (_, ((cell, width), (name, align))) in shown {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            line.push_str(&padding_before);
            if *align == Align::Right {
                line.push_str(&padding);
            }
            match PAINTED.contains(name) {
                true => line.push_str(&paint.word(cell)),
                false => line.push_str(cell),
            }
            padding_before = match align {
                Align::Left => padding + GAP,
                Align::Right => GAP.to_owned(),
            };
            wide += width + GAP.len();
        }
        if !tail.is_empty() {
            line.push_str(&padding_before);
            let room = self.terminal.width.map(|width| width.saturating_sub(wide));
            line.push_str(&cut(tail, room));
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Text that takes at most this many columns; None: all of it.
pub fn cut(text: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|room| text.width() > *room) else {
        return text.to_owned();
    };
    let mut short = String::new();
    for c in text.chars() {
        if short.width() + c.width().unwrap_or(0) + 1 > room {
            break;
        }
        short.push(c);
    }
    match short.is_empty() {
        true => short,
        false => short + "…",
    }
}

/// Text that came from a drive or a user, with everything that a terminal could act upon escaped:
/// control characters, and marks that turn the writing direction.
pub fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) {
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
    fn what_does_not_fit_a_terminal_is_broken_cut_or_left_out_and_said_to_be() {
        let table = |terminal| {
            let columns = [
                ("NAME", Align::Left),
                ("SIZE", Align::Right),
                ("HEALTH", Align::Left),
                ("WEAR", Align::Right),
            ];
            let mut table = Table::new(&columns).on(terminal, &["SIZE", "NONE", "WEAR"]);
            let row = ["wwn-0x5000c500a1b2c3d4", "10 GiB", "BAD", "100%"];
            let row = row.map(str::to_owned).to_vec();
            table.row(
                row.clone(),
                vec!["Code: some words about it, more than fit".into()],
            );
            table.line(row, "Filesystem, Mounted");
            table.render()
        };
        assert_eq!(
            table(Terminal::NONE),
            "\
NAME                      SIZE  HEALTH  WEAR
wwn-0x5000c500a1b2c3d4  10 GiB  BAD     100%
    Code: some words about it, more than fit
wwn-0x5000c500a1b2c3d4  10 GiB  BAD     100%  Filesystem, Mounted
"
        );
        let narrow = |width| Terminal {
            width: Some(width),
            ..Terminal::NONE
        };
        assert_eq!(
            table(narrow(43)),
            "\
NAME                    HEALTH  WEAR
wwn-0x5000c500a1b2c3d4  BAD     100%
    Code: some words about it, more than
      fit
wwn-0x5000c500a1b2c3d4  BAD     100%  File…
(SIZE does not fit; -o wide shows it)
"
        );
        let text = table(narrow(22));
        assert!(
            text.ends_with("(SIZE, WEAR do not\n fit; -o wide shows\n them)\n"),
            "{text}"
        );
        let text = table(narrow(200));
        assert_eq!(text, table(Terminal::NONE));
    }

    #[test]
    fn colours_change_no_alignment_and_come_in_their_columns_alone() {
        let painted = Terminal {
            width: None,
            paint: Paint::COLOURED,
        };
        let columns = [
            ("NAME", Align::Left),
            ("HEALTH", Align::Left),
            ("N", Align::Left),
        ];
        let mut table = Table::new(&columns).on(painted, &[]).without_header();
        table.row(vec!["BAD".into(), "BAD".into(), "1".into()], Vec::new());
        assert_eq!(table.render(), "BAD   \u{1b}[31mBAD\u{1b}[0m     1\n");
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

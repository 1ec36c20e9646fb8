//! Tables for a terminal: columns aligned by display width, with control characters in cells escaped. Pure.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use crate::units::{human_seconds, human_size};
use crate::{paint::Paint, terminal::Terminal, text::acts};

/// Text between adjacent columns; part of the width that has to fit the terminal.
const GAP: &str = "  ";

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Columns whose cells are coloured by severity.
const PAINTED: [&str; 3] = ["HEALTH", "CONDITION", "STATE"];

/// Smallest width of a name column that is cut in its middle: `wwn-0x50…a1b2c3d4`.
const LEAST_OF_NAME: usize = 17;

/// Smallest width of the last text column, which is cut at its end.
const LEAST_OF_TEXT: usize = 12;

/// Lines of a limited height that are not rows: the header, the number of rows not shown, a summary and two notes.
const NOT_ROWS: usize = 5;

/// Columns that may be cut or left out if the table is too wide.
#[derive(Debug, Clone, Copy, Default)]
pub struct Yielding<'a> {
    /// Columns whose cells are cut in the middle.
    pub names: &'a [&'static str],
    /// Columns that are left out, in this order; of these, columns without any value are left out first.
    pub dispensable: &'a [&'static str],
}

/// Rows under a header; a row may have lines of its own below it.
///
/// On a terminal that is too narrow, in this order: empty columns are left out; names are cut in the middle and the last text column at its
/// end; further columns are left out, which the footnote says. If the height is limited, only the first rows are shown, and the number of
/// the others.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    terminal: Terminal,
    // In the order in which they are left out.
    dispensable: Vec<&'static str>,
    left_out: Vec<&'static str>,
    header: bool,
    // True if `take` has returned the header.
    begun: bool,
    // Numbers of rows that were shown and not shown.
    shown: usize,
    unshown: usize,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    align: Align,
    // Width of its widest cell.
    width: usize,
    // Largest width that is shown.
    room: usize,
    empty: bool,
    hidden: bool,
    is_name: bool,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    below: Vec<String>,
}

impl Table {
    /// Creates a table with these columns, for a pipe: nothing is cut or left out.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| Column {
            name,
            align: *align,
            width: name.width(),
            room: usize::MAX,
            empty: true,
            hidden: false,
            is_name: false,
        });
        Self {
            columns: columns.collect(),
            rows: Vec::new(),
            terminal: Terminal::NONE,
            dispensable: Vec::new(),
            left_out: Vec::new(),
            header: true,
            begun: false,
            shown: 0,
            unshown: 0,
        }
    }

    /// Sets the terminal, and the columns that may be cut or left out.
    pub fn on(mut self, terminal: Terminal, yielding: Yielding<'_>) -> Self {
        self.terminal = terminal;
        self.dispensable = yielding.dispensable.to_vec();
        for column in &mut self.columns {
            column.is_name = yielding.names.contains(&column.name);
        }
        self
    }

    /// Leaves out the header.
    pub fn without_header(mut self) -> Self {
        self.header = false;
        self
    }

    /// Adds a row, and lines to be shown indented below it. An empty cell is shown as `-`.
    pub fn row(&mut self, cells: Vec<String>, below: Vec<String>) {
        let below = below.iter().map(|line| printable(line)).collect();
        let cells = cells.into_iter().zip(&mut self.columns);
        let cells = cells.map(|(cell, column)| {
            if cell.is_empty() {
                column.width = column.width.max(1);
                return "-".to_owned();
            }
            let cell = printable(&cell);
            column.empty = false;
            column.width = column.width.max(cell.width());
            cell
        });
        let cells = cells.collect();
        self.rows.push(Row { cells, below });
    }

    /// Returns the number of rows that were added and not yet taken.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if `len` is 0.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the text; each line ends with a newline, without trailing spaces.
    pub fn render(mut self) -> String {
        self.fit();
        let mut text = self.head();
        self.body(&mut text);
        text + &self.footnote()
    }

    /// Returns the rows added so far and drops them, so that a table of any length fits into memory; the header comes once, and columns
    /// only become wider. Empty if there is no new row.
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

    /// Returns the number of rows and the names of columns that are not shown; empty if all are.
    pub fn footnote(&self) -> String {
        let more = match self.unshown {
            0 => String::new(),
            more => format!("+{more} more\n"),
        };
        let note = match self.left_out.as_slice() {
            [] => return more,
            [one] => format!("({one} does not fit; -o wide shows it)"),
            several => format!("({} do not fit; -o wide shows them)", several.join(", ")),
        };
        more + &self.terminal.hanging("", " ", &note)
    }

    fn fit(&mut self) {
        let Some(most) = self.terminal.width else {
            return;
        };
        // A table without such columns is `-o wide`, which shows everything.
        if self.dispensable.is_empty() && self.columns.iter().all(|column| !column.is_name) {
            return;
        }
        if self.natural() > most {
            for column in &mut self.columns {
                column.hidden = column.empty && self.dispensable.contains(&column.name);
            }
        }
        for name in self.dispensable.clone() {
            if self.least() <= most {
                break;
            }
            let column = self.columns.iter_mut().find(|column| column.name == name);
            if let Some(column) = column.filter(|column| !column.hidden) {
                column.hidden = true;
                self.left_out.push(name);
            }
        }
        self.share(most.saturating_sub(self.least()));
    }

    /// Distributes the spare width among columns that are cut: first the last one, then names, from the narrowest on.
    fn share(&mut self, mut spare: usize) {
        let last = self.last();
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|at| {
            let width = self.columns.get(*at).map_or(0, |column| column.width);
            (Some(*at) != last, width)
        });
        for at in order {
            let Some(column) = self.columns.get_mut(at).filter(|column| !column.hidden) else {
                continue;
            };
            let least = column.least(Some(at) == last);
            let more = spare.min(column.width - least);
            spare -= more;
            // The other columns are not limited, so that wider cells of later rows fit.
            if column.is_name || Some(at) == last {
                column.room = least + more;
            }
        }
    }

    /// Returns the index of the last column that is shown, if it is left-aligned.
    fn last(&self) -> Option<usize> {
        let shown = self.columns.iter().rposition(|column| !column.hidden)?;
        let column = self.columns.get(shown)?;
        (column.align == Align::Left).then_some(shown)
    }

    fn natural(&self) -> usize {
        self.wide(|_, column| column.width)
    }

    fn least(&self) -> usize {
        let last = self.last();
        self.wide(|at, column| column.least(Some(at) == last))
    }

    fn wide(&self, of: impl Fn(usize, &Column) -> usize) -> usize {
        let columns = self.columns.iter().enumerate();
        let shown = columns.filter(|(_, column)| !column.hidden);
        let wide: usize = shown.map(|(at, column)| of(at, column) + GAP.len()).sum();
        wide.saturating_sub(GAP.len())
    }

    fn head(&self) -> String {
        if !self.header {
            return String::new();
        }
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        self.cells(&names, Paint::PLAIN)
    }

    fn body(&mut self, text: &mut String) {
        let height = self.terminal.height;
        let most = height.map(|height| height.saturating_sub(NOT_ROWS).max(1));
        for row in &self.rows {
            let lines = 1 + row.below.len();
            if self.unshown > 0 || most.is_some_and(|most| self.shown + lines > most) {
                self.unshown += 1;
                continue;
            }
            self.shown += lines;
            let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
            text.push_str(&self.cells(&cells, self.terminal.paint));
            for line in &row.below {
                // Continuation lines are indented below the code or the name at the line's beginning.
                text.push_str(&self.terminal.hanging("    ", "      ", line));
            }
        }
    }

    fn cells(&self, cells: &[&str], paint: Paint) -> String {
        let mut line = String::new();
        let mut padding_before = String::new();
        let columns = cells.iter().zip(&self.columns);
        for (cell, column) in columns.filter(|(_, column)| !column.hidden) {
            let cell = match column.is_name {
                true => cut_in_middle(cell, column.room),
                false => cut(cell, Some(column.room)),
            };
            let padding = " ".repeat(column.width.min(column.room).saturating_sub(cell.width()));
            line.push_str(&padding_before);
            if column.align == Align::Right {
                line.push_str(&padding);
            }
            match PAINTED.contains(&column.name) {
                true => line.push_str(&paint.word(&cell)),
                false => line.push_str(&cell),
            }
            padding_before = match column.align {
                Align::Left => padding + GAP,
                Align::Right => GAP.to_owned(),
            };
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

impl Column {
    /// Returns the smallest width to which it can be cut. `last`: it is the last column and left-aligned.
    fn least(&self, last: bool) -> usize {
        match (self.is_name, last) {
            (true, _) => self.width.min(LEAST_OF_NAME.max(self.name.width())),
            (false, true) => self.width.min(LEAST_OF_TEXT.max(self.name.width())),
            (false, false) => self.width,
        }
    }
}

/// Returns the display width of a text in columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns text cut to at most this many columns; None: not cut.
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

/// Returns a name cut to at most this many columns: its beginning and its end, which distinguish it, with `…` between them.
fn cut_in_middle(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let end = kept / 2;
    let taken = |chars: &mut dyn Iterator<Item = char>, most: usize| {
        let mut wide = 0;
        let fits = chars.take_while(|c| {
            wide += c.width().unwrap_or(0);
            wide <= most
        });
        fits.collect::<Vec<char>>()
    };
    let first = taken(&mut text.chars(), kept - end);
    let last = taken(&mut text.chars().rev(), end);
    let last = last.into_iter().rev();
    first.into_iter().chain(['…']).chain(last).collect()
}

/// Returns text of a drive or a user with everything escaped that a terminal could interpret: control characters, and marks that change the
/// writing direction.
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
    fn what_does_not_fit_a_terminal_is_broken_cut_or_left_out_and_reported() {
        let table = |terminal| {
            let columns = [
                ("NAME", Align::Left),
                ("SIZE", Align::Right),
                ("HEALTH", Align::Left),
                ("NONE", Align::Left),
                ("WEAR", Align::Right),
                ("REASON", Align::Left),
            ];
            let mut table = Table::new(&columns).on(
                terminal,
                Yielding {
                    names: &["NAME"],
                    dispensable: &["SIZE", "NONE", "WEAR"],
                },
            );
            let row = [
                "wwn-0x5000c500a1b2c3d4",
                "10 GiB",
                "BAD",
                "",
                "100%",
                "Filesystem, Mounted",
            ];
            let row = row.map(str::to_owned).to_vec();
            table.row(row, vec!["Code: some words about it, more than fit".into()]);
            table.render()
        };
        assert_eq!(
            table(Terminal::NONE),
            "\
NAME                      SIZE  HEALTH  NONE  WEAR  REASON
wwn-0x5000c500a1b2c3d4  10 GiB  BAD     -     100%  Filesystem, Mounted
    Code: some words about it, more than fit
"
        );
        let narrow = |width| Terminal {
            width: Some(width),
            ..Terminal::NONE
        };
        // An empty column is left out first, without a note.
        assert_eq!(
            table(narrow(70)),
            "\
NAME                      SIZE  HEALTH  WEAR  REASON
wwn-0x5000c500a1b2c3d4  10 GiB  BAD     100%  Filesystem, Mounted
    Code: some words about it, more than fit
"
        );
        // Then names are cut in the middle, and the last column at its end.
        assert_eq!(
            table(narrow(62)),
            "\
NAME                   SIZE  HEALTH  WEAR  REASON
wwn-0x500…0a1b2c3d4  10 GiB  BAD     100%  Filesystem, Mounted
    Code: some words about it, more than fit
"
        );
        // Then columns are left out.
        assert_eq!(
            table(narrow(47)),
            "\
NAME               HEALTH  WEAR  REASON
wwn-0x50…a1b2c3d4  BAD     100%  Filesystem, M…
    Code: some words about it, more than fit
(SIZE does not fit; -o wide shows it)
"
        );
        let text = table(narrow(40));
        assert!(
            text.ends_with("(SIZE, WEAR do not fit; -o wide shows\n them)\n"),
            "{text}"
        );
        let text = table(narrow(200));
        assert_eq!(text, table(Terminal::NONE));
    }

    #[test]
    fn a_limited_height_has_the_first_rows_and_how_many_more_there_are() {
        let low = Terminal {
            height: Some(8),
            ..Terminal::NONE
        };
        let mut table = Table::new(&[("N", Align::Left)]).on(low, Yielding::default());
        for n in 0..34 {
            table.row(vec![n.to_string()], Vec::new());
        }
        assert_eq!(table.render(), "N\n0\n1\n2\n+31 more\n");
    }

    #[test]
    fn a_name_keeps_its_beginning_and_its_end() {
        assert_eq!(
            cut_in_middle("wwn-0x5000c500a1b2c3d4", 17),
            "wwn-0x50…a1b2c3d4"
        );
        assert_eq!(cut_in_middle("sda", 17), "sda");
        assert_eq!(cut_in_middle("数据库数据库", 8), "数据…库");
    }

    #[test]
    fn colours_change_no_alignment_and_come_in_their_columns_alone() {
        let painted = Terminal {
            paint: Paint::COLOURED,
            ..Terminal::NONE
        };
        let columns = [
            ("NAME", Align::Left),
            ("HEALTH", Align::Left),
            ("N", Align::Left),
        ];
        let mut table = Table::new(&columns)
            .on(painted, Yielding::default())
            .without_header();
        table.row(vec!["BAD".into(), "BAD".into(), "1".into()], Vec::new());
        assert_eq!(table.render(), "BAD   \u{1b}[31mBAD\u{1b}[0m     1\n");
    }

    #[test]
    fn what_a_drive_reports_of_itself_cannot_move_the_cursor() {
        assert_eq!(
            printable("A\u{1b}[2J\nB\u{202e}"),
            "A\\u{1b}[2J\\u{a}B\\u{202e}"
        );
        assert_eq!(printable("größe 数据"), "größe 数据");
    }
}

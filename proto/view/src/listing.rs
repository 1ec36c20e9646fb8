//! Output of a list of any length as it is received: a table in blocks of rows, JSON with one object per line, or YAML.

use std::io::{self, Write};

use drivebay_common::{
    table::{Align, Table, Yielding},
    terminal::Terminal,
};
use serde::Serialize;

use crate::{
    args::{ListArgs, ListFormat},
    document::yaml,
    row::Row,
};

/// Rows that are aligned with each other and buffered. A shorter list is printed whole or, if the connection to
/// the controller is lost, not at all.
const BLOCK: usize = 10_000;

/// A list was not printed, or a part of it.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    #[error("cannot write the answer")]
    Output(#[source] io::Error),
    #[error("cannot write the answer as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

/// A list that is being printed.
pub struct Listing<'w> {
    out: &'w mut dyn Write,
    // Key of the list in JSON and YAML.
    key: &'static str,
    rows: Rows,
    // True if notes for the operator are printed around the rows.
    notes: bool,
    shown: usize,
}

enum Rows {
    Table(Table),
    Json(String),
    Yaml(String),
    Names(String),
}

impl<'w> Listing<'w> {
    /// Returns an empty list. `yielding`: how the table is shortened if it is too wide.
    pub fn new(
        out: &'w mut dyn Write,
        args: &ListArgs,
        terminal: Terminal,
        key: &'static str,
        columns: &[(&'static str, Align)],
        yielding: Yielding<'_>,
    ) -> Self {
        let rows = match args.output {
            ListFormat::Json => Rows::Json(String::new()),
            ListFormat::Yaml => Rows::Yaml(String::new()),
            ListFormat::Name => Rows::Names(String::new()),
            ListFormat::Table => Rows::Table(table(args, columns).on(terminal, yielding)),
            ListFormat::Wide => Rows::Table(table(args, columns).on(terminal, Yielding::default())),
        };
        Self {
            out,
            key,
            rows,
            notes: !args.no_headers,
            shown: 0,
        }
    }

    /// Adds an entry as a row, as JSON or YAML, or by its name. Calls only the closure that the format needs.
    pub fn add<J: Serialize>(
        &mut self,
        row: impl FnOnce() -> Row,
        json: impl FnOnce() -> J,
        name: &str,
    ) -> Result<(), ListingError> {
        self.shown += 1;
        let block = match &mut self.rows {
            Rows::Table(table) => {
                let row = row();
                table.row(row.cells, row.below);
                if table.len() < BLOCK {
                    return Ok(());
                }
                table.take()
            }
            Rows::Json(waiting) => {
                if self.shown == 1 {
                    *waiting = format!("{{\"{}\": [\n", self.key);
                } else {
                    waiting.push_str(",\n");
                }
                waiting.push_str(&serde_json::to_string(&json())?);
                if !self.shown.is_multiple_of(BLOCK) {
                    return Ok(());
                }
                std::mem::take(waiting)
            }
            Rows::Yaml(waiting) => {
                if self.shown == 1 {
                    *waiting = format!("{}:\n", self.key);
                }
                waiting.push_str(&yaml(&[json()])?);
                if !self.shown.is_multiple_of(BLOCK) {
                    return Ok(());
                }
                std::mem::take(waiting)
            }
            Rows::Names(waiting) => {
                waiting.push_str(name);
                waiting.push('\n');
                if !self.shown.is_multiple_of(BLOCK) {
                    return Ok(());
                }
                std::mem::take(waiting)
            }
        };
        write(self.out, &block)
    }

    /// Ends the list. Prints `nothing` in place of an empty table, and `below` under the table. Returns the number of entries.
    pub fn end(self, nothing: &str, below: &str) -> Result<usize, ListingError> {
        match self.rows {
            Rows::Table(mut table) => {
                if self.shown == 0 && self.notes {
                    write(self.out, nothing)?;
                }
                write(self.out, &table.take())?;
                if self.notes {
                    write(self.out, &table.footnote())?;
                    write(self.out, below)?;
                }
            }
            Rows::Json(_) if self.shown == 0 => {
                write(self.out, &format!("{{\"{}\": []}}\n", self.key))?;
            }
            Rows::Json(waiting) => write(self.out, &format!("{waiting}\n]}}\n"))?,
            Rows::Yaml(_) if self.shown == 0 => write(self.out, &format!("{}: []\n", self.key))?,
            Rows::Yaml(waiting) | Rows::Names(waiting) => write(self.out, &waiting)?,
        }
        Ok(self.shown)
    }
}

fn table(args: &ListArgs, columns: &[(&'static str, Align)]) -> Table {
    let table = Table::new(columns);
    match args.no_headers {
        true => table.without_header(),
        false => table,
    }
}

fn write(out: &mut dyn Write, text: &str) -> Result<(), ListingError> {
    out.write_all(text.as_bytes()).map_err(ListingError::Output)
}

//! A list of any length, shown as it comes: rows of a table in blocks, or JSON one object per line.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    CommandError,
    args::Format,
    table::{Align, Table},
};

/// Rows that are aligned with each other and kept in memory. Shorter lists are shown whole or, when the
/// controller goes away in between, not at all.
const BLOCK: usize = 10_000;

/// A list on its way out.
pub struct Listing<'w> {
    out: &'w mut dyn Write,
    // What JSON calls the list.
    key: &'static str,
    rows: Rows,
    shown: usize,
}

enum Rows {
    Table(Table),
    Json(String),
}

impl<'w> Listing<'w> {
    /// A list without anything in it yet.
    pub fn new(
        out: &'w mut dyn Write,
        format: Format,
        key: &'static str,
        columns: &[(&'static str, Align)],
    ) -> Self {
        let rows = match format {
            Format::Json => Rows::Json(String::new()),
            Format::Table | Format::Wide => Rows::Table(Table::new(columns)),
        };
        Self {
            out,
            key,
            rows,
            shown: 0,
        }
    }

    /// Adds one: its cells with the lines below them, or its JSON; only the one that is wanted is made.
    pub fn add<J: Serialize>(
        &mut self,
        cells: impl FnOnce() -> (Vec<String>, Vec<String>),
        json: impl FnOnce() -> J,
    ) -> Result<(), CommandError> {
        match &mut self.rows {
            Rows::Table(table) => {
                let (cells, below) = cells();
                table.row(cells, below);
                self.shown += 1;
                if table.len() < BLOCK {
                    return Ok(());
                }
                let block = table.take();
                write(self.out, &block)
            }
            Rows::Json(waiting) => {
                if self.shown == 0 {
                    *waiting = format!("{{\"{}\": [\n", self.key);
                } else {
                    waiting.push_str(",\n");
                }
                waiting.push_str(&serde_json::to_string(&json())?);
                self.shown += 1;
                if !self.shown.is_multiple_of(BLOCK) {
                    return Ok(());
                }
                let block = std::mem::take(waiting);
                write(self.out, &block)
            }
        }
    }

    /// Ends it, with a word for a list with nothing in it and lines for a person below the table. How many
    /// were shown.
    pub fn end(self, nothing: &str, below: &str) -> Result<usize, CommandError> {
        match self.rows {
            Rows::Table(mut table) => {
                if self.shown == 0 {
                    write(self.out, nothing)?;
                }
                write(self.out, &table.take())?;
                write(self.out, below)?;
            }
            Rows::Json(_) if self.shown == 0 => {
                write(self.out, &format!("{{\"{}\": []}}\n", self.key))?;
            }
            Rows::Json(waiting) => write(self.out, &format!("{waiting}\n]}}\n"))?,
        }
        Ok(self.shown)
    }
}

/// Writes an answer, or a piece of one.
pub fn write(out: &mut dyn Write, text: &str) -> Result<(), CommandError> {
    out.write_all(text.as_bytes()).map_err(output)
}

/// The writing that failed.
pub fn output(error: io::Error) -> CommandError {
    CommandError::Output(error)
}

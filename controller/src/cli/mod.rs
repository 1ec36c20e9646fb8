//! The command line's answers.

use clap::ValueEnum;

pub mod drives;
pub mod table;
pub mod volumes;

/// How a table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// More of them.
    Wide,
    /// For programs.
    Json,
}

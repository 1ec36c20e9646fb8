//! One row of a list.

/// A row and the lines below it.
#[derive(Debug, Default)]
pub struct Row {
    pub cells: Vec<String>,
    /// Lines below the row.
    pub below: Vec<String>,
}

//! One row of a list.

/// One of a list as rows have it.
#[derive(Debug, Default)]
pub struct Row {
    pub cells: Vec<String>,
    /// Lines below the row.
    pub below: Vec<String>,
}

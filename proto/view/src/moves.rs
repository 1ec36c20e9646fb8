//! Moves of volumes to other drives, in the output of both command lines.
//!
//! Everything but [`run()`] and [`Shown`] is pure.

use std::collections::BTreeMap;

use drivebay_proto::{
    agent::{Drive, Move},
    words::MovePhase,
};

use super::table::printable;

pub mod list;
mod plan;
mod progress;
mod run;

pub use plan::plan;
pub use run::{Answer, MovesClient, MovesError, Order, Shown, Verb, interrupted, run};

/// Drives by identity, with their current kernel names.
#[derive(Debug, Clone, Default)]
pub struct Devices(BTreeMap<String, String>);

impl Devices {
    /// Collects the kernel names of these drives.
    pub fn of<'a>(drives: impl IntoIterator<Item = &'a Drive>) -> Self {
        let named = drives.into_iter();
        let named = named.filter(|drive| !drive.kernel_name.is_empty());
        Self(
            named
                .map(|drive| (drive.id.clone(), drive.kernel_name.clone()))
                .collect(),
        )
    }

    /// Returns the kernel name of a drive, or its identity if it has none.
    fn short<'a>(&'a self, id: &'a str) -> &'a str {
        self.0.get(id).map_or(id, String::as_str)
    }
}

/// Returns the completed share of a move or copy in percent, at most 100; None if its size is not known.
pub(crate) fn percent(done: u64, total: u64) -> Option<u64> {
    let percent = (u128::from(done) * 100).checked_div(u128::from(total))?;
    u64::try_from(percent.min(100)).ok()
}

/// Returns the reason for the current phase of a move, in one line; empty if there is none.
fn reason(one: &Move, in_use: bool) -> String {
    match (one.waits_for.as_str(), one.known_phase()) {
        ("", Some(MovePhase::Waiting)) if in_use => "it is in use".to_owned(),
        (why, _) => printable(why),
    }
}

/// Returns a warning about a source that could not be marked as outdated; None if it was.
fn unfenced(one: &Move) -> Option<String> {
    one.unfenced.then(|| {
        format!(
            "drive {} could not be written and still says that the volume lives on it; the copy there is out of date: do not use it",
            printable(&one.from)
        )
    })
}

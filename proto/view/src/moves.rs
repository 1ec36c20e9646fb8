//! Moving volumes to other drives, in the words of both command lines.
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

/// Drives by identity, with the kernel names that they have now.
#[derive(Debug, Clone, Default)]
pub struct Devices(BTreeMap<String, String>);

impl Devices {
    /// Of these drives.
    pub fn of<'a>(drives: impl IntoIterator<Item = &'a Drive>) -> Self {
        let named = drives.into_iter();
        let named = named.filter(|drive| !drive.kernel_name.is_empty());
        Self(
            named
                .map(|drive| (drive.id.clone(), drive.kernel_name.clone()))
                .collect(),
        )
    }

    /// The kernel name of a drive, or its identity where it has none.
    fn short<'a>(&'a self, id: &'a str) -> &'a str {
        self.0.get(id).map_or(id, String::as_str)
    }
}

/// How much of a move or of a copy is done, percent; not known of one whose size is not.
pub(crate) fn percent(done: u64, total: u64) -> Option<u64> {
    let percent = (u128::from(done) * 100).checked_div(u128::from(total))?;
    u64::try_from(percent.min(100)).ok()
}

/// Why a move stands where it does, in one line; empty: nothing is to be said.
fn reason(one: &Move, in_use: bool) -> String {
    match (one.waits_for.as_str(), one.known_phase()) {
        ("", Some(MovePhase::Waiting)) if in_use => "it is in use".to_owned(),
        (why, _) => printable(why),
    }
}

/// What is to be known of a source that could not be written; None: it could.
fn unfenced(one: &Move) -> Option<String> {
    one.unfenced.then(|| {
        format!(
            "drive {} could not be written and still says that the volume lives on it; the copy there is out of date: do not use it",
            printable(&one.from)
        )
    })
}

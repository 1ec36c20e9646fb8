//! Drives of the persisted state between the agent's start and their own first scan. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::InventoryState;
use crate::state::recalled;
use drivebay_model::DriveId;

/// A drive of the persisted state that this agent has neither scanned nor observed to be missing since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unscanned {
    /// True: an enumeration of this agent had the drive, which is missing as soon as another one does not.
    pub enumerated: bool,
}

impl InventoryState {
    /// Adopts the state that an earlier agent persisted. None of its drives is present or missing until this agent has
    /// observed that.
    pub fn recall(&mut self, remembered: crate::state::LastKnown) {
        let drives = remembered.drives.keys();
        self.unscanned = drives
            .map(|id| (id.clone(), Unscanned::default()))
            .collect();
        self.remembered = remembered;
    }

    /// Like `recall`, for state that could not be read at start, while this agent has been running.
    pub fn recall_late(&mut self, earlier: crate::state::LastKnown) {
        let drives = earlier.drives.keys();
        let new = drives.filter(|id| {
            !self.drives.contains_key(*id) && !self.remembered.drives.contains_key(*id)
        });
        for id in new {
            self.unscanned.entry(id.clone()).or_default();
        }
        self.remembered = recalled(earlier, &self.remembered, &self.tombstones);
    }
}

/// Applies an enumeration that has ended. A drive that is not `present` is missing if an earlier one had it, or if this
/// one is `complete`: it ended so long after the host's boot that every drive has appeared.
pub fn enumerate(
    unscanned: &mut BTreeMap<DriveId, Unscanned>,
    present: &BTreeSet<&DriveId>,
    complete: bool,
) {
    unscanned.retain(|id, drive| {
        let is_present = present.contains(id);
        let is_missing = !is_present && (drive.enumerated || complete);
        drive.enumerated |= is_present;
        !is_missing
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_missing_when_it_went_or_when_every_drive_has_appeared_without_it() {
        let id = DriveId("wwn-a".into());
        let present = BTreeSet::from([&id]);
        let none = BTreeSet::new();
        for (what, enumerations, missing) in [
            ("not enumerated yet", vec![], false),
            ("the host has just booted", vec![(&none, false)], false),
            (
                "it may appear for so long",
                vec![(&none, false), (&none, true)],
                true,
            ),
            ("it is present", vec![(&present, true)], false),
            (
                "it appeared late",
                vec![(&none, false), (&present, true)],
                false,
            ),
            (
                "it was removed",
                vec![(&present, false), (&none, false)],
                true,
            ),
            ("it was never there", vec![(&none, true)], true),
        ] {
            let mut unscanned = BTreeMap::from([(id.clone(), Unscanned::default())]);
            for (present, complete) in enumerations {
                enumerate(&mut unscanned, present, complete);
            }
            assert_eq!(unscanned.is_empty(), missing, "{what}");
        }
    }
}

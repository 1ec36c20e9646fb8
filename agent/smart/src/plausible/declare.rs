//! Declaration of a number: its field, unit, range, and contradictions.

use std::ops::RangeInclusive;

use super::Dropped;
use crate::facts::Facts;

/// A number that rules read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Reallocated,
    SpinRetries,
    EndToEnd,
    ReportedUncorrect,
    CommandTimeout,
    PendingSectors,
    OfflineUncorrectable,
    InterfaceCrc,
    StatisticReallocated,
    StatisticUncorrectable,
    StatisticInterfaceCrc,
    AtaPendingDefects,
    RotationRate,
    PowerOnHours,
    ScsiRead,
    ScsiWrite,
    ScsiVerify,
    GrownDefects,
    ScsiPendingDefects,
    CriticalWarning,
    EnduranceGroups,
    Spare,
    SpareThreshold,
    PercentageUsed,
    MediaErrors,
}

/// A condition with which a value cannot be true.
pub(super) struct Contradiction {
    /// Reason, as a clause about the value.
    pub reason: &'static str,
    pub holds: fn(&Facts, u64) -> bool,
}

/// The declaration of one number.
pub(super) struct Declared {
    pub field: Field,
    /// Name of the field in findings.
    pub name: &'static str,
    pub unit: &'static str,
    pub range: RangeInclusive<u64>,
    pub read: fn(&Facts) -> Option<u64>,
    /// True if it counts failures and not only a deep poll has it. Without any such value a drive cannot be GOOD by its counters.
    pub is_failure: bool,
    pub contradictions: &'static [Contradiction],
}

impl Declared {
    /// Returns the value if it can be true.
    pub(super) fn value(&self, facts: &Facts) -> Option<u64> {
        let value = (self.read)(facts)?;
        self.objection(facts, value).is_none().then_some(value)
    }

    /// Returns the value, with the reason, if it cannot be true.
    pub(super) fn dropped(&self, facts: &Facts) -> Option<Dropped> {
        let value = (self.read)(facts)?;
        let reason = self.objection(facts, value)?;
        Some(Dropped {
            field: self.name.to_owned(),
            value,
            reason,
        })
    }

    fn objection(&self, facts: &Facts, value: u64) -> Option<String> {
        if !self.range.contains(&value) {
            let (from, to) = (self.range.start(), self.range.end());
            return Some(format!("it is not between {from} and {to} {}", self.unit));
        }
        let mut contradictions = self.contradictions.iter();
        let contradiction =
            contradictions.find(|contradiction| (contradiction.holds)(facts, value));
        contradiction.map(|contradiction| contradiction.reason.to_owned())
    }

    /// Returns name, unit, range and contradictions, for documents.
    #[cfg(test)]
    pub(super) fn row(&self) -> [String; 4] {
        let reasons = self.contradictions.iter().map(|one| one.reason);
        let reasons: Vec<&str> = reasons.collect();
        [
            self.name.to_owned(),
            self.unit.to_owned(),
            format!("{} to {}", self.range.start(), self.range.end()),
            reasons.join("; "),
        ]
    }
}

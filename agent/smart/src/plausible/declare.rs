//! What is declared of a number: who it is, its unit, its range, and what contradicts it.

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

/// Something that a value cannot be true with.
pub(super) struct Contradiction {
    /// As a clause about the value.
    pub reason: &'static str,
    pub holds: fn(&Facts, u64) -> bool,
}

/// The declaration of one number.
pub(super) struct Declared {
    pub field: Field,
    /// The name that findings have for it.
    pub name: &'static str,
    pub unit: &'static str,
    pub range: RangeInclusive<u64>,
    pub read: fn(&Facts) -> Option<u64>,
    /// It counts failures, and not only a deep poll has it: where nothing of the kind is left, a drive is not known to be
    /// well.
    pub is_failure: bool,
    pub contradictions: &'static [Contradiction],
}

impl Declared {
    /// The value, when it can be true.
    pub(super) fn value(&self, facts: &Facts) -> Option<u64> {
        let value = (self.read)(facts)?;
        self.objection(facts, value).is_none().then_some(value)
    }

    /// The value, when it cannot.
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
        let found = contradictions.find(|contradiction| (contradiction.holds)(facts, value));
        found.map(|contradiction| contradiction.reason.to_owned())
    }

    /// Name, unit, range and contradictions, for documents.
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

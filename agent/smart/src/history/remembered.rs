//! Facts that only a deep poll reads, kept for the light polls in between: otherwise a finding would appear and disappear with the kind of
//! poll.

use serde::{Deserialize, Serialize};

use super::super::{
    facts::{Detail, Facts, LoggedError, Statistic, Temperature},
    plausible::STATISTICS,
    rules::{ENDURANCE, counts_physical, wear},
};

/// Facts of the last poll that had them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    #[serde(default)]
    pending_defects: Option<u64>,
    #[serde(default)]
    endurance_used: Option<u64>,
    #[serde(default)]
    limits: Temperature,
    #[serde(default)]
    nvme_limits: (Option<i32>, Option<i32>),
    /// ATA: the device statistics that rules read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    statistics: Vec<Statistic>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logged_uncorrectable: Option<Vec<LoggedError>>,
    /// ATA: true if a count of sectors was no multiple of the logical sectors in a physical one.
    #[serde(default)]
    counts_physical: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background_status: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background_errors: Option<Vec<LoggedError>>,
}

/// Makes both the new value if there is one, else the old one.
fn newest<T: Clone>(new: &mut Option<T>, old: &mut Option<T>) {
    match new {
        Some(_) => old.clone_from(new),
        None => new.clone_from(old),
    }
}

impl Remembered {
    /// Fills in facts that this answer lacks, and keeps those that it has.
    pub(super) fn complete(&mut self, facts: &mut Facts) {
        let temperature = &mut facts.temperature;
        newest(
            &mut temperature.operating_max,
            &mut self.limits.operating_max,
        );
        newest(&mut temperature.critical_max, &mut self.limits.critical_max);
        newest(&mut temperature.trip, &mut self.limits.trip);
        if !matches!(facts.detail, Detail::Ata(_)) {
            match wear(facts) {
                Some(wear) => self.endurance_used = Some(wear.percent),
                None => facts.endurance_used = self.endurance_used,
            }
        }
        self.counts_physical |= counts_physical(facts);
        facts.counts_physical = self.counts_physical;
        match &mut facts.detail {
            Detail::Ata(ata) => {
                newest(&mut ata.pending_defects, &mut self.pending_defects);
                newest(
                    &mut ata.logged_uncorrectable,
                    &mut self.logged_uncorrectable,
                );
                newest(&mut ata.error_count, &mut self.error_count);
                self.complete_statistics(&mut ata.statistics);
            }
            Detail::Scsi(scsi) => {
                newest(&mut scsi.pending_defects, &mut self.pending_defects);
                newest(&mut scsi.background_status, &mut self.background_status);
                newest(&mut scsi.background_errors, &mut self.background_errors);
            }
            Detail::Nvme(nvme) => {
                newest(&mut nvme.warning_temperature, &mut self.nvme_limits.0);
                newest(&mut nvme.critical_temperature, &mut self.nvme_limits.1);
            }
            Detail::Mmc(_) | Detail::Unknown => {}
        }
    }

    fn complete_statistics(&mut self, statistics: &mut Vec<Statistic>) {
        let wanted = [ENDURANCE].into_iter().chain(STATISTICS);
        for place in wanted {
            let is_it = |one: &&Statistic| (one.page, one.offset) == place;
            let new = statistics.iter().find(is_it).cloned();
            let old = self.statistics.iter().find(is_it).cloned();
            match (new, old) {
                (Some(new), _) => {
                    self.statistics.retain(|one| !is_it(&one));
                    self.statistics.push(new);
                }
                (None, old) => statistics.extend(old),
            }
        }
    }
}

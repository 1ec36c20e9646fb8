//! What only a deep poll tells, kept for the light ones in between: or a finding would come and go
//! with the kind of poll.

use serde::{Deserialize, Serialize};

use super::super::{
    facts::{Detail, Facts, LoggedError, Statistic, Temperature},
    rules::{ENDURANCE, WearSource, counts_physical, wear},
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
    /// Of ATA: the percentage used in the device statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endurance_statistic: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logged_uncorrectable: Option<Vec<LoggedError>>,
    /// Of ATA: a count of sectors was no multiple of the logical sectors in a physical one.
    #[serde(default)]
    counts_physical: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background_status: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    background_errors: Option<Vec<LoggedError>>,
}

/// Takes the new value where there is one, else the old.
fn newest<T: Clone>(new: &mut Option<T>, old: &mut Option<T>) {
    match new {
        Some(_) => old.clone_from(new),
        None => new.clone_from(old),
    }
}

impl Remembered {
    /// Fills in what these facts do not say, and keeps what they do.
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
        let worn = wear(facts).filter(|wear| wear.source == WearSource::Statistics);
        match &mut facts.detail {
            Detail::Ata(ata) => {
                newest(&mut ata.pending_defects, &mut self.pending_defects);
                newest(
                    &mut ata.logged_uncorrectable,
                    &mut self.logged_uncorrectable,
                );
                let (page, offset) = ENDURANCE;
                match (worn, self.endurance_statistic) {
                    (Some(wear), _) => self.endurance_statistic = Some(wear.percent),
                    (None, Some(value)) if ata.statistic(page, offset).is_none() => {
                        ata.statistics.push(Statistic {
                            page,
                            offset,
                            name: String::new(),
                            value,
                        });
                    }
                    (None, _) => {}
                }
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
}

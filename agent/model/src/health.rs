//! Health of a drive: the verdict, and what it derives from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::{Date, format_description::well_known::Iso8601};

use drivebay_proto::health::{describe_acknowledgement, describe_override};
pub use drivebay_proto::words::{PollState, Verdict};

use super::{DriveId, Finding, finding::Code, unreadable::UnreadableRange};

/// A drive's verdict, with the evidence and the operator's decisions that it derives from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// Derived from the findings, unless an operator decides it (`overridden`).
    pub verdict: Verdict,
    #[serde(default)]
    pub poll: PollState,
    /// Findings, in a stable order.
    pub findings: Vec<Finding>,
    /// Conditions that do not affect the verdict: wear, heat, cables, why the drive cannot be polled.
    #[serde(default)]
    pub conditions: Vec<Finding>,
    /// True if the rated endurance is used up. The drive then takes no new volumes.
    #[serde(default)]
    pub worn_out: bool,
    /// Set while an operator decides the verdict.
    #[serde(default)]
    pub overridden: Option<Overridden>,
    /// Acknowledgement that is in effect; findings that came after it, or got worse, are not acknowledged.
    #[serde(default)]
    pub acknowledged: Option<Acknowledged>,
    /// SMART data in detail.
    #[serde(default)]
    pub smart: Option<SmartReport>,
    /// Time since which each finding and condition holds, by code, seconds since 1970.
    #[serde(default)]
    pub since: BTreeMap<String, u64>,
    /// Ranges that cannot be read, with their owners, in the order of the drive.
    #[serde(default)]
    pub unreadable: Vec<UnreadableRange>,
    /// True if there are more unreadable ranges than are kept.
    #[serde(default)]
    pub unreadable_more: bool,
}

/// An operator's verdict on one drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub drive: DriveId,
    /// Verdict that the drive has instead of the derived one.
    pub verdict: Verdict,
    pub reason: String,
    /// Time from which on it no longer holds, seconds since 1970; None: it holds until it is removed from the config.
    pub until: Option<u64>,
}

/// An operator's decision on a verdict that is in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overridden {
    pub reason: String,
    /// Time from which on it no longer holds, seconds since 1970; None: no limit.
    pub until: Option<u64>,
    /// Verdict that derives from the evidence.
    pub otherwise: Verdict,
}

impl Overridden {
    /// Returns the text that is shown with the drive.
    pub fn describe(&self) -> String {
        describe_override(&self.reason, self.otherwise.as_str())
    }
}

impl Override {
    /// Sets the verdict at `now` (seconds since 1970), if this is for `drive` and holds. SUSPECT and BAD also end the acknowledgement; a
    /// verdict worse than that of the evidence also adds a finding.
    pub fn apply(&self, drive: &DriveId, health: &mut DriveHealth, now: u64) {
        if self.drive != *drive || self.until.is_some_and(|until| now >= until) {
            return;
        }
        health.overridden = Some(Overridden {
            reason: self.reason.clone(),
            until: self.until,
            otherwise: health.verdict,
        });
        if self.verdict.weight() > 0 {
            // The operator's later decision: no finding stays acknowledged.
            health.withdraw();
        }
        if self.verdict > health.verdict {
            health.findings.push(Finding::new(
                Code::OperatorOverride,
                format!("overridden by the operator: {}", self.reason),
            ));
        }
        health.verdict = self.verdict;
    }
}

/// SMART data of a drive, as of its last poll.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmartReport {
    /// Time of the last answer, seconds since 1970; 0 if there was none.
    pub answered_at: u64,
    /// Time since which the verdict by these answers is held, seconds since 1970; 0 if there is none.
    pub verdict_since: u64,
    /// Device type with which smartctl reaches the drive.
    pub device_type: String,
    /// True if the drive was in standby at the last poll, and was not woken.
    pub asleep: bool,
    /// Reason why the last poll failed; empty if it did not.
    pub failure: String,
    /// Findings of the last answer, worst first, with the acknowledged ones.
    pub findings: Vec<SmartFinding>,
    /// Values of the last answer.
    pub readings: Vec<Reading>,
}

/// A finding with the values that it derives from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmartFinding {
    pub code: String,
    /// Attribute or field that was read, e.g. `ata-197`.
    pub subject: String,
    pub value: u64,
    /// Value that it was compared with, if any.
    pub threshold: Option<u64>,
    /// The value in terms of what it counts, and its recent change.
    #[serde(default)]
    pub reading: String,
    /// Text for an operator: the meaning of the finding, and what to do about it.
    pub message: String,
    /// True if an operator acknowledged it and it has not become worse since.
    pub acknowledged: bool,
}

/// A value of the last SMART data that the drive returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Stable name with its unit, e.g. `temperature-celsius`.
    pub name: String,
    pub value: i64,
}

/// An operator's acknowledgement of a drive's findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Time at which it was given, seconds since 1970.
    pub at: u64,
    pub by: String,
    pub note: String,
    /// Time from which on it no longer holds, seconds since 1970; None: it holds until it is withdrawn.
    pub until: Option<u64>,
    /// True if the drive takes new volumes while all of its findings are acknowledged.
    pub takes_new_volumes: bool,
}

impl Acknowledged {
    /// Returns the text that is shown with the drive.
    pub fn describe(&self) -> String {
        describe_acknowledgement(&self.by, &self.note, self.takes_new_volumes)
    }
}

/// Returns the end of a day (`2030-12-31`, UTC), seconds since 1970; None if the text is not a day in this form, or one before 1970.
pub fn day_ends(text: &str) -> Option<u64> {
    let day = Date::parse(text, &Iso8601::DATE).ok()?;
    // ISO 8601 has other spellings of a day, which are refused.
    if day.to_string() != text {
        return None;
    }
    let begins = day.midnight().assume_utc().unix_timestamp();
    u64::try_from(begins).ok().map(|begins| begins + 86_400)
}

impl DriveHealth {
    /// True if the drive has outstanding requests and completes none.
    pub fn stalled(&self) -> bool {
        self.findings.iter().any(|one| one.is(Code::IoStalled))
    }

    /// Returns the findings that are not acknowledged.
    pub fn counting(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.acknowledged)
    }

    /// True if the verdict is SUSPECT or BAD and derives from acknowledged findings alone.
    pub fn is_acknowledged(&self) -> bool {
        self.verdict.weight() > 0
            && self.acknowledged.is_some()
            && !self.findings.is_empty()
            && self.counting().next().is_none()
    }

    /// Returns the verdict as it is shown: with `, acknowledged` if it derives from acknowledged findings alone.
    pub fn shown_verdict(&self) -> String {
        match self.is_acknowledged() {
            true => format!("{}, acknowledged", self.verdict),
            false => self.verdict.to_string(),
        }
    }

    /// Ends an acknowledgement that no longer holds at `now` (seconds since 1970), and one without an acknowledged finding. Without an
    /// acknowledgement no finding stays acknowledged.
    pub fn expire(&mut self, now: u64) {
        let silences = self.findings.iter().any(|finding| finding.acknowledged);
        let holds = |given: &Acknowledged| given.until.is_none_or(|until| now < until);
        if !silences || !self.acknowledged.as_ref().is_some_and(holds) {
            self.withdraw();
        }
    }

    fn withdraw(&mut self) {
        self.acknowledged = None;
        for finding in &mut self.findings {
            finding.acknowledged = false;
        }
        for finding in self.smart.iter_mut().flat_map(|smart| &mut smart.findings) {
            finding.acknowledged = false;
        }
    }

    /// True if the verdict allows new volumes, or an operator allowed them and all findings are acknowledged; never for a worn-out drive.
    pub fn is_fit(&self) -> bool {
        let chosen = self.acknowledged.as_ref();
        let chosen = chosen.is_some_and(|given| given.takes_new_volumes);
        (self.verdict.takes_new_volumes() || (chosen && self.is_acknowledged())) && !self.worn_out
    }

    /// True if new volumes may be placed on it now: it is fit, and its first poll is not awaited any more, unless an operator decides the
    /// verdict.
    pub fn takes_new_volumes(&self) -> bool {
        self.is_fit() && (self.poll != PollState::Awaited || self.overridden.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_when_the_next_one_begins() {
        for (day, ends) in [
            ("1970-01-01", 86_400),
            ("1999-12-31", 946_684_800),
            ("2000-02-29", 951_868_800),
            ("2024-02-28", 1_709_164_800),
            ("2100-03-01", 4_107_628_800),
        ] {
            assert_eq!(day_ends(day), Some(ends), "{day}");
        }
        for wrong in [
            "",
            "2030",
            "2030-13-01",
            "2030-00-10",
            "2030-02-29",
            "2100-02-29",
            "2030-1-1",
            "2030-01-01-01",
            "30-01-01",
            "+030-01-01",
            "1969-12-31",
            "2030-01-32",
            "soon",
        ] {
            assert_eq!(day_ends(wrong), None, "{wrong}");
        }
    }

    fn acknowledged(verdict: Verdict, takes_new_volumes: bool) -> DriveHealth {
        DriveHealth {
            verdict,
            findings: vec![Finding {
                acknowledged: true,
                ..Finding::new("GrownDefectsMany", "move the data")
            }],
            acknowledged: Some(Acknowledged {
                by: "ann".into(),
                until: Some(100),
                takes_new_volumes,
                ..Acknowledged::default()
            }),
            ..DriveHealth::default()
        }
    }

    #[test]
    fn an_acknowledged_drive_keeps_its_verdict_and_takes_volumes_only_where_that_was_chosen() {
        for verdict in [Verdict::Suspect, Verdict::Bad] {
            let silent = acknowledged(verdict, false);
            assert_eq!(silent.shown_verdict(), format!("{verdict}, acknowledged"));
            assert!(silent.is_acknowledged() && !silent.is_fit());
            let mut used = acknowledged(verdict, true);
            assert!(used.is_fit() && used.takes_new_volumes());
            used.worn_out = true;
            assert!(!used.is_fit(), "its endurance is used up");
            // A finding that is not acknowledged ends both.
            let mut more = acknowledged(verdict, true);
            more.findings.push(Finding::new(Code::IoStalled, ""));
            assert!(!more.is_acknowledged() && !more.is_fit());
            assert_eq!(more.shown_verdict(), verdict.as_str());
        }
        // An acknowledgement excludes no new volumes.
        assert!(acknowledged(Verdict::Good, false).is_fit());
    }

    #[test]
    fn an_acknowledgement_ends_with_its_time_and_by_an_operators_worse_verdict() {
        let mut health = acknowledged(Verdict::Bad, true);
        health.expire(99);
        assert!(health.is_acknowledged());
        let id = DriveId("wwn-a".into());
        let mut given = Override {
            drive: id.clone(),
            verdict: Verdict::Bad,
            reason: "recalled".into(),
            until: None,
        };
        let mut worse = health.clone();
        given.apply(&id, &mut worse, 99);
        assert!(!worse.is_acknowledged() && !worse.is_fit());
        given.verdict = Verdict::Good;
        let mut better = health.clone();
        given.apply(&id, &mut better, 99);
        assert!(better.is_fit() && better.counting().next().is_none());
        health.expire(100);
        assert!(!health.is_acknowledged() && !health.is_fit());
        assert_eq!((health.counting().count(), health.acknowledged), (1, None));
        // Without an acknowledged finding the acknowledgement ends; without an acknowledgement no finding is acknowledged.
        let mut over = acknowledged(Verdict::Good, true);
        over.findings.clear();
        over.expire(1);
        assert_eq!(over.acknowledged, None);
        let mut lost = acknowledged(Verdict::Bad, true);
        lost.acknowledged = None;
        lost.expire(1);
        assert_eq!(lost.counting().count(), 1);
    }

    #[test]
    fn an_override_decides_for_its_own_drive_until_its_day_is_over_and_names_what_it_hides() {
        let id = DriveId("wwn-a".into());
        let given = Override {
            drive: id.clone(),
            verdict: Verdict::Good,
            reason: "cable replaced".into(),
            until: Some(100),
        };
        let ill = DriveHealth {
            verdict: Verdict::Bad,
            ..DriveHealth::default()
        };
        let at = |drive: &str, now| {
            let mut health = ill.clone();
            given.apply(&DriveId(drive.into()), &mut health, now);
            health
        };
        let now = at("wwn-a", 99);
        assert_eq!(now.verdict, Verdict::Good);
        assert_eq!(
            now.overridden.unwrap().describe(),
            "overridden by the operator: cable replaced (the evidence alone says BAD)"
        );
        assert_eq!(at("wwn-a", 100), ill);
        assert_eq!(at("wwn-b", 99), ill);
    }
}

//! Effect of an operator's acknowledgement on a history: it silences findings and never improves a verdict. Pure.

use super::{
    super::rules::{Acknowledging, RuleFinding, SmartCode},
    Acknowledged, Acknowledgement, History, Series, Withdrawn,
};

/// Maximum of acknowledgements that are kept, the newest.
const KEPT: usize = 16;

impl History {
    /// Returns the acknowledgement that holds at `now` (seconds since 1970).
    pub fn acknowledgement(&self, now: u64) -> Option<&Acknowledged> {
        let last = self.acknowledgements.last()?;
        let holds = last.withdrawn.is_none() && last.given.until.is_none_or(|until| now < until);
        holds.then_some(last)
    }

    /// Returns the findings from which the drive's state derives: those for which the verdict is held, and if all of these are
    /// acknowledged, also the findings of the last answer that are not.
    pub fn standing(&self) -> Vec<RuleFinding> {
        let mut standing = self.reasons.clone();
        if standing.iter().all(|reason| reason.acknowledged) {
            let besides = self.findings.iter().filter(|one| !one.acknowledged);
            standing.extend(besides.cloned());
        }
        standing
    }

    /// Acknowledges the findings of the last answer and those for which the verdict is held, except the drive's own statements about its
    /// current state. A level that gets worse counts again, growth counts from now on, and the verdict stays. A BAD without evidence clears
    /// after clean polls, as SUSPECT does, counted from now on. Returns the findings that are acknowledged.
    pub fn acknowledge(&mut self, ack: &Acknowledgement, now: u64) -> Vec<RuleFinding> {
        if self.acknowledgement(now).is_none() {
            self.silence_nothing();
        }
        for finding in &mut self.findings {
            let acknowledging = finding.code.acknowledgement();
            if acknowledging == Acknowledging::Level {
                let level = (finding.subject.clone(), finding.level);
                self.acknowledged.extend([level]);
            }
            finding.acknowledged = acknowledging != Acknowledging::Never;
        }
        for series in self.counters.values_mut() {
            *series = Series::new(series.value(), now);
        }
        let same = |a: &RuleFinding, b: &RuleFinding| (a.code, &a.subject) == (b.code, &b.subject);
        for reason in &mut self.reasons {
            let current = self.findings.iter().find(|finding| same(finding, reason));
            let hangs = self.hanging && reason.code == SmartCode::ProbeHang;
            // A finding that does not hold any more is no current state.
            reason.acknowledged = current.map_or(!hangs, |finding| finding.acknowledged);
        }
        self.clean_polls = 0;
        self.clean_since = None;
        let mut done = self.findings.clone();
        let held = self.reasons.iter();
        done.extend(
            held.filter(|reason| !self.findings.iter().any(|finding| same(finding, reason)))
                .cloned(),
        );
        done.retain(|finding| finding.acknowledged);
        let findings = done.iter();
        self.acknowledgements.push(Acknowledged {
            at: now,
            given: ack.clone(),
            findings: findings
                .map(|finding| (finding.code, finding.subject.clone(), finding.value))
                .collect(),
            withdrawn: None,
        });
        let surplus = self.acknowledgements.len().saturating_sub(KEPT);
        self.acknowledgements.drain(..surplus);
        done
    }

    /// Withdraws the acknowledgement that holds; all findings count again. Returns true if there was one.
    pub fn withdraw(&mut self, by: &str, now: u64) -> bool {
        let holds = self.acknowledgement(now).is_some();
        if let Some(last) = self.acknowledgements.last_mut().filter(|_| holds) {
            let by = by.to_owned();
            last.withdrawn = Some(Withdrawn { at: now, by });
            self.silence_nothing();
        }
        holds
    }

    /// Ends an acknowledgement that has expired at `now`. Returns true if one ended.
    pub fn expire(&mut self, now: u64) -> bool {
        let silent = |findings: &[RuleFinding]| findings.iter().any(|one| one.acknowledged);
        let ends = self.acknowledgement(now).is_none()
            && (!self.acknowledged.is_empty() || silent(&self.findings) || silent(&self.reasons));
        if ends {
            self.silence_nothing();
        }
        ends
    }

    fn silence_nothing(&mut self) {
        self.acknowledged.clear();
        for finding in self.findings.iter_mut().chain(&mut self.reasons) {
            finding.acknowledged = false;
        }
    }
}

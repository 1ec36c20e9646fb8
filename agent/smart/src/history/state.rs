//! Changes of the held verdict: SUSPECT and BAD are entered at once. SUSPECT clears after enough clean polls and time; BAD does only if it
//! is acknowledged too, or if the drive is another one. A poll without health data changes nothing.

use super::{
    super::{
        facts::Facts,
        outcome::{Failure, FailureReason},
        rules::{ConditionKind, Evaluation, RuleFinding, Verdict, unresponsive},
        thresholds::Thresholds,
    },
    Counter, History, Identity, REASONS, Series, Trend, Trends,
};

impl History {
    /// Prepares an answer for the rules: checks the drive's identity, fills in facts of earlier polls, and returns the growth of the
    /// counters. True if it is another drive, whose history begins empty.
    pub fn observe(&mut self, facts: &mut Facts, now: u64) -> (Trends, bool) {
        let identity = Identity::of(facts);
        let another = self.identity.differs(&identity);
        if another {
            *self = Self::default();
        }
        self.identity.fill_from(identity);
        // Of this answer alone: a value from an earlier one would count as a poll without growth.
        let counters = Counter::read(facts);
        self.expire(now);
        self.remembered.complete(facts);
        let mut trends = Vec::new();
        for (counter, value) in counters {
            // An acknowledged level follows a counter down: later growth counts again.
            if let Some(level) = self.acknowledged.get_mut(counter.as_str()) {
                *level = (*level).min(value);
            }
            trends.push((counter, self.trend(counter, value, now)));
        }
        (trends.into_iter().collect(), another)
    }

    fn trend(&mut self, counter: Counter, value: u64, now: u64) -> Trend {
        if let Some(series) = self.counters.get_mut(&counter) {
            return series.observe(value, now);
        }
        self.counters.insert(counter, Series::new(value, now));
        Trend {
            value,
            day: None,
            week: None,
            polls: 0,
        }
    }

    /// Updates the held verdict after the rules. An answer without health data does not change it.
    pub fn answered(
        &mut self,
        facts: &Facts,
        evaluation: &Evaluation,
        limits: &Thresholds,
        now: u64,
    ) {
        self.awake();
        self.hanging = false;
        self.answered_at = Some(now);
        self.protocol = facts.protocol();
        self.device_type.clone_from(&facts.device_type);
        if evaluation.verdict == Verdict::Unknown {
            return;
        }
        self.conditions.clone_from(&evaluation.conditions);
        self.findings.clone_from(&evaluation.findings);
        for finding in &evaluation.findings {
            if let Some(level) = self.acknowledged.get_mut(&finding.subject) {
                *level = (*level).min(finding.level);
            }
        }
        self.overheating = evaluation
            .conditions
            .iter()
            .any(|condition| condition.kind == ConditionKind::Overheating);
        let better = evaluation.verdict.weight() < self.verdict.weight();
        if better || evaluation.verdict == Verdict::Good {
            self.clean(evaluation, limits, now);
        } else {
            self.enter(evaluation.verdict, &evaluation.findings, now);
        }
    }

    /// Resets the counter of timeouts.
    pub fn awake(&mut self) {
        self.timeouts = 0;
    }

    /// Counts a poll without an answer, and keeps the rest of the history. Enough timeouts of a drive that answered before raise SUSPECT.
    pub fn failed(&mut self, failure: &Failure, limits: &Thresholds, now: u64) {
        let count = self.failures.entry(failure.reason).or_default();
        *count = count.saturating_add(1);
        match failure.reason {
            FailureReason::OpenFailed | FailureReason::Unsupported | FailureReason::NoData => {
                // The cached type may be wrong: the next poll detects it again.
                self.device_type.clear();
            }
            FailureReason::Timeout => self.timeouts = self.timeouts.saturating_add(1),
            _ => {}
        }
        if self.timeouts >= limits.timeouts.max(1) && self.answered_at.is_some() {
            self.hanging = true;
            self.enter(Verdict::Suspect, unresponsive(limits).as_slice(), now);
        }
    }

    fn enter(&mut self, verdict: Verdict, findings: &[RuleFinding], now: u64) {
        self.clean_polls = 0;
        self.clean_since = None;
        if verdict.weight() > self.verdict.weight() {
            self.verdict = verdict;
            self.since = now;
            self.reasons.clear();
        }
        for finding in findings {
            if Verdict::from(finding.severity) != self.verdict {
                continue;
            }
            let same = |old: &&mut RuleFinding| {
                (old.code, &old.subject) == (finding.code, &finding.subject)
            };
            if let Some(old) = self.reasons.iter_mut().find(same) {
                old.clone_from(finding);
            } else if self.reasons.len() < REASONS {
                self.reasons.push(finding.clone());
            }
        }
    }

    /// Counts a poll that found nothing as bad as the held verdict, and clears that after enough of them.
    fn clean(&mut self, evaluation: &Evaluation, limits: &Thresholds, now: u64) {
        self.clean_polls = self.clean_polls.saturating_add(1);
        // If the clock was set back, the time starts again.
        let since = self
            .clean_since
            .filter(|since| *since <= now)
            .unwrap_or(now);
        self.clean_since = Some(since);
        let enough = self.clean_polls >= limits.clean_polls && now - since >= limits.clean_seconds;
        let may_leave = match self.verdict {
            Verdict::Unknown => true,
            Verdict::Suspect => enough,
            Verdict::Bad => enough && self.reasons.iter().all(|reason| reason.acknowledged),
            Verdict::Good => false,
        };
        if may_leave {
            self.verdict = Verdict::Good;
            self.since = now;
            self.reasons.clear();
            self.enter(evaluation.verdict, &evaluation.findings, now);
        }
    }
}

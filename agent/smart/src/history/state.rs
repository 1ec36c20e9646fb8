//! How the held verdict moves: SUSPECT and BAD are entered at once; SUSPECT is left after enough clean
//! polls and time, BAD only once it is acknowledged too, or when the drive is another one; not knowing
//! changes nothing.

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
    /// Before the rules: whose answer it is, what is known besides, how the counters moved. True when
    /// it is another drive, of which nothing is known.
    pub fn observe(&mut self, facts: &mut Facts, now: u64) -> (Trends, bool) {
        let identity = Identity::of(facts);
        let another = self.identity.differs(&identity);
        if another {
            *self = Self::default();
        }
        self.identity.fill_from(identity);
        // Of this answer alone: a value of an earlier one would be a poll without growth.
        let counters = Counter::read(facts);
        self.expire(now);
        self.remembered.complete(facts);
        let mut trends = Vec::new();
        for (counter, value) in counters {
            // An acknowledged level follows a counter down: what comes back counts again.
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

    /// After the rules: an answer moves the held verdict. One that tells nothing does not.
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

    /// The drive did something: it does not hang.
    pub fn awake(&mut self) {
        self.timeouts = 0;
    }

    /// A poll without an answer: counted, and nothing forgotten.
    pub fn failed(&mut self, failure: &Failure, limits: &Thresholds, now: u64) {
        let count = self.failures.entry(failure.reason).or_default();
        *count = count.saturating_add(1);
        match failure.reason {
            FailureReason::OpenFailed | FailureReason::Unsupported | FailureReason::NoData => {
                // Perhaps the cached type is wrong by now: the next poll finds it out anew.
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

    /// Nothing as bad as what is held was found.
    fn clean(&mut self, evaluation: &Evaluation, limits: &Thresholds, now: u64) {
        self.clean_polls = self.clean_polls.saturating_add(1);
        // After a clock that was put back, the time is counted anew.
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

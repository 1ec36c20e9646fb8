//! Judges a drive by the outcome of one poll and its history. Pure.

use super::{
    facts::{ExitStatus, Facts},
    history::{Acknowledgement, History},
    outcome::{Failure, FailureReason, Outcome},
    plausible,
    rules::{RuleFinding, SmartCondition, Verdict, evaluate},
    thresholds::Thresholds,
};

/// Assessment of a drive after one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// Verdict that is held and acted on.
    pub verdict: Verdict,
    /// Verdict of this poll alone; UNKNOWN without an answer.
    pub observed: Verdict,
    /// True if the held verdict derives from an earlier poll.
    pub stale: bool,
    /// True if the drive is in standby and was not woken.
    pub standby: bool,
    /// Reason why this poll has no health data.
    pub failure: Option<Failure>,
    /// True if a command to the drive failed, so that data may be missing.
    pub reduced_confidence: bool,
    /// Findings of this poll, worst first, with the acknowledged ones.
    pub findings: Vec<RuleFinding>,
    /// Findings for which the verdict is held; not empty for SUSPECT and BAD.
    pub reasons: Vec<RuleFinding>,
    /// Wear, temperature, cable and timeouts, as of this poll.
    pub conditions: Vec<SmartCondition>,
    /// True if a different drive answered than before; the history of the earlier one was reset.
    pub another_drive: bool,
}

/// Judges one poll at `now` (seconds since 1970). `ack` covers what was shown before this poll, and none of what this poll finds besides.
pub fn judge(
    outcome: &Outcome,
    history: &mut History,
    now: u64,
    thresholds: &Thresholds,
    ack: Option<&Acknowledgement>,
) -> Assessment {
    if let Some(ack) = ack {
        history.acknowledge(ack, now);
    }
    let mut assessment = match outcome {
        Outcome::Answered(facts) => answered(facts, history, now, thresholds),
        Outcome::Standby => {
            history.awake();
            Assessment {
                standby: true,
                ..nothing(None)
            }
        }
        Outcome::Failed(failure) => {
            history.failed(failure, thresholds, now);
            nothing(Some(failure.clone()))
        }
    };
    assessment.verdict = history.verdict();
    assessment.reasons = history.reasons().to_vec();
    assessment
}

fn nothing(failure: Option<Failure>) -> Assessment {
    Assessment {
        verdict: Verdict::Unknown,
        observed: Verdict::Unknown,
        stale: true,
        standby: false,
        failure,
        reduced_confidence: false,
        findings: Vec::new(),
        reasons: Vec::new(),
        conditions: Vec::new(),
        another_drive: false,
    }
}

fn answered(facts: &Facts, history: &mut History, now: u64, thresholds: &Thresholds) -> Assessment {
    let mut facts = facts.clone();
    let (trends, another_drive) = history.observe(&mut facts, now);
    let evaluation = evaluate(&facts, &trends, &history.earlier_polls(), thresholds);
    history.answered(&facts, &evaluation, thresholds, now);
    let unknown = evaluation.verdict == Verdict::Unknown;
    let failure = unknown.then(|| no_data(&facts));
    if let Some(failure) = &failure {
        history.failed(failure, thresholds, now);
    }
    Assessment {
        observed: evaluation.verdict,
        stale: unknown,
        reduced_confidence: facts.exit.has(ExitStatus::COMMAND),
        findings: evaluation.findings,
        conditions: evaluation.conditions,
        another_drive,
        ..nothing(failure)
    }
}

/// Returns the reason why an answer has no health data.
fn no_data(facts: &Facts) -> Failure {
    let detail = match (facts.smart_available, facts.smart_enabled) {
        (Some(false), _) => "the drive has no SMART".to_owned(),
        (_, Some(false)) => {
            "SMART is switched off in the drive; switch it on with smartctl -s on".to_owned()
        }
        _ => match plausible::summary(facts) {
            Some((_, what)) => format!(
                "what the drive counts cannot be true, and without it nothing could speak against it: {what}"
            ),
            None => describe_missing_data(facts.status()),
        },
    };
    Failure {
        reason: FailureReason::NoData,
        detail,
    }
}

fn describe_missing_data(status: Option<bool>) -> String {
    let without = match status {
        Some(_) => "with a status of \"passed\", which is no proof of health, and without counters",
        None => "without a status and without counters",
    };
    format!(
        "smartctl answered {without}; a RAID controller or USB bridge may need its type in the configuration"
    )
}

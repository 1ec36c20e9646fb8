//! Definition of a rule: data that the judge executes and from which the table of rules is printed, so that the two cannot disagree.

use crate::{
    facts::{Detail, Facts},
    history::{Counter, Trends},
    thresholds::Thresholds,
};

use super::{Severity, SmartCode};
use drivebay_model::units::count;

/// Input of the rules of findings.
pub(super) struct Input<'a> {
    pub facts: &'a Facts,
    pub trends: &'a Trends,
    pub limits: &'a Thresholds,
}

/// Drives to which a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drives {
    All,
    Ata,
    /// ATA drives that rotate, or do not report that they do not.
    AtaHdd,
    Scsi,
    Nvme,
    Mmc,
    /// Drives whose status is not defined as precisely as that of ATA.
    NotAta,
}

impl Drives {
    pub(super) fn includes(self, facts: &Facts) -> bool {
        let ata = matches!(facts.detail, Detail::Ata(_));
        match self {
            Self::All => true,
            Self::Ata => ata,
            Self::AtaHdd => ata && facts.rotational != Some(false),
            Self::NotAta => !ata,
            Self::Scsi => matches!(facts.detail, Detail::Scsi(_)),
            Self::Nvme => matches!(facts.detail, Detail::Nvme(_)),
            Self::Mmc => matches!(facts.detail, Detail::Mmc(_)),
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ata => "ATA",
            Self::AtaHdd => "ATA HDD",
            Self::Scsi => "SCSI",
            Self::Nvme => "NVMe",
            Self::Mmc => "eMMC",
            Self::NotAta => "not ATA",
        }
    }
}

/// A threshold, by its key in `[smart.thresholds]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit(pub &'static str);

impl Limit {
    /// Returns the threshold, at least 1: a limit of 0 would be reached on every drive. A key that does not exist gives a limit that is
    /// never reached; a test checks that there is none.
    pub(super) fn of(self, limits: &Thresholds) -> u64 {
        let value = limits
            .value(self.0)
            .and_then(|value| u64::try_from(value).ok());
        value.unwrap_or(u64::MAX).max(1)
    }
}

/// Period over which growth is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Day,
    Week,
}

/// Condition of a rule.
#[derive(Clone, Copy)]
pub(super) enum Test {
    /// A number is at or above a threshold.
    AtLeast(fn(&Input<'_>) -> Option<Hit>, Limit),
    /// A number is below a threshold.
    Below(fn(&Input<'_>) -> Option<Hit>, Limit),
    /// A counter grew by at least the threshold.
    Grew(Counter, Span, Limit),
    /// Counters grew in at least that many polls in a row.
    GrewInPolls(&'static [Counter], Limit),
    /// That many polls in a row timed out; the history counts them.
    TimedOut(Limit),
    /// The drive itself reports it, without a threshold of ours: the condition as text, and the function that reads it.
    Says(&'static str, fn(&Input<'_>) -> Vec<Hit>),
}

/// One match of a rule.
#[derive(Debug, Clone, Default)]
pub(super) struct Hit {
    /// Set if the rule has no subject of its own.
    pub subject: Option<String>,
    pub value: u64,
    /// Increases as it gets worse, if the value does not.
    pub level: Option<u64>,
    /// Set if it is not a threshold of ours.
    pub threshold: Option<u64>,
    /// Text for `{what}` in the rule's sentence.
    pub what: String,
}

impl Hit {
    pub(super) fn value(value: u64) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// Returns a hit of value 1 if `holds`, else none.
    pub(super) fn yes(holds: bool) -> Vec<Self> {
        holds.then(|| Self::value(1)).into_iter().collect()
    }
}

pub(super) struct Rule {
    pub code: SmartCode,
    pub severity: Severity,
    pub drives: Drives,
    /// Field that is read, by its name in smartctl's output or documentation.
    pub field: &'static str,
    /// Subject of the finding; empty if each hit has its own.
    pub subject: &'static str,
    pub test: Test,
    /// Meaning, as a clause. `{limit}` is the threshold, `{what}` the hit's own text.
    pub meaning: &'static str,
    pub action: &'static str,
    /// Origin of the rule.
    pub source: &'static str,
    /// Codes of findings with which the rule is skipped: of two rules for one number, the first one that matches counts.
    pub unless: &'static [SmartCode],
}

impl Rule {
    /// Returns the matches, each with the threshold that it was compared with.
    pub(super) fn hits(&self, input: &Input<'_>) -> Vec<(Hit, Option<u64>)> {
        let (hits, limit) = match self.test {
            Test::AtLeast(read, limit) => {
                let limit = limit.of(input.limits);
                let hit = read(input).filter(|hit| hit.value >= limit);
                (hit.into_iter().collect(), Some(limit))
            }
            Test::Below(read, limit) => {
                let limit = limit.of(input.limits);
                let hit = read(input).filter(|hit| hit.value < limit);
                (hit.into_iter().collect(), Some(limit))
            }
            Test::Grew(counter, span, limit) => {
                let limit = limit.of(input.limits);
                let grown = input.trends.get(counter).and_then(|trend| match span {
                    Span::Day => trend.day,
                    Span::Week => trend.week,
                });
                let hit = grown.filter(|grown| *grown >= limit).map(Hit::value);
                (hit.into_iter().collect(), Some(limit))
            }
            Test::GrewInPolls(counters, limit) => {
                let limit = limit.of(input.limits);
                let polls = |counter: &Counter| {
                    let polls = u64::from(input.trends.get(*counter)?.polls);
                    (polls >= limit).then(|| Hit {
                        subject: Some(counter.as_str().to_owned()),
                        what: counter.what().to_owned(),
                        ..Hit::value(polls)
                    })
                };
                (
                    counters.iter().filter_map(polls).collect::<Vec<_>>(),
                    Some(limit),
                )
            }
            Test::TimedOut(_) => (Vec::new(), None),
            Test::Says(_, find) => (find(input), None),
        };
        hits.into_iter()
            .map(|hit| {
                let threshold = hit.threshold.or(limit);
                (hit, threshold)
            })
            .collect()
    }

    /// Returns the message of a finding.
    pub(super) fn message(&self, limit: Option<u64>, what: &str) -> String {
        let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
        format!("{}; {}", self.meaning(&limit, what), self.action)
    }

    pub(super) fn meaning(&self, limit: &str, what: &str) -> String {
        let meaning = self.meaning.replace("{limit}", limit);
        meaning.replace("{what}", what)
    }

    /// Returns the rule's condition as text, with the current thresholds.
    pub(super) fn condition(&self, limits: &Thresholds) -> String {
        match self.test {
            Test::AtLeast(_, limit) => format!("{} or more", limit.of(limits)),
            Test::Below(_, limit) => format!("below {}", limit.of(limits)),
            Test::Grew(_, span, limit) => {
                let span = match span {
                    Span::Day => "24 hours",
                    Span::Week => "7 days",
                };
                format!("grew by {} or more within {span}", limit.of(limits))
            }
            Test::GrewInPolls(_, limit) => {
                format!("grew in {} in a row", count(limit.of(limits), "poll"))
            }
            Test::TimedOut(limit) => {
                format!("{} in a row timed out", count(limit.of(limits), "poll"))
            }
            Test::Says(words, _) => words.to_owned(),
        }
    }

    /// Returns the key of its threshold, if it has one.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self.test {
            Test::AtLeast(_, Limit(key))
            | Test::Below(_, Limit(key))
            | Test::Grew(_, _, Limit(key))
            | Test::GrewInPolls(_, Limit(key))
            | Test::TimedOut(Limit(key)) => Some(key),
            Test::Says(..) => None,
        }
    }
}

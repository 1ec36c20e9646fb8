//! What a rule is: data that the judge executes and that the table of rules is printed from, so that the two cannot
//! disagree.

use crate::{
    facts::{Detail, Facts},
    history::{Counter, Trends},
    thresholds::Thresholds,
};

use super::{Severity, SmartCode};
use drivebay_model::units::count;

/// What the rules of findings read.
pub(super) struct Input<'a> {
    pub facts: &'a Facts,
    pub trends: &'a Trends,
    pub limits: &'a Thresholds,
}

/// The drives that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drives {
    All,
    Ata,
    /// ATA drives that rotate, or do not say that they do not.
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
    /// 0 of something would be found on every drive, so a limit is at least 1. A key that does not exist holds never; a
    /// test checks that there is none.
    pub(super) fn of(self, limits: &Thresholds) -> u64 {
        let value = limits
            .value(self.0)
            .and_then(|value| u64::try_from(value).ok());
        value.unwrap_or(u64::MAX).max(1)
    }
}

/// How far back growth is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Day,
    Week,
}

/// When a rule holds.
#[derive(Clone, Copy)]
pub(super) enum Test {
    /// A number is at or above a threshold.
    AtLeast(fn(&Input<'_>) -> Option<Hit>, Limit),
    /// A number is below a threshold.
    Below(fn(&Input<'_>) -> Option<Hit>, Limit),
    /// A counter grew by at least so much.
    Grew(Counter, Span, Limit),
    /// Counters grew in so many polls in a row.
    GrewInPolls(&'static [Counter], Limit),
    /// So many polls in a row timed out; the history counts them.
    TimedOut(Limit),
    /// What the drive says, without a threshold of ours: the words, and the function that finds it.
    Says(&'static str, fn(&Input<'_>) -> Vec<Hit>),
}

/// One thing that a rule found.
#[derive(Debug, Clone, Default)]
pub(super) struct Hit {
    /// Where the rule has no subject of its own.
    pub subject: Option<String>,
    pub value: u64,
    /// Grows as it gets worse, where the value does not.
    pub level: Option<u64>,
    /// Where it is not a threshold of ours.
    pub threshold: Option<u64>,
    /// For `{what}` in the rule's sentence.
    pub what: String,
}

impl Hit {
    pub(super) fn value(value: u64) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// For what is there or not.
    pub(super) fn yes(holds: bool) -> Vec<Self> {
        holds.then(|| Self::value(1)).into_iter().collect()
    }
}

/// One rule.
pub(super) struct Rule {
    pub code: SmartCode,
    pub severity: Severity,
    pub drives: Drives,
    /// What is read, by the name that smartctl's output or its documentation has for it.
    pub field: &'static str,
    /// What the finding is about; empty where each hit has its own.
    pub subject: &'static str,
    pub test: Test,
    /// What it means, as a clause. `{limit}` is the threshold, `{what}` the hit's own words.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// Where the rule is from.
    pub source: &'static str,
    /// The rule is skipped when one of these was found: of two rules on one number, the first that holds counts.
    pub unless: &'static [SmartCode],
}

impl Rule {
    /// What it finds, and the threshold it compared with.
    pub(super) fn hits(&self, input: &Input<'_>) -> Vec<(Hit, Option<u64>)> {
        let (found, limit) = match self.test {
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
        found
            .into_iter()
            .map(|hit| {
                let threshold = hit.threshold.or(limit);
                (hit, threshold)
            })
            .collect()
    }

    /// The sentence of a finding.
    pub(super) fn message(&self, limit: Option<u64>, what: &str) -> String {
        let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
        format!("{}; {}", self.meaning(&limit, what), self.action)
    }

    pub(super) fn meaning(&self, limit: &str, what: &str) -> String {
        let meaning = self.meaning.replace("{limit}", limit);
        meaning.replace("{what}", what)
    }

    /// When it holds, in words, with the thresholds as they are set.
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

    /// The key of its threshold.
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

//! Conditions of a drive that do not affect its verdict: wear, temperature, cable, timeouts.

use serde::{Deserialize, Serialize};

use super::{
    nvme,
    rule::{Input, Limit},
    scsi, wear,
};
use crate::{
    facts::{Detail, Facts},
    history::{Counter, EarlierPolls},
    plausible,
    thresholds::Thresholds,
};

/// Range of a drive's own temperature limit; a value outside is ignored.
const SENSIBLE: std::ops::RangeInclusive<i32> = 40..=120;
/// Place of the specified maximum operating temperature in the device statistics (ACS-4, 9.5.8).
const OPERATING_MAX: (u64, u64) = (5, 88);
/// Kind of a condition. A drive has at most one condition of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionKind {
    /// The rated endurance used, percent, has reached the threshold `wear-info`, `wear-warn` or `wear-full`.
    Wear,
    /// The temperature has reached the drive's limit, or the drive itself reports that it is too hot. By temperature it ends `cool-by`
    /// degrees below the limit.
    Overheating,
    /// Checksum errors between drive and controller.
    CableErrors,
    /// Commands that timed out.
    CommandTimeouts,
    /// The drive reports values that cannot be true; no rule reads them.
    ImplausibleValues,
}

impl ConditionKind {
    /// Every kind there is.
    pub const ALL: [Self; 5] = [
        Self::Wear,
        Self::Overheating,
        Self::CableErrors,
        Self::CommandTimeouts,
        Self::ImplausibleValues,
    ];

    /// Returns the kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wear => "Wear",
            Self::Overheating => "Overheating",
            Self::CableErrors => "CableErrors",
            Self::CommandTimeouts => "CommandTimeouts",
            Self::ImplausibleValues => "ImplausibleValues",
        }
    }
}

/// Importance of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionLevel {
    /// No action is needed.
    Info,
    /// An operator should act.
    Warning,
    /// The drive gets no new volumes.
    NoNewVolumes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmartCondition {
    pub kind: ConditionKind,
    pub level: ConditionLevel,
    /// Percent, degrees Celsius or errors. It may change while the message stays the same.
    pub value: i64,
    /// Value that it was compared with.
    pub threshold: i64,
    /// Meaning and action. Stays the same as long as the condition does.
    pub message: String,
}

/// Test of a condition.
#[derive(Clone, Copy)]
pub(super) enum Test {
    /// At least that part of the rated endurance is used.
    Used(Limit),
    /// The temperature is at or above the drive's limit, or the drive itself reports that it is too hot.
    Hot,
    /// A counter grew by at least the threshold within seven days.
    Grew(Counter, Limit),
    /// At least one value was dropped because it cannot be true.
    Dropped,
}

/// Match of a rule.
struct RuleMatch {
    value: i64,
    threshold: i64,
    /// Text for `{what}` in the rule's sentence.
    what: String,
}

impl RuleMatch {
    fn new(value: i64, threshold: i64) -> Self {
        Self {
            value,
            threshold,
            what: String::new(),
        }
    }
}

/// A rule for a condition; of the rules for one kind, the first one that matches counts.
pub(super) struct ConditionRule {
    pub kind: ConditionKind,
    pub level: ConditionLevel,
    pub drives: &'static str,
    pub field: &'static str,
    pub test: Test,
    /// Meaning. `{limit}` is the threshold, `{what}` the hit's own text.
    pub meaning: &'static str,
    pub action: &'static str,
    pub source: &'static str,
}

const WEAR_FIELD: &str = "percentage used; life-left attribute";
const WEAR_SOURCE: &str = "NVMe, SCSI and ATA: endurance used";
const WEAR_MEANING: &str = "the drive has used {limit} % or more of its rated endurance";

const fn worn(level: ConditionLevel, key: &'static str, action: &'static str) -> ConditionRule {
    ConditionRule {
        kind: ConditionKind::Wear,
        level,
        drives: "all",
        field: WEAR_FIELD,
        test: Test::Used(Limit(key)),
        meaning: WEAR_MEANING,
        action,
        source: WEAR_SOURCE,
    }
}

/// All rules for conditions; for one kind, the most important level first.
pub(super) static RULES: &[ConditionRule] = &[
    worn(
        ConditionLevel::NoNewVolumes,
        "wear-full",
        "it gets no new volumes; replace it",
    ),
    worn(ConditionLevel::Warning, "wear-warn", "plan its replacement"),
    worn(
        ConditionLevel::Info,
        "wear-info",
        "its replacement will be due",
    ),
    ConditionRule {
        kind: ConditionKind::Overheating,
        level: ConditionLevel::Warning,
        drives: "all",
        field: "temperature; critical_warning bit 1; asc 0x0B",
        test: Test::Hot,
        meaning: "the drive is too hot (its limit is {limit} °C)",
        action: "check fans, airflow and its place",
        source: "the drive's limit, at most that of its kind",
    },
    ConditionRule {
        kind: ConditionKind::CableErrors,
        level: ConditionLevel::Warning,
        drives: "ATA",
        field: "199 UDMA_CRC_Error_Count",
        test: Test::Grew(Counter::InterfaceCrc, Limit("crc-growth")),
        meaning: "{limit} or more checksum errors between drive and controller within seven days",
        action: "replace or reseat the cable, or check the backplane",
        source: "the cable, not the medium",
    },
    ConditionRule {
        kind: ConditionKind::CommandTimeouts,
        level: ConditionLevel::Warning,
        drives: "ATA",
        field: "188 Command_Timeout, low 16 bits",
        test: Test::Grew(Counter::CommandTimeout, Limit("command-timeout-growth")),
        meaning: "{limit} or more commands timed out within seven days",
        action: "check power supply, cable and controller",
        source: "Seagate packs three numbers into it",
    },
    ConditionRule {
        kind: ConditionKind::ImplausibleValues,
        level: ConditionLevel::Info,
        drives: "all",
        field: "every number that rules read",
        test: Test::Dropped,
        meaning: "values that cannot be true are not used: {what}",
        action: "look for newer firmware or a newer database of smartctl",
        source: "declared per field: unit, range, what contradicts it",
    },
];

impl ConditionRule {
    /// Returns the value and the threshold that it was compared with, if the rule matches.
    fn hit(&self, input: &Input<'_>, earlier: &EarlierPolls) -> Option<RuleMatch> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let reached = |value: u64, limit: Limit| {
            let limit = limit.of(input.limits);
            (value >= limit).then(|| RuleMatch::new(number(value), number(limit)))
        };
        match self.test {
            Test::Used(limit) => reached(wear(input.facts)?.percent, limit),
            Test::Grew(counter, limit) => reached(input.trends.get(counter)?.week?, limit),
            Test::Hot => hot(input.facts, earlier, input.limits),
            Test::Dropped => implausible(input.facts),
        }
    }

    /// Returns the message: meaning and action.
    fn message(&self, limit: i64, what: &str) -> String {
        format!(
            "{}; {}",
            self.meaning(&limit.to_string(), what),
            self.action
        )
    }

    pub(super) fn meaning(&self, limit: &str, what: &str) -> String {
        let meaning = self.meaning.replace("{limit}", limit);
        meaning.replace("{what}", what)
    }

    /// Returns the rule's condition as text, with the current thresholds.
    pub(super) fn condition(&self, limits: &Thresholds) -> String {
        match self.test {
            Test::Used(limit) => format!("{} % or more", limit.of(limits)),
            Test::Grew(_, limit) => format!("grew by {} or more within 7 days", limit.of(limits)),
            Test::Dropped => "out of range, or contradicted by another value".to_owned(),
            Test::Hot => format!(
                "at its own limit; at most {} °C HDD, {} °C SSD, {} °C NVMe without one",
                limits.hot_hdd, limits.hot_ssd, limits.hot_nvme
            ),
        }
    }

    /// Returns the key of its threshold, if it has one.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self.test {
            Test::Used(Limit(key)) | Test::Grew(_, Limit(key)) => Some(key),
            Test::Hot | Test::Dropped => None,
        }
    }
}

pub(super) fn judge(input: &Input<'_>, earlier: &EarlierPolls) -> Vec<SmartCondition> {
    let mut conditions: Vec<SmartCondition> = Vec::new();
    for rule in RULES {
        if conditions.iter().any(|one| one.kind == rule.kind) {
            continue;
        }
        let Some(hit) = rule.hit(input, earlier) else {
            continue;
        };
        conditions.push(SmartCondition {
            kind: rule.kind,
            level: rule.level,
            value: hit.value,
            threshold: hit.threshold,
            message: rule.message(hit.threshold, &hit.what),
        });
    }
    conditions
}

/// Returns the limit for a drive's temperature, degrees Celsius: its own operating limit, else the one for its kind. A limit at which it is
/// in danger or trips (SAS drives: often 85 °C) can only lower the latter.
fn temperature_limit(facts: &Facts, limits: &Thresholds) -> i32 {
    let own = facts.temperature;
    let is_ssd = facts.rotational == Some(false);
    let kind = match &facts.detail {
        Detail::Nvme(_) => limits.hot_nvme,
        _ if is_ssd => limits.hot_ssd,
        _ => limits.hot_hdd,
    };
    let (operating, danger) = match &facts.detail {
        Detail::Nvme(nvme) => (
            [nvme.warning_temperature, own.operating_max],
            [nvme.critical_temperature, own.critical_max],
        ),
        Detail::Ata(ata) => {
            let specified = ata.statistic(OPERATING_MAX.0, OPERATING_MAX.1);
            let specified = specified.and_then(|degrees| i32::try_from(degrees).ok());
            ([own.operating_max, specified], [own.critical_max, None])
        }
        Detail::Scsi(_) | Detail::Mmc(_) | Detail::Unknown => {
            ([own.operating_max, None], [own.trip, own.critical_max])
        }
    };
    let sensible = |given: [Option<i32>; 2]| {
        let given = given.into_iter().flatten();
        given.filter(|degrees| SENSIBLE.contains(degrees))
    };
    sensible(operating)
        .next()
        .unwrap_or_else(|| sensible(danger).fold(kind, i32::min))
}

fn implausible(facts: &Facts) -> Option<RuleMatch> {
    let (count, what) = plausible::summary(facts)?;
    Some(RuleMatch {
        what,
        ..RuleMatch::new(i64::try_from(count).unwrap_or(i64::MAX), 1)
    })
}

fn hot(facts: &Facts, earlier: &EarlierPolls, limits: &Thresholds) -> Option<RuleMatch> {
    let limit = temperature_limit(facts, limits);
    let warned = nvme::is_hot(facts) || scsi::is_hot(facts);
    let now = facts.temperature.current;
    let from = if earlier.overheating {
        limit.saturating_sub(limits.cool_by).saturating_add(1)
    } else {
        limit
    };
    let holds = warned || now.is_some_and(|now| now >= from);
    holds.then(|| RuleMatch::new(i64::from(now.unwrap_or(limit)), i64::from(limit)))
}

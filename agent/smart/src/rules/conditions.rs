//! What is worth knowing of a drive without being a verdict: wear, heat, cable, timeouts.

use serde::{Deserialize, Serialize};

use super::{
    nvme,
    rule::{Input, Limit},
    scsi, wear,
};
use crate::{
    facts::{Detail, Facts},
    history::{Counter, Known},
    plausible,
    thresholds::Thresholds,
};

/// A temperature limit of the drive's own outside of this is not one.
const SENSIBLE: std::ops::RangeInclusive<i32> = 40..=120;
/// Where the device statistics hold the specified maximum operating temperature (ACS-4, 9.5.8).
const OPERATING_MAX: (u64, u64) = (5, 88);
/// Which condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionKind {
    /// Rated endurance used.
    Wear,
    /// Too hot.
    Overheating,
    /// Checksum errors between drive and controller.
    CableErrors,
    /// Commands that timed out.
    CommandTimeouts,
    /// The drive says what cannot be true; no rule reads it.
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

    /// The kind as text.
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

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionLevel {
    /// Good to know.
    Info,
    /// Somebody should act.
    Warning,
    /// The drive gets no new volumes.
    NoNewVolumes,
}

/// One condition of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmartCondition {
    /// Which.
    pub kind: ConditionKind,
    /// How much it matters.
    pub level: ConditionLevel,
    /// Percent, degrees Celsius or errors: the moving number that the message does not hold.
    pub value: i64,
    /// What it was compared with.
    pub threshold: i64,
    /// What it means and what to do. The same for as long as the condition is the same.
    pub message: String,
}

/// When a condition holds.
#[derive(Clone, Copy)]
pub(super) enum Test {
    /// That much of the rated endurance is used.
    Used(Limit),
    /// At or above the drive's limit, or the drive says so.
    Hot,
    /// A counter grew by that much within seven days.
    Grew(Counter, Limit),
    /// Values were dropped.
    Dropped,
}

/// What a rule found.
struct Found {
    value: i64,
    threshold: i64,
    /// For `{what}` in the rule's sentence.
    what: String,
}

impl Found {
    fn new(value: i64, threshold: i64) -> Self {
        Self {
            value,
            threshold,
            what: String::new(),
        }
    }
}

/// One rule of a condition; of one kind, the first that holds counts.
pub(super) struct ConditionRule {
    pub kind: ConditionKind,
    pub level: ConditionLevel,
    pub drives: &'static str,
    pub field: &'static str,
    pub test: Test,
    /// What it means. `{limit}` is the threshold, `{what}` what the drive says.
    pub meaning: &'static str,
    /// What to do.
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

/// Every rule of a condition.
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
    /// The value and the threshold that it is compared with, when it holds.
    fn hit(&self, input: &Input<'_>, known: &Known) -> Option<Found> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let reached = |value: u64, limit: Limit| {
            let limit = limit.of(input.limits);
            (value >= limit).then(|| Found::new(number(value), number(limit)))
        };
        match self.test {
            Test::Used(limit) => reached(wear(input.facts)?.percent, limit),
            Test::Grew(counter, limit) => reached(input.trends.get(counter)?.week?, limit),
            Test::Hot => hot(input.facts, known, input.limits),
            Test::Dropped => implausible(input.facts),
        }
    }

    /// What it means and what to do.
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

    /// When it holds, in words, with the thresholds as they are set.
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

    /// The key of its threshold.
    pub(super) fn key(&self) -> Option<&'static str> {
        match self.test {
            Test::Used(Limit(key)) | Test::Grew(_, Limit(key)) => Some(key),
            Test::Hot | Test::Dropped => None,
        }
    }
}

pub(super) fn judge(input: &Input<'_>, known: &Known) -> Vec<SmartCondition> {
    let mut found: Vec<SmartCondition> = Vec::new();
    for rule in RULES {
        if found.iter().any(|one| one.kind == rule.kind) {
            continue;
        }
        let Some(hit) = rule.hit(input, known) else {
            continue;
        };
        found.push(SmartCondition {
            kind: rule.kind,
            level: rule.level,
            value: hit.value,
            threshold: hit.threshold,
            message: rule.message(hit.threshold, &hit.what),
        });
    }
    found
}

/// The limit that a drive's temperature is compared with, in degrees Celsius: its operating limit, else the one for its
/// kind. A limit at which it is in danger or trips (SAS drives: often 85 °C) only lowers that.
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

fn implausible(facts: &Facts) -> Option<Found> {
    let (count, what) = plausible::summary(facts)?;
    Some(Found {
        what,
        ..Found::new(i64::try_from(count).unwrap_or(i64::MAX), 1)
    })
}

fn hot(facts: &Facts, known: &Known, limits: &Thresholds) -> Option<Found> {
    let limit = temperature_limit(facts, limits);
    let warned = nvme::is_hot(facts) || scsi::is_hot(facts);
    let now = facts.temperature.current;
    let from = if known.overheating {
        limit.saturating_sub(limits.cool_by).saturating_add(1)
    } else {
        limit
    };
    let holds = warned || now.is_some_and(|now| now >= from);
    holds.then(|| Found::new(i64::from(now.unwrap_or(limit)), i64::from(limit)))
}

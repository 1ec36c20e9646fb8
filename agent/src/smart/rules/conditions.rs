//! What is worth knowing of a drive without being a verdict: wear, heat, cable, timeouts.

use serde::{Deserialize, Serialize};

use crate::smart::{
    facts::{Ata, CriticalWarning, Detail, Facts},
    history::{Counter, Known, Trends},
    thresholds::Thresholds,
};

/// A temperature limit of the drive's own outside of this is not one.
const SENSIBLE: std::ops::RangeInclusive<i32> = 40..=120;
/// Where the device statistics hold the endurance used: page 7, first number.
const ENDURANCE: (u64, u64) = (7, 8);
/// Where they hold the specified maximum operating temperature.
const OPERATING_MAX: (u64, u64) = (5, 88);
/// Names of attributes whose normalised value is the life left in percent, in lower case. By name:
/// the numbers 177, 202 and 231 mean different things on different drives.
const LIFE_LEFT: [&str; 10] = [
    "wear_leveling_count",
    "media_wearout_indicator",
    "ssd_life_left",
    "percent_lifetime_remain",
    "percent_lifetime_used",
    "percent_life_remaining",
    "remaining_lifetime_perc",
    "drive_life_remaining",
    "lifetime_remaining",
    "ssd_remaining_life",
];

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
}

impl ConditionKind {
    /// Every kind there is.
    pub const ALL: [Self; 4] = [
        Self::Wear,
        Self::Overheating,
        Self::CableErrors,
        Self::CommandTimeouts,
    ];

    /// The kind as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wear => "Wear",
            Self::Overheating => "Overheating",
            Self::CableErrors => "CableErrors",
            Self::CommandTimeouts => "CommandTimeouts",
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
pub struct Condition {
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

/// How worn a drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wear {
    /// Rated endurance used, percent; may pass 100.
    pub percent: u64,
    /// Who says so.
    pub source: WearSource,
}

/// Where the wear was read, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WearSource {
    /// smartctl's own summary (7.5 and later).
    Smartctl,
    /// NVMe's percentage used.
    Nvme,
    /// SCSI's endurance indicator.
    Scsi,
    /// eMMC's life time estimate, in tenths.
    Mmc,
    /// ATA device statistics, page 7.
    Statistics,
    /// An ATA attribute, by its name.
    Attribute,
}

/// The wear of a drive, by the best source there is.
pub fn wear(facts: &Facts) -> Option<Wear> {
    let from = |source| move |percent| Wear { percent, source };
    let own = match &facts.detail {
        Detail::Nvme(nvme) => nvme.percentage_used.map(from(WearSource::Nvme)),
        Detail::Scsi(scsi) => scsi.endurance_used.map(from(WearSource::Scsi)),
        Detail::Ata(ata) => ata
            .statistic(ENDURANCE.0, ENDURANCE.1)
            .map(from(WearSource::Statistics))
            .or_else(|| by_name(ata).map(from(WearSource::Attribute))),
        Detail::Mmc(mmc) => mmc.used_percent().map(from(WearSource::Mmc)),
        Detail::Unknown => None,
    };
    facts.endurance_used.map(from(WearSource::Smartctl)).or(own)
}

fn by_name(ata: &Ata) -> Option<u64> {
    ata.attributes.iter().find_map(|attribute| {
        let name = attribute.name.to_lowercase().replace('-', "_");
        let left = attribute.value?;
        // Above 100 it is on another scale; wear levelling at 0 is a drive that does not fill it in.
        let usable = left <= 100 && !(left == 0 && name.starts_with("wear_leveling"));
        let known = LIFE_LEFT.iter().any(|known| name.starts_with(known));
        (known && usable).then(|| 100 - left)
    })
}

pub(super) fn judge(
    facts: &Facts,
    trends: &Trends,
    known: &Known,
    limits: &Thresholds,
) -> Vec<Condition> {
    let worn = worn(facts, limits);
    let hot = hot(facts, known, limits);
    let cable = grown(
        trends,
        Counter::InterfaceCrc,
        ConditionKind::CableErrors,
        limits.crc_growth,
        "checksum errors between drive and controller within seven days; replace or reseat the cable, \
         or check the backplane",
    );
    let timeouts = grown(
        trends,
        Counter::CommandTimeout,
        ConditionKind::CommandTimeouts,
        limits.command_timeout_growth,
        "commands timed out within seven days; check power supply, cable and controller",
    );
    [worn, hot, cable, timeouts].into_iter().flatten().collect()
}

fn worn(facts: &Facts, limits: &Thresholds) -> Option<Condition> {
    let wear = wear(facts)?;
    let steps = [
        (
            limits.wear_full,
            ConditionLevel::NoNewVolumes,
            "it gets no new volumes; replace it",
        ),
        (
            limits.wear_warn,
            ConditionLevel::Warning,
            "plan its replacement",
        ),
        (
            limits.wear_info,
            ConditionLevel::Info,
            "its replacement will be due",
        ),
    ];
    let (limit, level, advice) = steps
        .into_iter()
        .find(|(limit, ..)| wear.percent >= *limit)?;
    Some(Condition {
        kind: ConditionKind::Wear,
        level,
        value: i64::try_from(wear.percent).unwrap_or(i64::MAX),
        threshold: i64::try_from(limit).unwrap_or(i64::MAX),
        message: format!("the drive has used {limit} % or more of its rated endurance; {advice}"),
    })
}

/// The limit that a drive's temperature is compared with, in degrees Celsius: its own, else the one
/// for its kind.
fn temperature_limit(facts: &Facts, limits: &Thresholds) -> i32 {
    let own = facts.temperature;
    let (own, kind) = match &facts.detail {
        Detail::Nvme(nvme) => (
            [
                nvme.warning_temperature,
                own.operating_max,
                nvme.critical_temperature,
            ],
            limits.hot_nvme,
        ),
        Detail::Ata(ata) => {
            let specified = ata.statistic(OPERATING_MAX.0, OPERATING_MAX.1);
            let specified = specified.and_then(|degrees| i32::try_from(degrees).ok());
            (
                [own.operating_max, specified, own.critical_max],
                limits.hot_hdd,
            )
        }
        Detail::Scsi(_) | Detail::Mmc(_) | Detail::Unknown => (
            [own.operating_max, own.trip, own.critical_max],
            limits.hot_hdd,
        ),
    };
    let kind = match &facts.detail {
        Detail::Nvme(_) => kind,
        _ if facts.rotational == Some(false) => limits.hot_ssd,
        _ => kind,
    };
    own.into_iter()
        .flatten()
        .find(|degrees| SENSIBLE.contains(degrees))
        .unwrap_or(kind)
}

fn hot(facts: &Facts, known: &Known, limits: &Thresholds) -> Option<Condition> {
    let limit = temperature_limit(facts, limits);
    let warned = matches!(&facts.detail, Detail::Nvme(nvme)
        if nvme.critical_warning.is_some_and(|warning| warning.has(CriticalWarning::TEMPERATURE)));
    let now = facts.temperature.current;
    let from = if known.overheating {
        limit.saturating_sub(limits.cool_by).saturating_add(1)
    } else {
        limit
    };
    if !warned && now.is_none_or(|now| now < from) {
        return None;
    }
    Some(Condition {
        kind: ConditionKind::Overheating,
        level: ConditionLevel::Warning,
        value: i64::from(now.unwrap_or(limit)),
        threshold: i64::from(limit),
        message: format!(
            "the drive is too hot (its limit is {limit} °C); check fans, airflow and its place"
        ),
    })
}

fn grown(
    trends: &Trends,
    counter: Counter,
    kind: ConditionKind,
    limit: u64,
    what: &str,
) -> Option<Condition> {
    let limit = limit.max(1);
    let grown = trends.get(counter)?.week?;
    (grown >= limit).then(|| Condition {
        kind,
        level: ConditionLevel::Warning,
        value: i64::try_from(grown).unwrap_or(i64::MAX),
        threshold: i64::try_from(limit).unwrap_or(i64::MAX),
        message: format!("{limit} or more {what}"),
    })
}

//! `[smart]` and `[health]`: how drives are asked, what the answers are measured by, and where an operator knows
//! better. Pure.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    check::{Notes, duration, path, repeated},
    raw::{RawDevice, RawHealth, RawOverride, RawSmart},
    section::At,
};
use crate::{
    model::{DriveFacts, DriveId, Override, Verdict, class::glob, health::day_ends},
    smart::{
        Thresholds,
        collect::{DEEP_INTERVAL, DeviceType, HDD_INTERVAL, SSD_INTERVAL},
    },
};

/// The shortest time between two polls of a drive: each holds up its queue.
const SHORTEST: (Duration, &str) = (Duration::from_secs(60), "1m");
/// Overrides are shown wherever the drive is, and in CSI messages.
const MAX_REASON: usize = 256;
/// Thresholds that must not be above another one.
const ORDERED: [(&str, &str); 5] = [
    ("pending-suspect", "pending-bad"),
    ("offline-uncorrectable-suspect", "offline-uncorrectable-bad"),
    ("reallocated-suspect", "reallocated-bad"),
    ("wear-info", "wear-warn"),
    ("wear-warn", "wear-full"),
];

/// How drives are asked and judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// What the rules compare with.
    pub thresholds: Thresholds,
    /// How to talk to drives that do not say it themselves; the first that matches.
    pub devices: Vec<DeviceOverride>,
    /// Where the operator knows better.
    pub overrides: Vec<Override>,
    /// The smartctl to ask with; None: the one in the path.
    pub smartctl: Option<PathBuf>,
    /// Between two polls of a turning drive.
    pub hdd_interval: Duration,
    /// Between two polls of any other drive.
    pub ssd_interval: Duration,
    /// Between two polls for everything there is.
    pub deep_interval: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            devices: Vec::new(),
            overrides: Vec::new(),
            smartctl: None,
            hdd_interval: HDD_INTERVAL,
            ssd_interval: SSD_INTERVAL,
            deep_interval: DEEP_INTERVAL,
        }
    }
}

impl HealthConfig {
    /// How the operator says that this drive is talked to.
    pub fn device_type(&self, drive: &DriveFacts) -> Option<DeviceType> {
        let backing = drive.backing_file.as_deref().map(Path::to_string_lossy);
        let backing = backing.unwrap_or_default();
        let texts = [
            drive.id.0.as_str(),
            &drive.model,
            &drive.kernel_name,
            &drive.sysfs_path,
            &backing,
        ];
        let fits = |device: &&DeviceOverride| {
            let mut texts = texts.iter().filter(|text| !text.is_empty());
            texts.any(|text| glob(&device.pattern, text))
        };
        self.devices
            .iter()
            .find(fits)
            .map(|device| device.kind.clone())
    }
}

/// How to talk to the drives that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOverride {
    /// Of the identity, the model, the kernel name, the sysfs path or a loop device's file (`*`, `?`).
    pub pattern: String,
    /// For smartctl's `-d`.
    pub kind: DeviceType,
}

/// Checks both sections.
pub(super) fn check(smart: &RawSmart, health: &RawHealth, notes: &mut Notes) -> HealthConfig {
    let interval = |given: &Option<At<String>>, default: Duration, notes: &mut Notes| match given {
        Some(at) => duration(Some(at), "", SHORTEST, notes),
        None => default,
    };
    HealthConfig {
        thresholds: thresholds(&smart.thresholds, notes),
        devices: smart
            .devices
            .iter()
            .filter_map(|raw| device(raw, notes))
            .collect(),
        overrides: overrides(&health.overrides, notes),
        smartctl: smart.smartctl.as_ref().map(|at| smartctl(at, notes)),
        hdd_interval: interval(&smart.interval_hdd, HDD_INTERVAL, notes),
        ssd_interval: interval(&smart.interval_ssd, SSD_INTERVAL, notes),
        deep_interval: interval(&smart.interval_deep, DEEP_INTERVAL, notes),
    }
}

fn smartctl(at: &At<String>, notes: &mut Notes) -> PathBuf {
    let program = path(Some(at), PathBuf::new, notes);
    if program.file_name().is_none_or(|name| name != "smartctl") {
        notes.wrong(
            at,
            format!(
                "{:?} must be the path of a program named smartctl",
                at.value
            ),
        );
    }
    program
}

fn thresholds(given: &[(&'static str, At<i32>)], notes: &mut Notes) -> Thresholds {
    let mut thresholds = Thresholds::default();
    let mut places: BTreeMap<&str, &At<i32>> = BTreeMap::new();
    for (key, at) in given {
        places.insert(key, at);
        if !thresholds.set(key, at.value)
            && let Some(range) = Thresholds::range(key)
        {
            notes.wrong(
                at,
                format!(
                    "{} must be from {} to {}",
                    at.value,
                    range.start(),
                    range.end()
                ),
            );
        }
    }
    for (low, high) in ORDERED {
        let Some(at) = places.get(low).or_else(|| places.get(high)) else {
            continue;
        };
        if thresholds.value(low) > thresholds.value(high) {
            notes.wrong(at, format!("{low} must not be above {high}"));
        }
    }
    thresholds
}

fn device(raw: &RawDevice, notes: &mut Notes) -> Option<DeviceOverride> {
    let pattern = needed(raw.line, "[[smart.device]]", "match", &raw.pattern, notes);
    let kind = needed(raw.line, "[[smart.device]]", "type", &raw.kind, notes);
    let (pattern, kind) = (pattern?, kind?);
    if pattern.value.is_empty() || pattern.value.chars().any(char::is_control) {
        notes.wrong(
            pattern,
            "must be a pattern of an identity, a model, a kernel name or a sysfs path",
        );
    }
    match DeviceType::parse(&kind.value) {
        Ok(kind) => Some(DeviceOverride {
            pattern: pattern.value.clone(),
            kind,
        }),
        Err(error) => {
            notes.wrong(kind, error.to_string());
            None
        }
    }
}

fn overrides(given: &[RawOverride], notes: &mut Notes) -> Vec<Override> {
    const TABLE: &str = "[[health.override]]";
    for (again, line) in repeated(given.iter().filter_map(|raw| raw.drive.as_ref())) {
        notes.wrong(
            again,
            format!(
                "drive {:?} is overridden already, in line {line}",
                again.value
            ),
        );
    }
    let mut overrides = Vec::new();
    for raw in given {
        let drive = needed(raw.line, TABLE, "drive", &raw.drive, notes);
        let verdict = needed(raw.line, TABLE, "verdict", &raw.verdict, notes);
        let reason = needed(raw.line, TABLE, "reason", &raw.reason, notes);
        if let Some(at) = drive
            && (at.value.contains(['*', '?', '/']) || at.value.chars().any(char::is_control))
        {
            notes.wrong(
                at,
                format!(
                    "{:?} must be the identity of one drive, as `drivebay-agent drives` shows it",
                    at.value
                ),
            );
        }
        if let Some(at) = reason
            && (at.value.trim().is_empty()
                || at.value.len() > MAX_REASON
                || at.value.chars().any(char::is_control))
        {
            notes.wrong(
                at,
                format!("must say why, in 1 to {MAX_REASON} bytes without control characters"),
            );
        }
        let until = raw.until.as_ref().map(|at| {
            day_ends(&at.value).unwrap_or_else(|| {
                notes.wrong(
                    at,
                    format!(
                        "{:?} is not a day; write for example \"2030-12-31\"",
                        at.value
                    ),
                );
                0
            })
        });
        let verdict = verdict.and_then(|at| {
            let words = [
                ("good", Verdict::Good),
                ("suspect", Verdict::Suspect),
                ("bad", Verdict::Bad),
            ];
            notes.choice(at, &words)
        });
        if let (Some(drive), Some(verdict), Some(reason)) = (drive, verdict, reason) {
            overrides.push(Override {
                drive: DriveId(drive.value.clone()),
                verdict,
                reason: reason.value.clone(),
                until,
            });
        }
    }
    overrides
}

/// A key without which the entry means nothing.
fn needed<'a>(
    line: usize,
    table: &str,
    key: &str,
    given: &'a Option<At<String>>,
    notes: &mut Notes,
) -> Option<&'a At<String>> {
    if given.is_none() {
        notes.problems.push(super::Problem {
            line: Some(line),
            key: format!("{table} {key}"),
            message: "is missing".to_owned(),
        });
    }
    given.as_ref()
}

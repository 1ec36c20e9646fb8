//! `[smart]` and `[health]`: polls of drives, thresholds, and overrides by the operator. Pure.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    raw,
    report::{At, Given, Problem, Report, value},
    texts::{path, unique},
};
use drivebay_model::{DriveFacts, DriveId, Override, Verdict, class::glob, health::day_ends};
use drivebay_smart::{
    Thresholds,
    collect::{DEEP_INTERVAL, DeviceType, HDD_INTERVAL, SSD_INTERVAL},
};

/// The comparison of latencies uses minutes.
const LATENCY_INTERVAL: Duration = Duration::from_secs(60);
/// Bytes of an override's reason, which is shown with the drive and in CSI messages.
const MAX_REASON: usize = 256;
/// Pairs of thresholds of which the first must not be above the second.
const ORDERED: [(&str, &str); 8] = [
    ("pending-suspect", "pending-bad"),
    ("offline-uncorrectable-suspect", "pending-bad"),
    ("reported-uncorrect", "reported-uncorrect-bad"),
    ("media-errors", "media-errors-many"),
    ("reallocated-suspect", "reallocated-bad"),
    ("grown-defects", "grown-defects-bad"),
    ("wear-info", "wear-warn"),
    ("wear-warn", "wear-full"),
];

/// Settings of polling and evaluating drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    pub thresholds: Thresholds,
    /// Device types of drives that need a smartctl option; the first match applies.
    pub devices: Vec<DeviceOverride>,
    /// Verdicts set by the operator.
    pub overrides: Vec<Override>,
    /// Path of smartctl; None: the one in PATH.
    pub smartctl: Option<PathBuf>,
    /// Interval of polls of a rotating drive.
    pub hdd_interval: Duration,
    /// Interval of polls of any other drive.
    pub ssd_interval: Duration,
    /// Interval of polls that read everything available.
    pub deep_interval: Duration,
    /// Interval of comparing drives' latencies: a minute.
    pub latency_interval: Duration,
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
            latency_interval: LATENCY_INTERVAL,
        }
    }
}

impl HealthConfig {
    /// Returns the configured device type of a drive.
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

/// Device type for the drives that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOverride {
    /// Pattern of the identity, the model, the kernel name, the sysfs path or a loop device's file (`*`, `?`).
    pub pattern: String,
    /// Value of smartctl's `-d`.
    pub kind: DeviceType,
}

/// Checks the sections `[smart]` and `[health]`, and fills in defaults. Adds each mistake to `report`, and leaves out invalid devices and
/// overrides.
pub(super) fn check(smart: &raw::Smart, health: &raw::Health, report: &mut Report) -> HealthConfig {
    unique(
        health
            .overrides
            .iter()
            .filter_map(|it| it.value.as_ref()?.drive.as_ref()),
        |drive, line| format!("drive {drive:?} is overridden already, in line {line}"),
        report,
    );
    HealthConfig {
        thresholds: thresholds(&smart.thresholds.0, report),
        devices: smart
            .devices
            .iter()
            .filter_map(|it| device(it, report))
            .collect(),
        overrides: health
            .overrides
            .iter()
            .filter_map(|it| one_override(it, report))
            .collect(),
        smartctl: smart
            .smartctl
            .as_ref()
            .map(|_| smartctl(&smart.smartctl, report)),
        hdd_interval: value(&smart.interval_hdd).map_or(HDD_INTERVAL, |it| it.0),
        ssd_interval: value(&smart.interval_ssd).map_or(SSD_INTERVAL, |it| it.0),
        deep_interval: value(&smart.interval_deep).map_or(DEEP_INTERVAL, |it| it.0),
        latency_interval: value(&health.latency_interval).map_or(LATENCY_INTERVAL, |it| it.0),
    }
}

fn smartctl(given: &Given<String>, report: &mut Report) -> PathBuf {
    let program = path(given, PathBuf::new(), report);
    report.require(
        given.as_ref(),
        |_| program.file_name().is_some_and(|name| name == "smartctl"),
        "must be the path of a program named smartctl",
    );
    program
}

fn thresholds(given: &[(String, At<i32>)], report: &mut Report) -> Thresholds {
    let mut thresholds = Thresholds::default();
    let mut places: BTreeMap<&str, &At<i32>> = BTreeMap::new();
    for (key, at) in given {
        let Some(value) = at.value else { continue };
        places.insert(key, at);
        if !thresholds.set(key, value)
            && let Some(range) = Thresholds::range(key)
        {
            report.error(
                at,
                format!("{value} must be from {} to {}", range.start(), range.end()),
            );
        }
    }
    for (low, high) in ORDERED {
        if let Some(at) = places.get(low).or_else(|| places.get(high))
            && thresholds.value(low) > thresholds.value(high)
        {
            report.error(at, format!("{low} must not be above {high}"));
        }
    }
    thresholds
}

fn device(at: &At<raw::Device>, report: &mut Report) -> Option<DeviceOverride> {
    let raw = at.value.as_ref()?;
    let pattern = needed(at.line, "[[smart.device]] match", &raw.pattern, report);
    let kind = needed(at.line, "[[smart.device]] type", &raw.kind, report);
    if let (Some(at), Some(pattern)) = (&raw.pattern, pattern)
        && (pattern.is_empty() || pattern.chars().any(char::is_control))
    {
        report.error(
            at,
            "must be a pattern of an identity, a model, a kernel name or a sysfs path",
        );
    }
    Some(DeviceOverride {
        pattern: pattern?.clone(),
        kind: kind?.clone(),
    })
}

fn one_override(at: &At<raw::Override>, report: &mut Report) -> Option<Override> {
    let raw = at.value.as_ref()?;
    let drive = needed(at.line, "[[health.override]] drive", &raw.drive, report);
    let verdict = needed(at.line, "[[health.override]] verdict", &raw.verdict, report);
    let reason = needed(at.line, "[[health.override]] reason", &raw.reason, report);
    report.require(
        raw.drive.as_ref(),
        |drive| !drive.contains(|c: char| "*?/".contains(c) || c.is_control()),
        "must be the identity of one drive, as `drivebay-agent drives` shows it",
    );
    if let (Some(at), Some(reason)) = (&raw.reason, reason)
        && (reason.trim().is_empty()
            || reason.len() > MAX_REASON
            || reason.chars().any(char::is_control))
    {
        report.error(
            at,
            format!("must say why, in 1 to {MAX_REASON} bytes without control characters"),
        );
    }
    let until = report.parse(raw.until.as_ref(), |day| {
        day_ends(day)
            .ok_or_else(|| format!("{day:?} is not a day; write for example \"2030-12-31\""))
    });
    Some(Override {
        drive: DriveId(drive?.clone()),
        verdict: match verdict? {
            raw::Verdict::Good => Verdict::Good,
            raw::Verdict::Suspect => Verdict::Suspect,
            raw::Verdict::Bad => Verdict::Bad,
        },
        reason: reason?.clone(),
        until,
    })
}

/// Returns a key without which the entry has no effect, and reports it if it is missing.
fn needed<'a, T>(
    line: usize,
    key: &str,
    given: &'a Given<T>,
    report: &mut Report,
) -> Option<&'a T> {
    if given.is_none() {
        report
            .problems
            .push(Problem::new(Some(line), key, "is missing"));
    }
    value(given)
}

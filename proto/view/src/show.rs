//! One drive or one volume with all known details, as both command lines show it. Pure.

use drivebay_common::{
    paint::Paint,
    pick::{Kind, Names},
};
use drivebay_proto::{
    agent::{Acknowledged, Drive, Finding, SmartReport, Volume, VolumeCopy},
    words::DriveState,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    copies,
    drives::{printed, reason},
    snapshots,
    table::{human_seconds, human_size, printable},
    terminal::Terminal,
    unreadable,
    wrong::{Reason, is_not_polled},
};

/// Kind of drives, for picking.
pub const DRIVE: Kind = Kind {
    name: "drive",
    list: "drivebay-controller drives --all",
};
/// Kind of volumes, for picking.
pub const VOLUME: Kind = Kind {
    name: "volume",
    list: "drivebay-controller volumes --deleted",
};

/// Returns the volumes that have a place on a drive, also those served from another drive.
pub fn with_place_on<'a>(
    volumes: impl IntoIterator<Item = &'a Volume>,
    drive: &str,
) -> Vec<&'a Volume> {
    let volumes = volumes.into_iter();
    let here = |volume: &&Volume| {
        volume.drive == drive || volume.places.iter().any(|place| place.drive == drive)
    };
    volumes.filter(here).collect()
}

/// Returns the words by which a user can name a drive.
pub fn drive_names(drive: &Drive) -> Names<'_> {
    let label = [&drive.kernel_name, &drive.model].map(String::as_str);
    let label: Vec<&str> = label.into_iter().filter(|word| !word.is_empty()).collect();
    Names {
        id: &drive.id,
        others: vec![&drive.kernel_name, &drive.serial, &drive.wwn],
        deleted: false,
        label: label.join(", "),
    }
}

/// Returns the words by which a user can name a volume: id, uuid, name, PersistentVolume, claim, device and mount points.
pub fn volume_names<'a>(volume: &'a Volume, claim: &'a str) -> Names<'a> {
    let uuid = volume.id.split('@').next().unwrap_or_default();
    let mut others = vec![uuid, &volume.name, &volume.device, claim];
    if let Some(created_for) = &volume.created_for {
        others.push(&created_for.persistent_volume);
    }
    others.extend(volume.mounts.iter().map(String::as_str));
    Names {
        id: &volume.id,
        others,
        deleted: volume.is_deleted(),
        label: match volume.is_usable() {
            true => volume.name.clone(),
            false => format!("{}, {}", volume.name, volume.state),
        },
    }
}

/// Returns the claim that a volume was created for, or its Nomad volume, as NAMESPACE/NAME; empty if not known.
pub fn claim(volume: &Volume) -> String {
    match &volume.created_for {
        Some(created_for) if !created_for.claim.is_empty() => {
            format!("{}/{}", created_for.namespace, created_for.claim)
        }
        Some(created_for) if !created_for.nomad_volume.is_empty() => {
            format!(
                "{}/{}",
                created_for.nomad_namespace, created_for.nomad_volume
            )
        }
        _ => String::new(),
    }
}

/// Lines with the details of one object, each with a label.
pub struct Sheet {
    pub text: String,
    now: u64,
    terminal: Terminal,
}

impl Sheet {
    pub fn new(now: u64, terminal: Terminal) -> Self {
        Self {
            text: String::new(),
            now,
            terminal,
        }
    }

    pub fn title(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(title);
        self.text.push('\n');
    }

    pub fn line(&mut self, name: &str, value: &str) {
        let value = printable(value);
        let value = if value.is_empty() { "-" } else { &value };
        let beginning = format!("  {name:<11}");
        self.text
            .push_str(&self.terminal.wrapped(&beginning, value));
    }

    // The value must be safe for a terminal already.
    pub fn painted(&mut self, name: &str, value: &str) {
        self.text.push_str(&format!("  {name:<11}{value}\n"));
    }

    fn reason(&mut self, reason: &Reason) {
        let line = printable(&reason.one_line(self.now));
        self.item(&line);
    }

    // Adds an entry of a list.
    fn item(&mut self, text: &str) {
        self.text
            .push_str(&self.terminal.hanging("  ", "    ", text));
    }

    pub fn ago(&self, moment: u64) -> String {
        match moment {
            0 => "never".to_owned(),
            moment => format!("{} ago", human_seconds(self.now.saturating_sub(moment))),
        }
    }
}

/// Returns the details of a drive as text. `node`: its node in a cluster. `volumes`: those with a place on it, also those served from
/// another drive. `now`: seconds since 1970.
pub fn drive(
    node: Option<&str>,
    drive: &Drive,
    volumes: &[&Volume],
    wide: bool,
    now: u64,
    terminal: Terminal,
) -> String {
    let paint = terminal.paint;
    let mut sheet = Sheet::new(now, terminal);
    let empty = Default::default();
    let health = drive.health.as_ref().unwrap_or(&empty);
    sheet.title(&format!("Drive {}", printable(&drive.id)));
    if let Some(node) = node {
        sheet.line("node", node);
    }
    let device = match drive.kernel_name.as_str() {
        "" => String::new(),
        name => format!("/dev/{name}"),
    };
    sheet.line("device", &device);
    sheet.line("model", &drive.model);
    sheet.line("serial", &drive.serial);
    let bay = drive.bay();
    if !bay.is_empty() {
        sheet.line("bay", &bay);
    }
    if let Some(cordon) = &drive.cordon {
        sheet.line("cordon", &cordon.describe());
    }
    if wide {
        sheet.line("WWN", &drive.wwn);
        sheet.line("firmware", &drive.firmware);
        let sectors = (drive.logical_sector_bytes, drive.physical_sector_bytes);
        sheet.line("sectors", &format!("{}/{} bytes", sectors.0, sectors.1));
    }
    let kind = format!(
        "{}, {}, {}",
        human_size(drive.size_bytes),
        drive.media,
        drive.transport
    );
    sheet.line("size", &kind);
    sheet.line("state", &drive.state);
    sheet.line("class", &drive.class);
    if drive.known_state().is_some_and(DriveState::offers_space) {
        let (free, largest) = (
            human_size(drive.free_bytes),
            human_size(drive.largest_free_bytes),
        );
        let usable = human_size(drive.usable_bytes);
        let unzeroed = match drive.unzeroed_bytes {
            0 => String::new(),
            bytes => format!("; {} not zeroed yet", human_size(bytes)),
        };
        sheet.line(
            "free",
            &format!("{free} of {usable}; largest piece {largest}{unzeroed}"),
        );
    }
    let since = match health.smart.as_ref().map_or(0, |smart| smart.verdict_since) {
        0 => String::new(),
        since => format!(
            ", reported by the drive itself for {}",
            human_seconds(now.saturating_sub(since))
        ),
    };
    let polled = match is_not_polled(drive) {
        true => ", not polled since the agent started",
        false => "",
    };
    sheet.painted(
        "verdict",
        &format!("{}{since}{polled}", verdict(drive, paint)),
    );
    if let Some(given) = &health.acknowledged {
        sheet.line("", &acknowledged(given, now));
    }
    if let Some(given) = &health.overridden {
        let until = match given.until.checked_sub(now) {
            Some(left) if left > 0 => format!(", for another {}", human_seconds(left)),
            _ => String::new(),
        };
        sheet.line("", &(given.describe() + &until));
    }
    if !drive.trouble.is_empty() {
        sheet.line("trouble", &drive.trouble);
    }
    smart(&mut sheet, health.smart.as_ref(), wide);
    findings(&mut sheet, "Findings:", health.counting());
    let acknowledged_findings = health.findings.iter().filter(|one| one.acknowledged);
    findings(&mut sheet, "Acknowledged:", acknowledged_findings);
    findings(&mut sheet, "Conditions:", health.conditions.iter());
    let rejects = drive
        .rejects
        .iter()
        .map(|one| reason(&one.code, &one.detail));
    list(&mut sheet, "Why it is not used:", rejects);
    list(&mut sheet, "Notes:", drive.notes.iter().cloned());
    let (on_it, elsewhere): (Vec<&Volume>, Vec<&Volume>) =
        volumes.iter().partition(|volume| volume.drive == drive.id);
    let left = elsewhere.iter().flat_map(|volume| {
        let places = volume.places.iter();
        let here = places.filter(|place| place.drive == drive.id);
        here.map(|place| {
            let (name, on) = (&volume.name, &volume.drive);
            format!("{name}: {}; it is served from drive {on}", place.describe())
        })
    });
    let left: Vec<String> = left.collect();
    let on_it = on_it.iter().map(|volume| {
        let wrong = volume.conditions.iter().filter(|one| one.abnormal);
        let wrong: Vec<&str> = wrong.map(|one| one.reason.as_str()).collect();
        let wrong = if wrong.is_empty() {
            "ok".to_owned()
        } else {
            wrong.join(", ")
        };
        let used = if volume.published { ", in use" } else { "" };
        let size = human_size(volume.size_bytes);
        format!("{} ({size}, {}{used}): {wrong}", volume.name, volume.state)
    });
    list(
        &mut sheet,
        "Unreadable ranges:",
        unreadable::of_drive(drive, volumes).into_iter(),
    );
    list(&mut sheet, "Volumes on it:", on_it);
    list(
        &mut sheet,
        "Other places of volumes on it:",
        left.into_iter(),
    );
    sheet.text
}

/// Returns the verdict in colour; BAD stays red if it is acknowledged.
fn verdict(drive: &Drive, paint: Paint) -> String {
    let word = paint.word(&printable(&drive.verdict));
    match drive.is_acknowledged() {
        true => format!("{word}, acknowledged"),
        false => word,
    }
}

fn smart(sheet: &mut Sheet, report: Option<&SmartReport>, wide: bool) {
    let Some(report) = report else {
        sheet.line("SMART", "not polled yet");
        return;
    };
    let mut parts = vec![format!("answered {}", sheet.ago(report.answered_at))];
    if !report.device_type.is_empty() {
        parts.push(format!("as {}", report.device_type));
    }
    if report.asleep {
        parts.push("asleep now, not woken".to_owned());
    }
    sheet.line("SMART", &parts.join(", "));
    if !report.failure.is_empty() {
        sheet.line("", &format!("last poll failed: {}", report.failure));
    }
    let first = report
        .readings
        .iter()
        .take(if wide { usize::MAX } else { 4 });
    let readings: Vec<String> = first
        .map(|one| drivebay_common::smart_names::shown(&one.name, one.value))
        .collect();
    if !readings.is_empty() {
        sheet.line("", &readings.join(", "));
    }
    for finding in &report.findings {
        let limit = match finding.threshold {
            0 => String::new(),
            limit => format!(", limit {limit}"),
        };
        let suffix = if finding.acknowledged {
            ", acknowledged"
        } else {
            ""
        };
        sheet.line(
            "",
            &format!("{}{limit}: {}{suffix}", finding.reading, finding.code),
        );
    }
}

fn findings<'a>(sheet: &mut Sheet, title: &str, findings: impl Iterator<Item = &'a Finding>) {
    for (index, finding) in findings.enumerate() {
        if index == 0 {
            sheet.title(title);
        }
        sheet.reason(&finding.into());
    }
}

/// Returns operator, reason and duration of an acknowledgement.
fn acknowledged(given: &Acknowledged, now: u64) -> String {
    let ago = human_seconds(now.saturating_sub(given.at));
    let note = match given.note.as_str() {
        "" => String::new(),
        note => format!(": {note}"),
    };
    let until = match given.until.checked_sub(now) {
        Some(left) if left > 0 => format!(", for another {}", human_seconds(left)),
        _ => String::new(),
    };
    let volumes = match given.takes_new_volumes {
        true => "it takes new volumes",
        false => "it takes no new volumes",
    };
    format!(
        "acknowledged {ago} ago by {}{note} ({volumes}){until}",
        given.by
    )
}

fn list(sheet: &mut Sheet, title: &str, lines: impl Iterator<Item = String>) {
    for (index, line) in lines.enumerate() {
        if index == 0 {
            sheet.title(title);
        }
        sheet.item(&printable(&line));
    }
}

/// Returns the details of a volume as text; `its_drive` and `copy` (a running copy to it) if they are known.
pub fn volume(
    node: Option<&str>,
    volume: &Volume,
    its_drive: Option<&Drive>,
    copy: Option<&VolumeCopy>,
    wide: bool,
    now: u64,
    terminal: Terminal,
) -> String {
    let paint = terminal.paint;
    let mut sheet = Sheet::new(now, terminal);
    sheet.title(&format!("Volume {}", printable(&volume.name)));
    sheet.line("id", &volume.id);
    if let Some(node) = node {
        sheet.line("node", node);
    }
    sheet.line("class", &volume.class);
    if volume.manual {
        sheet.line("made", "by hand");
    }
    let fs = super::volumes::filesystem(volume);
    sheet.line("size", &format!("{}, {fs}", human_size(volume.size_bytes)));
    if let Some(usage) = &volume.usage {
        let text = format!(
            "{}{}, {} free",
            human_size(usage.used_bytes),
            super::volumes::full(usage).map_or_else(String::new, |full| format!(" ({full}%)")),
            human_size(usage.available_bytes)
        );
        let age = match usage.age_seconds {
            0..120 => String::new(),
            age => format!(", {} ago", human_seconds(age)),
        };
        sheet.line("used", &(text + &age));
    }
    if volume.created_at > 0 {
        let ago = sheet.ago(volume.created_at);
        sheet.line("created", &ago);
    }
    let claim = claim(volume);
    if !claim.is_empty() {
        sheet.line("claim", &claim);
    }
    let source = copies::source(volume);
    if !source.is_empty() {
        sheet.line("copy of", &source);
    }
    let state = copy.map_or_else(|| super::volumes::state(volume), copies::state);
    sheet.line("state", &state);
    if let Some(copy) = copy.filter(|copy| !copy.waits_for.is_empty()) {
        sheet.line("", &copy.waits_for);
    }
    let condition = super::volumes::condition(volume);
    sheet.painted("condition", &paint.word(&printable(&condition)));
    let device = match volume.device.as_str() {
        "" => String::new(),
        name => format!("/dev/{name}"),
    };
    sheet.line("device", &device);
    match its_drive {
        None => sheet.line("drive", &volume.drive),
        Some(drive) => {
            let named = [&drive.kernel_name, &drive.model]
                .into_iter()
                .filter(|word| !word.is_empty());
            let named: Vec<&str> = named.map(String::as_str).collect();
            let named = match named.as_slice() {
                [] => drive.id.clone(),
                named => format!("{} ({})", drive.id, named.join(", ")),
            };
            sheet.line("drive", &named);
            let smart = drive
                .health
                .as_ref()
                .and_then(|health| health.smart.as_ref());
            let polled = smart.map_or_else(
                || "SMART not polled yet".to_owned(),
                |smart| format!("SMART answered {}", sheet.ago(smart.answered_at)),
            );
            let word = verdict(drive, paint);
            sheet.painted("", &format!("{word}, {polled}"));
        }
    }
    if volume.generation > 1 {
        sheet.line("generation", &volume.generation.to_string());
    }
    for (index, place) in volume.places.iter().enumerate() {
        let text = format!("drive {}: {}", place.drive, place.describe());
        sheet.line(if index == 0 { "also on" } else { "" }, &text);
    }
    for (index, pod) in volume.pods.iter().enumerate() {
        sheet.line(if index == 0 { "pods" } else { "" }, pod);
    }
    for (index, place) in volume.mounts.iter().enumerate() {
        sheet.line(if index == 0 { "mounted at" } else { "" }, place);
    }
    for (index, snapshot) in volume.snapshots.iter().enumerate() {
        let text = snapshots::describe(snapshot, now);
        sheet.line(if index == 0 { "snapshots" } else { "" }, &text);
    }
    if let Some(check) = &volume.running_check {
        let text = format!("{}, began {}", check.method, sheet.ago(check.since));
        sheet.line("being checked", &text);
    }
    for (index, check) in volume.checks.iter().enumerate() {
        let how = match check.method.as_str() {
            "" => String::new(),
            method => format!(" ({method})"),
        };
        let text = format!("{}{how}, {}", check.text, sheet.ago(check.at));
        sheet.line(if index == 0 { "checked" } else { "" }, &text);
    }
    if wide {
        let mut parameters: Vec<String> = volume
            .parameters
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        parameters.sort_unstable();
        sheet.line("parameters", &parameters.join(", "));
    }
    for (title, abnormal) in [("What is wrong:", true), ("Conditions:", false)] {
        let conditions = volume.conditions.iter();
        let reasons = conditions.filter(|one| one.abnormal == abnormal);
        let reasons: Vec<Reason> = reasons.map(Reason::from).collect();
        if !reasons.is_empty() {
            sheet.title(title);
        }
        for reason in &reasons {
            sheet.reason(reason);
        }
    }
    let lost = unreadable::of_volume(volume, its_drive);
    list(&mut sheet, "Unreadable ranges:", lost.into_iter());
    if let Some(drive) = its_drive {
        let health = drive.health.clone().unwrap_or_default();
        findings(&mut sheet, "Findings of its drive:", health.counting());
        findings(
            &mut sheet,
            "Conditions of its drive:",
            health.conditions.iter(),
        );
    }
    sheet.text
}

/// A drive with its volumes, for programs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DriveSheet<'a> {
    /// The node id.
    node: &'a str,
    #[serde(flatten)]
    drive: Drive,
    /// The volumes on it.
    volumes: &'a [&'a Volume],
}

impl<'a> DriveSheet<'a> {
    pub fn new(node: &'a str, drive: &Drive, volumes: &'a [&'a Volume]) -> Self {
        Self {
            node,
            drive: printed(drive),
            volumes,
        }
    }
}

/// A volume with its drive, for programs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VolumeSheet<'a> {
    /// The node id.
    node: &'a str,
    #[serde(flatten)]
    volume: &'a Volume,
    /// Its drive; null when that is not known.
    its_drive: Option<Drive>,
}

impl<'a> VolumeSheet<'a> {
    pub fn new(node: &'a str, volume: &'a Volume, drive: Option<&Drive>) -> Self {
        Self {
            node,
            volume,
            its_drive: drive.map(printed),
        }
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;

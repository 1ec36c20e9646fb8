//! Drives in tables of both command lines: cells and the lines below a row. Pure.

use std::cmp::Ordering;

use drivebay_proto::{
    agent::{Drive, SmartReport},
    words::{DriveState, Transport, Verdict},
};

use super::{
    args::DriveSort,
    legend::Reasoned,
    order::by_device,
    row::Row,
    table::{
        Align::{self, Left, Right},
        Yielding, human_seconds, human_size,
    },
    wrong::reasons,
};

/// Codes of devices that are shown only with `--all`.
const NOISE: [&str; 2] = ["NotADisk", "Partition"];

/// True if the drive is shown only with `--all`.
pub fn is_noise(drive: &Drive) -> bool {
    let codes: Vec<&str> = drive
        .rejects
        .iter()
        .map(|reject| reject.code.as_str())
        .collect();
    is_rejected(drive) && is_nobodys(&codes, drive.known_transport() == Some(Transport::Loop))
}

/// True if a device cannot be a drive: a virtual device, a partition, a loop device with nothing attached. A real drive of size 0 has
/// failed to start, and is shown.
pub fn is_nobodys(codes: &[&str], is_loop: bool) -> bool {
    codes.iter().any(|code| NOISE.contains(code)) || (is_loop && codes.contains(&"ZeroSize"))
}

/// Returns a note on the number of devices that are not shown; empty for 0.
pub fn hidden_note(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "(1 virtual device is not shown; --all shows it)\n".into(),
        _ => format!("({count} virtual devices are not shown; --all shows them)\n"),
    }
}

/// Returns the columns of a list of drives.
pub fn columns(wide: bool) -> Vec<(&'static str, Align)> {
    let mut columns = vec![
        ("DRIVE", Left),
        ("DEVICE", Left),
        ("MEDIA", Left),
        ("SIZE", Right),
        ("USE%", Right),
        ("STATE", Left),
        ("CLASS", Left),
        ("FREE", Right),
        ("HEALTH", Left),
        ("TEMP", Right),
        ("WEAR", Right),
        ("SINCE", Right),
    ];
    if wide {
        columns.extend([
            ("LARGEST", Right),
            ("BUS", Left),
            ("MODEL", Left),
            ("SERIAL", Left),
            ("BAY", Left),
            ("FIRMWARE", Left),
            ("SECTOR", Right),
        ]);
    }
    columns.push(("REASON", Left));
    columns
}

/// Returns the columns that may be cut or left out if the table is too wide.
pub fn yielding(wide: bool) -> Yielding<'static> {
    match wide {
        true => Yielding::default(),
        false => Yielding {
            names: &["DRIVE"],
            dispensable: &[
                "SINCE", "WEAR", "MEDIA", "TEMP", "CLASS", "FREE", "SIZE", "DEVICE",
            ],
        },
    }
}

/// Returns the cells of a drive, one per column. `now`: seconds since 1970.
fn cells(drive: &Drive, wide: bool, now: u64) -> Vec<String> {
    let size = |bytes: u64| match drive.takes_new_volumes() {
        true => human_size(bytes),
        false => String::new(),
    };
    let read = |value: Option<i64>, unit: &str| {
        value.map_or_else(String::new, |value| format!("{value}{unit}"))
    };
    let since = since(drive).map(|since| human_seconds(now.saturating_sub(since)));
    let verdict = match drive.is_acknowledged() {
        true => format!("{} (ack)", drive.verdict),
        false => drive.verdict.clone(),
    };
    let mut cells = vec![
        drive.id.clone(),
        drive.kernel_name.clone(),
        drive.media.clone(),
        human_size(drive.size_bytes),
        used_percent(drive).map_or_else(String::new, |used| format!("{used}%")),
        drive.state.clone(),
        drive.class.clone(),
        size(drive.free_bytes),
        verdict,
        read(temperature(drive), "C"),
        read(wear(drive), "%"),
        since.unwrap_or_default(),
    ];
    if wide {
        cells.extend([
            size(drive.largest_free_bytes),
            drive.transport.clone(),
            drive.model.clone(),
            drive.serial.clone(),
            drive.bay(),
            drive.firmware.clone(),
            format!(
                "{}/{}",
                drive.logical_sector_bytes, drive.physical_sector_bytes
            ),
        ]);
    }
    cells.push(codes(drive));
    cells
}

/// Returns the bytes that volumes use on the drive; 0 if it is not claimed.
pub fn used_bytes(drive: &Drive) -> u64 {
    match drive.known_state() {
        Some(DriveState::Claimed) => drive.usable_bytes.saturating_sub(drive.free_bytes),
        _ => 0,
    }
}

/// Returns the percentage of the usable space that volumes use, rounded up; None if the drive is not claimed.
pub fn used_percent(drive: &Drive) -> Option<u64> {
    let used = u128::from(used_bytes(drive)) * 100;
    let all = u128::from(drive.usable_bytes);
    let is_claimed = drive.known_state() == Some(DriveState::Claimed);
    let percent = used.div_ceil(all.max(1));
    (is_claimed && all > 0).then(|| u64::try_from(percent).unwrap_or(u64::MAX))
}

/// Returns the codes of the drive's reasons, each once.
pub fn codes(drive: &Drive) -> String {
    let reasons = reasons(drive);
    let codes: Vec<&str> = reasons.iter().map(|one| one.code.as_str()).collect();
    let mut codes = match codes.contains(&"NotSelected") {
        true => vec![in_short(&codes)],
        false => codes.into_iter().map(str::to_owned).collect(),
    };
    codes.dedup();
    codes.join(", ")
}

fn smart(drive: &Drive) -> Option<&SmartReport> {
    drive.health.as_ref()?.smart.as_ref()
}

fn reading(drive: &Drive, name: &str) -> Option<i64> {
    let mut readings = smart(drive)?.readings.iter();
    Some(readings.find(|one| one.name == name)?.value)
}

/// Temperature in °C of the last successful SMART poll.
fn temperature(drive: &Drive) -> Option<i64> {
    reading(drive, "temperature-celsius")
}

/// Percentage of the rated endurance that is used, of the last successful SMART poll.
fn wear(drive: &Drive) -> Option<i64> {
    reading(drive, "wear-percent")
}

/// Returns the time since which its health is unchanged, seconds since 1970.
fn since(drive: &Drive) -> Option<u64> {
    let health = drive.health.as_ref()?;
    let findings = health.findings.iter().map(|finding| finding.since);
    // The verdict depends on the findings; without any, on the drive's own assessment.
    let oldest = findings.filter(|since| *since > 0).min();
    oldest.or_else(|| {
        smart(drive)
            .map(|smart| smart.verdict_since)
            .filter(|since| *since > 0)
    })
}

/// True if no class selects the drive, nothing is wrong with it and it holds nothing of Drivebay.
pub fn is_unwanted(drive: &Drive) -> bool {
    let codes: Vec<&str> = drive.rejects.iter().map(|one| one.code.as_str()).collect();
    let is_well = drive.trouble.is_empty() && !has_bad_verdict(drive);
    is_rejected(drive) && is_well && are_unwanted(&codes)
}

/// The same, by the codes of the reasons for which a drive is rejected.
pub fn are_unwanted(codes: &[&str]) -> bool {
    codes.contains(&"NotSelected") && !codes.iter().any(|code| code.starts_with("Ours"))
}

/// Returns the reject codes of a drive that no class selects, in one line.
pub fn in_short(codes: &[&str]) -> String {
    let others: Vec<&str> = codes
        .iter()
        .copied()
        .filter(|code| *code != "NotSelected")
        .collect();
    match others.is_empty() {
        true => "NotSelected".to_owned(),
        false => others.join(", "),
    }
}

/// Returns the row of a drive. `whole`: with every reason and note below it, for a drive that was named.
pub fn row(drive: &Drive, wide: bool, whole: bool, now: u64) -> Row {
    Row {
        cells: cells(drive, wide, now),
        below: match wide || whole {
            true => below(drive),
            false => Vec::new(),
        },
    }
}

/// Returns a drive's reasons and notes for the legend of a list; none for a drive that no class selects. `node`: name to be shown in a list
/// of several nodes.
pub fn legend_of(drive: &Drive, node: Option<&str>) -> Vec<Reasoned> {
    if is_unwanted(drive) {
        return Vec::new();
    }
    let label = match drive.kernel_name.as_str() {
        "" => drive.id.as_str(),
        name => name,
    };
    let label = match node {
        Some(node) => format!("{node}: {label}"),
        None => label.to_owned(),
    };
    let reasons = reasons(drive).into_iter();
    let reasons = reasons.map(|reason| (reason.code, reason.message));
    let notes = drive
        .notes
        .iter()
        .map(|note| ("Note".to_owned(), note.clone()));
    let reasoned = reasons.chain(notes).map(|(code, text)| Reasoned {
        label: label.clone(),
        code,
        text,
    });
    reasoned.collect()
}

/// Sorts drives by the key, then by kernel name, with missing drives last; drives that no class selects come after all others.
pub fn sort<T>(drives: &mut [T], by: Option<DriveSort>, of: impl Fn(&T) -> &Drive) {
    drives.sort_by(|a, b| {
        let (a, b) = (of(a), of(b));
        let order = match by {
            None | Some(DriveSort::Device) => Ordering::Equal,
            Some(DriveSort::Size) => b.size_bytes.cmp(&a.size_bytes),
            Some(DriveSort::Free) => b.free_bytes.cmp(&a.free_bytes),
            Some(DriveSort::Class) => a.class.cmp(&b.class),
            Some(DriveSort::State) => a.state.cmp(&b.state),
            Some(DriveSort::Health) => badness(b).cmp(&badness(a)),
            Some(DriveSort::Temperature) => temperature(b).cmp(&temperature(a)),
            Some(DriveSort::Wear) => wear(b).cmp(&wear(a)),
        };
        is_unwanted(a)
            .cmp(&is_unwanted(b))
            .then(order)
            .then_with(|| by_device(&a.kernel_name, &b.kernel_name))
            .then_with(|| a.id.cmp(&b.id))
    });
}

/// Returns a number that increases with severity: missing or unresponsive drives are worst, then by verdict.
fn badness(drive: &Drive) -> u8 {
    let is_lost = drive.known_state() == Some(DriveState::Missing) || !drive.trouble.is_empty();
    let acknowledged = drive.is_acknowledged();
    match drive.known_verdict() {
        _ if is_lost => 5,
        Some(Verdict::Bad) if !acknowledged => 4,
        Some(Verdict::Suspect) if !acknowledged => 3,
        Some(Verdict::Bad | Verdict::Suspect) => 2,
        Some(Verdict::Unknown) => 1,
        Some(Verdict::Good) | None => 0,
    }
}

/// Returns every reason, then every note, one per line.
pub fn below(drive: &Drive) -> Vec<String> {
    let reasons = drive
        .rejects
        .iter()
        .map(|reject| reason(&reject.code, &reject.detail));
    reasons
        .chain(drive.all_notes().iter().map(|note| format!("note: {note}")))
        .collect()
}

/// Returns the drive for programs, with all notes.
pub fn printed(drive: &Drive) -> Drive {
    Drive {
        notes: drive.all_notes(),
        ..drive.clone()
    }
}

/// Returns `Code: detail`, or the code alone.
pub fn reason(code: &str, detail: &str) -> String {
    if detail.is_empty() {
        code.to_owned()
    } else {
        format!("{code}: {detail}")
    }
}

/// True if a drive is missing, or has a verdict other than GOOD and UNKNOWN.
pub fn in_trouble(drive: &Drive) -> bool {
    drive.known_state() == Some(DriveState::Missing) || has_bad_verdict(drive)
}

fn is_rejected(drive: &Drive) -> bool {
    drive.known_state() == Some(DriveState::Rejected)
}

/// A verdict of a newer agent counts as a bad one.
fn has_bad_verdict(drive: &Drive) -> bool {
    let takes = drive.known_verdict().map(Verdict::takes_new_volumes);
    !drive.verdict.is_empty() && takes != Some(true)
}

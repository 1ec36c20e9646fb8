//! A drive as both command lines show it: cells of a table, the lines below. Pure.

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

/// Codes of devices that are only shown with `--all`.
const NOISE: [&str; 2] = ["NotADisk", "Partition"];

/// Whether it is only shown with `--all`.
pub fn is_noise(drive: &Drive) -> bool {
    let codes: Vec<&str> = drive
        .rejects
        .iter()
        .map(|reject| reject.code.as_str())
        .collect();
    is_rejected(drive) && is_nobodys(&codes, drive.known_transport() == Some(Transport::Loop))
}

/// Whether a device was never anybody's drive: a virtual one, a partition, a loop device with nothing attached.
/// A real drive of size 0 has failed to start, and is shown.
pub fn is_nobodys(codes: &[&str], is_loop: bool) -> bool {
    codes.iter().any(|code| NOISE.contains(code)) || (is_loop && codes.contains(&"ZeroSize"))
}

/// `(3 virtual devices are not shown; …)`
pub fn hidden_note(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "(1 virtual device is not shown; --all shows it)\n".into(),
        _ => format!("({count} virtual devices are not shown; --all shows them)\n"),
    }
}

/// The columns of a drive.
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

/// How a list of drives gives way where it does not fit.
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

/// The cells of a drive, one per column. `now`: seconds since 1970.
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

/// Space that volumes have on the drive; 0 of one that is not claimed.
pub fn used_bytes(drive: &Drive) -> u64 {
    match drive.known_state() {
        Some(DriveState::Claimed) => drive.usable_bytes.saturating_sub(drive.free_bytes),
        _ => 0,
    }
}

/// Per cent of the usable space that volumes have, rounded up; None of a drive that is not claimed.
fn used_percent(drive: &Drive) -> Option<u64> {
    let used = u128::from(used_bytes(drive)) * 100;
    let all = u128::from(drive.usable_bytes);
    let is_claimed = drive.known_state() == Some(DriveState::Claimed);
    let percent = used.div_ceil(all.max(1));
    (is_claimed && all > 0).then(|| u64::try_from(percent).unwrap_or(u64::MAX))
}

/// Codes of what keeps the drive from being used, or should be known of it, each once.
fn codes(drive: &Drive) -> String {
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

/// Degrees Celsius, as the drive last said.
fn temperature(drive: &Drive) -> Option<i64> {
    reading(drive, "temperature-celsius")
}

/// Per cent of its rated endurance that is used, as the drive last said.
fn wear(drive: &Drive) -> Option<i64> {
    reading(drive, "wear-percent")
}

/// Since when its health is what it is, seconds since 1970.
fn since(drive: &Drive) -> Option<u64> {
    let health = drive.health.as_ref()?;
    let findings = health.findings.iter().map(|finding| finding.since);
    // The verdict rests on the findings; the drive's own word is older where nothing is found.
    let oldest = findings.filter(|since| *since > 0).min();
    oldest.or_else(|| {
        smart(drive)
            .map(|smart| smart.verdict_since)
            .filter(|since| *since > 0)
    })
}

/// Whether no class wants the drive, and it holds nothing of Drivebay: it is of little interest.
pub fn is_unwanted(drive: &Drive) -> bool {
    let codes: Vec<&str> = drive.rejects.iter().map(|one| one.code.as_str()).collect();
    let is_well = drive.trouble.is_empty() && !has_bad_verdict(drive);
    is_rejected(drive) && is_well && are_unwanted(&codes)
}

/// The same, by the codes of what speaks against using it.
pub fn are_unwanted(codes: &[&str]) -> bool {
    codes.contains(&"NotSelected") && !codes.iter().any(|code| code.starts_with("Ours"))
}

/// Codes of what speaks against a drive that no class wants, in one line.
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

/// A drive as a row. `whole`: with every reason and note below it, as when it is asked for by name.
pub fn row(drive: &Drive, wide: bool, whole: bool, now: u64) -> Row {
    Row {
        cells: cells(drive, wide, now),
        below: match wide || whole {
            true => below(drive),
            false => Vec::new(),
        },
    }
}

/// Its reasons and notes for the legend of a list: none of a drive that no class wants, which is of little interest.
/// `node`: where it is, in a list of several nodes.
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

/// Puts drives into the order that is wanted, by their kernel names where nothing else decides: those that no class wants come
/// last, and before them those that are missing.
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

/// The worse, the more: missing or without an answer, then by verdict.
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

/// Every reason, then every note, one per line.
pub fn below(drive: &Drive) -> Vec<String> {
    let reasons = drive
        .rejects
        .iter()
        .map(|reject| reason(&reject.code, &reject.detail));
    reasons
        .chain(drive.all_notes().iter().map(|note| format!("note: {note}")))
        .collect()
}

/// For programs, which get all notes.
pub fn printed(drive: &Drive) -> Drive {
    Drive {
        notes: drive.all_notes(),
        ..drive.clone()
    }
}

/// `Code: detail`, or the code alone.
pub fn reason(code: &str, detail: &str) -> String {
    if detail.is_empty() {
        code.to_owned()
    } else {
        format!("{code}: {detail}")
    }
}

/// Whether a drive is not well: missing, or with a verdict other than GOOD and UNKNOWN.
pub fn in_trouble(drive: &Drive) -> bool {
    drive.known_state() == Some(DriveState::Missing) || has_bad_verdict(drive)
}

fn is_rejected(drive: &Drive) -> bool {
    drive.known_state() == Some(DriveState::Rejected)
}

/// A verdict of a newer agent is a bad one, too.
fn has_bad_verdict(drive: &Drive) -> bool {
    let takes = drive.known_verdict().map(Verdict::takes_new_volumes);
    !drive.verdict.is_empty() && takes != Some(true)
}

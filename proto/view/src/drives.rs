//! A drive as both command lines show it: cells of a table, the lines below. Pure.

use std::cmp::Reverse;

use drivebay_proto::{
    agent::{Drive, SmartReport},
    words::{DriveState, Transport, Verdict},
};

use super::{
    args::DriveSort,
    row::Row,
    table::{
        Align::{self, Left, Right},
        human_seconds, human_size,
    },
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
    columns
}

/// The first columns, up to STATE, say something of any drive.
const ALWAYS: usize = 5;

/// Columns that a narrow terminal can do without, the first ones first.
pub const DISPENSABLE: [&str; 6] = ["SINCE", "WEAR", "MEDIA", "TEMP", "CLASS", "FREE"];

/// The cells of a drive, one per column. `now`: seconds since 1970.
pub fn cells(drive: &Drive, wide: bool, now: u64) -> Vec<String> {
    let offers = drive.known_state().is_some_and(DriveState::offers_space);
    let size = |bytes: u64| {
        if offers {
            human_size(bytes)
        } else {
            String::new()
        }
    };
    let read = |value: Option<i64>, unit: &str| {
        value.map_or_else(String::new, |value| format!("{value}{unit}"))
    };
    let since = since(drive).map(|since| human_seconds(now.saturating_sub(since)));
    let mut cells = vec![
        drive.id.clone(),
        drive.kernel_name.clone(),
        drive.media.clone(),
        human_size(drive.size_bytes),
        drive.state.clone(),
        drive.class.clone(),
        size(drive.free_bytes),
        drive.shown_verdict(),
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
    cells
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

/// A drive as a row: one line when it is of little interest and not asked for by name.
pub fn row(drive: &Drive, wide: bool, whole: bool, now: u64) -> Row {
    let mut cells = cells(drive, wide, now);
    if wide || whole || !is_unwanted(drive) {
        return Row {
            cells,
            below: below(drive),
            tail: None,
        };
    }
    let codes: Vec<&str> = drive.rejects.iter().map(|one| one.code.as_str()).collect();
    // What follows says nothing of such a drive.
    cells.truncate(ALWAYS);
    Row {
        cells,
        below: Vec::new(),
        tail: Some(in_short(&codes)),
    }
}

/// Puts drives into the order that is wanted; those that no class wants come last.
pub fn sort<T>(drives: &mut [T], by: Option<DriveSort>, of: impl Fn(&T) -> &Drive) {
    fn text(text: &str) -> (Reverse<i128>, String) {
        (Reverse(0), text.to_owned())
    }
    fn number(number: impl Into<i128>) -> (Reverse<i128>, String) {
        (Reverse(number.into()), String::new())
    }
    drives.sort_by_cached_key(|one| {
        let drive = of(one);
        let key = match by {
            None => text(""),
            Some(DriveSort::Device) => text(&drive.kernel_name),
            Some(DriveSort::Size) => number(drive.size_bytes),
            Some(DriveSort::Free) => number(drive.free_bytes),
            Some(DriveSort::Class) => text(&drive.class),
            Some(DriveSort::State) => text(&drive.state),
            Some(DriveSort::Health) => number(match drive.known_verdict() {
                Some(Verdict::Bad) => 3,
                Some(Verdict::Suspect) => 2,
                Some(Verdict::Unknown) => 1,
                Some(Verdict::Good) | None => 0,
            }),
            Some(DriveSort::Temperature) => number(temperature(drive).unwrap_or(i64::MIN)),
            Some(DriveSort::Wear) => number(wear(drive).unwrap_or(i64::MIN)),
        };
        (is_unwanted(drive), key)
    });
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

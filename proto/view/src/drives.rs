//! A drive as both command lines show it: cells of a table, JSON, the lines below. Pure.

use std::cmp::Reverse;

use drivebay_proto::agent::{Drive, DriveHealth, Finding, SmartReport};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    args::DriveSort,
    moment,
    row::Row,
    table::{
        Align::{self, Left, Right},
        human_seconds, human_size,
    },
    unreadable::{self, UnreadableJson},
};

/// Codes of devices that are only shown with `--all`.
const NOISE: [&str; 2] = ["NotADisk", "Partition"];

/// One drive in JSON. Field names are stable; sizes are bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DriveJson<'a> {
    /// Stable identity, such as wwn-0x5000c500a1b2c3d4.
    id: &'a str,
    /// The kernel's name of the device now; empty when it is missing.
    kernel_name: &'a str,
    /// claimed, available, rejected, missing, not-scanned or unprobed.
    state: &'a str,
    /// The class of drives; empty when no class selects it.
    class: &'a str,
    /// GOOD, SUSPECT, BAD or UNKNOWN.
    verdict: &'a str,
    /// hdd, ssd or nvme.
    media: &'a str,
    /// sata, sas, nvme, usb, virtio, loop or another bus.
    transport: &'a str,
    /// As the drive says.
    model: &'a str,
    /// As the drive says.
    serial: &'a str,
    /// As the drive says; empty when it has none.
    wwn: &'a str,
    /// As the drive says.
    firmware: &'a str,
    /// Its size.
    size_bytes: u64,
    /// What volumes could have in all, net of label and alignment.
    usable_bytes: u64,
    /// What volumes can still have.
    free_bytes: u64,
    /// The largest volume that could be made.
    largest_free_bytes: u64,
    /// Free, and not known to be zeros: raw volumes are not made of it before it is zeroed.
    unzeroed_bytes: u64,
    /// Size of a logical sector.
    logical_sector_bytes: u32,
    /// Size of a physical sector.
    physical_sector_bytes: u32,
    /// Every reason why it may not be used.
    rejects: Vec<RejectJson<'a>>,
    /// What a person should know of it, in words.
    notes: &'a [String],
    /// Why it gives no answer; empty when it does.
    trouble: &'a str,
    /// What the verdict rests on; null of an agent that does not say.
    health: Option<HealthJson<'a>>,
}

/// What a verdict rests on, in JSON. Moments are seconds since 1970, null when there is none.
#[derive(Debug, Serialize, JsonSchema)]
struct HealthJson<'a> {
    /// What speaks against the drive.
    findings: Vec<FindingJson<'a>>,
    /// What a person should know besides: wear, heat, cables.
    conditions: Vec<FindingJson<'a>>,
    /// Its rated endurance is used up.
    worn_out: bool,
    /// Set when an operator decides the verdict.
    overridden: Option<OverriddenJson<'a>>,
    /// The acknowledgement that holds; null: none. What came after it, or got worse, is not acknowledged.
    acknowledged: Option<AcknowledgedJson<'a>>,
    /// What the drive says of itself; null when it was never asked.
    smart: Option<SmartJson<'a>>,
    /// `polled`, `last-known` (not since the agent started: what the drive says of itself is the last known) or `awaited` (not,
    /// and nothing is known of it: no new volumes until it was); empty of an agent that does not say.
    poll: &'a str,
    /// Only the node's own agent knows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableJson<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FindingJson<'a> {
    /// Stable, CamelCase; empty when there is none.
    code: &'a str,
    /// What it is, and what to do.
    message: &'a str,
    /// Since when; null when that is not known.
    since: Option<u64>,
    /// An operator has seen it, and it is no worse since: it makes up the verdict, and nobody is alerted to it.
    acknowledged: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OverriddenJson<'a> {
    /// The operator's words.
    reason: &'a str,
    /// It holds before this moment; null: until it is taken out of the config.
    until: Option<u64>,
    /// What the evidence alone adds up to, as a verdict.
    otherwise: &'a str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SmartJson<'a> {
    /// When the drive last answered; null: never.
    answered_at: Option<u64>,
    /// Since when the verdict by these answers is held; null: there is none.
    verdict_since: Option<u64>,
    /// How smartctl talks to it, its -d.
    device_type: &'a str,
    /// It slept when it was asked last, and was left alone.
    asleep: bool,
    /// Why it could not be asked the last time; empty when it could.
    failure: &'a str,
    /// What speaks against the drive.
    findings: Vec<SmartFindingJson<'a>>,
    /// Numbers by stable name, with the unit in the name.
    readings: std::collections::BTreeMap<&'a str, i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SmartFindingJson<'a> {
    /// Stable, CamelCase; empty when there is none.
    code: &'a str,
    /// What was read, such as ata-197.
    subject: &'a str,
    /// The number that was read.
    value: u64,
    /// What it was compared with; null: with nothing.
    threshold: Option<u64>,
    /// The value by what it counts, and how it moved lately.
    reading: &'a str,
    /// What it is, and what to do.
    message: &'a str,
    /// An operator has seen it, and it is no worse since.
    acknowledged: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AcknowledgedJson<'a> {
    /// When.
    at: u64,
    /// Who.
    by: &'a str,
    /// Why.
    note: &'a str,
    /// It holds before this moment; null: until it is withdrawn.
    until: Option<u64>,
    /// The drive takes new volumes while nothing else is found.
    takes_new_volumes: bool,
}

impl<'a> From<&'a DriveHealth> for HealthJson<'a> {
    fn from(health: &'a DriveHealth) -> Self {
        let told = |findings: &'a [Finding]| {
            let told = findings.iter().map(|finding| FindingJson {
                code: &finding.code,
                message: &finding.message,
                since: moment(finding.since),
                acknowledged: finding.acknowledged,
            });
            told.collect()
        };
        Self {
            findings: told(&health.findings),
            conditions: told(&health.conditions),
            worn_out: health.worn_out,
            overridden: health.overridden.as_ref().map(|given| OverriddenJson {
                reason: &given.reason,
                until: moment(given.until),
                otherwise: &given.otherwise,
            }),
            acknowledged: health.acknowledged.as_ref().map(|given| AcknowledgedJson {
                at: given.at,
                by: &given.by,
                note: &given.note,
                until: moment(given.until),
                takes_new_volumes: given.takes_new_volumes,
            }),
            smart: health.smart.as_ref().map(SmartJson::from),
            poll: &health.poll,
            unreadable: unreadable::json(&health.unreadable),
        }
    }
}

impl<'a> From<&'a SmartReport> for SmartJson<'a> {
    fn from(report: &'a SmartReport) -> Self {
        let findings = report.findings.iter().map(|finding| SmartFindingJson {
            code: &finding.code,
            subject: &finding.subject,
            value: finding.value,
            threshold: moment(finding.threshold),
            reading: &finding.reading,
            message: &finding.message,
            acknowledged: finding.acknowledged,
        });
        let readings = report.readings.iter();
        Self {
            answered_at: moment(report.answered_at),
            verdict_since: moment(report.verdict_since),
            device_type: &report.device_type,
            asleep: report.asleep,
            failure: &report.failure,
            findings: findings.collect(),
            readings: readings.map(|one| (one.name.as_str(), one.value)).collect(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct RejectJson<'a> {
    /// Stable, CamelCase; empty when there is none.
    code: &'a str,
    /// What was seen, in words.
    detail: &'a str,
}

impl<'a> From<&'a Drive> for DriveJson<'a> {
    fn from(drive: &'a Drive) -> Self {
        Self {
            id: &drive.id,
            kernel_name: &drive.kernel_name,
            state: &drive.state,
            class: &drive.class,
            verdict: &drive.verdict,
            media: &drive.media,
            transport: &drive.transport,
            model: &drive.model,
            serial: &drive.serial,
            wwn: &drive.wwn,
            firmware: &drive.firmware,
            size_bytes: drive.size_bytes,
            usable_bytes: drive.usable_bytes,
            free_bytes: drive.free_bytes,
            largest_free_bytes: drive.largest_free_bytes,
            unzeroed_bytes: drive.unzeroed_bytes,
            logical_sector_bytes: drive.logical_sector_bytes,
            physical_sector_bytes: drive.physical_sector_bytes,
            rejects: drive
                .rejects
                .iter()
                .map(|reject| RejectJson {
                    code: &reject.code,
                    detail: &reject.detail,
                })
                .collect(),
            notes: &drive.notes,
            trouble: &drive.trouble,
            health: drive.health.as_ref().map(HealthJson::from),
        }
    }
}

/// Whether it is only shown with `--all`.
pub fn is_noise(drive: &Drive) -> bool {
    let codes: Vec<&str> = drive
        .rejects
        .iter()
        .map(|reject| reject.code.as_str())
        .collect();
    drive.state == "rejected" && is_nobodys(&codes, drive.transport == "loop")
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
    let offers = matches!(drive.state.as_str(), "claimed" | "available");
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
    let is_well =
        drive.trouble.is_empty() && matches!(drive.verdict.as_str(), "" | "GOOD" | "UNKNOWN");
    drive.state == "rejected" && is_well && are_unwanted(&codes)
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
            Some(DriveSort::Health) => number(match drive.verdict.as_str() {
                "BAD" => 3,
                "SUSPECT" => 2,
                "UNKNOWN" => 1,
                _ => 0,
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
        .chain(drive.notes.iter().map(|note| format!("note: {note}")))
        .collect()
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
    drive.state == "missing" || !matches!(drive.verdict.as_str(), "" | "GOOD" | "UNKNOWN")
}

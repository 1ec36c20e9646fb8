//! A drive as both command lines show it: cells of a table, JSON, the lines below. And
//! `drivebay-controller drives`: those of all nodes.

use std::io::Write;

use drivebay_proto::agent::{Drive, DriveHealth, Finding, SmartReport};
use serde::Serialize;

use super::{
    CommandError,
    args::{DrivesArgs, Format},
    client::Client,
    listing::Listing,
    nodes,
    table::{
        Align::{self, Left, Right},
        human_size,
    },
    unreadable::{self, UnreadableJson},
};

/// Codes of devices that are only shown with `--all`.
const NOISE: [&str; 2] = ["NotADisk", "Partition"];

/// One drive in JSON. Field names are stable; sizes are bytes.
#[derive(Debug, Serialize)]
pub struct DriveJson<'a> {
    id: &'a str,
    kernel_name: &'a str,
    state: &'a str,
    class: &'a str,
    verdict: &'a str,
    media: &'a str,
    transport: &'a str,
    model: &'a str,
    serial: &'a str,
    wwn: &'a str,
    firmware: &'a str,
    size_bytes: u64,
    usable_bytes: u64,
    free_bytes: u64,
    largest_free_bytes: u64,
    logical_sector_bytes: u32,
    physical_sector_bytes: u32,
    rejects: Vec<RejectJson<'a>>,
    notes: &'a [String],
    trouble: &'a str,
    health: Option<HealthJson<'a>>,
}

/// What a verdict rests on, in JSON. Moments are seconds since 1970, 0 when there is none.
#[derive(Debug, Serialize)]
struct HealthJson<'a> {
    findings: Vec<FindingJson<'a>>,
    conditions: Vec<FindingJson<'a>>,
    worn_out: bool,
    overridden: Option<OverriddenJson<'a>>,
    smart: Option<SmartJson<'a>>,
    /// Only the node's own agent knows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableJson<'a>>,
}

#[derive(Debug, Serialize)]
struct FindingJson<'a> {
    code: &'a str,
    message: &'a str,
    since: u64,
}

#[derive(Debug, Serialize)]
struct OverriddenJson<'a> {
    reason: &'a str,
    until: u64,
    otherwise: &'a str,
}

#[derive(Debug, Serialize)]
struct SmartJson<'a> {
    answered_at: u64,
    verdict_since: u64,
    device_type: &'a str,
    asleep: bool,
    failure: &'a str,
    findings: Vec<SmartFindingJson<'a>>,
    readings: std::collections::BTreeMap<&'a str, i64>,
    acknowledged: Option<AcknowledgedJson<'a>>,
}

#[derive(Debug, Serialize)]
struct SmartFindingJson<'a> {
    code: &'a str,
    subject: &'a str,
    value: u64,
    threshold: u64,
    message: &'a str,
    acknowledged: bool,
}

#[derive(Debug, Serialize)]
struct AcknowledgedJson<'a> {
    at: u64,
    by: &'a str,
    note: &'a str,
}

impl<'a> From<&'a DriveHealth> for HealthJson<'a> {
    fn from(health: &'a DriveHealth) -> Self {
        let told = |findings: &'a [Finding]| {
            let told = findings.iter().map(|finding| FindingJson {
                code: &finding.code,
                message: &finding.message,
                since: finding.since,
            });
            told.collect()
        };
        Self {
            findings: told(&health.findings),
            conditions: told(&health.conditions),
            worn_out: health.worn_out,
            overridden: health.overridden.as_ref().map(|given| OverriddenJson {
                reason: &given.reason,
                until: given.until,
                otherwise: &given.otherwise,
            }),
            smart: health.smart.as_ref().map(SmartJson::from),
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
            threshold: finding.threshold,
            message: &finding.message,
            acknowledged: finding.acknowledged,
        });
        let readings = report.readings.iter();
        Self {
            answered_at: report.answered_at,
            verdict_since: report.verdict_since,
            device_type: &report.device_type,
            asleep: report.asleep,
            failure: &report.failure,
            findings: findings.collect(),
            readings: readings.map(|one| (one.name.as_str(), one.value)).collect(),
            acknowledged: report.acknowledged.as_ref().map(|given| AcknowledgedJson {
                at: given.at,
                by: &given.by,
                note: &given.note,
            }),
        }
    }
}

#[derive(Debug, Serialize)]
struct RejectJson<'a> {
    code: &'a str,
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

/// The cells of a drive, one per column.
pub fn cells(drive: &Drive, wide: bool) -> Vec<String> {
    let offers = matches!(drive.state.as_str(), "claimed" | "available");
    let size = |bytes: u64| {
        if offers {
            human_size(bytes)
        } else {
            String::new()
        }
    };
    let mut cells = vec![
        drive.id.clone(),
        drive.kernel_name.clone(),
        drive.media.clone(),
        human_size(drive.size_bytes),
        drive.state.clone(),
        drive.class.clone(),
        size(drive.free_bytes),
        drive.verdict.clone(),
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

#[derive(Debug, Serialize)]
struct OnNodeJson<'a> {
    node: &'a str,
    node_state: &'a str,
    #[serde(flatten)]
    drive: DriveJson<'a>,
}

/// `drivebay-controller drives`: asks and shows.
pub async fn run(
    client: &mut Client,
    args: &DrivesArgs,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let known = nodes::known(client, &args.show.nodes).await?;
    let format = args.show.output;
    let wide = format == Format::Wide;
    let mut columns = columns(wide);
    columns.insert(0, ("NODE", Left));
    let mut listing = Listing::new(out, format, "drives", &columns);
    let (mut all, mut hidden) = (0, 0);
    let mut incoming = client.drives(&args.show.nodes).await?;
    while let Some(node) = incoming.next().await? {
        for drive in &node.drives {
            if format != Format::Json && !args.all && is_noise(drive) {
                hidden += 1;
                continue;
            }
            all += 1;
            if args.trouble && !in_trouble(drive) {
                continue;
            }
            let row = || {
                let mut cells = cells(drive, wide);
                cells.insert(0, node.node_id.clone());
                (cells, below(drive))
            };
            let json = || OnNodeJson {
                node: &node.node_id,
                node_state: &node.state,
                drive: drive.into(),
            };
            listing.add(row, json)?;
        }
    }
    let nothing = match (all, args.trouble) {
        (0, _) => "no drives\n".to_owned(),
        _ => format!("no drive of {all} is in trouble\n"),
    };
    let hidden = if args.trouble {
        String::new()
    } else {
        hidden_note(hidden)
    };
    listing.end(&nothing, &(hidden + &nodes::footnotes(&known)))?;
    Ok(())
}

//! `drivebay-agent drives`: every drive of the node, and every reason against it. Rendering is pure.

use drivebay_proto::agent::{Drive, InventoryUpdate};
use serde::Serialize;

use super::{
    args::Format,
    table::{Align, Table, human_size},
};

/// States that are only shown with `--all`, when the drive is nobody's business: virtual devices and partitions.
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
}

#[derive(Debug, Serialize)]
struct RejectJson<'a> {
    code: &'a str,
    detail: &'a str,
}

#[derive(Debug, Serialize)]
struct DrivesJson<'a> {
    node: &'a str,
    ready: bool,
    drives: Vec<DriveJson<'a>>,
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
        }
    }
}

/// The drives of an inventory as text. `all`: devices that could never be used (loop, ram, dm, …) too;
/// JSON always has everything.
pub fn render(
    inventory: &InventoryUpdate,
    format: Format,
    all: bool,
) -> serde_json::Result<String> {
    if format == Format::Json {
        let drives = inventory.drives.iter().map(DriveJson::from).collect();
        let whole = DrivesJson {
            node: &inventory.node_id,
            ready: inventory.ready,
            drives,
        };
        return Ok(serde_json::to_string_pretty(&whole)? + "\n");
    }
    let (shown, hidden): (Vec<&Drive>, Vec<&Drive>) = inventory
        .drives
        .iter()
        .partition(|drive| all || !is_noise(drive));
    let mut text = table(&shown, format == Format::Wide);
    if shown.is_empty() {
        text = "no drives\n".into();
    }
    if !hidden.is_empty() {
        text.push_str(&format!(
            "({} virtual {} not shown; --all shows {})\n",
            hidden.len(),
            if hidden.len() == 1 {
                "device is"
            } else {
                "devices are"
            },
            if hidden.len() == 1 { "it" } else { "them" },
        ));
    }
    if !inventory.ready {
        text.push_str("(the agent is still looking at its drives)\n");
    }
    Ok(text)
}

fn is_noise(drive: &Drive) -> bool {
    drive.state == "rejected"
        && drive
            .rejects
            .iter()
            .any(|reject| NOISE.contains(&reject.code.as_str()))
}

fn table(drives: &[&Drive], wide: bool) -> String {
    use Align::{Left, Right};
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
    let mut table = Table::new(&columns);
    for drive in drives {
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
        table.row(cells, below(drive));
    }
    table.render()
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

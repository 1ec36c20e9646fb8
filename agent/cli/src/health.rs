//! `drivebay-agent health`, `drive show` and `volume show`: renders the inventory. Rendering is pure.

use drivebay_common::terminal::Terminal;
use drivebay_proto::agent::{Drive, DriveLatencyResponse, InventoryUpdate, Volume, VolumeCopy};
use drivebay_view::{
    copies,
    show::{self, DriveSheet, VolumeSheet},
    wrong::{Health, Kind, Problem, Reason, Severity},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{args::Format, latency};

/// Format, time and terminal for which the host's health, a drive or a volume is rendered.
#[derive(Debug, Clone, Copy)]
pub struct HealthOutput {
    /// Table, wide table, or document.
    pub format: Format,
    /// Current Unix time, in seconds.
    pub now: u64,
    pub terminal: Terminal,
}

/// Returns the problems of this host, as text and as data.
pub fn health(
    inventory: &InventoryUpdate,
    output: HealthOutput,
) -> serde_json::Result<(String, Health)> {
    let abnormal: Vec<&Volume> = inventory
        .volumes
        .iter()
        .filter(|volume| volume.conditions.iter().any(|one| one.abnormal))
        .collect();
    let mut health = Health::default();
    health.add(&inventory.node_id, &inventory.drives, &abnormal);
    let volumes = inventory.volumes.iter();
    health.volumes = volumes.filter(|volume| !volume.is_deleted()).count() as u64;
    health.add_host(&inventory.node_id, &inventory.findings, false);
    if !inventory.ready {
        health.problems.push(Problem {
            severity: Severity::Starting,
            kind: Kind::Node,
            node: inventory.node_id.clone(),
            id: inventory.node_id.clone(),
            name: String::new(),
            claim: String::new(),
            reasons: vec![Reason {
                code: String::new(),
                message: "the agent is still scanning its drives; try again".to_owned(),
                since: None,
            }],
            volumes: Vec::new(),
        });
    }
    let health = health.done();
    let text = match output.format.document() {
        Some(document) => document.write(&health)?,
        None => {
            let wide = output.format == Format::Wide;
            health.text(&inventory.node_id, false, wide, output.now, output.terminal)
        }
    };
    Ok((text, health))
}

/// What `drive show -o json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct DriveWithLatency<'a> {
    #[serde(flatten)]
    sheet: DriveSheet<'a>,
    /// Left out of an agent that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<&'a DriveLatencyResponse>,
}

/// Renders all details of a drive. `latency`: None if the agent does not report it.
pub fn show_drive(
    inventory: &InventoryUpdate,
    drive: &Drive,
    latency: Option<&DriveLatencyResponse>,
    output: HealthOutput,
) -> serde_json::Result<String> {
    let volumes: Vec<&Volume> = inventory
        .volumes
        .iter()
        .filter(|volume| volume.drive == drive.id)
        .collect();
    let json = || DriveWithLatency {
        sheet: DriveSheet::new(&inventory.node_id, drive, &volumes),
        latency,
    };
    let text = |wide| {
        let here = show::with_place_on(&inventory.volumes, &drive.id);
        let sheet = show::drive(None, drive, &here, wide, output.now, output.terminal);
        sheet + &latency.map_or_else(String::new, |latency| latency::text(latency, output.now))
    };
    shown(output.format, json, text)
}

/// Renders all details of a volume. `copies`: running copies, if the volume is being copied.
pub fn show_volume(
    inventory: &InventoryUpdate,
    volume: &Volume,
    copies: &[VolumeCopy],
    output: HealthOutput,
) -> serde_json::Result<String> {
    let drive = inventory
        .drives
        .iter()
        .find(|drive| drive.id == volume.drive);
    let json = || VolumeSheet::new(&inventory.node_id, volume, drive);
    let copy = copies::of_volume(copies, volume);
    let text = |wide| show::volume(None, volume, drive, copy, wide, output.now, output.terminal);
    shown(output.format, json, text)
}

fn shown<J: Serialize>(
    format: Format,
    json: impl FnOnce() -> J,
    text: impl FnOnce(bool) -> String,
) -> serde_json::Result<String> {
    match format.document() {
        Some(document) => document.write(&json()),
        None => Ok(text(format == Format::Wide)),
    }
}

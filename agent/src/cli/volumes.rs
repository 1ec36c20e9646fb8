//! `drivebay-agent volumes`: every volume of the node. Rendering is pure.

use drivebay_controller::cli::volumes::{VolumeJson, below, cells, columns};
use drivebay_proto::agent::{InventoryUpdate, Volume};
use serde::Serialize;

use super::{args::Format, table::Table};

#[derive(Debug, Serialize)]
struct VolumesJson<'a> {
    node: &'a str,
    ready: bool,
    volumes: Vec<VolumeJson<'a>>,
}

/// The volumes of an inventory as text.
pub fn render(inventory: &InventoryUpdate, format: Format) -> serde_json::Result<String> {
    if format == Format::Json {
        let volumes = inventory.volumes.iter().map(VolumeJson::from).collect();
        let whole = VolumesJson {
            node: &inventory.node_id,
            ready: inventory.ready,
            volumes,
        };
        return Ok(serde_json::to_string_pretty(&whole)? + "\n");
    }
    let mut text = if inventory.volumes.is_empty() {
        "no volumes\n".to_owned()
    } else {
        table(&inventory.volumes, format == Format::Wide)
    };
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    Ok(text)
}

fn table(volumes: &[Volume], wide: bool) -> String {
    let mut table = Table::new(&columns(wide));
    for volume in volumes {
        table.row(cells(volume, wide), below(volume));
    }
    table.render()
}

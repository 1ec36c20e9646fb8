//! `drivebay-agent drives`: every drive of the node, and every reason against it. Rendering is pure.

use drivebay_controller::cli::drives::{DriveJson, cells, columns, is_noise};
pub use drivebay_controller::cli::drives::{below, hidden_note, is_nobodys, reason};
use drivebay_proto::agent::{Drive, InventoryUpdate};
use serde::Serialize;

use super::{args::Format, table::Table};

#[derive(Debug, Serialize)]
struct DrivesJson<'a> {
    node: &'a str,
    ready: bool,
    drives: Vec<DriveJson<'a>>,
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
    text.push_str(&hidden_note(hidden.len()));
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    Ok(text)
}

fn table(drives: &[&Drive], wide: bool) -> String {
    let mut table = Table::new(&columns(wide));
    for drive in drives {
        table.row(cells(drive, wide), below(drive));
    }
    table.render()
}

//! `drivebay-agent volumes`: the volumes of the node. Rendering is pure.

use drivebay_common::pick::Part;
use drivebay_proto::agent::{InventoryUpdate, Volume};
use drivebay_view::{
    args::ListFormat,
    volumes::{DISPENSABLE, below, cells, columns, is_abnormal, sort},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CommandError,
    args::VolumesArgs,
    name,
    table::{Table, printable},
    watch::Look,
};

/// What `volumes -o json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VolumeList<'a> {
    /// The node id.
    node: &'a str,
    /// False while the agent is still scanning its drives.
    ready: bool,
    /// The volumes.
    volumes: Vec<&'a Volume>,
}

/// Those that are asked for, in the order that is asked for.
pub(super) fn chosen<'a>(
    inventory: &'a InventoryUpdate,
    args: &VolumesArgs,
) -> Result<Vec<&'a Volume>, CommandError> {
    let drive = match &args.drive {
        Some(drive) => Some(&name::drive(inventory, drive, Part::Beginning)?.id),
        None => None,
    };
    let mut volumes = name::volumes(inventory, &args.names)?;
    volumes.retain(|volume| {
        let class = args
            .class
            .as_ref()
            .is_none_or(|class| *class == volume.class);
        let drive = drive.is_none_or(|drive| *drive == volume.drive);
        class && drive && (!args.abnormal || is_abnormal(volume))
    });
    sort(&mut volumes, args.sort, |volume| volume);
    Ok(volumes)
}

/// A list of volumes as text: rows of a table, names, or what is said of none.
pub(super) fn text(
    inventory: &InventoryUpdate,
    volumes: &[&Volume],
    args: &VolumesArgs,
    table: impl FnOnce(bool) -> Table,
) -> String {
    if args.list.output == ListFormat::Name {
        return volumes
            .iter()
            .map(|volume| printable(&volume.name) + "\n")
            .collect();
    }
    let mut text = match (volumes.is_empty(), inventory.volumes.len()) {
        (false, _) => {
            let table = table(args.list.output.is_wide());
            match args.list.no_headers {
                true => return table.without_header().render(),
                false => table.render(),
            }
        }
        (true, _) if args.list.no_headers => return String::new(),
        (true, 0) => "no volumes\n".to_owned(),
        (true, all) => format!("none of {all} volumes\n"),
    };
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    text
}

/// The volumes of an inventory as text.
pub fn render(
    inventory: &InventoryUpdate,
    args: &VolumesArgs,
    look: Look,
) -> Result<String, CommandError> {
    let volumes = chosen(inventory, args)?;
    if let Some(document) = args.list.output.document() {
        let whole = VolumeList {
            node: &inventory.node_id,
            ready: inventory.ready,
            volumes,
        };
        return Ok(document.write(&whole)?);
    }
    Ok(text(inventory, &volumes, args, |wide| {
        let dispensable = if wide { &[][..] } else { &DISPENSABLE };
        let mut table = Table::new(&columns(wide, true)).on(look.terminal, dispensable);
        for volume in &volumes {
            table.row(cells(volume, wide, true, None, look.now), below(volume));
        }
        table
    }))
}

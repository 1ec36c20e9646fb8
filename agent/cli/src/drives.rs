//! `drivebay-agent drives`: the drives of the node, with every reject reason of those that a class selects. Rendering is pure.

use std::collections::BTreeSet;

use drivebay_proto::agent::{Drive, InventoryUpdate, Volume};
pub use drivebay_view::drives::{below, hidden_note, is_nobodys, reason};
use drivebay_view::{
    args::{DriveSort, ListFormat},
    drives::{columns, is_noise, legend_of, printed, row, sort, yielding},
    legend::Legend,
    tally::Tally,
    volumes::is_abnormal,
    wrong::wrong_drives,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CommandError,
    args::DrivesArgs,
    name,
    table::{Table, printable},
    watch::OutputTarget,
};

/// What `drives -o json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DriveList<'a> {
    /// The node id.
    node: &'a str,
    /// False while the agent is still scanning its drives.
    ready: bool,
    /// The drives.
    drives: Vec<Drive>,
}

/// Renders the drives of an inventory. JSON includes devices that can never be used (loop, ram, dm, …).
pub fn render(
    inventory: &InventoryUpdate,
    args: &DrivesArgs,
    target: OutputTarget,
) -> Result<String, CommandError> {
    let mut drives = name::drives(inventory, &args.names)?;
    let all = drives.len();
    let wrong = match args.abnormal {
        true => wrong(inventory),
        false => BTreeSet::new(),
    };
    // A watched list is sorted by health.
    let watched = args.watch.watch.map(|_| DriveSort::Health);
    let by = args.sort.or(watched);
    drives.retain(|drive| {
        let class = args
            .class
            .as_ref()
            .is_none_or(|class| *class == drive.class);
        class && (!args.abnormal || wrong.contains(&drive.id))
    });
    if let Some(document) = args.list.output.document() {
        // In the inventory's order, unless another one is requested.
        if by.is_some() {
            sort(&mut drives, by, |drive| drive);
        }
        let whole = DriveList {
            node: &inventory.node_id,
            ready: inventory.ready,
            drives: drives.into_iter().map(printed).collect(),
        };
        return Ok(document.write(&whole)?);
    }
    let named = !args.names.is_empty();
    let (mut shown, hidden): (Vec<&Drive>, Vec<&Drive>) = drives
        .iter()
        .copied()
        .partition(|drive| args.all || named || !is_noise(drive));
    sort(&mut shown, by, |drive| drive);
    if args.list.output == ListFormat::Name {
        return Ok(shown
            .iter()
            .map(|drive| printable(&drive.id) + "\n")
            .collect());
    }
    let mut text = match (shown.is_empty(), all) {
        (false, _) => table(&shown, args, target),
        (true, 0) => "no drives\n".into(),
        (true, _) if hidden.is_empty() => {
            format!("none of {}\n", drivebay_common::units::count(all, "drive"))
        }
        (true, _) => "no drives\n".into(),
    };
    if args.list.no_headers {
        return Ok(if shown.is_empty() {
            String::new()
        } else {
            text
        });
    }
    if !args.list.output.is_wide() && !named && target.terminal.height.is_none() {
        let mut legend = Legend::default();
        shown
            .iter()
            .for_each(|drive| legend.add(legend_of(drive, None)));
        text.push_str(&legend.text("`drivebay-agent drive show`", target.terminal));
        if !shown.is_empty() {
            text.push('\n');
        }
    }
    let mut tally = Tally::default();
    shown.iter().for_each(|drive| tally.add(drive));
    text.push_str(&tally.text(target.terminal));
    text.push_str(&hidden_note(hidden.len()));
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    Ok(text)
}

/// Returns the identities of the drives that `health` reports.
fn wrong(inventory: &InventoryUpdate) -> BTreeSet<String> {
    let volumes = inventory.volumes.iter();
    let abnormal: Vec<&Volume> = volumes.filter(|volume| is_abnormal(volume)).collect();
    wrong_drives(&inventory.drives, &abnormal)
}

fn table(drives: &[&Drive], args: &DrivesArgs, target: OutputTarget) -> String {
    let wide = args.list.output.is_wide();
    let mut table = Table::new(&columns(wide)).on(target.terminal, yielding(wide));
    if args.list.no_headers {
        table = table.without_header();
    }
    for drive in drives {
        let row = row(drive, wide, !args.names.is_empty(), target.now);
        table.row(row.cells, row.below);
    }
    table.render()
}

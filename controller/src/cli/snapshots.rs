//! `drivebay-controller snapshots`: lists the snapshots of the volumes of all nodes.

use std::io::Write;

use drivebay_common::units::count;
use drivebay_proto::controller::VolumeOnNode;
use drivebay_view::{
    listing::Listing,
    snapshots::{ListedSnapshot, SnapshotTally, columns, entries, yielding},
};
use serde::Serialize;

use super::{
    CommandError, args::SnapshotsArgs, client::Client, nodes, table::Align::Left,
    terminal::Terminal, volumes::ordered,
};

#[derive(Debug, Serialize)]
struct SnapshotOnNode<'a> {
    node: &'a str,
    /// The node's state, as `nodes` shows it.
    node_state: &'a str,
    #[serde(flatten)]
    snapshot: ListedSnapshot<'a>,
}

/// Runs `drivebay-controller snapshots`, and writes the list to `out`. Errs if a named node or volume is unknown. `now`: Unix time,
/// seconds.
pub async fn run(
    client: &mut Client,
    args: &SnapshotsArgs,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let listed_nodes = nodes::query(client, &args.show.nodes).await?;
    let list = &args.show.list;
    let wide = list.output.is_wide();
    let mut columns = columns(wide);
    columns.insert(0, ("NODE", Left));
    let mut listing = Listing::new(out, list, terminal, "snapshots", &columns, yielding(wide));
    let mut all = 0;
    let mut volumes: Vec<VolumeOnNode> = Vec::new();
    let mut incoming = client.volumes(&args.show.nodes, false).await?;
    while let Some(there) = incoming.next().await? {
        let many = there.volume.as_ref().map_or(0, |it| it.snapshots.len());
        all += many;
        // A named volume is kept even without snapshots, so that its name is found.
        if many > 0 || !args.names.is_empty() {
            volumes.push(there);
        }
    }
    let mut tally = SnapshotTally::default();
    for there in ordered(&args.names, None, volumes)? {
        for entry in entries(&there.volume) {
            tally.add(entry);
            let row = || {
                let mut row = entry.row(wide, now);
                row.cells.insert(0, there.node_id.clone());
                row
            };
            let json = || SnapshotOnNode {
                node: &there.node_id,
                node_state: &there.node_state,
                snapshot: entry.into(),
            };
            listing.add(row, json, &entry.snapshot.name)?;
        }
    }
    let nothing = match all {
        0 => "no snapshots\n".to_owned(),
        all => format!("none of {}\n", count(all, "snapshot")),
    };
    let below = tally.text(terminal) + &nodes::footnotes(&listed_nodes);
    listing.end(&nothing, &below)?;
    Ok(())
}

//! `drivebay-controller drives`: lists the drives of all nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    rc::Rc,
};

use drivebay_common::{
    pick::{Typed, select},
    units::count,
};
use drivebay_proto::{
    agent::{Drive, Volume},
    controller::NodeDrives,
    words::NodeState,
};
use drivebay_view::{
    args::DriveSort,
    drives::{columns, hidden_note, is_noise, legend_of, printed, row, sort, yielding},
    legend::Legend,
    listing::Listing,
    show::{DRIVE, drive_names},
    tally::Tally,
    volumes::is_abnormal,
    wrong::wrong_drives,
};
use serde::Serialize;

use super::{
    CommandError, args::DrivesArgs, client::Client, nodes, table::Align::Left, terminal::Terminal,
};

#[derive(Debug, Serialize)]
struct ListedDrive<'a> {
    node: &'a str,
    /// The node's state, as `nodes` shows it.
    node_state: &'a str,
    #[serde(flatten)]
    drive: Drive,
}

/// Runs `drivebay-controller drives`, and writes the list to `out`. Errs if a named node or drive is unknown. `now`: Unix time, seconds.
pub async fn run(
    client: &mut Client,
    args: &DrivesArgs,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let listed_nodes = nodes::query(client, &args.show.nodes).await?;
    let list = &args.show.list;
    let wide = list.output.is_wide();
    let mut columns = columns(wide);
    columns.insert(0, ("NODE", Left));
    let mut listing = Listing::new(out, list, terminal, "drives", &columns, yielding(wide));
    let (mut all, mut hidden) = (0_u64, 0);
    let (mut legend, mut tally) = (Legend::default(), Tally::default());
    let abnormal = match args.abnormal {
        true => abnormal(client, &args.show.nodes).await?,
        false => BTreeMap::new(),
    };
    let is_wrong = |node: &NodeDrives, drive: &Drive| {
        // The drives of a disconnected node are as last reported; the disconnection is the problem.
        if node.known_state().is_some_and(NodeState::is_absent) {
            return false;
        }
        let volumes = abnormal.get(&node.node_id).map_or(&[][..], Vec::as_slice);
        let volumes: Vec<&Volume> = volumes.iter().collect();
        !wrong_drives(std::slice::from_ref(drive), &volumes).is_empty()
    };
    // With --watch, drives with problems are listed first.
    let by = args
        .sort
        .or(args.show.watch.watch.map(|_| DriveSort::Health));
    let mut show = |node: &NodeDrives, drive: &Drive| -> Result<(), CommandError> {
        let whole = !args.names.is_empty();
        if list.output.document().is_none() && !args.all && !whole && is_noise(drive) {
            hidden += 1;
            return Ok(());
        }
        all += 1;
        let class = args
            .class
            .as_ref()
            .is_none_or(|class| *class == drive.class);
        if !class || (args.abnormal && !is_wrong(node, drive)) {
            return Ok(());
        }
        tally.add(drive);
        legend.add(legend_of(drive, Some(&node.node_id)));
        let row = || {
            let mut row = row(drive, wide, whole, now);
            row.cells.insert(0, node.node_id.clone());
            row
        };
        let json = || ListedDrive {
            node: &node.node_id,
            node_state: &node.state,
            drive: printed(drive),
        };
        Ok(listing.add(row, json, &drive.id)?)
    };
    let mut incoming = client.drives(&args.show.nodes).await?;
    if by.is_none() && args.names.is_empty() {
        while let Some(mut node) = incoming.next().await? {
            let mut drives = std::mem::take(&mut node.drives);
            sort(&mut drives, None, |drive| drive);
            for drive in &drives {
                show(&node, drive)?;
            }
        }
    } else {
        let mut entries: Vec<(Rc<NodeDrives>, Drive)> = Vec::new();
        while let Some(mut node) = incoming.next().await? {
            let drives = std::mem::take(&mut node.drives);
            let node = Rc::new(node);
            entries.extend(drives.into_iter().map(|drive| (node.clone(), drive)));
        }
        let mut chosen = BTreeSet::new();
        for name in &args.names {
            let typed = Typed::new(name, None);
            chosen.extend(select(&entries, typed, DRIVE, |(_, drive)| {
                drive_names(drive)
            })?);
        }
        let all_of_them = args.names.is_empty();
        let entries = entries.into_iter().enumerate();
        let entries = entries.filter(|(at, _)| all_of_them || chosen.contains(at));
        let mut entries: Vec<_> = entries.map(|(_, one)| one).collect();
        sort(&mut entries, by, |(_, drive)| drive);
        for (node, drive) in &entries {
            show(node, drive)?;
        }
    }
    let filtered = args.abnormal || args.class.is_some();
    let nothing = match (all, args.abnormal) {
        (0, _) => "no drives\n".to_owned(),
        (_, true) => format!("nothing is wrong with {}\n", count(all, "drive")),
        (_, false) => format!("none of {}\n", count(all, "drive")),
    };
    let hidden = if filtered {
        String::new()
    } else {
        hidden_note(hidden)
    };
    let is_brief = !wide && args.names.is_empty() && terminal.height.is_none();
    let legend = match is_brief {
        true => legend.text("`drivebay-controller drive show`", terminal),
        false => String::new(),
    };
    let gap = if legend.is_empty() { "" } else { "\n" };
    let below = legend + gap + &tally.text(terminal) + &hidden + &nodes::footnotes(&listed_nodes);
    listing.end(&nothing, &below)?;
    Ok(())
}

/// Returns abnormal volumes by node: a drive counts as abnormal if they are affected by it, as for `health`.
async fn abnormal(
    client: &mut Client,
    nodes: &[String],
) -> Result<BTreeMap<String, Vec<Volume>>, CommandError> {
    let mut abnormal: BTreeMap<String, Vec<Volume>> = BTreeMap::new();
    let mut incoming = client.volumes(nodes, false).await?;
    while let Some(there) = incoming.next().await? {
        let volume = there.volume.filter(is_abnormal);
        if let Some(volume) = volume {
            abnormal.entry(there.node_id).or_default().push(volume);
        }
    }
    Ok(abnormal)
}

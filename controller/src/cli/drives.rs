//! `drivebay-controller drives`: those of all nodes.

use std::{collections::BTreeSet, io::Write, rc::Rc};

use drivebay_common::pick::{Typed, select};
use drivebay_proto::{agent::Drive, controller::NodeDrives};
use drivebay_view::{
    drives::{DISPENSABLE, columns, hidden_note, in_trouble, is_noise, printed, row, sort},
    show::{DRIVE, drive_names},
};
use serde::Serialize;

use super::{
    CommandError, args::DrivesArgs, client::Client, listing::Listing, nodes, table::Align::Left,
    terminal::Terminal,
};

#[derive(Debug, Serialize)]
struct ListedDrive<'a> {
    /// The node id.
    node: &'a str,
    /// The node's state, as `nodes` shows it.
    node_state: &'a str,
    #[serde(flatten)]
    drive: Drive,
}

/// `drivebay-controller drives`: asks and shows.
pub async fn run(
    client: &mut Client,
    args: &DrivesArgs,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let known = nodes::known(client, &args.show.nodes).await?;
    let list = &args.show.list;
    let wide = list.output.is_wide();
    let mut columns = columns(wide);
    columns.insert(0, ("NODE", Left));
    let mut listing = Listing::new(out, list, terminal, "drives", &columns, &DISPENSABLE);
    let (mut all, mut hidden) = (0, 0);
    let mut show = |node: &NodeDrives, drive: &Drive| {
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
        if !class || (args.abnormal && !in_trouble(drive)) {
            return Ok(());
        }
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
        listing.add(row, json, &drive.id)
    };
    let mut incoming = client.drives(&args.show.nodes).await?;
    if args.sort.is_none() && args.names.is_empty() {
        while let Some(mut node) = incoming.next().await? {
            let mut drives = std::mem::take(&mut node.drives);
            sort(&mut drives, None, |drive| drive);
            for drive in &drives {
                show(&node, drive)?;
            }
        }
    } else {
        let mut found: Vec<(Rc<NodeDrives>, Drive)> = Vec::new();
        while let Some(mut node) = incoming.next().await? {
            let drives = std::mem::take(&mut node.drives);
            let node = Rc::new(node);
            found.extend(drives.into_iter().map(|drive| (node.clone(), drive)));
        }
        let mut chosen = BTreeSet::new();
        for name in &args.names {
            let typed = Typed::new(name, None);
            chosen.extend(select(&found, typed, DRIVE, |(_, drive)| {
                drive_names(drive)
            })?);
        }
        let all_of_them = args.names.is_empty();
        let found = found.into_iter().enumerate();
        let found = found.filter(|(at, _)| all_of_them || chosen.contains(at));
        let mut found: Vec<_> = found.map(|(_, one)| one).collect();
        sort(&mut found, args.sort, |(_, drive)| drive);
        for (node, drive) in &found {
            show(node, drive)?;
        }
    }
    let filtered = args.abnormal || args.class.is_some();
    let nothing = match (all, args.abnormal) {
        (0, _) => "no drives\n".to_owned(),
        (_, true) => format!("no drive of {all} is in trouble\n"),
        (_, false) => format!("none of {all} drives\n"),
    };
    let hidden = if filtered {
        String::new()
    } else {
        hidden_note(hidden)
    };
    listing.end(&nothing, &(hidden + &nodes::footnotes(&known)))?;
    Ok(())
}

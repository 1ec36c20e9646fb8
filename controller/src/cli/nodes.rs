//! `drivebay-controller nodes`: connection state and troubles of nodes. Rendering is pure.

use std::{collections::BTreeMap, io::Write};

use drivebay_proto::{controller::Node, words};
use drivebay_view::{listing::Listing, row::Row};

use super::{
    CommandError,
    args::{NodeState, NodesArgs},
    client::Client,
    table::{
        Align::{self, Left, Right},
        Yielding, human_seconds, human_size, printable,
    },
    terminal::Terminal,
};

/// Most nodes that a footnote names.
const NAMED: usize = 5;

/// Runs `drivebay-controller nodes`, and writes the list to `out`. Errs if a named node is unknown.
pub async fn run(
    client: &mut Client,
    args: &NodesArgs,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let nodes = query(client, &args.show.nodes).await?;
    let list = &args.show.list;
    let wide = list.output.is_wide();
    let mut listing = Listing::new(out, list, terminal, "nodes", &columns(wide), YIELDING);
    let wanted = |node: &Node| {
        let state = args.state.map(NodeState::word);
        state.is_none() || node.known_state() == state
    };
    for node in nodes.iter().filter(|node| wanted(node)) {
        listing.add(
            || Row {
                cells: cells(node, wide),
                below: below(node, wide),
            },
            || node,
            &node.node_id,
        )?;
    }
    let nothing = match args.state {
        Some(state) if !nodes.is_empty() => {
            format!("no node of {} is {}\n", nodes.len(), state.word())
        }
        _ => "no nodes\n".to_owned(),
    };
    listing.end(&nothing, "")?;
    Ok(())
}

/// Returns these nodes, or all if none is named. Fails if a named node is unknown, since an empty output would look like a healthy node.
pub async fn query(client: &mut Client, names: &[String]) -> Result<Vec<Node>, CommandError> {
    let nodes = client.nodes(names).await?;
    let unknown: Vec<String> = names
        .iter()
        .filter(|name| !nodes.iter().any(|node| node.node_id == **name))
        .cloned()
        .collect();
    if unknown.is_empty() {
        Ok(nodes)
    } else {
        Err(CommandError::NoSuchNode(unknown))
    }
}

/// Returns the node's state, with the time since its disconnection.
pub(super) fn state(node: &Node) -> String {
    match (node.known_state(), node.away_seconds) {
        (Some(words::NodeState::Away), seconds @ 1..) => {
            format!("{} {}", node.state, human_seconds(seconds))
        }
        _ => node.state.clone(),
    }
}

/// Columns to shorten or omit if the table is too wide.
const YIELDING: Yielding<'_> = Yielding {
    names: &["NODE"],
    dispensable: &["VERSION", "FREE", "DRIVES", "VOLUMES"],
};

fn columns(wide: bool) -> Vec<(&'static str, Align)> {
    let mut columns = vec![
        ("NODE", Left),
        ("STATE", Left),
        ("VERSION", Left),
        ("DRIVES", Right),
        ("TROUBLE", Right),
        ("VOLUMES", Right),
        ("ABNORMAL", Right),
        ("FREE", Right),
    ];
    if wide {
        columns.extend([
            ("ADDRESS", Left),
            ("MACHINE", Left),
            ("INSTANCE", Left),
            ("REVISION", Right),
        ]);
    }
    columns
}

fn cells(node: &Node, wide: bool) -> Vec<String> {
    let free = node
        .classes
        .iter()
        .fold(0_u64, |sum, class| sum.saturating_add(class.free_bytes));
    let mut cells = vec![
        node.node_id.clone(),
        state(node),
        node.version.clone(),
        node.drives.to_string(),
        node.drives_in_trouble.to_string(),
        node.volumes.to_string(),
        node.volumes_abnormal.to_string(),
        if node.classes.is_empty() {
            String::new()
        } else {
            human_size(free)
        },
    ];
    if wide {
        cells.extend([
            node.address.clone(),
            node.machine_id.clone(),
            node.instance.clone(),
            node.revision.to_string(),
        ]);
    }
    cells
}

pub(super) fn below(node: &Node, wide: bool) -> Vec<String> {
    let classes = node.classes.iter().filter(|_| wide).map(|class| {
        format!(
            "class {} ({}): {} free of {}, largest volume {}, {}",
            class.name,
            class.layout,
            human_size(class.free_bytes),
            human_size(class.total_bytes),
            human_size(class.largest_volume_bytes),
            class.fs_type,
        )
    });
    classes
        .chain(node.notes.iter().map(|note| format!("note: {note}")))
        .collect()
}

/// Returns a line per state, other than connected, with the nodes in it, whose drives and volumes may be outdated.
pub fn footnotes(nodes: &[Node]) -> String {
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes
        .iter()
        .filter(|node| node.known_state() != Some(words::NodeState::Connected))
    {
        kinds.entry(&node.state).or_default().push(&node.node_id);
    }
    kinds
        .iter()
        .map(|(state, names)| {
            let meaning = match words::NodeState::parse(state) {
                Some(words::NodeState::Starting) => {
                    "starting: still scanning its drives".to_owned()
                }
                _ => format!("{state}: shown as last reported"),
            };
            let named: Vec<&str> = names.iter().copied().take(NAMED).collect();
            let named = printable(&named.join(", "));
            match names.len() {
                1 => format!("({named} is {meaning})\n"),
                2..=NAMED => format!("({named} are {meaning})\n"),
                all => format!("({named} and {} more are {meaning})\n", all - NAMED),
            }
        })
        .collect()
}

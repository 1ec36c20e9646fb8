//! `drivebay-agent snapshots`, `snapshot create` and `snapshot delete`.

mod create;
mod delete;

use drivebay_common::{
    cli::{USAGE, WRONG},
    pick::PickError,
    query::QueryError,
    units::count,
};
use drivebay_csi::validate::InvalidRequest;
use drivebay_proto::agent::InventoryUpdate;
use drivebay_view::{
    args::ListFormat,
    snapshots::{ListedSnapshot, SnapshotEntry, SnapshotTally, columns, entries, yielding},
};
use schemars::JsonSchema;
use serde::Serialize;

pub(super) use self::{create::create, delete::delete};
use super::{
    CommandError,
    args::SnapshotsArgs,
    name,
    table::{Table, printable},
    watch::OutputTarget,
};

/// Error of taking or deleting a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Nothing was changed, since `--confirm` was missing. The text describes the snapshot and the command to type.
    #[error("{0}")]
    NotConfirmed(String),
    #[error("--confirm says {typed:?}, but the name is {name:?}; nothing was changed")]
    WrongConfirmation { typed: String, name: String },
    #[error(
        "snapshot {name} is one of group {group}, and is not deleted alone; `drivebay-agent snapshot delete {group}` shows what is deleted with it"
    )]
    Member { name: String, group: String },
    #[error("cannot write the answer as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

impl SnapshotError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Invalid(_)
            | Self::NotConfirmed(_)
            | Self::WrongConfirmation { .. }
            | Self::Member { .. } => USAGE,
            Self::Json(_) => WRONG,
        }
    }
}

/// Output of `snapshots -o json`, and of `snapshot create -o json` for several volumes.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SnapshotList<'a> {
    /// The node id.
    node: &'a str,
    /// False while the agent is still scanning its drives.
    ready: bool,
    /// The snapshots, by volume and moment.
    snapshots: Vec<ListedSnapshot<'a>>,
}

impl<'a> SnapshotList<'a> {
    fn new(inventory: &'a InventoryUpdate, snapshots: Vec<SnapshotEntry<'a>>) -> Self {
        Self {
            node: &inventory.node_id,
            ready: inventory.ready,
            snapshots: snapshots.into_iter().map(ListedSnapshot::from).collect(),
        }
    }
}

/// Renders the snapshots of an inventory, in the output format of `args`.
pub fn render(
    inventory: &InventoryUpdate,
    args: &SnapshotsArgs,
    target: OutputTarget,
) -> Result<String, CommandError> {
    let shown = entries(name::volumes(inventory, &args.names)?);
    let list = &args.list;
    if let Some(document) = list.output.document() {
        return Ok(document.write(&SnapshotList::new(inventory, shown))?);
    }
    if list.output == ListFormat::Name {
        let names = shown
            .iter()
            .map(|entry| printable(&entry.snapshot.name) + "\n");
        return Ok(names.collect());
    }
    let wide = list.output.is_wide();
    let mut table = Table::new(&columns(wide)).on(target.terminal, yielding(wide));
    let mut tally = SnapshotTally::default();
    for entry in &shown {
        let row = entry.row(wide, target.now);
        table.row(row.cells, row.below);
        tally.add(*entry);
    }
    if list.no_headers {
        return Ok(match shown.is_empty() {
            true => String::new(),
            false => table.without_header().render(),
        });
    }
    let mut text = match (shown.is_empty(), entries(&inventory.volumes).len()) {
        (false, _) => table.render() + &tally.text(target.terminal),
        (true, 0) => "no snapshots\n".to_owned(),
        (true, all) => format!("none of {}\n", count(all, "snapshot")),
    };
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    Ok(text)
}

#[cfg(test)]
mod samples;

#[cfg(test)]
mod tests;

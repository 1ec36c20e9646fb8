//! `drivebay-controller node forget` and `node remember`: forgets a node for good, and reverts that.
//!
//! The decision is an entry in the controller's config, made by an operator who has seen what is lost.

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::Path,
    time::SystemTime,
};

use drivebay_common::query::QueryError;
use drivebay_proto::{agent::Volume, controller::Node, words::NodeState};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    CommandError,
    args::{ForgetArgs, RememberArgs},
    client::Client,
    output::write,
    table::{human_seconds, human_size, printable},
};
use crate::settings::{
    Settings, SettingsError,
    edit::{self, EditError},
    store::{self, StoreError},
};

/// The command failed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Client(#[from] QueryError),
    /// The config file cannot be loaded.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The config file cannot be changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The entry cannot be made.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The node's agent is connected.
    #[error(
        "node {node} is {state}: its agent is connected, so it cannot be forgotten. Delete its volumes, or stop its agent for good first"
    )]
    StillThere {
        node: String,
        /// State of the node: `connected` or `starting`.
        state: String,
    },
    /// The node's state is unknown to this version.
    #[error(
        "the controller says that node {node} is {state:?}, which this version does not know; it was not forgotten. Use the controller's own version of this command"
    )]
    UnknownState { node: String, state: String },
    /// `--confirm` is missing. The text lists what is lost.
    #[error("{0}")]
    NotConfirmed(String),
    /// `--confirm` names another node.
    #[error("--confirm says {typed:?}, but the node is {node:?}; nothing was changed")]
    WrongConfirmation {
        node: String,
        /// Value of `--confirm`, which is not `node`.
        typed: String,
    },
}

impl NodeError {
    /// True if the command line was wrong and nothing was done.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NotConfirmed(_) | Self::WrongConfirmation { .. })
    }
}

/// A node and its volumes that forgetting it gives up.
#[derive(Debug)]
pub struct Loss {
    /// The controller's data about the node; None if it is unknown.
    pub node: Option<Node>,
    /// Existing volumes of the node.
    pub volumes: Vec<Volume>,
}

/// Fetches the node and its existing volumes from the controller.
pub async fn loss(client: &mut Client, node: &str) -> Result<Loss, QueryError> {
    let named = [node.to_owned()];
    let nodes = client.nodes(&named).await?;
    let mut volumes = Vec::new();
    let mut incoming = client.volumes(&named, false).await?;
    while let Some(there) = incoming.next().await? {
        if there.node_id != node {
            return Err(client.senseless("a volume of another node"));
        }
        volumes.extend(there.volume);
    }
    Ok(Loss {
        node: nodes.into_iter().find(|entry| entry.node_id == node),
        volumes,
    })
}

/// Runs `node forget`. Calls `query_loss` only if the node is not forgotten already. Without a config file, prints the
/// entry to `out`, and what is lost to `notes`.
pub fn forget(
    args: &ForgetArgs,
    now: SystemTime,
    query_loss: impl FnOnce() -> Result<Loss, CommandError>,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), CommandError> {
    let node = &args.node;
    if let Some(typed) = args.confirm.as_ref().filter(|typed| *typed != node) {
        return Err(CommandError::Node(NodeError::WrongConfirmation {
            node: node.clone(),
            typed: typed.clone(),
        }));
    }
    let stanza = edit::stanza(node, now).map_err(NodeError::Edit)?;
    // The command line requires --print if --config is missing.
    let Some(config) = &args.config else {
        let loss = query_loss()?;
        may_be_given_up(node, &loss).map_err(CommandError::Node)?;
        write(notes, &shown(node, &loss))?;
        return write(out, &stanza);
    };
    let settings = load(config).map_err(CommandError::Node)?;
    if let Some(at) = settings.forgotten.since(node) {
        let at = OffsetDateTime::from(at).format(&Rfc3339);
        let since = at.map_or_else(|_| String::new(), |at| format!(", since {at}"));
        let message = format!(
            "{node} is forgotten in {} already{since}; nothing was changed\n",
            config.display()
        );
        return write(out, &message);
    }
    let loss = query_loss()?;
    may_be_given_up(node, &loss).map_err(CommandError::Node)?;
    if args.confirm.is_none() {
        let text = format!(
            "forgetting gives a node up for good:\n\n{}\n\
             Nothing was changed. To give it up, spell out its name:\n\n  \
             drivebay-controller node forget {node} --config {} --confirm {node}",
            shown(node, &loss),
            config.display()
        );
        return Err(CommandError::Node(NodeError::NotConfirmed(text)));
    }
    store::change(config, |text| edit::with(text, node, now)).map_err(NodeError::Store)?;
    write(
        out,
        &format!(
            "{node} is forgotten now, in {}; the controller takes it up when it reads its config again. \
             Every replica needs the entry. To take it back: drivebay-controller node remember {node} --config {}\n",
            config.display(),
            config.display()
        ),
    )
}

/// Runs `node remember`: removes the node's entry from the config file. Errs if the file has none, or cannot be changed.
pub fn remember(args: &RememberArgs, out: &mut dyn Write) -> Result<(), CommandError> {
    let node = &args.node;
    store::change(&args.config, |text| edit::without(text, node)).map_err(NodeError::Store)?;
    write(
        out,
        &format!(
            "{node} is not forgotten any more, in {}; the controller takes it up when it reads its config again. \
             Volumes that were deleted meanwhile stay deleted\n",
            args.config.display()
        ),
    )
}

/// Loads the config file. A missing file is reported as by [`store::change`], with the next step.
fn load(path: &Path) -> Result<Settings, NodeError> {
    Settings::load(path).map_err(|error| match error {
        SettingsError::Read { path, source } if source.kind() == io::ErrorKind::NotFound => {
            StoreError::NoFile { path }.into()
        }
        error => error.into(),
    })
}

fn may_be_given_up(name: &str, loss: &Loss) -> Result<(), NodeError> {
    let Some(node) = &loss.node else {
        return Ok(());
    };
    let (name, state) = (name.to_owned(), node.state.clone());
    match node.known_state() {
        Some(NodeState::Away | NodeState::Forgotten) => Ok(()),
        Some(NodeState::Connected | NodeState::Starting) => {
            Err(NodeError::StillThere { node: name, state })
        }
        None => Err(NodeError::UnknownState { node: name, state }),
    }
}

/// Returns what is lost as text. Each line ends with a newline.
fn shown(name: &str, loss: &Loss) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "  {key:<9}{}", printable(value));
    };
    line("node", name);
    match &loss.node {
        None => line(
            "state",
            "unknown to this controller: is the name right? What volumes it has is not known either",
        ),
        Some(node) => {
            let state = match node.away_seconds {
                0 => node.state.clone(),
                seconds => format!("{} for {}", node.state, human_seconds(seconds)),
            };
            line("state", &state);
            if !node.machine_id.is_empty() {
                line("machine", &node.machine_id);
            }
            line("drives", &node.drives.to_string());
            for note in &node.notes {
                line("note", note);
            }
        }
    }
    for volume in &loss.volumes {
        let what = format!(
            "{} ({}, {}, {})",
            volume.name,
            human_size(volume.size_bytes),
            volume.class,
            volume.state
        );
        line("volume", &what);
    }
    let lost = match loss.volumes.len() {
        0 => "No volume of it is known. Deleting one that turns up is answered with OK".to_owned(),
        1 => "This volume is lost to the cluster: deleting it is answered with OK".to_owned(),
        count => format!(
            "These {count} volumes are lost to the cluster: deleting one is answered with OK"
        ),
    };
    let _ = write!(
        text,
        "\n{lost}, without anything being erased.\n\
         If the node returns after all, those that were deleted meanwhile are quarantined there before they\n\
         are erased, and the others are there again.\n"
    );
    text
}

//! The trait of the page's data.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::model::{Activity, Drive, DriveDetail, Events, Node, Volumes};

/// A future that a [`Source`] returns.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Changes whenever [`Source::node`] would answer otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stamp(pub u64);

/// A node with its drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub node: Node,
    /// In order of their identities.
    pub drives: Vec<Drive>,
}

/// Data of the page. What is not async is answered from memory, within a millisecond for a node.
pub trait Source: Send + Sync + 'static {
    /// The single host that this is of; None: a cluster.
    fn host(&self) -> Option<String>;

    /// Names of all nodes, in order, with a stamp of each.
    fn stamps(&self) -> Vec<(Arc<str>, Stamp)>;

    /// A node with its drives, with claims of all namespaces; None if it is not known.
    fn node(&self, name: &str) -> Option<NodeView>;

    /// A drive; None if it is not known. May ask its agent, for a few seconds at most.
    fn drive<'a>(&'a self, node: &'a str, id: &'a str) -> Answer<'a, Option<DriveDetail>>;

    /// The volumes that exist.
    fn volumes(&self) -> Answer<'_, Volumes>;

    /// Moves, copies, erases, checks. May ask agents, for a few seconds at most.
    fn activity(&self) -> Answer<'_, Activity>;

    /// Events of the last seven days that are still known, with claims of all namespaces. Asks no agent.
    fn history(&self) -> Answer<'_, Events>;
}

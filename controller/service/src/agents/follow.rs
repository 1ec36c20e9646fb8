//! Follows the inventory of an agent's node during a session.

use std::{collections::BTreeSet, sync::Weak};

use drivebay_proto::{agent::InventoryUpdate, words::DriveState};
use prost::Message as _;

use super::{
    Agent, AgentChannel, Inner,
    session_error::SessionError,
    updates::{self, MessageLimit},
};
use crate::{
    catalog::Catalog,
    inventory::{Foreign, Inventory},
    peer_log::{printable, printable_sentence},
    refusals::Reason,
};

/// Most full snapshots requested in a row without a delta that followed from one.
const MAX_GAPS: u32 = 5;

/// A session whose inventory is followed.
pub(super) struct Watched<'a> {
    pub(super) inner: Weak<Inner>,
    pub(super) agent: &'a Agent,
    pub(super) number: u64,
    pub(super) channel: &'a AgentChannel,
    pub(super) limit: MessageLimit,
}

impl Watched<'_> {
    /// Applies inventory updates until the session ends, and returns the reason. After a gap it requests a full snapshot.
    pub(super) async fn watch(&self) -> SessionError {
        let mut gaps = 0;
        loop {
            let gap = match self.watch_once(&mut gaps).await {
                SessionError::Gap(gap) if gaps < MAX_GAPS => gap,
                error => return error,
            };
            gaps += 1;
            let Some(inner) = self.inner.upgrade() else {
                return SessionError::Stopped;
            };
            let node = self.agent.node();
            if inner.log.allows("snapshot requested", node) {
                let gap = printable_sentence(&gap.to_string());
                tracing::warn!(node, %gap, "requesting a full snapshot from the agent");
            }
        }
    }

    async fn watch_once(&self, gaps: &mut u32) -> SessionError {
        let opened = Box::pin(updates::open(self.channel, self.limit)).await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        loop {
            let update = match updates::next(&mut stream).await {
                Ok(update) => update,
                Err(error) => return error,
            };
            if !update.node_id.is_empty() && update.node_id != self.agent.node() {
                return SessionError::NodeId(printable(&update.node_id));
            }
            if let Err(error) = self.slow_down(&update).await {
                return error;
            }
            let Some(inner) = self.inner.upgrade() else {
                return SessionError::Stopped;
            };
            let full = update.full;
            match self.agent.apply(self.number, update, &inner.catalog) {
                None => return SessionError::Replaced,
                Some(Err(error)) => return error.into(),
                Some(Ok(foreign)) => {
                    if !full {
                        *gaps = 0;
                    }
                    note_foreign(&inner, self.agent.node(), &foreign);
                }
            }
            if self.agent.read_inventory(Inventory::complete) {
                inner
                    .ready
                    .send_if_modified(|ready| !std::mem::replace(ready, true));
            }
        }
    }

    // Waits if the node sends more updates than a working agent does. No update is lost: the agent combines changes that are not read yet.
    async fn slow_down(&self, update: &InventoryUpdate) -> Result<(), SessionError> {
        let wait = self.agent.spend(update.encoded_len());
        if wait.is_zero() {
            return Ok(());
        }
        {
            let inner = self.inner.upgrade().ok_or(SessionError::Stopped)?;
            inner.refusals.count(Reason::UpdateRate);
            let node = self.agent.node();
            if inner.log.allows("updates delayed", node) {
                tracing::warn!(
                    node,
                    "node sends too many inventory updates; reading them more slowly"
                );
            }
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

fn note_foreign(inner: &Inner, node: &str, foreign: &Foreign) {
    if foreign.count == 0 {
        return;
    }
    inner
        .refusals
        .count_many(Reason::ForeignVolumes, foreign.count);
    if inner.log.allows("foreign volumes", node) {
        tracing::error!(
            node,
            volumes = foreign.count,
            volume = foreign.example,
            "agent reported volume ids of another node; volumes not listed"
        );
    }
}

/// Returns true if a machine has one of the drives that hold the node's volumes. The drive must be claimed, except on
/// the same machine: if its key was renewed while a drive is missing or rejected, it still reports that drive.
pub(super) async fn has_drives_of(
    channel: &AgentChannel,
    agent: &Agent,
    catalog: &Catalog,
    same_machine: bool,
) -> Result<bool, SessionError> {
    let wanted: BTreeSet<String> = agent
        .read_inventory(|inventory| inventory.dump(catalog))
        .into_iter()
        .flat_map(|dump| dump.volumes)
        .map(|volume| volume.drive)
        .collect();
    let scratch = Catalog::default();
    // A separate inventory, so that a newcomer's updates do not mark the node as connected.
    let mut newcomer = Inventory::new(agent.node().into());
    let mut stream = updates::open(channel, MessageLimit::REMOTE).await?;
    loop {
        let update = updates::next(&mut stream).await?;
        tokio::time::sleep(agent.spend(update.encoded_len())).await;
        newcomer.apply(update, &scratch)?;
        if newcomer.complete() {
            return Ok(newcomer.drives().any(|drive| {
                (same_machine || drive.known_state() == Some(DriveState::Claimed))
                    && wanted.contains(&drive.id)
            }));
        }
    }
}

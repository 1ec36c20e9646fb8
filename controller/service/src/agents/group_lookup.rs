//! Finds a group snapshot: on the node its id names, or on another to which its drives were moved.

use std::{collections::BTreeMap, sync::Arc};

use drivebay_proto::{
    VolumeId,
    agent::{SnapshotGroup, Volume, VolumeSnapshot},
};
use uuid::Uuid;

use super::{
    Agent, Agents, IdOf, LookupError,
    lookup::{answered, parse_as},
};
use crate::{catalog::Node, inventory::Inventory};

/// A group snapshot and the agent that reports it.
#[derive(Debug, Clone)]
pub struct ReportedGroup {
    pub agent: Arc<Agent>,
    /// As its snapshots report it; its id names the node they are on.
    pub group: SnapshotGroup,
    /// The snapshots of the group that exist for CSI, each with its volume, in the order of their ids: at least one, and all of the
    /// group if there are `group.members`.
    pub members: Vec<(VolumeSnapshot, Volume)>,
    /// The node in the id that was asked for, when the group is on another.
    pub moved_from: Option<String>,
}

impl ReportedGroup {
    fn new(
        agent: Arc<Agent>,
        members: Vec<(VolumeSnapshot, Volume)>,
        moved_from: Option<String>,
    ) -> Option<Self> {
        let (first, _) = members.first()?;
        Some(Self {
            agent,
            group: first.group.clone()?,
            members,
            moved_from,
        })
    }
}

impl Agents {
    /// Returns the group snapshot of this id as last reported, and the agent that reports it. A group on another node than its id names is
    /// found only while that node's agent is connected and has scanned every drive. One still being created does not exist yet.
    ///
    /// # Errors
    /// `NotThere` only if the agent is connected and has scanned every drive. A group of a disconnected node is returned as last
    /// reported, and is `NotKnownYet` if it was not reported. `SnapshotsNotKnown`: it may be on a drive that is missing.
    pub fn group_snapshot(&self, id: &str) -> Result<ReportedGroup, LookupError> {
        let of = IdOf::GroupSnapshot;
        let parsed = parse_as(of, id)?;
        let owner = self.owner(of, &parsed);
        let complete = owner
            .as_ref()
            .is_ok_and(|agent| agent.read_inventory(Inventory::complete));
        let mut by_node = self.members_by_node(parsed.uuid);
        let here = by_node.remove(parsed.node.as_str()).unwrap_or_default();
        if (!complete || here.is_empty())
            && let Some(group) = self.moved_group(&parsed, by_node)
        {
            return Ok(group);
        }
        let agent = owner?;
        ReportedGroup::new(agent.clone(), here, None)
            .ok_or_else(|| self.absent(of, id, &agent, complete))
    }

    /// Returns the group on another node than the id names, from connected agents that have scanned every drive; of several, the one with
    /// the most snapshots.
    fn moved_group(
        &self,
        id: &VolumeId,
        others: BTreeMap<Node, Vec<(VolumeSnapshot, Volume)>>,
    ) -> Option<ReportedGroup> {
        let groups = others.into_iter().filter_map(|(node, members)| {
            let agent = self.get(&node)?;
            let is_there = agent.read_inventory(Inventory::complete);
            is_there.then(|| ReportedGroup::new(agent, members, Some(id.node.clone())))?
        });
        groups.max_by_key(|group| group.members.len())
    }

    /// Returns the snapshots of this group that exist for CSI, by node.
    fn members_by_node(&self, group: Uuid) -> BTreeMap<Node, Vec<(VolumeSnapshot, Volume)>> {
        let mut by_node = BTreeMap::<Node, Vec<(VolumeSnapshot, Volume)>>::new();
        for place in self.catalog().members(group) {
            if let Some(member) = answered(&place) {
                let node = place.key.node.clone();
                by_node.entry(node).or_default().push(member);
            }
        }
        by_node
    }
}

//! Nodes and volumes as the controller shows them, beyond what their agents report: states of nodes, claims, and what follows from a
//! disconnected agent.

use drivebay_csi::health::{self, Whereabouts};
use drivebay_proto::{
    agent,
    controller::VolumeOnNode,
    csi::{VolumeHealthErrorType, volume_health::VolumeHealthEntry},
    words::{self, NodeState},
};

use super::{Agent, Agents};
use crate::{
    catalog::{Key, is_read},
    inventory::Inventory,
};

impl Agents {
    /// Returns the state of the agent's node.
    pub fn state_of(&self, agent: &Agent) -> NodeState {
        if self.is_given_up(agent.node()) {
            NodeState::Forgotten
        } else if agent.read_inventory(Inventory::complete) {
            NodeState::Connected
        } else if agent.connected() {
            NodeState::Starting
        } else {
            NodeState::Away
        }
    }

    /// Returns a volume of the catalog as command lines and the page show it: with the conditions that CSI reports, also those of a
    /// disconnected node, and with the claim that Kubernetes says it has.
    pub fn on_node(&self, key: &Key, mut volume: agent::Volume) -> VolumeOnNode {
        let agent = self.get(&key.node);
        let state = agent
            .as_ref()
            .map_or(NodeState::Away, |agent| self.state_of(agent));
        let away = agent.as_ref().is_none_or(|agent| agent.unreachable());
        let moved = (away || !is_read(&volume))
            .then(|| self.elsewhere(&key.id()))
            .flatten()
            .map(|(now, _)| now);
        let at = match &moved {
            Some(now) => Whereabouts::Moved {
                from: &key.node,
                now: now.node(),
            },
            None if away => Whereabouts::Away,
            None => Whereabouts::Here,
        };
        let mut shown = conditions(health::entries(&volume, at), &volume.conditions);
        // A normal condition that a disconnected node reported may have ended since.
        let reported = std::mem::take(&mut volume.conditions);
        shown.extend(reported.into_iter().filter(|one| !one.abnormal && !away));
        volume.conditions = shown;
        let expected = self.expected();
        let named_by = expected.volume(&key.id());
        let claim = named_by.and_then(|pv| pv.claim.as_ref());
        let unclaimed = self.unclaimed().of(key).filter(|_| named_by.is_none());
        VolumeOnNode {
            volume: Some(volume),
            node_id: key.node.to_string(),
            node_state: state.to_string(),
            claims_known: expected.complete(),
            persistent_volume: named_by.map(|pv| pv.pv.to_string()).unwrap_or_default(),
            claim: claim
                .map(|claim| claim.name.to_string())
                .unwrap_or_default(),
            duplicate: self.duplicates().of(key).unwrap_or_default(),
            other_copy: self.other_copy(key.uuid).unwrap_or_default(),
            unclaimed_seconds: unclaimed.map_or(0, |long| long.as_secs().max(1)),
        }
    }
}

/// Converts the conditions that CSI reports, with the start of each where the agent reported it in `reported`.
fn conditions(
    entries: Vec<VolumeHealthEntry>,
    reported: &[agent::Condition],
) -> Vec<agent::Condition> {
    entries
        .into_iter()
        .map(|entry| agent::Condition {
            abnormal: true,
            status: match entry.status() {
                VolumeHealthErrorType::DataLoss => words::Status::DataLoss,
                VolumeHealthErrorType::Inaccessible => words::Status::Inaccessible,
                VolumeHealthErrorType::Degraded
                | VolumeHealthErrorType::UnknownVolumeHealthType => words::Status::Degraded,
            }
            .to_string(),
            since: reported
                .iter()
                .find(|condition| condition.reason == entry.reason)
                .map_or(0, |condition| condition.since),
            reason: entry.reason,
            message: entry.message,
        })
        .collect()
}

//! The volumes and nodes that an orchestrator expects, listed for nodes whose agent has not reported to this process.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard},
};

use drivebay_proto::VolumeId;

use super::{Agent, Agents};
use crate::{
    expected::{Expected, ExpectedVolume},
    inventory::Inventory,
};

impl Agents {
    /// Returns the expected volumes and nodes. The guard must be dropped soon, since changes wait for it.
    pub fn expected(&self) -> RwLockReadGuard<'_, Expected> {
        let expected = &self.inner.expected;
        expected.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected_mut(&self) -> RwLockWriteGuard<'_, Expected> {
        let expected = &self.inner.expected;
        expected.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all expected volumes.
    pub fn expect_volumes(&self, all: Vec<(VolumeId, ExpectedVolume)>) {
        let nodes = self.expected_mut().replace_volumes(all);
        nodes.iter().for_each(|node| self.show_expected(node));
    }

    /// Adds or replaces one expected volume.
    pub fn expect_volume(&self, id: &VolumeId, volume: ExpectedVolume) {
        if self.expected_mut().put_volume(id, volume) {
            self.show_expected(&id.node);
        }
    }

    /// Removes a volume whose PersistentVolume `pv` was deleted.
    pub fn unexpect_volume(&self, id: &VolumeId, pv: &str) {
        self.expected_mut().remove_volume(id, pv);
        self.show_expected(&id.node);
    }

    /// Replaces all nodes on which an agent is registered.
    pub fn expect_nodes(&self, all: BTreeSet<Arc<str>>) {
        let new = self.expected_mut().replace_nodes(all);
        new.iter().for_each(|node| self.show_expected(node));
    }

    /// Adds a node on which an agent is registered.
    pub fn expect_node(&self, node: &str) {
        self.expected_mut().put_node(node);
        self.show_expected(node);
    }

    /// Removes a node on which no agent is registered any more.
    pub fn unexpect_node(&self, node: &str) {
        self.expected_mut().remove_node(node);
    }

    /// Lists the expected volumes again of every node that is not forgotten. Needed after an operator ran `node remember`.
    pub fn refresh_expected(&self) {
        let nodes = self.expected().nodes();
        nodes.iter().for_each(|node| self.show_expected(node));
    }

    fn show_expected(&self, node: &str) {
        if self.is_given_up(node) {
            return;
        }
        let expected = self.expected();
        // A node that is no longer expected is not added.
        let agent = match self.get(node) {
            Some(agent) => agent,
            None if expected.has_node(node) => self.inner.enrol(node),
            None => return,
        };
        let none = Default::default();
        agent.expect(expected.volumes_of(node).unwrap_or(&none), self.catalog());
    }

    /// True if this is a node of the cluster: not one that left it with no volumes on it, nor a name under which agents were only refused.
    pub fn is_node(&self, agent: &Agent) -> bool {
        let expected = self.expected();
        agent.connected()
            || expected.has_node(agent.node())
            || agent.read_inventory(|inventory| inventory.counts().volumes > 0)
            || (agent.facts().is_some() && !expected.complete())
            || self.is_given_up(agent.node()) && agent.read_inventory(Inventory::listed)
    }

    /// Records that both lists, of volumes and of nodes, were read whole.
    pub fn set_expected_complete(&self) {
        self.expected_mut().set_complete();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use drivebay_proto::agent::{InventoryUpdate, Volume};
    use tokio::sync::watch;
    use uuid::Uuid;

    use super::*;
    use crate::{
        agents::{Facts, ForgottenNodes, LookupError},
        catalog::Catalog,
        expected::EXPECTED,
        notes::Notes,
    };

    fn id(n: u128) -> VolumeId {
        VolumeId {
            uuid: Uuid::from_u128(n),
            node: "n1".into(),
        }
    }

    fn pv(name: &str) -> ExpectedVolume {
        ExpectedVolume {
            pv: name.into(),
            claim: None,
        }
    }

    fn snapshot(volumes: &[u128]) -> InventoryUpdate {
        InventoryUpdate {
            node_id: "n1".into(),
            instance: "a".into(),
            revision: 1,
            full: true,
            ready: true,
            volumes: volumes
                .iter()
                .map(|n| Volume {
                    id: id(*n).to_string(),
                    state: "ready".into(),
                    ..Volume::default()
                })
                .collect(),
            ..InventoryUpdate::default()
        }
    }

    fn facts() -> Facts {
        Facts {
            node: "n1".into(),
            identity: None,
            instance: "a".into(),
            machine_id: "m".into(),
            version: String::new(),
            address: String::new(),
            copies: true,
        }
    }

    fn agents() -> (Agents, watch::Sender<ForgottenNodes>) {
        let (sender, forgotten) = watch::channel(ForgottenNodes::new());
        let agents = Agents::with_away_grace(forgotten, Notes::in_memory(), Duration::ZERO);
        (agents, sender)
    }

    fn listed(catalog: &Catalog) -> Vec<(VolumeId, String)> {
        let all = catalog.after(None, 100, |_, marks| marks.exists);
        all.iter()
            .map(|(key, entry)| (key.id(), entry.decode(key).state))
            .collect()
    }

    #[test]
    fn volumes_of_a_node_that_never_connected_are_listed_and_unreachable_until_its_agent_reports() {
        let (agents, _keep) = agents();
        agents.expect_volumes(vec![(id(1), pv("a")), (id(2), pv("b"))]);
        let expected = |n| (id(n), EXPECTED.to_owned());
        assert_eq!(listed(agents.catalog()), [expected(1), expected(2)]);
        let reported = agents.volume(&id(1).to_string()).unwrap();
        assert!(reported.agent.unreachable() && reported.volume.name == "a");
        assert!(agents.is_node(&reported.agent));

        agents.unexpect_volume(&id(2), "b");
        agents.expect_volume(&id(3), pv("c"));
        assert_eq!(listed(agents.catalog()), [expected(1), expected(3)]);

        // A volume that the agent does not have does not exist, even if a PersistentVolume names it.
        let update = snapshot(&[3, 4]);
        reported.agent.inventory_for_test(|inventory| {
            inventory.apply(update, agents.catalog()).unwrap();
        });
        let ready = |n| (id(n), "ready".to_owned());
        assert_eq!(listed(agents.catalog()), [ready(3), ready(4)]);
        agents.expect_volume(&id(5), pv("e"));
        agents.refresh_expected();
        assert_eq!(listed(agents.catalog()), [ready(3), ready(4)]);
        assert!(matches!(
            agents.volume(&id(1).to_string()),
            Err(LookupError::NotThere { .. })
        ));
    }

    #[test]
    fn what_was_last_known_of_a_node_is_completed_and_not_replaced() {
        let (agents, _keep) = agents();
        agents.recall(facts(), snapshot(&[1])).unwrap();
        agents.expect_volumes(vec![(id(1), pv("a")), (id(2), pv("b"))]);
        let recalled = (id(1), "ready".to_owned());
        assert_eq!(
            listed(agents.catalog()),
            [recalled.clone(), (id(2), EXPECTED.to_owned())]
        );
        let agent = agents.get("n1").unwrap();
        let kept = agent.read_inventory(|inventory| inventory.dump(agents.catalog()));
        assert_eq!(
            kept.unwrap().volumes.len(),
            1,
            "only what an agent told is kept"
        );
        agents.expect_volumes(Vec::new());
        assert_eq!(listed(agents.catalog()), [recalled]);
    }

    #[test]
    fn a_forgotten_node_is_not_expected_until_it_is_remembered() {
        let (agents, forgotten) = agents();
        agents.expect_volumes(vec![(id(1), pv("a"))]);
        forgotten.send_replace([("n1".to_owned(), 1)].into());
        agents.forget_given_up();
        agents.refresh_expected();
        assert!(listed(agents.catalog()).is_empty());
        assert!(matches!(
            agents.volume(&id(1).to_string()),
            Err(LookupError::ForgottenNodes { .. })
        ));
        forgotten.send_replace(ForgottenNodes::new());
        agents.refresh_expected();
        assert_eq!(listed(agents.catalog()).len(), 1);
    }

    #[test]
    fn a_node_that_left_the_cluster_with_nothing_on_it_is_none_any_more() {
        let (agents, _keep) = agents();
        agents.expect_node("n1");
        agents.expect_node("n2");
        agents.set_expected_complete();
        let (one, other) = (agents.get("n1").unwrap(), agents.get("n2").unwrap());
        assert!(agents.is_node(&one) && agents.is_node(&other));
        agents.expect_volume(&id(1), pv("a"));
        agents.unexpect_node("n1");
        agents.unexpect_node("n2");
        assert!(agents.is_node(&one) && !agents.is_node(&other));
        agents.expect_nodes(["n2".into()].into());
        assert!(agents.is_node(&other));
    }
}

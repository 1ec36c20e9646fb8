#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use drivebay_proto::agent::{Condition, InventoryUpdate, Volume};
use tokio::sync::watch;
use uuid::Uuid;

use super::*;
use crate::{
    agents::{Facts, ForgottenNodes},
    notes::Notes,
};

const NODES: u128 = 100;
/// Volumes of each node.
const VOLUMES: u128 = 12;

fn id(n: u128) -> String {
    // Neighbouring ids are on different nodes, as with random ids.
    let (uuid, node) = (Uuid::from_u128(n), format!("n{}", n % NODES));
    VolumeId { uuid, node }.to_string()
}

fn snapshot(node: u128) -> InventoryUpdate {
    let volumes = (0..VOLUMES).map(|n| Volume {
        id: id(n * NODES + node),
        class: "bulk".into(),
        size_bytes: 1 << 30,
        state: "ready".into(),
        ..Volume::default()
    });
    InventoryUpdate {
        instance: "i".into(),
        revision: 1,
        full: true,
        ready: true,
        volumes: volumes.collect(),
        ..InventoryUpdate::default()
    }
}

/// Returns disconnected nodes that count as unreachable at once.
fn fleet() -> Agents {
    let forgotten = watch::Sender::new(ForgottenNodes::new()).subscribe();
    let agents = Agents::with_away_grace(forgotten, Notes::in_memory(), Duration::ZERO);
    for node in 0..NODES {
        let facts = Facts {
            node: format!("n{node}"),
            identity: None,
            instance: "i".into(),
            machine_id: String::new(),
            version: String::new(),
            address: String::new(),
            copies: true,
        };
        agents.recall(facts, snapshot(node)).unwrap();
    }
    agents
}

fn connect(agents: &Agents, node: u128, update: InventoryUpdate) {
    let agent = agents.get(&format!("n{node}")).unwrap();
    agent.inventory_for_test(|inventory| {
        inventory.apply(update, agents.catalog()).unwrap();
    });
}

fn first_page(agents: &Agents) -> Vec<list_volumes_response::Entry> {
    let (key, attached) = (TopologyKey::new("d"), Attached::default());
    let page = list_volumes(agents, &key, &attached, HealthApi::Legacy, None, None);
    page.decode_entries().unwrap().entries
}

fn message(entry: &list_volumes_response::Entry) -> &str {
    let status = entry.status.as_ref().unwrap();
    &status.volume_condition.as_ref().unwrap().message
}

#[test]
fn a_page_looks_up_no_agent_of_a_connected_node() {
    let agents = fleet();
    for node in 0..NODES {
        connect(&agents, node, snapshot(node));
    }
    let before = agents.lookups();
    let page = first_page(&agents);
    assert_eq!(agents.lookups() - before, 0);
    assert_eq!(page.len(), MAX_ENTRIES);
    assert!(
        page.iter()
            .all(|entry| message(entry) == drivebay_csi::health::HEALTHY)
    );
}

#[test]
fn a_page_looks_up_the_agent_of_a_disconnected_node_once() {
    let agents = fleet();
    for node in 1..NODES {
        connect(&agents, node, snapshot(node));
    }
    let before = agents.lookups();
    let page = first_page(&agents);
    assert_eq!(agents.lookups() - before, 1);
    for entry in page {
        let away = entry.volume.as_ref().unwrap().volume_id.ends_with("@n0");
        assert_eq!(message(&entry).contains("NodeUnreachable"), away);
    }
}

#[test]
fn a_list_shows_the_end_of_a_session_and_the_next_session() {
    let agents = fleet();
    let unreachable = || {
        let page = first_page(&agents);
        page.iter()
            .filter(|entry| message(entry).contains("NodeUnreachable"))
            .count()
    };
    assert_eq!(unreachable(), MAX_ENTRIES);
    for node in 0..NODES {
        connect(&agents, node, snapshot(node));
    }
    assert_eq!(unreachable(), 0);
    let agent = agents.get("n3").unwrap();
    agent.inventory_for_test(|inventory| inventory.away(Instant::now()));
    assert_eq!(unreachable(), 10);
    connect(&agents, 3, snapshot(3));
    assert_eq!(unreachable(), 0);
}

#[test]
fn a_condition_that_the_agent_reports_is_listed() {
    let agents = fleet();
    for node in 0..NODES {
        connect(&agents, node, snapshot(node));
    }
    let troubled = Volume {
        conditions: vec![Condition {
            abnormal: true,
            reason: "MediaErrors".into(),
            ..Condition::default()
        }],
        ..snapshot(7).volumes.remove(0)
    };
    let update = InventoryUpdate {
        volumes: vec![troubled.clone()],
        ..snapshot(7)
    };
    connect(&agents, 7, update);
    for entry in first_page(&agents) {
        let is = entry.volume.as_ref().unwrap().volume_id == troubled.id;
        assert_eq!(message(&entry).contains("MediaErrors"), is);
    }
}

#[test]
fn a_copy_is_listed_with_its_source_and_only_when_it_is_complete() {
    let agents = fleet();
    for node in 0..NODES {
        connect(&agents, node, snapshot(node));
    }
    let source = || {
        let page = first_page(&agents);
        let volumes = page.into_iter().map(|entry| entry.volume.unwrap());
        let mut matching = volumes.filter(|volume| volume.volume_id == id(7));
        matching.next().map(|volume| volume.content_source)
    };
    assert_eq!(source(), Some(None));
    for (state, listed) in [("copying", false), ("new", true), ("missing", true)] {
        let mut update = snapshot(7);
        update.volumes[0].state = state.into();
        update.volumes[0].source_volume = id(107);
        connect(&agents, 7, update);
        let expected = drivebay_csi::Source::Volume(id(107));
        assert_eq!(source(), listed.then(|| Some(expected.into())), "{state}");
        let health = list_health(&agents, None, None).entries;
        let is_reported = health.iter().any(|of| of.volume_id == id(7));
        assert_eq!(is_reported, state == "missing", "{state}");
        let reported = agents.volume_of_csi(&id(7));
        assert_eq!(reported.is_ok(), listed, "{state}");
        assert!(agents.volume(&id(7)).is_ok(), "people look for it, too");
    }
}

#[test]
fn an_inventory_that_a_newcomer_shows_leaves_the_node_disconnected() {
    let agents = fleet();
    let agent = agents.get("n3").unwrap();
    let mut inventory = crate::inventory::Inventory::new(agent.node().into());
    inventory
        .apply(snapshot(3), &crate::catalog::Catalog::default())
        .unwrap();
    assert!(inventory.complete());
    assert!(!agent.node_id().is_connected());
}

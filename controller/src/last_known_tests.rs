#![allow(clippy::unwrap_used)]

use drivebay_proto::agent::{Class, InventoryUpdate, Volume};
use tokio::sync::watch;

use super::*;
use crate::golden;
use drivebay_service::{agents::ForgottenNodes, notes::Notes};

const ID: &str = "00000000-0000-4000-8000-000000000001@n1";
const OTHER: &str = "00000000-0000-4000-8000-000000000002@n1";
const PROVISIONED: &str = "pvc-00000000-0000-4000-8000-000000000003";

fn agents() -> (Agents, watch::Sender<ForgottenNodes>) {
    let (sender, receiver) = watch::channel(ForgottenNodes::new());
    (Agents::new(receiver, Notes::in_memory()), sender)
}

fn facts() -> Facts {
    Facts {
        node: "n1".into(),
        identity: Some(Identity::Certificate {
            node: "n1".into(),
            key: KeyFingerprint([7; 32]),
        }),
        instance: "a".into(),
        machine_id: "m".into(),
        version: "1".into(),
        address: "1.2.3.4:5".into(),
        copies: false,
    }
}

fn inventory() -> InventoryUpdate {
    InventoryUpdate {
        node_id: "n1".into(),
        instance: "a".into(),
        revision: 3,
        full: true,
        ready: true,
        volumes: [(ID, "v"), (OTHER, PROVISIONED)]
            .map(|(id, name)| Volume {
                id: id.into(),
                name: name.into(),
                state: "ready".into(),
                drive: "wwn-a".into(),
                ..Volume::default()
            })
            .into(),
        classes: vec![Class {
            name: "bulk".into(),
            ..Class::default()
        }],
        ..InventoryUpdate::default()
    }
}

#[tokio::test]
async fn a_node_that_is_away_is_listed_after_a_restart_and_a_given_up_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (before, forgotten_nodes) = agents();
    before.recall(facts(), inventory()).unwrap();
    let mut written = BTreeMap::new();
    save(&store, &before, &mut written, false).await;
    let file = fs::read(dir.path().join("nodes/n1.known")).unwrap();
    golden::compare("node.known", &file);

    let (after, _keep) = agents();
    assert_eq!(store.load(&after).unwrap(), 1);
    let dump = |agents: &Agents| {
        let agent = agents.get("n1").unwrap();
        agent.read_inventory(|inventory| inventory.dump(agents.catalog()))
    };
    assert_eq!(dump(&after), Some(inventory()));
    assert_eq!(dump(&before), Some(inventory()));
    assert_eq!(after.get("n1").unwrap().facts(), Some(facts()));
    assert!(!after.get("n1").unwrap().connected());

    forgotten_nodes.send_replace([("n1".to_owned(), 1)].into());
    before.forget_given_up();
    save(&store, &before, &mut written, false).await;
    let (last, _keep) = agents();
    assert_eq!(store.load(&last).unwrap(), 0);
}

#[tokio::test]
async fn thousands_of_nodes_are_written_in_turns_and_one_that_went_away_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (agents, _keep) = agents();
    let nodes: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
    let recall = |node: &str, revision| {
        let facts = Facts {
            node: node.into(),
            ..facts()
        };
        let update = InventoryUpdate {
            node_id: node.into(),
            revision,
            volumes: Vec::new(),
            ..inventory()
        };
        agents.recall(facts, update).unwrap();
    };
    for node in &nodes {
        recall(node, 3);
    }
    let mut written = BTreeMap::new();
    save(&store, &agents, &mut written, false).await;
    assert_eq!(written.len(), 100, "a tenth of them");
    let first = written.keys().next().unwrap().clone();
    recall(&first, 4);
    save(&store, &agents, &mut written, false).await;
    assert_eq!(written.len(), 200);
    assert_eq!(written.get(&first).unwrap().revision, 4);
    save(&store, &agents, &mut written, true).await;
    assert_eq!(written.len(), 1000, "all at the end");
    assert_eq!(in_turn(3), FEW);
}

#[tokio::test]
async fn a_file_of_another_node_format_or_none_at_all_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let record = |format, node: &str| LastKnown {
        format,
        inventory: Some(InventoryUpdate {
            node_id: node.into(),
            ..inventory()
        }),
        ..LastKnown::default()
    };
    store
        .write("n1", &record(FORMAT, "n2").encode_to_vec())
        .unwrap();
    store
        .write("n2", &record(FORMAT - 1, "n2").encode_to_vec())
        .unwrap();
    fs::write(store.path("n3"), b"\xff\xfe garbage").unwrap();
    fs::write(store.path("n4"), b"").unwrap();
    let (agents, _keep) = agents();
    assert_eq!(store.load(&agents).unwrap(), 0);
    let troubles = agents.notes().troubles();
    let findings = troubles.findings();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].code, "StateNotRead");
    assert!(
        findings[0].message.contains("n1.known (and 3 more)"),
        "{findings:?}"
    );
    // One file is repaired, the others are removed.
    store
        .write("n1", &record(FORMAT, "n1").encode_to_vec())
        .unwrap();
    for node in ["n2", "n3", "n4"] {
        store.remove(node).unwrap();
    }
    store.load_again(&agents);
    assert!(agents.get("n1").is_some());
    assert_eq!(troubles.findings(), []);
}

#[tokio::test]
async fn nodes_that_cannot_be_saved_are_a_finding_until_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (agents, _keep) = agents();
    agents.recall(facts(), inventory()).unwrap();
    let in_the_way = dir.path().join("nodes/n1.known.new");
    fs::create_dir(&in_the_way).unwrap();
    let mut written = BTreeMap::new();
    save(&store, &agents, &mut written, true).await;
    let codes = || {
        let findings = agents.notes().troubles().findings().into_iter();
        findings.map(|finding| finding.code).collect::<Vec<_>>()
    };
    assert_eq!(codes(), ["StateNotSaved"]);
    fs::remove_dir(&in_the_way).unwrap();
    save(&store, &agents, &mut written, true).await;
    assert_eq!(codes(), [""; 0]);
}

#[tokio::test]
async fn a_file_that_is_larger_than_a_node_may_be_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let file = fs::File::create(store.path("n1")).unwrap();
    file.set_len(4 << 30).unwrap();
    // Small as stored, and large when decoded: volumes without content.
    let mut bombs = LastKnown {
        format: FORMAT,
        ..LastKnown::default()
    }
    .encode_to_vec();
    let volumes = [0x2a, 0].repeat(4 << 20);
    bombs.push(0x2a);
    prost::encoding::encode_varint(volumes.len() as u64, &mut bombs);
    bombs.extend(volumes);
    fs::write(store.path("n2"), &bombs).unwrap();
    let too_many = InventoryUpdate {
        volumes: (0..=drivebay_service::bounds::MAX_VOLUMES)
            .map(|n| Volume {
                id: format!("00000000-0000-4000-8000-{n:012}@n3"),
                ..Volume::default()
            })
            .collect(),
        node_id: "n3".into(),
        ..inventory()
    };
    let record = LastKnown {
        format: FORMAT,
        inventory: Some(too_many),
        ..LastKnown::default()
    };
    store.write("n3", &record.encode_to_vec()).unwrap();
    let (agents, _keep) = agents();
    assert_eq!(store.load(&agents).unwrap(), 0);
    assert!(agents.catalog().is_empty());
    // A file of a newer format is never overwritten, whatever its size.
    file.set_len(0).unwrap();
    fs::write(store.path("n1"), [0x08, 0x02]).unwrap();
    file.set_len(4 << 30).unwrap();
    assert!(store.load(&agents).is_err());
}

#[tokio::test]
async fn a_file_of_a_newer_format_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    // Its other fields may differ from ours: field 2 is a number here.
    let later = [0x08, 0x02, 0x10, 0x07];
    fs::write(store.path("n1"), later).unwrap();
    let (agents, _keep) = agents();
    let refused = store.load(&agents).unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { format: 2, .. }),
        "{refused}"
    );
    assert_eq!(fs::read(store.path("n1")).unwrap(), later);
}

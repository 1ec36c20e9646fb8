#![allow(clippy::unwrap_used)]

use drivebay_proto::agent::{Class, Finding};

use super::*;

const ID: &str = "00000000-0000-4000-8000-000000000001@n1";

struct ReportedNode {
    inventory: Inventory,
    catalog: Catalog,
}

impl ReportedNode {
    fn of(node: &str) -> Self {
        Self {
            inventory: Inventory::new(node.into()),
            catalog: Catalog::default(),
        }
    }

    fn apply(&mut self, update: InventoryUpdate) -> Result<Foreign, UpdateError> {
        self.inventory.apply(update, &self.catalog)
    }

    fn listed(&self) -> usize {
        let listed = self
            .catalog
            .after(None, usize::MAX, |_, marks| marks.exists);
        assert_eq!(listed.len() as u64, self.inventory.counts().volumes);
        listed.len()
    }
}

fn volume(name: &str, state: &str) -> Volume {
    Volume {
        id: ID.into(),
        name: name.into(),
        state: state.into(),
        ..Volume::default()
    }
}

fn update(full: bool, instance: &str, since: u64, revision: u64) -> InventoryUpdate {
    InventoryUpdate {
        instance: instance.into(),
        revision,
        full,
        ready: true,
        since_revision: since,
        ..InventoryUpdate::default()
    }
}

#[test]
fn a_delta_that_does_not_follow_is_refused_and_changes_nothing() {
    let mut node = ReportedNode::of("n1");
    assert_eq!(
        node.apply(update(false, "a", 0, 1)),
        Err(Gap::NoSnapshot.into())
    );
    node.apply(update(true, "a", 0, 5)).unwrap();
    for bad in [
        update(false, "b", 5, 6),
        update(false, "a", 4, 6),
        update(false, "a", 6, 7),
        update(false, "a", 0, 5),
    ] {
        let mut bad = bad;
        bad.volumes.push(volume("v", "ready"));
        assert!(node.apply(bad.clone()).is_err(), "{bad:?}");
        assert_eq!(node.inventory.revision(), 5);
        assert_eq!(node.listed(), 0);
    }
    node.apply(update(false, "a", 5, 9)).unwrap();
    node.apply(update(false, "a", 0, 12)).unwrap();
    assert_eq!(node.inventory.revision(), 12);
}

#[test]
fn an_old_snapshot_of_the_same_agent_is_refused_and_changes_nothing() {
    let mut node = ReportedNode::of("n1");
    let mut new = update(true, "a", 0, 5);
    new.volumes.push(volume("v", "ready"));
    node.apply(new).unwrap();
    let old = update(true, "a", 0, 4);
    assert_eq!(node.apply(old), Err(Gap::Old { current: 5, got: 4 }.into()));
    assert_eq!(node.listed(), 1);
    node.apply(update(true, "a", 0, 5)).unwrap();
    node.apply(update(true, "b", 0, 1)).unwrap();
}

#[test]
fn a_deleted_volume_does_not_exist_while_it_is_erased_nor_keeps_its_name() {
    let mut node = ReportedNode::of("n1");
    let mut full = update(true, "a", 0, 1);
    full.volumes.push(volume("v", "ready"));
    node.apply(full).unwrap();
    assert_eq!(node.catalog.named("v").len(), 1);
    for state in ["erasing", "quarantined"] {
        let mut delta = update(false, "a", 0, node.inventory.revision() + 1);
        delta.volumes.push(volume("v", state));
        node.apply(delta).unwrap();
        assert!(node.catalog.named("v").is_empty());
        assert_eq!(node.listed(), 0);
    }
}

#[test]
fn missing_and_ambiguous_volumes_stay_listed() {
    for state in ["new", "ready", "missing", "ambiguous"] {
        let mut node = ReportedNode::of("n1");
        let mut full = update(true, "a", 0, 1);
        full.volumes.push(volume("v", state));
        node.apply(full).unwrap();
        assert_eq!(node.listed(), 1, "{state}");
    }
}

#[test]
fn volumes_with_a_move_are_known_without_decoding_any() {
    let mut node = ReportedNode::of("n1");
    let mut full = update(true, "a", 0, 1);
    let condition = |reason: &str, abnormal| drivebay_proto::agent::Condition {
        abnormal,
        reason: reason.into(),
        ..Default::default()
    };
    let volumes = [
        (None, false),
        (Some(condition("VolumeMoving", false)), false),
        (Some(condition("MoveInDoubt", true)), false),
        (Some(condition("DriveSuspect", true)), false),
        (None, true),
    ];
    let uuid = |n: usize| Uuid::from_u128(n as u128);
    let volumes = volumes
        .into_iter()
        .enumerate()
        .map(|(n, (reported, has_place))| {
            let place = has_place.then(Default::default);
            Volume {
                id: format!("{}@n1", uuid(n)),
                conditions: reported.into_iter().collect(),
                places: place.into_iter().collect(),
                ..volume("v", "ready")
            }
        });
    full.volumes = volumes.collect();
    node.apply(full).unwrap();
    let expected = [1, 2, 4].map(uuid);
    assert_eq!(node.inventory.with_moves(), expected.into());
    assert_eq!(node.inventory.counts().troubled, 2);
}

#[test]
fn a_restarted_agent_does_not_empty_the_list_before_it_has_scanned() {
    let mut node = ReportedNode::of("n1");
    let mut full = update(true, "a", 0, 7);
    full.volumes.push(volume("v", "ready"));
    node.apply(full).unwrap();
    let mut first = update(true, "b", 0, 1);
    first.ready = false;
    node.apply(first).unwrap();
    assert_eq!(node.listed(), 1);
    assert!(node.inventory.has_inventory() && !node.inventory.complete());
    assert!(!node.inventory.includes("a", 7));
    node.apply(update(false, "b", 1, 2)).unwrap();
    assert!(node.inventory.complete());
    assert_eq!(node.listed(), 0);
}

#[test]
fn a_foreign_id_is_not_taken_in() {
    let mut node = ReportedNode::of("other");
    let mut full = update(true, "a", 0, 1);
    full.volumes.push(volume("v", "ready"));
    let foreign = node.apply(full).unwrap();
    assert_eq!((foreign.count, foreign.example.as_str()), (1, ID));
    assert_eq!(node.listed(), 0);
}

#[test]
fn an_acknowledged_change_is_included_from_its_revision_on() {
    let mut node = ReportedNode::of("n1");
    node.apply(update(true, "a", 0, 3)).unwrap();
    assert!(node.inventory.includes("a", 3));
    assert!(!node.inventory.includes("a", 4));
    assert!(node.inventory.includes("before", 400));
}

#[test]
fn what_is_dumped_gives_the_same_inventory_again_and_clearing_leaves_nothing() {
    let mut node = ReportedNode::of("n1");
    let mut full = update(true, "a", 0, 3);
    full.volumes.push(volume("v", "ready"));
    full.drives.push(Drive {
        id: "d".into(),
        ..Drive::default()
    });
    full.classes.push(Class {
        name: "hdd".into(),
        ..Class::default()
    });
    node.apply(full).unwrap();
    let dumped = node.inventory.dump(&node.catalog).unwrap();
    let mut again = ReportedNode::of("n1");
    again.apply(dumped.clone()).unwrap();
    assert_eq!(again.inventory.dump(&again.catalog), Some(dumped));
    again.inventory.clear(&again.catalog);
    assert!(again.catalog.is_empty() && !again.inventory.has_inventory());
}

#[test]
fn a_snapshot_that_arrives_in_parts_is_shown_when_it_is_whole_and_not_mixed_up_with_the_former_one()
{
    let mut node = ReportedNode::of("n1");
    node.apply(InventoryUpdate {
        volumes: vec![volume("old", "ready")],
        ..update(true, "a", 0, 7)
    })
    .unwrap();
    let other = "00000000-0000-4000-8000-000000000002@n1";
    let part = |full, name: &str, id: &str, ready| InventoryUpdate {
        volumes: vec![Volume {
            id: id.into(),
            ..volume(name, "ready")
        }],
        ready,
        ..update(full, "b", if full { 0 } else { 3 }, 3)
    };
    node.apply(part(true, "new", other, false)).unwrap();
    assert!(!node.inventory.complete() && !node.inventory.includes("b", 3));
    let kept = node.inventory.dump(&node.catalog).unwrap();
    assert_eq!((kept.instance.as_str(), kept.revision), ("a", 7));
    assert_eq!(
        (kept.volumes.len(), kept.volumes[0].name.as_str()),
        (1, "old")
    );
    assert_eq!(node.inventory.shown(), ("a", 7));

    // The stream ended: the partial snapshot is dropped, and the next one starts from scratch.
    node.inventory.away(Instant::now());
    node.apply(part(true, "new", ID, false)).unwrap();
    node.apply(part(false, "newer", other, true)).unwrap();
    assert!(node.inventory.includes("b", 3));
    assert_eq!((node.listed(), node.inventory.shown()), (2, ("b", 3)));
    assert!(node.catalog.named("old").is_empty());
}

#[test]
fn host_findings_are_shown_until_the_agent_reports_others() {
    let lost = Finding {
        code: "StateLost".into(),
        message: "known.json.bad-1".into(),
        ..Finding::default()
    };
    let mut node = ReportedNode::of("n1");
    node.apply(InventoryUpdate {
        findings: vec![lost.clone()],
        ..update(true, "a", 0, 1)
    })
    .unwrap();
    assert_eq!(node.inventory.findings(), std::slice::from_ref(&lost));
    let dumped = node.inventory.dump(&node.catalog).unwrap();
    assert_eq!(
        dumped.findings,
        std::slice::from_ref(&lost),
        "also to the node's file"
    );
    // A partial delta has no findings, and does not clear them.
    let part = InventoryUpdate {
        ready: false,
        ..update(false, "a", 1, 1)
    };
    node.apply(part).unwrap();
    assert_eq!(node.inventory.findings(), std::slice::from_ref(&lost));
    node.apply(update(false, "a", 1, 2)).unwrap();
    assert_eq!(node.inventory.findings(), []);
    let mut endless = update(false, "a", 2, 3);
    endless.findings = vec![lost; 4096];
    assert!(node.apply(endless).is_err());
}

fn many(range: std::ops::Range<usize>) -> Vec<Volume> {
    let id = |n| format!("00000000-0000-4000-8000-{n:012}@n1");
    range
        .map(|n| Volume {
            id: id(n),
            ..volume("v", "ready")
        })
        .collect()
}

#[test]
fn what_is_beyond_a_bound_is_refused_and_changes_nothing() {
    let mut node = ReportedNode::of("n1");
    node.apply(InventoryUpdate {
        volumes: many(0..bounds::MAX_VOLUMES),
        ..update(true, "a", 0, 1)
    })
    .unwrap();
    let drives = (0..bounds::MAX_DRIVES + 1).map(|n| Drive {
        id: n.to_string(),
        ..Drive::default()
    });
    let classes = (0..bounds::MAX_CLASSES + 1).map(|n| Class {
        name: n.to_string(),
        ..Class::default()
    });
    let large = |bytes| Volume {
        name: "x".repeat(bytes),
        ..many(0..1).remove(0)
    };
    for (bound, beyond) in [
        (
            Bound::Volumes,
            InventoryUpdate {
                volumes: many(bounds::MAX_VOLUMES..bounds::MAX_VOLUMES + 1),
                ..update(false, "a", 1, 2)
            },
        ),
        (
            Bound::Volumes,
            InventoryUpdate {
                volumes: many(0..bounds::MAX_VOLUMES + 1),
                ready: false,
                ..update(true, "b", 0, 1)
            },
        ),
        (
            Bound::Drives,
            InventoryUpdate {
                drives: drives.collect(),
                ..update(false, "a", 1, 2)
            },
        ),
        (
            Bound::Classes,
            InventoryUpdate {
                classes: classes.collect(),
                ..update(false, "a", 1, 2)
            },
        ),
        (
            Bound::Bytes,
            InventoryUpdate {
                volumes: vec![large(bounds::MAX_VOLUME_BYTES)],
                ..update(false, "a", 1, 2)
            },
        ),
    ] {
        assert_eq!(node.apply(beyond), Err(bound.into()));
        assert_eq!(node.listed(), bounds::MAX_VOLUMES);
        assert_eq!(node.inventory.shown(), ("a", 1));
        assert!(node.inventory.complete());
    }
    // A removed volume makes space for another one.
    node.apply(InventoryUpdate {
        removed_volumes: vec![many(0..1).remove(0).id],
        volumes: many(bounds::MAX_VOLUMES..bounds::MAX_VOLUMES + 1),
        ..update(false, "a", 1, 2)
    })
    .unwrap();
}

#[test]
fn what_a_node_holds_is_counted_over_all_its_updates() {
    for ready in [true, false] {
        let mut node = ReportedNode::of("n1");
        let large = |n: usize| InventoryUpdate {
            ready,
            volumes: vec![Volume {
                name: "x".repeat(bounds::MAX_VOLUME_BYTES - 2048),
                ..many(n..n + 1).remove(0)
            }],
            ..update(n == 0, "a", n as u64, n as u64 + 1)
        };
        let taken = (0..2000)
            .take_while(|n| node.apply(large(*n)).is_ok())
            .count();
        let expected = bounds::MAX_NODE_BYTES / bounds::MAX_VOLUME_BYTES;
        assert!((expected..expected + 50).contains(&taken), "{taken}");
        // Sending the same ones again does not increase the total.
        let mut again = large(taken - 1);
        (again.since_revision, again.revision) = (taken as u64, taken as u64 + 1);
        node.apply(again).unwrap();
    }
}

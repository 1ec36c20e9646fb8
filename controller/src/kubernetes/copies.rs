//! Events for volumes on two nodes: for those Nodes, and for the claims whose PersistentVolumes name one of the copies. Pure.
//!
//! Each event is created once, and again when the nodes, drives or generations change. Whether an agent is connected does not matter.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::units::count;
use drivebay_proto::VolumeId;

use super::notices::{MAX_CLAIMS, Notice, Object};
use drivebay_service::{agents::copies::SharedVolume, catalog::Node, expected::ExpectedVolume};

const REASON: &str = "VolumeOnTwoNodes";
/// Largest number of other nodes that a Node's event names.
const MAX_NODES: usize = 4;

/// A volume on two nodes.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) volume: SharedVolume,
    /// The PersistentVolumes that name one of its copies, each with the volume id in it.
    pub(super) expected: Vec<(VolumeId, ExpectedVolume)>,
}

/// Returns the events that are due: first those for Nodes, which count all their volumes, then at most [`MAX_CLAIMS`] for claims.
pub(super) fn due(shared: &[Shared]) -> Vec<Notice> {
    let mut by_node: BTreeMap<&Node, Vec<&SharedVolume>> = BTreeMap::new();
    for Shared { volume, .. } in shared {
        for (node, ..) in &volume.copies {
            by_node.entry(node).or_default().push(volume);
        }
    }
    let of_nodes = by_node.into_iter().map(|(node, all)| of_node(node, &all));
    let of_claims = shared.iter().flat_map(of_claims).take(MAX_CLAIMS);
    of_nodes.chain(of_claims).collect()
}

fn of_node(node: &Node, volumes: &[&SharedVolume]) -> Notice {
    let copies = volumes.iter().flat_map(|volume| &volume.copies);
    let others: BTreeSet<&Node> = copies
        .map(|(other, ..)| other)
        .filter(|other| *other != node)
        .collect();
    let others: Vec<&str> = others
        .iter()
        .take(MAX_NODES)
        .map(|other| &***other)
        .collect();
    let note = format!(
        "node {node} has {} that another node has, too ({}). Drivebay refuses no copy; drivebay-controller health says of each volume which copy is the newer, and which drive to detach",
        count(volumes.len(), "volume"),
        others.join(", ")
    );
    let of: Vec<String> = volumes.iter().flat_map(|volume| identity(volume)).collect();
    notice(Object::Node(node.to_string()), &note, &of)
}

fn of_claims(shared: &Shared) -> impl Iterator<Item = Notice> {
    let Shared { volume, expected } = shared;
    expected.iter().filter_map(|(id, expected)| {
        let note = format!(
            "PersistentVolume {} is volume {id}: pods of this claim get what node {} has, and Drivebay refuses no copy. {}",
            expected.pv, id.node, volume.details
        );
        let claim = expected.claim.clone()?;
        Some(notice(Object::Claim(claim), &note, &identity(volume)))
    })
}

fn notice(object: Object, note: &str, of: &[String]) -> Notice {
    let of: Vec<&str> = of.iter().map(String::as_str).collect();
    Notice::new(object, REASON, note, &of)
}

/// Returns the text that identifies an event of the volume: one with the same identity was created already.
fn identity(volume: &SharedVolume) -> Vec<String> {
    let newer = volume.newer.as_deref().unwrap_or_default();
    let mut parts = vec![volume.uuid.to_string(), newer.to_owned()];
    for (node, drive, generation) in &volume.copies {
        parts.extend([node.to_string(), drive.clone(), generation.to_string()]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use drivebay_service::expected::ClaimedBy;
    use uuid::Uuid;

    use super::*;

    /// A volume on nodes a and b, with a PersistentVolume that names the copy of a.
    fn shared(uuid: u128, generations: [u64; 2]) -> Shared {
        let uuid = Uuid::from_u128(uuid);
        let [a, b] = generations;
        let claim = ClaimedBy {
            name: "shop/data".into(),
            uid: format!("uid-{uuid}").into(),
        };
        Shared {
            volume: SharedVolume {
                uuid,
                copies: vec![
                    ("a".into(), "wwn-a".into(), a),
                    ("b".into(), "wwn-b".into(), b),
                ],
                newer: Some("b".into()),
                details: "2 nodes have this volume: node b on drive sdb (serial S-b), generation 2, ready; node a on drive sda (serial S-a), generation 1, ready; that of node b is the newer: use no other".into(),
            },
            expected: vec![(
                VolumeId {
                    uuid,
                    node: "a".into(),
                },
                ExpectedVolume {
                    pv: "pvc-1".into(),
                    claim: Some(claim),
                },
            )],
        }
    }

    fn digests(shared: &[Shared]) -> Vec<String> {
        due(shared).into_iter().map(|one| one.digest).collect()
    }

    #[test]
    fn the_claim_and_both_nodes_get_a_warning_with_the_copy_in_use_and_what_to_do() {
        let due = due(&[shared(1, [1, 2])]);
        let [of_a, of_b, of_claim] = due.try_into().unwrap();
        for (notice, node, other) in [(&of_a, "a", "b"), (&of_b, "b", "a")] {
            assert_eq!(notice.object, Object::Node(node.into()));
            assert_eq!(
                notice.note,
                format!(
                    "node {node} has 1 volume that another node has, too ({other}). Drivebay refuses no copy; drivebay-controller health says of each volume which copy is the newer, and which drive to detach"
                )
            );
        }
        assert!(matches!(&of_claim.object, Object::Claim(claim) if &*claim.name == "shop/data"));
        assert_eq!(
            of_claim.note,
            "PersistentVolume pvc-1 is volume 00000000-0000-0000-0000-000000000001@a: pods of this claim get what node a has, and Drivebay refuses no copy. 2 nodes have this volume: node b on drive sdb (serial S-b), generation 2, ready; node a on drive sda (serial S-a), generation 1, ready; that of node b is the newer: use no other"
        );
        for notice in [of_a, of_b, of_claim] {
            assert_eq!((notice.reason, notice.is_warning), (REASON, true));
        }
    }

    #[test]
    fn each_is_reported_once_until_the_copies_are_others() {
        let before = shared(1, [1, 2]);
        let reported = digests(std::slice::from_ref(&before));
        let mut reworded = before.clone();
        reworded.volume.details = "node b is not read now".into();
        assert_eq!(digests(&[reworded]), reported);
        let mut other_drive = before.clone();
        other_drive.volume.copies[1].1 = "wwn-c".into();
        let mut other_newer = before;
        other_newer.volume.newer = None;
        for changed in [shared(1, [3, 2]), other_drive, other_newer] {
            let now = digests(&[changed]);
            assert!(
                now.iter().all(|digest| !reported.contains(digest)),
                "{now:?}"
            );
        }
    }

    #[test]
    fn many_volumes_are_one_event_of_each_node_and_some_of_claims() {
        let many: Vec<Shared> = (0..300).map(|uuid| shared(uuid, [1, 2])).collect();
        let all = due(&many);
        assert_eq!(all.len(), 2 + MAX_CLAIMS);
        assert!(all[0].note.contains("300 volumes"), "{}", all[0].note);
        // Without a claim or a PersistentVolume only the Nodes get an event.
        let mut unclaimed = [shared(1, [1, 2]), shared(2, [1, 2])];
        unclaimed[0].expected[0].1.claim = None;
        unclaimed[1].expected.clear();
        assert_eq!(due(&unclaimed).len(), 2);
    }
}

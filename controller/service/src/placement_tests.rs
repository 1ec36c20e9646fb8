//! Placement, by tables and with random input.

use std::collections::BTreeMap;

use drivebay_csi::{Content, validate::SizeRange};
use drivebay_proto::{
    agent::{Class, CreatedFor},
    csi::Topology,
};
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn key() -> TopologyKey {
    TopologyKey::new("d")
}

fn class(name: &str, largest: u64) -> (String, Class) {
    let class = Class {
        name: name.into(),
        free_bytes: largest,
        largest_volume_bytes: largest,
        smallest_volume_bytes: MIB,
        extent_bytes: MIB,
        fs_type: "ext4".into(),
        ..Class::default()
    };
    (name.into(), class)
}

fn node(id: &str, classes: &[(&str, u64)]) -> Node {
    Node {
        id: id.into(),
        presence: Presence::There,
        classes: classes
            .iter()
            .map(|(name, largest)| class(name, *largest))
            .collect::<BTreeMap<_, _>>()
            .into(),
    }
}

fn away(mut node: Node) -> Node {
    node.presence = Presence::Coming;
    node
}

fn gone(mut node: Node) -> Node {
    node.presence = Presence::Gone;
    node
}

fn want(class: Option<&str>, required: u64) -> NewVolume {
    NewVolume {
        name: "v".to_owned(),
        class: class.map(str::to_owned),
        content: Content::mount(None),
        range: SizeRange {
            required,
            limit: None,
        },
        source: None,
        parameters: BTreeMap::new(),
        created_for: CreatedFor::default(),
        manual: false,
    }
}

fn on(nodes: &[&str]) -> Vec<Topology> {
    nodes.iter().map(|node| key().of(node)).collect()
}

fn requirements(requisite: &[&str], preferred: &[&str]) -> Option<TopologyRequirement> {
    Some(TopologyRequirement {
        requisite: on(requisite),
        preferred: on(preferred),
    })
}

fn nodes_of(
    want: &NewVolume,
    topology: Option<TopologyRequirement>,
    nodes: &[Node],
) -> Result<Vec<String>, PlacementError> {
    let choices = place(want, topology.as_ref(), &key(), nodes)?;
    Ok(choices.into_iter().map(|choice| choice.node).collect())
}

#[test]
fn preference_comes_before_room_and_room_before_the_name() {
    let nodes = [
        node("a", &[("hdd", 10 * GIB)]),
        node("b", &[("hdd", 30 * GIB)]),
        node("c", &[("hdd", 20 * GIB)]),
        node("full", &[("hdd", 0)]),
        node("other", &[("nvme", 90 * GIB)]),
    ];
    let want = want(Some("hdd"), GIB);
    let all = ["a", "b", "c", "full", "other"];
    for (topology, expected) in [
        (None, vec!["b", "c", "a"]),
        (requirements(&[], &[]), vec!["b", "c", "a"]),
        (requirements(&["a", "c"], &[]), vec!["c", "a"]),
        (requirements(&all, &["a", "b"]), vec!["a", "b", "c"]),
        (requirements(&["c"], &["c"]), vec!["c"]),
        (requirements(&[], &["full", "a"]), vec!["a", "b", "c"]),
    ] {
        let got = nodes_of(&want, topology.clone(), &nodes);
        let expected = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(got, Ok(expected), "{topology:?}");
    }
}

#[test]
fn no_room_reports_the_required_and_the_available_size() {
    let nodes = [node("a", &[("hdd", GIB)]), node("b", &[("hdd", 2 * GIB)])];
    let error = nodes_of(&want(Some("hdd"), 3 * GIB), None, &nodes);
    assert_eq!(
        error,
        Err(PlacementError::NoRoom {
            class: "hdd".into(),
            needed: 3 * GIB,
            largest: 2 * GIB,
            node: "b".into()
        })
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "no node has room in class \"hdd\": 3 GiB are needed, and the largest that would fit is 2 GiB, on node b"
    );
}

#[test]
fn the_only_node_is_queried_even_if_it_reported_no_room() {
    let nodes = [node("a", &[("hdd", 0)]), node("b", &[("hdd", 2 * GIB)])];
    let got = nodes_of(
        &want(Some("hdd"), GIB),
        requirements(&["a"], &["a"]),
        &nodes,
    );
    assert_eq!(got, Ok(vec!["a".into()]));
}

#[test]
fn what_an_absent_agent_might_have_is_not_denied() {
    let there = node("a", &[("hdd", 0)]);
    let gone = away(node("b", &[("hdd", 9 * GIB)]));
    let never_scanned = away(node("c", &[]));
    let not_ready = |nodes: &[&str]| {
        Err(PlacementError::NotReady {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        })
    };
    let hdd = want(Some("hdd"), GIB);
    let ssd = want(Some("ssd"), GIB);
    assert_eq!(nodes_of(&hdd, None, &[]), not_ready(&[]));
    assert_eq!(
        nodes_of(&hdd, None, &[there.clone(), gone.clone()]),
        not_ready(&["b"])
    );
    let both = [there.clone(), gone];
    assert_eq!(
        nodes_of(&hdd, requirements(&["b"], &[]), &both),
        not_ready(&["b"])
    );
    let both = [there.clone(), never_scanned];
    assert_eq!(nodes_of(&ssd, None, &both), not_ready(&["c"]));
    assert_eq!(nodes_of(&want(None, GIB), None, &both), not_ready(&["c"]));
}

#[test]
fn a_class_is_named_or_the_only_one() {
    let one = [node("a", &[("hdd", GIB)])];
    let two = [node("a", &[("hdd", GIB)]), node("b", &[("ssd", GIB)])];
    assert_eq!(nodes_of(&want(None, MIB), None, &one), Ok(vec!["a".into()]));
    assert!(matches!(
        nodes_of(&want(None, MIB), None, &two),
        Err(PlacementError::ClassNotNamed { classes }) if classes == ["hdd", "ssd"]
    ));
    assert!(matches!(
        nodes_of(&want(Some("tape"), MIB), None, &two),
        Err(PlacementError::UnknownClass { classes, .. }) if classes == ["hdd", "ssd"]
    ));
    assert!(matches!(
        nodes_of(&want(Some("ssd"), MIB), requirements(&["a"], &[]), &two),
        Err(PlacementError::ClassNotThere { .. })
    ));
    assert!(matches!(
        nodes_of(&want(None, MIB), None, &[node("a", &[])]),
        Err(PlacementError::ClassNotNamed { .. })
    ));
}

#[test]
fn a_topology_of_others_contains_no_node_of_ours() {
    let nodes = [node("a", &[("hdd", GIB)])];
    let zone = Topology {
        segments: [("topology.kubernetes.io/zone".into(), "z".into())].into(),
    };
    let mut both = key().of("a");
    both.segments.extend(zone.segments.clone());
    for topology in [zone, both, key().of("elsewhere")] {
        let requirement = TopologyRequirement {
            requisite: vec![topology],
            preferred: vec![],
        };
        let got = nodes_of(&want(Some("hdd"), MIB), Some(requirement), &nodes);
        assert_eq!(got, Err(PlacementError::NoSuchNode));
    }
}

#[test]
fn the_filesystem_of_the_class_sets_the_smallest_size() {
    let mut xfs = node("a", &[("hdd", GIB)]);
    if let Some(class) = std::sync::Arc::make_mut(&mut xfs.classes).get_mut("hdd") {
        class.fs_type = "xfs".into();
    }
    let mut wanted = want(Some("hdd"), MIB);
    let bytes = |want: &NewVolume| {
        place(want, None, &key(), std::slice::from_ref(&xfs)).map(|choices| choices[0].bytes)
    };
    assert_eq!(bytes(&wanted), Ok(300 * MIB));
    wanted.range.limit = Some(299 * MIB);
    assert!(matches!(bytes(&wanted), Err(PlacementError::Size(_))));
    wanted.content = Content::Block;
    assert_eq!(bytes(&wanted), Ok(MIB));
}

proptest! {
    #[test]
    fn every_choice_is_allowed_available_and_has_the_room(
        shelves in prop::collection::vec((any::<bool>(), prop::option::of(0u64..64), prop::option::of(0u64..64)), 0..8),
        requisite in prop::collection::vec(0usize..10, 0..4),
        preferred in prop::collection::vec(0usize..10, 0..4),
        named in prop::option::of(prop::sample::select(vec!["hdd", "ssd", "tape"])),
        gib in 0u64..64,
    ) {
        let nodes: Vec<Node> = shelves.iter().enumerate().map(|(i, (available, hdd, ssd))| {
            let mut classes = Vec::new();
            if let Some(gib) = hdd { classes.push(("hdd", gib * GIB)); }
            if let Some(gib) = ssd { classes.push(("ssd", gib * GIB)); }
            Node { presence: if *available { Presence::There } else { Presence::Coming }, ..node(&i.to_string(), &classes) }
        }).collect();
        let name = |all: &[usize]| all.iter().map(|i| key().of(&i.to_string())).collect::<Vec<_>>();
        let topology = TopologyRequirement { requisite: name(&requisite), preferred: name(&preferred) };
        let want = want(named, gib * GIB);
        match place(&want, Some(&topology), &key(), &nodes) {
            Ok(choices) => {
                prop_assert!(!choices.is_empty());
                let mut last = None;
                for choice in &choices {
                    let node = nodes.iter().find(|node| node.id == choice.node);
                    prop_assert!(node.is_some_and(|node| node.presence == Presence::There));
                    prop_assert!(key().allows(Some(&topology), &choice.node));
                    let report = node.and_then(|node| node.classes.get(&choice.class));
                    let room = report.map(|report| report.largest_volume_bytes);
                    prop_assert!(room.is_some());
                    prop_assert!(choices.len() == 1 || room >= Some(choice.bytes));
                    prop_assert!(want.class.as_ref().is_none_or(|class| *class == choice.class));
                    prop_assert!(choice.bytes >= want.range.required);
                    let rank = key().preference(Some(&topology), &choice.node);
                    prop_assert!(last.is_none_or(|last| last <= rank));
                    last = Some(rank);
                }
            }
            // No error is final while an agent that may have it is disconnected.
            Err(PlacementError::NoRoom { .. } | PlacementError::ClassNotThere { .. }) => {
                let silent = nodes.iter().any(|node| node.presence != Presence::There && key().allows(Some(&topology), &node.id));
                prop_assert!(!silent);
            }
            Err(_) => {}
        }
    }
}

#[test]
fn a_node_that_is_gone_for_long_makes_way_for_others_and_is_not_waited_for() {
    let nodes = [
        gone(node("a", &[("hdd", 30 * GIB)])),
        node("b", &[("hdd", 10 * GIB)]),
    ];
    let want = want(Some("hdd"), GIB);
    assert_eq!(nodes_of(&want, None, &nodes), Ok(vec!["b".to_owned()]));
    let both = requirements(&["a", "b"], &["a"]);
    assert_eq!(nodes_of(&want, both, &nodes), Ok(vec!["b".to_owned()]));
    assert_eq!(
        nodes_of(&want, requirements(&["a"], &["a"]), &nodes),
        Err(PlacementError::Gone {
            nodes: vec!["a".to_owned()]
        })
    );
}

#[test]
fn equal_nodes_share_the_volumes() {
    let nodes: Vec<Node> = (0..10)
        .map(|n| node(&format!("n{n}"), &[("hdd", 10 * GIB)]))
        .collect();
    let mut firsts = BTreeMap::<String, usize>::new();
    for n in 0..1000 {
        let want = NewVolume {
            name: format!("pvc-{n}"),
            ..want(Some("hdd"), GIB)
        };
        let choices = place(&want, None, &key(), &nodes).unwrap();
        let again = place(&want, None, &key(), &nodes).unwrap();
        assert_eq!(choices, again);
        assert_eq!(choices.len(), nodes.len());
        *firsts.entry(choices[0].node.clone()).or_default() += 1;
    }
    // A fair share is 100; one in a million of fair draws is below 55 or above 152.
    assert!(
        firsts.len() == 10 && firsts.values().all(|count| (50..160).contains(count)),
        "{firsts:?}"
    );
}

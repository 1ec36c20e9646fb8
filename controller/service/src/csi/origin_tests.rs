//! Copies: fields that the source fills in, requests that contradict it, and the node of the copy.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use drivebay_csi::{status::HasCode, validate::SizeRange};
use drivebay_proto::agent::{CreatedFor, Volume};
use tonic::Code;

use super::*;
use crate::csi::test_nodes::{GIB, agents, disconnected, followed, id, key, snapshot, volume};

fn copy_of(source: Source) -> NewVolume {
    NewVolume {
        name: "copy".into(),
        class: None,
        content: Content::mount(None),
        range: SizeRange::default(),
        source: Some(source),
        parameters: BTreeMap::new(),
        created_for: CreatedFor::default(),
        manual: false,
    }
}

/// Returns `hdd` with extents of 1 MiB and `nvme` with extents of 4 MiB, both with another filesystem than the source has.
fn classes() -> BTreeMap<String, Class> {
    let class = |name: &str, extent_mib: u64| {
        let class = Class {
            name: name.into(),
            extent_bytes: extent_mib << 20,
            smallest_volume_bytes: 1 << 20,
            fs_type: "xfs".into(),
            ..Class::default()
        };
        (name.to_owned(), class)
    };
    BTreeMap::from([class("hdd", 1), class("nvme", 4)])
}

fn complete(origin: Origin, requested: NewVolume) -> Result<NewVolume, SourceError> {
    origin.complete(requested, "n1", &classes())
}

fn of_snapshot(state: &str) -> Origin {
    let snapshot = snapshot(7, "n1", state);
    Origin {
        source: Source::Snapshot(snapshot.id.clone()),
        volume: volume(1, "n1", Vec::new()),
        snapshot: Some(snapshot),
    }
}

#[test]
fn what_a_request_leaves_to_its_source_is_the_sources() {
    let request = copy_of(Source::Snapshot("as asked for".into()));
    let completed = complete(of_snapshot("ready"), request.clone()).unwrap();
    assert_eq!(completed.class.as_deref(), Some("hdd"));
    // Not that of the class.
    assert_eq!(completed.content, Content::mount(Some("ext4")));
    // The size of the snapshot: the volume was expanded since.
    assert_eq!(completed.range.required, GIB);
    assert_eq!(completed.source, Some(Source::Snapshot(id(7, "n1"))));
    let of_volume = Origin {
        source: Source::Volume(id(1, "n1")),
        snapshot: None,
        ..of_snapshot("ready")
    };
    let completed = complete(of_volume, request).unwrap();
    assert_eq!(completed.range.required, 2 * GIB);
}

#[test]
fn a_request_that_does_not_match_its_source_is_refused_with_the_values_to_use() {
    type Change = fn(&mut NewVolume);
    let rows: [(Code, &str, Change); 10] = [
        (Code::Ok, "", |r| r.class = Some("hdd".into())),
        (Code::Ok, "", |r| r.content = Content::mount(Some("ext4"))),
        (Code::Ok, "", |r| r.range.required = 3 * GIB),
        (Code::Ok, "", |r| r.range.required = GIB - 1),
        (Code::Ok, "", |r| r.range.limit = Some(GIB)),
        (Code::InvalidArgument, "ask for mount", |r| {
            r.content = Content::Block;
        }),
        (Code::InvalidArgument, "ask for ext4, or for none", |r| {
            r.content = Content::mount(Some("xfs"));
        }),
        (
            Code::InvalidArgument,
            "where there is no class \"tape\"; the classes there are hdd, nvme",
            |r| r.class = Some("tape".into()),
        ),
        (Code::OutOfRange, "required_bytes 512 MiB", |r| {
            r.range.required = GIB / 2;
        }),
        (Code::OutOfRange, "limit_bytes 512 MiB", |r| {
            r.range.limit = Some(GIB / 2);
        }),
    ];
    for (code, text, change) in rows {
        let mut request = copy_of(Source::Snapshot("s".into()));
        change(&mut request);
        let completed = complete(of_snapshot("ready"), request);
        let got = completed.as_ref().map_or_else(HasCode::code, |_| Code::Ok);
        let error = completed.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(got, code, "{error}");
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_copy_is_of_another_class_where_the_request_names_one_with_that_classs_sizes() {
    let mut request = copy_of(Source::Snapshot("s".into()));
    request.class = Some("nvme".into());
    request.range.required = GIB + 1;
    let completed = complete(of_snapshot("ready"), request).unwrap();
    assert_eq!(completed.class.as_deref(), Some("nvme"));
    assert_eq!(completed.content, Content::mount(Some("ext4")));
    assert_eq!(completed.range.required, GIB + (4 << 20));
}

#[test]
fn a_snapshot_that_is_lost_is_not_copied_and_one_of_a_newer_agent_is_that_agents_to_decide() {
    for (state, expected) in [
        ("ready", Code::Ok),
        ("overflowed", Code::FailedPrecondition),
        ("ambiguous", Code::FailedPrecondition),
        ("of-a-newer-agent", Code::Ok),
    ] {
        let request = copy_of(Source::Snapshot("s".into()));
        let completed = complete(of_snapshot(state), request);
        let got = completed.as_ref().map_or_else(HasCode::code, |_| Code::Ok);
        assert_eq!(got, expected, "{state}");
    }
}

/// Returns the node of the copy, or the code of the refusal.
fn place(
    agents: &Agents,
    source: Source,
    requirement: Option<TopologyRequirement>,
) -> Result<String, Code> {
    let resolved = resolve(agents, &key(), copy_of(source), requirement);
    let (completed, topology) = resolved.map_err(|error| error.code())?;
    let topology = topology.unwrap();
    let node = key().only_nodes(Some(&topology)).unwrap()[0].to_owned();
    let source = completed.source.unwrap();
    assert!(source.id().ends_with(&format!("@{node}")), "{source}");
    Ok(node)
}

fn nodes() -> Agents {
    let agents = agents();
    let snapshots = vec![
        snapshot(7, "n1", "ready"),
        snapshot(8, "n1", "creating"),
        snapshot(9, "n1", "overflowed"),
    ];
    let copying = Volume {
        state: "copying".into(),
        ..volume(2, "n1", Vec::new())
    };
    let all = vec![volume(1, "n1", snapshots), copying];
    followed(&agents, "n1", all);
    followed(&agents, "n2", Vec::new());
    let away = volume(3, "n3", vec![snapshot(6, "n3", "ready")]);
    disconnected(&agents, "n3", vec![away]);
    agents
}

#[test]
fn a_copy_is_made_on_the_node_of_its_source_and_nowhere_else() {
    let agents = nodes();
    let (snapshot, volume) = (
        |n, node| Source::Snapshot(id(n, node)),
        |n, node| Source::Volume(id(n, node)),
    );
    let only = |node| Some(key().only(node));
    for (source, requirement, expected) in [
        (snapshot(7, "n1"), None, Ok("n1")),
        (volume(1, "n1"), None, Ok("n1")),
        (snapshot(7, "n1"), only("n1"), Ok("n1")),
        (snapshot(7, "n1"), only("n2"), Err(Code::ResourceExhausted)),
        (volume(1, "n1"), only("n2"), Err(Code::ResourceExhausted)),
        // Neither id was ever returned to a caller.
        (snapshot(8, "n1"), None, Err(Code::NotFound)),
        (volume(2, "n1"), None, Err(Code::NotFound)),
        (snapshot(9, "n1"), None, Err(Code::FailedPrecondition)),
        (snapshot(1, "n1"), None, Err(Code::NotFound)),
        (volume(7, "n1"), None, Err(Code::NotFound)),
        (Source::Snapshot("none".into()), None, Err(Code::NotFound)),
        (Source::Volume("none".into()), None, Err(Code::NotFound)),
        (volume(77, "n9"), None, Err(Code::NotFound)),
        // An object that may exist is not denied.
        (snapshot(6, "n3"), None, Err(Code::Unavailable)),
        (volume(3, "n3"), None, Err(Code::Unavailable)),
        (snapshot(5, "n3"), None, Err(Code::Unavailable)),
        (volume(77, "n4"), None, Err(Code::Unavailable)),
    ] {
        let got = place(&agents, source.clone(), requirement);
        assert_eq!(got.as_deref(), expected.as_ref().copied(), "{source}");
    }
    let requirement = only("n2");
    let refused = resolve(&agents, &key(), copy_of(snapshot(7, "n1")), requirement);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("has to be on node n1"), "{refused}");
}

#[test]
fn a_source_whose_drive_was_moved_is_copied_where_it_is_under_its_id_there() {
    let agents = nodes();
    // As n3 last reported it, but with the id of another node.
    let moved = volume(3, "n2", vec![snapshot(6, "n2", "ready")]);
    followed(&agents, "n2", vec![moved]);
    for source in [Source::Snapshot(id(6, "n3")), Source::Volume(id(3, "n3"))] {
        assert_eq!(place(&agents, source, None).as_deref(), Ok("n2"));
    }
}

#[test]
fn a_repeat_goes_to_the_volume_of_its_name_whatever_has_become_of_the_source() {
    let agents = nodes();
    for state in ["copying", "ready"] {
        let copy = Volume {
            name: "copy".into(),
            state: state.into(),
            size_bytes: 3 * GIB,
            source_snapshot: id(4, "n2"),
            ..volume(5, "n2", Vec::new())
        };
        followed(&agents, "n2", vec![copy]);
        // The snapshot was deleted, and its drive was on another node before.
        let source = Source::Snapshot(id(4, "n3"));
        assert_eq!(place(&agents, source.clone(), None).as_deref(), Ok("n2"));
        let only = key().only("n1");
        let refused = place(&agents, source.clone(), Some(only));
        assert_eq!(refused, Err(Code::ResourceExhausted));
        let resolved = resolve(&agents, &key(), copy_of(source), None);
        let (repeated, _) = resolved.unwrap();
        assert_eq!(repeated.range.required, 3 * GIB);
        assert_eq!(repeated.content, Content::mount(Some("ext4")));
        assert_eq!(repeated.source, Some(Source::Snapshot(id(4, "n2"))));
    }
}

#[test]
fn a_request_without_a_source_stays_as_it_is() {
    let request = NewVolume {
        source: None,
        ..copy_of(Source::Volume("v".into()))
    };
    let only = Some(key().only("n2"));
    let resolved = resolve(&nodes(), &key(), request.clone(), only.clone());
    assert_eq!(resolved.unwrap(), (request, only));
}

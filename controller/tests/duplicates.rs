//! Two volumes of one name, made by two controllers that saw different agents: which one answers, and which one is deleted.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::*;
use drivebay_csi::HealthApi;
use drivebay_proto::{VolumeId, agent::HelloRequest, encoded::controller_server::Controller};
use drivebay_service::{
    Agents, ControllerService,
    agents::{ForgottenNodes, Visitor, duplicates::chosen},
    expected::ExpectedVolume,
    in_process_channel,
    inventory::Inventory,
    notes::Notes,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

const NAME: &str = "pvc-1";

/// Returns agents with an `--away-grace` of zero, so that duplicates are due at once.
fn agents() -> Agents {
    let none = watch::Sender::new(ForgottenNodes::new()).subscribe();
    Agents::with_away_grace(none, Notes::in_memory(), Duration::ZERO)
}

async fn enter(agents: &Agents, fake: &Fake) {
    let node = fake.state.lock().unwrap().node.clone();
    let visitor = Visitor {
        channel: in_process_channel(fake.router()).into(),
        address: "here".into(),
        identity: Some(certified(&node, 1)),
        tokens: None,
        recognized: CancellationToken::new(),
        end: CancellationToken::new(),
    };
    let visiting = agents.clone();
    tokio::spawn(async move { visiting.visit(visitor, HelloRequest::default()).await });
    let complete = async {
        let is_there = || {
            let agent = agents.get(&node);
            agent.is_some_and(|agent| agent.read_inventory(Inventory::complete))
        };
        while !is_there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, complete).await.unwrap();
}

async fn made(controller: &ControllerService) -> String {
    let answer = controller.create_volume(Request::new(create(NAME))).await;
    answer.unwrap().into_inner().volume.unwrap().volume_id
}

fn states(fake: &Fake) -> Vec<String> {
    let state = fake.state.lock().unwrap();
    state
        .volumes
        .values()
        .map(|one| one.state.clone())
        .collect()
}

/// Returns two agents, each with a volume of the name that its own controller made, and a controller that sees both.
async fn two() -> (Fake, Fake, [String; 2], Agents) {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let mut ids = Vec::new();
    for (fake, at) in [(&a, 200), (&b, 100)] {
        let alone = agents();
        enter(&alone, fake).await;
        let id = made(&service(alone, HealthApi::Legacy)).await;
        fake.change(|state| {
            let volume = state.volumes.get_mut(&id).unwrap();
            (volume.state, volume.created_at) = ("new".into(), at);
        });
        ids.push(id);
    }
    let both = agents();
    enter(&both, &a).await;
    enter(&both, &b).await;
    (a, b, ids.try_into().unwrap(), both)
}

fn expect(agents: &Agents, id: &str, pv: &str) {
    let volume = ExpectedVolume {
        pv: pv.into(),
        claim: None,
    };
    agents.expect_volume(&id.parse().unwrap(), volume);
    agents.set_expected_complete();
}

/// Returns the number of due duplicates, and of deleted ones.
async fn remove(agents: &Agents) -> (usize, usize) {
    agents.find_duplicates();
    let (due, mut removed) = (agents.due_duplicates(), 0);
    for due in &due {
        removed += usize::from(agents.remove_duplicate(due).await);
    }
    (due.len(), removed)
}

#[tokio::test]
async fn a_name_that_two_volumes_have_is_answered_with_the_same_one_and_no_third_is_made() {
    let (a, b, [of_a, of_b], agents) = two().await;
    let (first, second) = (agents.clone(), self::agents());
    enter(&second, &b).await;
    enter(&second, &a).await;
    let (first, other) = (
        service(first, HealthApi::Legacy),
        service(second.clone(), HealthApi::Legacy),
    );
    // The older one, in whichever order the agents connected.
    let (one, two) = tokio::join!(made(&first), made(&other));
    assert_eq!((&one, &two), (&of_b, &of_b));
    // The one that the PersistentVolume uses.
    expect(&agents, &of_a, NAME);
    expect(&second, &of_a, NAME);
    let (one, two) = tokio::join!(made(&first), made(&other));
    assert_eq!((one, two), (of_a.clone(), of_a));
    assert_eq!((states(&a).len(), states(&b).len()), (1, 1));
}

#[tokio::test]
async fn the_volume_that_answers_stays_the_same_while_its_agent_is_away() {
    let (a, b, [_, of_b], _) = two().await;
    let agents = agents();
    enter(&agents, &b).await;
    enter(&agents, &a).await;
    let controller = service(agents.clone(), HealthApi::Legacy);
    assert_eq!(made(&controller).await, of_b);
    b.change(|state| state.generation += 1);
    b.state.lock().unwrap().mute = true;
    let gone = async {
        while agents.get("b").unwrap().read_inventory(Inventory::complete) {
            b.change(|_| ());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, gone).await.unwrap();
    let answer = controller.create_volume(Request::new(create(NAME))).await;
    assert_eq!(code(answer), Code::Unavailable);
    assert_eq!(states(&a).len(), 1);
}

#[tokio::test]
async fn a_duplicate_that_was_never_used_is_deleted_when_the_persistent_volume_uses_the_other() {
    let (a, b, [of_a, of_b], agents) = two().await;
    // PersistentVolumes are not followed.
    assert_eq!(remove(&agents).await, (0, 0));
    let duplicate_of = |id: &String| {
        let key = (&id.parse::<drivebay_proto::VolumeId>().unwrap()).into();
        agents.duplicates().of(&key)
    };
    let text = duplicate_of(&of_b).unwrap();
    assert!(
        text.contains("two volumes of one name") && text.contains(&of_a),
        "{text}"
    );
    assert!(text.contains("--kubernetes"), "{text}");

    expect(&agents, &of_a, NAME);
    assert_eq!(remove(&agents).await, (1, 1));
    assert_eq!(
        (states(&a), states(&b)),
        (vec!["new".into()], vec!["erasing".into()])
    );
    let calls = b.state.lock().unwrap().calls.clone();
    assert!(
        calls.contains(&format!("delete unused {of_b} {NAME}")),
        "{calls:?}"
    );
    agents.find_duplicates();
    assert!(duplicate_of(&of_a).is_none() && duplicate_of(&of_b).is_none());
}

#[tokio::test]
async fn a_duplicate_that_was_used_between_finding_and_removing_stays() {
    let (_, b, [of_a, of_b], agents) = two().await;
    expect(&agents, &of_a, NAME);
    agents.find_duplicates();
    let due = agents.due_duplicates();
    // It is staged, and the controller gets the update.
    b.change(|state| state.volumes.get_mut(&of_b).unwrap().published = true);
    let key = (&of_b.parse::<drivebay_proto::VolumeId>().unwrap()).into();
    let heard = async {
        while !agents.catalog().get(&key).unwrap().published {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, heard).await.unwrap();
    assert!(!agents.remove_duplicate(&due[0]).await);
    assert_eq!(states(&b), ["new"]);
}

#[tokio::test]
async fn a_duplicate_that_its_agent_refuses_to_delete_stays() {
    let (_, b, [of_a, _], agents) = two().await;
    expect(&agents, &of_a, NAME);
    b.trouble(Trouble::Refuse(Code::FailedPrecondition));
    assert_eq!(remove(&agents).await, (1, 0));
    assert_eq!(states(&b), ["new"]);
}

/// Returns a controller with one volume that two nodes have.
async fn one_on_two(generations: [u64; 2]) -> (Fake, Fake, Agents) {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let both = agents();
    for (fake, node, generation) in [(&a, "a", generations[0]), (&b, "b", generations[1])] {
        fake.change(|state| {
            let mut volume = volume(7, node);
            volume.generation = generation;
            volume.state = "ready".into();
            state.volumes.insert(volume.id.clone(), volume);
        });
        enter(&both, fake).await;
    }
    (a, b, both)
}

#[tokio::test]
async fn one_volume_on_two_nodes_is_served_under_both_ids_and_both_generations_are_named() {
    let (_a, _b, agents) = one_on_two([2, 1]).await;
    agents.find_copies();
    assert_eq!(agents.volumes_on_two_nodes(), 1);
    let shared = agents.shared_volumes();
    assert_eq!(shared.len(), 1);
    assert_eq!(shared[0].newer.as_deref(), Some("a"));
    assert_eq!(agents.expected_copies(&shared[0]), []);
    let of_b = volume(7, "b").id;
    expect(&agents, &of_b, NAME);
    let [(id, expected)] = agents.expected_copies(&shared[0]).try_into().unwrap();
    assert_eq!((id.to_string(), &*expected.pv), (of_b, NAME));
    let uuid = volume(7, "a").id.parse::<VolumeId>().unwrap().uuid;
    let message = agents.other_copy(uuid).unwrap();
    for part in [
        "node a on drive",
        "generation 2",
        "node b on drive",
        "generation 1",
        "that of node a is the newer",
    ] {
        assert!(message.contains(part), "{message}");
    }
    for (node, generation) in [("a", 2), ("b", 1)] {
        let reported = agents.volume(&volume(7, node).id).unwrap();
        assert_eq!(
            (reported.agent.node(), reported.volume.generation),
            (node, generation)
        );
    }
    // The volume of the name is the one of the higher generation, independent of the node's id.
    let (_c, _d, agents) = one_on_two([1, 2]).await;
    let name = volume(7, "a").name;
    let all = agents.candidates(&name);
    let chosen = chosen(&name, &all, |_| true).unwrap();
    assert_eq!(&*chosen.key.node, "b");
}

#[tokio::test]
async fn a_node_that_is_cut_off_is_not_replaced_by_one_that_has_an_older_copy() {
    for (generations, is_found) in [([2, 1], false), ([2, 2], true), ([1, 2], true)] {
        let (_a, _b, agents) = one_on_two(generations).await;
        let id = volume(7, "a").id.parse().unwrap();
        assert_eq!(agents.elsewhere(&id).is_some(), is_found);
    }
}

//! Unanswered creates, with other nodes available: no other node gets a second volume unless an operator forgets the first one.

#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::*;
use drivebay_csi::HealthApi;
use drivebay_proto::{agent::HelloRequest, encoded::controller_server::Controller};
use drivebay_service::{
    Agents, ControllerService,
    agents::{ForgottenNodes, Visitor},
    in_process_channel,
    inventory::Inventory,
    notes::Notes,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

// Admits an agent, and waits until its inventory is complete; cancelling the result ends the session.
async fn enter(agents: &Agents, fake: &Fake) -> CancellationToken {
    let (node, end) = (
        fake.state.lock().unwrap().node.clone(),
        CancellationToken::new(),
    );
    let visitor = Visitor {
        channel: in_process_channel(fake.router()).into(),
        address: "here".into(),
        identity: Some(certified(&node, 1)),
        tokens: None,
        recognized: CancellationToken::new(),
        end: end.clone(),
    };
    let visiting = agents.clone();
    tokio::spawn(async move { visiting.visit(visitor, HelloRequest::default()).await });
    is_there(agents, &node, true).await;
    end
}

async fn is_there(agents: &Agents, node: &str, there: bool) {
    let is_complete = || {
        agents
            .get(node)
            .is_some_and(|agent| agent.read_inventory(Inventory::complete))
    };
    until(|| is_complete() == there).await;
}

async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap();
}

fn volumes(fake: &Fake) -> usize {
    fake.state.lock().unwrap().volumes.len()
}

#[tokio::test]
async fn a_volume_in_doubt_on_a_node_that_is_away_is_made_nowhere_else_until_the_node_is_given_up()
{
    let forgotten_nodes = watch::Sender::new(ForgottenNodes::new());
    let agents = Agents::new(forgotten_nodes.subscribe(), Notes::in_memory());
    // The one with more space is asked first.
    let roomy = Fake::new("roomy").with(|state| {
        state.classes = BTreeMap::from([("hdd".into(), class("hdd", 200 * GIB))]);
    });
    let other = Fake::new("other");
    let session = enter(&agents, &roomy).await;
    enter(&agents, &other).await;
    let controller = service(agents.clone(), HealthApi::Legacy);
    let create_volume = async || code(controller.create_volume(Request::new(create("v"))).await);

    roomy.change(|state| state.silent = true);
    roomy.trouble(Trouble::LoseAnswer);
    assert_eq!(create_volume().await, Code::Unavailable);
    session.cancel();
    is_there(&agents, "roomy", false).await;
    assert_eq!(create_volume().await, Code::Unavailable);
    assert_eq!(volumes(&other), 0);
    // The value of the alert, and the step of its runbook that resolves it.
    assert_eq!(agents.creates_in_doubt(), 1);

    forgotten_nodes.send_replace(ForgottenNodes::from([("roomy".to_owned(), 1)]));
    assert_eq!(agents.creates_in_doubt(), 0);
    assert_eq!(create_volume().await, Code::Ok);
    assert_eq!(volumes(&other), 1);
}

#[tokio::test]
async fn one_request_sent_to_two_controllers_at_once_makes_one_volume_though_each_sees_other_room()
{
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let room = |fake: &Fake, free: u64| {
        fake.change(|state| state.classes = BTreeMap::from([("hdd".into(), class("hdd", free))]));
    };
    let controller = async || {
        let forgotten_nodes = watch::Sender::new(ForgottenNodes::new());
        let agents = Agents::new(forgotten_nodes.subscribe(), Notes::in_memory());
        let sessions = (enter(&agents, &a).await, enter(&agents, &b).await);
        (service(agents, HealthApi::Legacy), sessions)
    };
    room(&a, 200 * GIB);
    let (first, _of_first) = controller().await;
    // The first controller gets no update about this before it is asked.
    for fake in [&a, &b] {
        fake.change(|state| state.silent = true);
    }
    room(&a, 100 * GIB);
    room(&b, 200 * GIB);
    let (second, _of_second) = controller().await;
    for fake in [&a, &b] {
        fake.state.lock().unwrap().silent = false;
    }
    let create_volume = async |controller: &ControllerService| {
        let answer = controller.create_volume(Request::new(create("v"))).await;
        answer.unwrap().into_inner().volume.unwrap().volume_id
    };
    let (one, other) = tokio::join!(create_volume(&first), create_volume(&second));
    assert_eq!(one, other);
    assert_eq!(volumes(&a) + volumes(&b), 1);
}

#[tokio::test]
async fn a_node_in_doubt_is_waited_for_though_this_process_has_never_seen_it() {
    let notes = Notes::in_memory();
    notes.doubt("v", "former").await.unwrap();
    let forgotten_nodes = watch::Sender::new(ForgottenNodes::new());
    let agents = Agents::with_away_grace(forgotten_nodes.subscribe(), notes, Duration::ZERO);
    let other = Fake::new("other");
    enter(&agents, &other).await;
    let controller = service(agents.clone(), HealthApi::Legacy);
    let create_volume =
        async |name| code(controller.create_volume(Request::new(create(name))).await);
    assert_eq!(create_volume("v").await, Code::Unavailable);
    assert_eq!(create_volume("w").await, Code::Ok);
    assert_eq!(agents.creates_in_doubt(), 1);

    let former = Fake::new("former");
    enter(&agents, &former).await;
    assert_eq!(agents.creates_in_doubt(), 0);
    assert_eq!(create_volume("v").await, Code::Ok);
    assert_eq!((volumes(&former), volumes(&other)), (1, 1));
}

#[tokio::test]
async fn a_node_in_doubt_that_disconnects_while_another_one_is_asked_is_not_skipped() {
    let notes = Notes::in_memory();
    for node in ["a", "b"] {
        notes.doubt("v", node).await.unwrap();
    }
    let forgotten_nodes = watch::Sender::new(ForgottenNodes::new());
    let agents = Agents::new(forgotten_nodes.subscribe(), notes);
    let [a, b, c] = ["a", "b", "c"].map(Fake::new);
    enter(&agents, &a).await;
    let session = enter(&agents, &b).await;
    enter(&agents, &c).await;
    let controller = service(agents.clone(), HealthApi::Legacy);
    let create_volume = async || code(controller.create_volume(Request::new(create("v"))).await);
    a.trouble(Trouble::WaitAndRefuse(Code::ResourceExhausted));
    let disconnect = async {
        until(|| !a.state.lock().unwrap().calls.is_empty()).await;
        session.cancel();
        is_there(&agents, "b", false).await;
        a.go_on();
    };
    let (answer, ()) = tokio::join!(create_volume(), disconnect);
    assert_eq!(answer, Code::Unavailable);
    assert_eq!((volumes(&a), volumes(&b), volumes(&c)), (0, 0, 0));

    enter(&agents, &b).await;
    assert_eq!(create_volume().await, Code::Ok);
    assert_eq!((volumes(&b), volumes(&c)), (1, 0));
}

#[tokio::test]
async fn a_node_in_doubt_without_the_class_is_not_asked_and_stays_in_doubt() {
    let notes = Notes::in_memory();
    for name in ["v", "w"] {
        notes.doubt(name, "a").await.unwrap();
    }
    let forgotten_nodes = watch::Sender::new(ForgottenNodes::new());
    let agents = Agents::new(forgotten_nodes.subscribe(), notes.clone());
    let hdd = || BTreeMap::from([("hdd".into(), class("hdd", 100 * GIB))]);
    let [a, b] = ["a", "b"].map(|node| {
        Fake::new(node).with(|state| {
            state.classes = BTreeMap::from([("ssd".into(), class("ssd", 100 * GIB))]);
        })
    });
    for fake in [&a, &b] {
        enter(&agents, fake).await;
    }
    let controller = service(agents.clone(), HealthApi::Legacy);
    let create_volume = async |name| {
        let mut request = create(name);
        request.parameters = [("class".into(), "hdd".into())].into();
        code(controller.create_volume(Request::new(request)).await)
    };
    let gets_class = async |fake: &Fake, node: &str| {
        fake.change(|state| state.classes = hdd());
        until(|| {
            let agent = agents.get(node).unwrap();
            agent.read_inventory(|inventory| inventory.classes().contains_key("hdd"))
        })
        .await;
    };
    assert_eq!(create_volume("v").await, Code::InvalidArgument);
    // All drives of the node are scanned, and none has the volume: another node may make it.
    gets_class(&b, "b").await;
    assert_eq!(create_volume("w").await, Code::Ok);
    assert_eq!((volumes(&a), volumes(&b)), (0, 1));
    assert!(a.state.lock().unwrap().calls.is_empty());
    // With the class, it is asked first again.
    for name in ["v", "w"] {
        assert_eq!(notes.doubts(name), ["a".into()].into());
    }
    gets_class(&a, "a").await;
    assert_eq!(create_volume("v").await, Code::Ok);
    assert_eq!((volumes(&a), volumes(&b)), (1, 1));
}

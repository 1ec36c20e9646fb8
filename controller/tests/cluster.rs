//! Several nodes behind one controller: admission, lookup of volumes, creates in doubt, forgotten nodes.

#![allow(clippy::unwrap_used)]

mod common;

use std::{pin::Pin, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use common::*;
use drivebay_controller::undelivered_deletes;
use drivebay_csi::HealthApi;
use drivebay_proto::{
    agent::{Drive, HelloRequest},
    csi,
    encoded::controller_server::Controller,
};
use drivebay_service::{
    Agents, ControllerConfig, ControllerService,
    agents::{ForgottenNodes, Identity, IdentityLimit, SessionError, Visitor},
    bounds, in_process_channel,
    notes::Notes,
    refusals::Reason,
    tokens::{Answer, Expected, NotProven, Review, Tokens, Unavailable},
};
use prost::Message;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

struct Cluster {
    agents: Agents,
    forgotten_nodes: watch::Sender<ForgottenNodes>,
    service: ControllerService,
    tokens: Option<Tokens>,
}

struct Member {
    end: CancellationToken,
    ended: JoinHandle<SessionError>,
}

impl Cluster {
    fn new(notes: Notes) -> Self {
        let (forgotten_nodes, receiver) = watch::channel(ForgottenNodes::new());
        let agents = Agents::new(receiver, notes);
        let config = ControllerConfig {
            driver_name: DRIVER.into(),
            health_api: HealthApi::Legacy,
            attach: true,
        };
        Self {
            service: ControllerService::new(config, agents.clone()),
            agents,
            forgotten_nodes,
            tokens: None,
        }
    }

    fn visitor(&self, fake: &Fake, identity: Option<Identity>) -> Visitor {
        Visitor {
            channel: in_process_channel(fake.router()).into(),
            address: format!("10.0.0.{}:1", fake.state.lock().unwrap().instance.len()),
            identity,
            tokens: self.tokens.clone().map(|of| (of, IdentityLimit::new(4))),
            recognized: CancellationToken::new(),
            end: CancellationToken::new(),
        }
    }

    /// Connects an agent, which may or may not be admitted.
    fn dials(&self, fake: &Fake, identity: Option<Identity>) -> Member {
        let visitor = self.visitor(fake, identity);
        let end = visitor.end.clone();
        let agents = self.agents.clone();
        let ended =
            tokio::spawn(async move { agents.visit(visitor, HelloRequest::default()).await });
        Member { end, ended }
    }

    /// As `dials`, and waits until its inventory is complete.
    async fn join(&self, fake: &Fake) -> Member {
        self.join_as(fake, None).await
    }

    /// As `join`, with a proved identity.
    async fn join_as(&self, fake: &Fake, identity: Option<Identity>) -> Member {
        let member = self.dials(fake, identity);
        let node = fake.state.lock().unwrap().node.clone();
        let instance = fake.state.lock().unwrap().instance.clone();
        until(async || {
            self.agents.get(&node).is_some_and(|agent| {
                agent.read_inventory(|inventory| {
                    inventory.complete() && inventory.instance() == instance
                })
            })
        })
        .await;
        member
    }

    async fn get(&self, id: &str) -> Result<csi::ControllerGetVolumeResponse, tonic::Status> {
        let request = csi::ControllerGetVolumeRequest {
            volume_id: id.into(),
        };
        let answer = self.service.controller_get_volume(Request::new(request));
        answer.await.map(tonic::Response::into_inner)
    }

    async fn delete(&self, id: &str) -> Code {
        let request = csi::DeleteVolumeRequest {
            volume_id: id.into(),
            ..Default::default()
        };
        code(self.service.delete_volume(Request::new(request)).await)
    }

    async fn expand(&self, id: &str) -> Code {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: id.into(),
            capacity_range: range(2 * GIB as i64, 0),
            ..Default::default()
        };
        code(
            self.service
                .controller_expand_volume(Request::new(request))
                .await,
        )
    }

    async fn create(&self, name: &str, nodes: &[&str]) -> Result<String, tonic::Status> {
        let on = |node: &&str| csi::Topology {
            segments: [(format!("{DRIVER}/node"), (*node).to_owned())].into(),
        };
        let mut request = create(name);
        request.accessibility_requirements = Some(csi::TopologyRequirement {
            requisite: nodes.iter().map(on).collect(),
            preferred: nodes.iter().map(on).collect(),
        });
        let made = self.service.create_volume(Request::new(request)).await?;
        Ok(made.into_inner().volume.unwrap().volume_id)
    }
}

impl Member {
    async fn leave(self) {
        self.end.cancel();
        self.ended.await.unwrap();
    }

    async fn refusal(self) -> String {
        let ended = tokio::time::timeout(Duration::from_secs(10), self.ended);
        ended.await.unwrap().unwrap().to_string()
    }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap();
}

fn calls(fake: &Fake) -> Vec<String> {
    fake.state.lock().unwrap().calls.clone()
}

/// Returns the message of a volume's condition in ListVolumes; empty if it is not listed.
async fn listed(cluster: &Cluster, id: &str) -> String {
    let request = Request::new(csi::ListVolumesRequest::default());
    let list = cluster.service.list_volumes(request).await.unwrap();
    let entries = list.into_inner().entries.into_iter();
    let mut entries =
        entries.map(|bytes| csi::list_volumes_response::Entry::decode(bytes).unwrap());
    let entry = entries.find(|entry| entry.volume.as_ref().unwrap().volume_id == id);
    let condition = entry.and_then(|entry| entry.status?.volume_condition);
    condition.map_or_else(String::new, |condition| condition.message)
}

fn machine(fake: &Fake, id: &str, instance: &str) {
    let mut state = fake.state.lock().unwrap();
    id.clone_into(&mut state.machine);
    instance.clone_into(&mut state.instance);
}

#[tokio::test]
async fn a_volume_of_a_node_that_was_never_seen_is_neither_absent_nor_deleted() {
    let cluster = Cluster::new(Notes::in_memory());
    let fake = Fake::new("a");
    let _a = cluster.join(&fake).await;
    let stranger = volume(7, "b").id;
    assert_eq!(
        cluster.get(&stranger).await.unwrap_err().code(),
        Code::Unavailable
    );
    assert_eq!(cluster.delete(&stranger).await, Code::Unavailable);
    assert_eq!(cluster.expand(&stranger).await, Code::Unavailable);
    // Absence on a connected node is certain.
    let absent = volume(7, "a").id;
    assert_eq!(
        cluster.get(&absent).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(cluster.delete(&absent).await, Code::Ok);
    assert_eq!(cluster.expand(&absent).await, Code::NotFound);
}

#[tokio::test]
async fn a_volume_of_a_node_that_is_away_is_listed_and_not_deleted() {
    let cluster = Cluster::new(Notes::in_memory());
    let (one, other) = (Fake::new("a"), Fake::new("b"));
    one.put(volume(1, "a"));
    other.put(volume(2, "b"));
    let _a = cluster.join(&one).await;
    cluster.join(&other).await.leave().await;
    let id = volume(2, "b").id;
    let listed = cluster
        .service
        .list_volumes(Request::new(csi::ListVolumesRequest::default()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.entries.len(), 2);
    assert!(cluster.get(&id).await.is_ok());
    assert_eq!(cluster.delete(&id).await, Code::Unavailable);
    assert_eq!(cluster.expand(&id).await, Code::Unavailable);
    // The other node is not affected.
    assert_eq!(cluster.delete(&volume(1, "a").id).await, Code::Ok);
    let _again = cluster.join(&other).await;
    assert_eq!(cluster.delete(&id).await, Code::Ok);
}

#[tokio::test]
async fn a_moved_volume_is_found_where_it_is_and_not_deleted_under_its_former_id() {
    enum Former {
        Disconnected,
        ForgotDrive,
        DriveMissing,
    }
    for former in [
        Former::Disconnected,
        Former::ForgotDrive,
        Former::DriveMissing,
    ] {
        let cluster = Cluster::new(Notes::in_memory());
        let (from, to) = (Fake::new("a"), Fake::new("b"));
        let (was, now) = (volume(7, "a"), volume(7, "b"));
        from.put(was.clone());
        let member = cluster.join(&from).await;
        match former {
            Former::Disconnected => member.leave().await,
            Former::ForgotDrive => from.change(|state| state.volumes.clear()),
            Former::DriveMissing => {
                let mut missing = was.clone();
                missing.state = "missing".into();
                from.put(missing);
            }
        }
        to.put(now.clone());
        let member = cluster.join(&to).await;
        until(async || {
            let got = cluster.get(&was.id).await;
            got.is_ok_and(|got| {
                let condition = got.status.unwrap().volume_condition.unwrap();
                condition.message.contains("VolumeMoved")
            })
        })
        .await;

        let got = cluster.get(&was.id).await.unwrap();
        let shown = got.volume.unwrap();
        assert_eq!(shown.volume_id, was.id);
        assert_eq!(
            shown.accessible_topology[0]
                .segments
                .values()
                .next()
                .unwrap(),
            "b"
        );
        let condition = got.status.unwrap().volume_condition.unwrap();
        assert!(condition.message.contains("VolumeMoved"), "{condition:?}");
        assert_eq!(cluster.delete(&was.id).await, Code::FailedPrecondition);
        assert_eq!(cluster.expand(&was.id).await, Code::FailedPrecondition);
        assert!(calls(&to).is_empty());
        assert!(calls(&from).is_empty());
        let listed = listed(&cluster, &was.id).await;
        assert!(
            !matches!(former, Former::DriveMissing) || listed.contains("VolumeMoved"),
            "{listed}"
        );
        // Under its new id it behaves like any other volume.
        let got = cluster.get(&now.id).await.unwrap();
        assert!(!got.status.unwrap().volume_condition.unwrap().abnormal);
        // Its new node is disconnected: it may be there.
        member.leave().await;
        assert_eq!(cluster.delete(&was.id).await, Code::Unavailable);
        assert!(calls(&from).is_empty());
        let _b = cluster.join(&to).await;
        until(async || cluster.delete(&now.id).await == Code::Ok).await;
    }
}

#[tokio::test]
async fn what_was_deleted_of_a_given_up_node_is_quarantined_when_it_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(Notes::open(dir.path()).unwrap());
    let fake = Fake::new("a");
    fake.put(volume(1, "a"));
    fake.put(volume(2, "a"));
    cluster.join(&fake).await.leave().await;
    let (deleted, kept) = (volume(1, "a").id, volume(2, "a").id);
    assert_eq!(cluster.delete(&deleted).await, Code::Unavailable);

    cluster
        .forgotten_nodes
        .send_replace([("a".to_owned(), 1_700_000_000)].into());
    cluster.agents.forget_given_up();
    assert_eq!(
        cluster.get(&deleted).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(cluster.delete(&deleted).await, Code::Ok);

    // The controller restarts, then the node returns.
    let after = Cluster::new(Notes::open(dir.path()).unwrap());
    after
        .forgotten_nodes
        .send_replace(cluster.forgotten_nodes.borrow().clone());
    drop(cluster);
    let member = after.join(&fake).await;
    let stop = CancellationToken::new();
    let delivering = tokio::spawn(undelivered_deletes::deliver(
        after.agents.clone(),
        stop.clone(),
    ));
    until(async || !calls(&fake).is_empty()).await;
    assert_eq!(calls(&fake), [format!("quarantine {deleted}")]);
    assert!(after.get(&kept).await.is_ok());
    stop.cancel();
    delivering.await.unwrap();

    // It is no longer forgotten: after another disconnection it is only disconnected.
    member.leave().await;
    after.agents.forget_given_up();
    assert!(after.get(&kept).await.is_ok());
    assert_eq!(after.delete(&kept).await, Code::Unavailable);
}

#[tokio::test]
async fn a_returned_node_that_does_not_answer_delays_no_delete_of_another_one() {
    let cluster = Cluster::new(Notes::in_memory());
    let forgotten = ["a", "b"].map(|node| (node.to_owned(), 1));
    cluster.forgotten_nodes.send_replace(forgotten.into());
    let fakes = ["a", "b"].map(Fake::new);
    for (fake, node) in fakes.iter().zip(["a", "b"]) {
        fake.put(volume(1, node));
        assert_eq!(cluster.delete(&volume(1, node).id).await, Code::Ok);
    }
    let [silent, other] = fakes;
    silent.trouble(Trouble::Wait);
    let _members = (cluster.join(&silent).await, cluster.join(&other).await);
    let stop = CancellationToken::new();
    let delivering = undelivered_deletes::deliver(cluster.agents.clone(), stop.clone());
    let delivering = tokio::spawn(delivering);
    let notes = cluster.agents.notes();
    until(async || notes.undelivered_deletes("b").is_empty()).await;
    assert_eq!(notes.undelivered_deletes("a"), [volume(1, "a").id]);
    silent.go_on();
    until(async || notes.undelivered_deletes("a").is_empty()).await;
    assert_eq!(calls(&silent).len(), 1);
    stop.cancel();
    delivering.await.unwrap();
}

#[tokio::test]
async fn a_name_in_doubt_on_a_node_that_is_away_is_not_made_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(Notes::open(dir.path()).unwrap());
    let (one, other) = (Fake::new("a"), Fake::new("b"));
    let member = cluster.join(&one).await;
    let _b = cluster.join(&other).await;
    one.trouble(Trouble::LoseAnswer);
    let lost = cluster.create("v", &["a", "b"]).await.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    // The agent disconnects without having reported the volume.
    one.state.lock().unwrap().silent = true;
    member.leave().await;
    let after = Cluster::new(Notes::open(dir.path()).unwrap());
    let _b = after.join(&other).await;
    let _away = after.join(&Fake::new("a")).await.leave().await;
    for cluster in [&cluster, &after] {
        let doubt = cluster.create("v", &["a", "b"]).await.unwrap_err();
        assert_eq!(doubt.code(), Code::Unavailable, "{doubt:?}");
        assert!(doubt.message().contains("node a"), "{doubt:?}");
    }
    assert!(calls(&other).is_empty());

    one.state.lock().unwrap().silent = false;
    let _a = after.join(&one).await;
    let id = after.create("v", &["a", "b"]).await.unwrap();
    assert!(id.ends_with("@a"));
    assert_eq!(one.state.lock().unwrap().volumes.len(), 1);
    assert!(calls(&other).is_empty());
}

#[tokio::test]
async fn a_name_that_was_never_sent_to_the_node_that_is_away_is_made_elsewhere() {
    let cluster = Cluster::new(Notes::in_memory());
    let (one, other) = (Fake::new("a"), Fake::new("b"));
    cluster.join(&one).await.leave().await;
    let _b = cluster.join(&other).await;
    let id = cluster.create("v", &["a", "b"]).await.unwrap();
    assert!(id.ends_with("@b"));
    assert!(calls(&one).is_empty());
}

#[tokio::test]
async fn a_name_in_doubt_is_requested_from_its_node_again_even_when_it_reports_no_room() {
    let cluster = Cluster::new(Notes::in_memory());
    let (one, other) = (Fake::new("a"), Fake::new("b"));
    let _a = cluster.join(&one).await;
    let _b = cluster.join(&other).await;
    one.trouble(Trouble::Refuse(Code::Aborted));
    assert!(cluster.create("v", &["a", "b"]).await.is_err());
    one.change(|state| state.classes.get_mut("hdd").unwrap().largest_volume_bytes = 0);
    until(async || {
        let agent = cluster.agents.get("a").unwrap();
        agent.read_inventory(|inventory| inventory.classes()["hdd"].largest_volume_bytes == 0)
    })
    .await;
    // The agent's own answer that it has no space is final; only then the other node is asked.
    let id = cluster.create("v", &["a", "b"]).await.unwrap();
    assert!(id.ends_with("@b"));
    assert_eq!(calls(&one), ["create v", "create v"]);
}

// Returns the reason that the refused agent received.
async fn refusal_sent_to(fake: &Fake) -> String {
    let refused = || {
        let calls = calls(fake);
        calls.into_iter().find(|call| call.starts_with("refused"))
    };
    until(async || refused().is_some()).await;
    refused().unwrap()
}

#[tokio::test]
async fn a_copied_machine_id_and_another_key_neither_replace_a_connected_agent_nor_learn_of_it() {
    let cluster = Cluster::new(Notes::in_memory());
    let (real, thief) = (Fake::new("a"), Fake::new("a"));
    machine(&real, "m1-secret", "real-secret");
    machine(&thief, "m1-secret", "thief");
    real.put(volume(1, "a"));
    let member = cluster.join_as(&real, Some(certified("a", 1))).await;
    for identity in [certified("a", 1), certified("a", 2)] {
        let refusal = cluster.dials(&thief, Some(identity)).refusal().await;
        assert!(
            refusal.contains("real-secret") && refusal.contains("thief"),
            "{refusal}"
        );
        let message = refusal_sent_to(&thief).await;
        assert!(
            !message.contains("secret") && !message.contains("10.0.0"),
            "{message}"
        );
    }
    let note = cluster.agents.get("a").unwrap().refused().unwrap();
    assert!(note.contains("thief"), "{note}");
    assert!(!member.ended.is_finished());
    assert!(cluster.get(&volume(1, "a").id).await.is_ok());
    assert_eq!(cluster.delete(&volume(1, "a").id).await, Code::Ok);
    assert_eq!(calls(&real), [format!("delete {}", volume(1, "a").id)]);

    real.put(volume(2, "a"));
    until(async || cluster.get(&volume(2, "a").id).await.is_ok()).await;
    // Nor while it is disconnected: a volume that the thief does not report would count as absent.
    member.leave().await;
    let refusal = cluster
        .dials(&thief, Some(certified("a", 2)))
        .refusal()
        .await;
    assert!(
        refusal.contains("another key") && refusal.contains("none of that node's drives"),
        "{refusal}"
    );
    let again = tokio::time::Instant::now();
    let _member = cluster.join_as(&real, Some(certified("a", 1))).await;
    assert!(again.elapsed() < Duration::from_secs(2), "nobody is asked");
    assert!(cluster.get(&volume(2, "a").id).await.is_ok());
}

#[tokio::test]
async fn an_agent_that_does_not_answer_makes_way_for_the_next_one_of_its_key_and_machine() {
    let cluster = Cluster::new(Notes::in_memory());
    let (old, new) = (Fake::new("a"), Fake::new("a"));
    machine(&old, "m", "first");
    machine(&new, "m", "second");
    new.put(volume(1, "a"));
    let identity = || Some(certified("a", 1));
    let before = cluster.join_as(&old, identity()).await;
    old.state.lock().unwrap().mute = true;
    let _after = cluster.join_as(&new, identity()).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), before.ended);
    ended.await.unwrap().unwrap();
    assert!(cluster.get(&volume(1, "a").id).await.is_ok());
    // Later updates of the former session are ignored.
    old.change(|state| state.volumes.clear());
    // If the former agent connects again, two agents claim the name.
    old.state.lock().unwrap().mute = false;
    let refusal = cluster.dials(&old, identity()).refusal().await;
    assert!(
        refusal.contains("first") && refusal.contains("second"),
        "{refusal}"
    );
    assert!(cluster.get(&volume(1, "a").id).await.is_ok());
}

#[tokio::test]
async fn a_renewed_key_enters_with_the_nodes_drives_in_whatever_state_they_are() {
    let cluster = Cluster::new(Notes::in_memory());
    let fake = Fake::new("a");
    fake.put(volume(1, "a"));
    cluster
        .join_as(&fake, Some(certified("a", 1)))
        .await
        .leave()
        .await;
    let refusal = cluster
        .dials(&fake, Some(certified("a", 2)))
        .refusal()
        .await;
    assert!(refusal.contains("another key"), "{refusal}");
    fake.change(|state| {
        state.drives.push(Drive {
            id: volume(1, "a").drive,
            state: "missing".into(),
            ..Drive::default()
        });
    });
    let _member = cluster.join_as(&fake, Some(certified("a", 2))).await;
    assert_eq!(cluster.delete(&volume(1, "a").id).await, Code::Ok);
}

#[tokio::test]
async fn another_machine_is_not_taken_for_the_one_whose_name_it_has() {
    let cluster = Cluster::new(Notes::in_memory());
    let (real, other) = (Fake::new("a"), Fake::new("a"));
    machine(&real, "m1", "r");
    machine(&other, "m2", "o");
    real.put(volume(1, "a"));
    let member = cluster.join(&real).await;
    let refusal = cluster.dials(&other, None).refusal().await;
    assert!(
        refusal.contains("m1") && refusal.contains("m2"),
        "{refusal}"
    );
    // Nor while it is disconnected: a volume that the other one lacks would count as deleted.
    member.leave().await;
    let refusal = cluster.dials(&other, None).refusal().await;
    assert!(refusal.contains("none of that node's drives"), "{refusal}");
    assert_eq!(cluster.delete(&volume(1, "a").id).await, Code::Unavailable);

    // A machine that was reinstalled or replaced around its drives has them.
    other.put(volume(1, "a"));
    other.change(|state| {
        state.drives.push(Drive {
            id: volume(1, "a").drive,
            state: "claimed".into(),
            ..Drive::default()
        });
    });
    let _other = cluster.join(&other).await;
    assert_eq!(cluster.delete(&volume(1, "a").id).await, Code::Ok);
    assert_eq!(
        calls(&other).last().unwrap(),
        &format!("delete {}", volume(1, "a").id)
    );
}

#[tokio::test]
async fn a_certificate_of_another_node_opens_no_session() {
    let cluster = Cluster::new(Notes::in_memory());
    let fake = Fake::new("a");
    let refusal = cluster
        .dials(&fake, Some(certified("b", 1)))
        .refusal()
        .await;
    assert!(
        refusal.contains("\"a\"") && refusal.contains("\"b\""),
        "{refusal}"
    );
    assert!(cluster.agents.get("a").is_none());
}

#[tokio::test]
async fn attaching_checks_the_node_and_shows_in_lists() {
    let cluster = Cluster::new(Notes::in_memory());
    let (one, other) = (Fake::new("a"), Fake::new("b"));
    one.put(volume(1, "a"));
    let _a = cluster.join(&one).await;
    let _b = cluster.join(&other).await;
    let id = volume(1, "a").id;
    let attach = async |id: &str, node: &str| {
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: id.into(),
            node_id: node.into(),
            volume_capability: Some(mount("ext4")),
            ..Default::default()
        };
        code(
            cluster
                .service
                .controller_publish_volume(Request::new(request))
                .await,
        )
    };
    let published = async || {
        let status = cluster.get(&id).await.unwrap().status.unwrap();
        status.published_node_ids
    };
    assert_eq!(attach(&volume(9, "a").id, "a").await, Code::NotFound);
    assert_eq!(attach(&id, "nobody").await, Code::NotFound);
    assert_eq!(attach(&id, "b").await, Code::FailedPrecondition);
    assert!(published().await.is_empty());
    for _ in 0..2 {
        assert_eq!(attach(&id, "a").await, Code::Ok);
        assert_eq!(published().await, ["a"]);
    }
    let detach = async |node: &str| {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: id.clone(),
            node_id: node.into(),
            ..Default::default()
        };
        code(
            cluster
                .service
                .controller_unpublish_volume(Request::new(request))
                .await,
        )
    };
    // From a node where it never was.
    assert_eq!(detach("b").await, Code::Ok);
    assert_eq!(published().await, ["a"]);
    assert_eq!(detach("a").await, Code::Ok);
    assert!(published().await.is_empty());
}

fn counted(cluster: &Cluster, reason: Reason) -> u64 {
    let mut all = cluster.agents.refusals().all();
    all.find(|(one, _)| *one == reason).unwrap().1
}

#[tokio::test]
async fn a_node_beyond_a_bound_loses_its_session_and_keeps_what_was_known_and_others_do_not_notice()
{
    let cluster = Cluster::new(Notes::in_memory());
    let (greedy, honest) = (Fake::new("a"), Fake::new("b"));
    greedy.put(volume(1, "a"));
    honest.put(volume(2, "b"));
    let member = cluster.join_as(&greedy, Some(certified("a", 1))).await;
    let other = cluster.join_as(&honest, Some(certified("b", 1))).await;
    greedy.change(|state| {
        let volumes = (0..=bounds::MAX_VOLUMES as u128).map(|n| volume(n + 10, "a"));
        state
            .volumes
            .extend(volumes.map(|volume| (volume.id.clone(), volume)));
    });
    let refusal = member.refusal().await;
    assert!(refusal.contains("more than 20000 volumes"), "{refusal}");
    assert!(
        refusal_sent_to(&greedy)
            .await
            .contains("more than 20000 volumes")
    );
    assert_eq!(counted(&cluster, Reason::Volumes), 1);
    // Its last known inventory stays, and none of its volumes counts as absent.
    assert!(cluster.get(&volume(1, "a").id).await.is_ok());
    assert_eq!(cluster.delete(&volume(1, "a").id).await, Code::Unavailable);
    assert_eq!(cluster.agents.catalog().len(), 2);
    assert_eq!(cluster.delete(&volume(2, "b").id).await, Code::Ok);
    // Shown also after it has reconnected with fewer volumes.
    greedy.change(|state| state.volumes.retain(|id, _| *id == volume(1, "a").id));
    let member = cluster.join_as(&greedy, Some(certified("a", 1))).await;
    let note = cluster.agents.get("a").unwrap().refused().unwrap();
    assert!(note.contains("more than 20000 volumes"), "{note}");

    // A message that is small as received and large when decoded.
    greedy.change(|state| {
        state.drives = vec![Drive::default(); 300_000];
    });
    let refusal = member.refusal().await;
    assert!(
        refusal.contains("a message of the node is too large"),
        "{refusal}"
    );
    assert!(!other.ended.is_finished());
}

#[tokio::test]
async fn volumes_of_other_nodes_are_counted_and_not_listed() {
    let cluster = Cluster::new(Notes::in_memory());
    let fake = Fake::new("a");
    fake.change(|state| {
        let volumes = (0..1000).map(|n| volume(n, "b"));
        state
            .volumes
            .extend(volumes.map(|volume| (volume.id.clone(), volume)));
    });
    let _a = cluster.join(&fake).await;
    assert_eq!(counted(&cluster, Reason::ForeignVolumes), 1000);
    assert!(cluster.agents.catalog().is_empty());
}

/// An API server that takes a token's id as the node of its pod.
struct ApiServer;

const AGENT: &str = "system:serviceaccount:drivebay:drivebay-agent";
const AUDIENCE: &str = "drivebay-controller";

impl Review for ApiServer {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Unavailable>> + Send + 'a>> {
        let claims = token.split('.').nth(1).unwrap();
        let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        let answer = Answer {
            authenticated: true,
            audiences: vec![AUDIENCE.into()],
            user: AGENT.into(),
            nodes: vec![claims["jti"].as_str().unwrap().to_owned()],
            error: String::new(),
        };
        Box::pin(async { Ok(answer) })
    }
}

fn token(node: &str) -> String {
    let claims = serde_json::json!({
        "sub": AGENT, "aud": AUDIENCE, "iat": 1, "exp": 4_000_000_000_u32, "jti": node,
    });
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

#[tokio::test]
async fn an_agent_is_the_node_that_its_token_is_of() {
    let expected = Expected {
        audience: AUDIENCE.into(),
        user: AGENT.into(),
    };
    let mut cluster = Cluster::new(Notes::in_memory());
    cluster.tokens = Some(Tokens::new(Arc::new(ApiServer), expected));
    let with = |node: &str, of: Option<&str>| {
        let token = of.map(token);
        Fake::new(node).with(|state| state.token = token)
    };
    let a = with("a", Some("a"));
    let member = cluster.join(&a).await;
    let identity = cluster.agents.get("a").unwrap().facts().unwrap().identity;
    let node = "a".to_owned();
    assert_eq!(identity, Some(Identity::ServiceAccount { node }));

    let ended = |fake: Fake| {
        let member = cluster.dials(&fake, None);
        async move {
            let ended = member.ended.await.unwrap();
            (ended, fake)
        }
    };
    let (why, _) = ended(with("b", Some("a"))).await;
    assert!(
        matches!(&why, SessionError::OtherNode { proven, .. } if proven == "a"),
        "{why}"
    );
    let (why, _) = ended(with("b", None)).await;
    let unshown = |why: &SessionError| {
        matches!(
            why,
            SessionError::NotProven {
                source: NotProven::NotShown(_),
                ..
            }
        )
    };
    assert!(unshown(&why), "{why}");
    assert!(cluster.agents.get("b").is_none(), "nothing is known of it");
    // A second connection with the node's own token: the session that answers stays.
    let (why, _) = ended(with("a", Some("a"))).await;
    assert!(matches!(why, SessionError::Refused(_)), "{why}");
    assert!(cluster.agents.get("a").unwrap().connected());
    drop(member);
}

#[tokio::test]
async fn a_create_that_names_one_node_waits_for_no_disk_and_one_with_a_choice_does() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(Notes::open(dir.path()).unwrap());
    // The state file cannot be written from here on.
    std::fs::create_dir(dir.path().join("notes.json.new")).unwrap();
    let (one, other) = (Fake::new("a"), Fake::new("b"));
    let _a = cluster.join(&one).await;
    let _b = cluster.join(&other).await;
    let refused = cluster.create("v", &["a", "b"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("notes.json"), "{refused:?}");
    assert!(calls(&one).is_empty() && calls(&other).is_empty());
    cluster.create("w", &["a"]).await.unwrap();
}

#[tokio::test]
async fn a_create_that_names_one_node_and_is_not_answered_is_in_doubt_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(Notes::open(dir.path()).unwrap());
    let node = Fake::new("a");
    let _a = cluster.join(&node).await;
    node.trouble(Trouble::LoseAnswer);
    let lost = cluster.create("v", &["a"]).await.unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    // The former process was killed, and the node is disconnected.
    let after = Cluster::new(Notes::open(dir.path()).unwrap());
    let doubt = after.create("v", &["a"]).await.unwrap_err();
    assert_eq!(doubt.code(), Code::Unavailable);
    assert!(
        doubt.message().contains("may have been created on node a"),
        "{doubt:?}"
    );
}

#[tokio::test]
async fn the_maximum_volume_size_is_that_of_one_node_and_the_capacity_that_of_all() {
    let cluster = Cluster::new(Notes::in_memory());
    let node = |name: &str, free: u64| {
        Fake::new(name).with(|state| state.classes = [("a".into(), class("a", free))].into())
    };
    let (one, other) = (node("a", 10 * GIB), node("b", 6 * GIB));
    let _members = (cluster.join(&one).await, cluster.join(&other).await);
    for (of, capacity, maximum) in [(None, 16, 5), (Some("a"), 10, 5), (Some("b"), 6, 3)] {
        let segments = of.map(|node| [(format!("{DRIVER}/node"), node.to_owned())].into());
        let request = csi::GetCapacityRequest {
            accessible_topology: segments.map(|segments| csi::Topology { segments }),
            ..Default::default()
        };
        let answer = cluster.service.get_capacity(Request::new(request)).await;
        let answer = answer.unwrap().into_inner();
        let gib = i64::try_from(GIB).unwrap();
        assert_eq!(answer.available_capacity, capacity * gib, "{of:?}");
        assert_eq!(answer.maximum_volume_size, Some(maximum * gib), "{of:?}");
    }
}

// Thousands of sessions run at the same time. A step that a session takes once and that is not boxed costs each of them its size.
#[tokio::test]
async fn a_session_costs_little_more_than_its_connection() {
    let cluster = Cluster::new(Notes::in_memory());
    let visitor = cluster.visitor(&Fake::new("a"), None);
    let visit = cluster.agents.visit(visitor, HelloRequest::default());
    let bytes = size_of_val(&visit);
    assert!(bytes < 3700, "{bytes} bytes");
}

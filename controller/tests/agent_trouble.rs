//! Agents that start, restart, disconnect, lose answers or violate the protocol; and the binary's socket.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use clap::Parser;

use common::*;
use drivebay_common::authority;
use drivebay_controller::{
    app,
    config::{Cli, Command},
};
use drivebay_csi::HealthApi;
use drivebay_proto::{
    csi::{self, controller_client::ControllerClient, identity_client::IdentityClient},
    encoded::controller_server::Controller,
};
use drivebay_service::{Agents, in_process_channel};
use tokio::net::UnixListener;
use tonic::{Code, Request, transport::Channel};

async fn listed(controller: &impl Controller) -> usize {
    let listed = controller
        .list_volumes(Request::new(Default::default()))
        .await
        .unwrap();
    listed.into_inner().entries.len()
}

// Waits for an asynchronous change; the deadline only ends a broken test.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap();
}

#[tokio::test]
async fn nothing_is_claimed_while_the_agent_is_starting() {
    let fake = Fake::new("n1").with(|state| state.ready = false);
    fake.put(volume(1, "n1"));
    let agents = Agents::single(in_process_channel(fake.router()));
    let ready = agents.ready();
    let controller = service(agents.clone(), HealthApi::Both);
    for _ in 0..2 {
        let created = controller.create_volume(Request::new(create("v"))).await;
        let refused = created.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("no agent is ready"), "{refused}");
        assert_eq!(
            code(
                controller
                    .list_volumes(Request::new(Default::default()))
                    .await
            ),
            Code::Unavailable
        );
        let health = controller
            .controller_list_volume_health(Request::new(Default::default()))
            .await;
        assert_eq!(code(health), Code::Unavailable);
        let request = csi::ControllerGetVolumeRequest {
            volume_id: volume(9, "n1").id,
        };
        let got = controller
            .controller_get_volume(Request::new(request))
            .await;
        assert_eq!(code(got), Code::Unavailable);
        let capacity = controller
            .get_capacity(Request::new(Default::default()))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(capacity.available_capacity, 0);
        assert!(!*ready.borrow());
        // Once before the agent is connected, once while it scans its drives.
        until(async || {
            agents
                .get("n1")
                .is_some_and(|agent| agent.read_inventory(|i| i.instance() == "first"))
        })
        .await;
    }
    fake.change(|state| state.ready = true);
    until(async || *ready.borrow()).await;
    assert_eq!(listed(&controller).await, 1);
}

#[tokio::test]
async fn a_lost_answer_is_never_a_final_error_and_the_repeat_finds_the_volume() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    fake.trouble(Trouble::LoseAnswer);
    let got = controller.create_volume(Request::new(create("v"))).await;
    assert_eq!(code(got), Code::Unavailable);
    let mut id = String::new();
    until(
        async || match controller.create_volume(Request::new(create("v"))).await {
            Ok(answer) => {
                id = answer.into_inner().volume.unwrap().volume_id;
                true
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                false
            }
        },
    )
    .await;
    assert_eq!(
        fake.state.lock().unwrap().volumes.len(),
        1,
        "exactly one volume was made"
    );
    fake.trouble(Trouble::LoseAnswer);
    let delete = csi::DeleteVolumeRequest {
        volume_id: id,
        ..Default::default()
    };
    let got = controller.delete_volume(Request::new(delete)).await;
    assert_eq!(code(got), Code::Unavailable);
}

#[tokio::test]
async fn an_answer_that_contradicts_the_request_is_not_believed() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    fake.trouble(Trouble::Nonsense);
    let got = controller.create_volume(Request::new(create("v"))).await;
    assert_eq!(code(got), Code::Unavailable);
    let id = fake
        .state
        .lock()
        .unwrap()
        .volumes
        .keys()
        .next()
        .unwrap()
        .clone();
    fake.trouble(Trouble::Nonsense);
    let request = csi::ControllerExpandVolumeRequest {
        volume_id: id,
        capacity_range: range(2 * GIB as i64, 0),
        ..Default::default()
    };
    let got = controller
        .controller_expand_volume(Request::new(request))
        .await;
    assert_eq!(code(got), Code::Unavailable);
}

#[tokio::test]
async fn a_name_stays_taken_when_its_caller_gives_up() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    fake.trouble(Trouble::Wait);
    let first = controller.create_volume(Request::new(create("v")));
    let gave_up = tokio::time::timeout(Duration::from_millis(200), first).await;
    assert!(gave_up.is_err());
    assert_eq!(fake.state.lock().unwrap().calls.len(), 1);
    let second = controller.create_volume(Request::new(create("v"))).await;
    assert_eq!(code(second), Code::Aborted);
    assert_eq!(
        code(
            controller
                .create_volume(Request::new(create("other")))
                .await
        ),
        Code::Ok
    );
    fake.go_on();
    until(async || {
        controller
            .create_volume(Request::new(create("v")))
            .await
            .is_ok()
    })
    .await;
    assert_eq!(fake.state.lock().unwrap().volumes.len(), 2);
}

#[tokio::test]
async fn a_gap_in_the_inventory_is_repaired_by_a_full_snapshot() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    let before = fake.state.lock().unwrap().snapshots;
    fake.state.lock().unwrap().gap = true;
    fake.put(volume(1, "n1"));
    until(async || listed(&controller).await == 1).await;
    assert_eq!(fake.state.lock().unwrap().snapshots, before + 1);
}

#[tokio::test]
async fn a_restarted_agent_is_followed_again_and_its_volumes_stay_listed_meanwhile() {
    let fake = Fake::new("n1");
    fake.put(volume(1, "n1"));
    let controller = fake.controller(HealthApi::Legacy).await;
    fake.change(|state| {
        state.generation += 1;
        state.instance = "second".into();
        state.revision = 0;
        state.ready = false;
        state.volumes.clear();
    });
    until(async || fake.state.lock().unwrap().snapshots == 2).await;
    assert_eq!(listed(&controller).await, 1);
    fake.change(|state| {
        state.ready = true;
        let volume = volume(2, "n1");
        state.volumes.insert(volume.id.clone(), volume);
    });
    until(async || {
        let listed = controller
            .list_volumes(Request::new(Default::default()))
            .await
            .unwrap()
            .into_inner()
            .decode_entries()
            .unwrap();
        listed.entries[0].volume.as_ref().unwrap().volume_id == volume(2, "n1").id
    })
    .await;
    assert_eq!(listed(&controller).await, 1);
}

#[tokio::test]
async fn an_answer_does_not_wait_for_ever_for_the_inventory() {
    let fake = Fake::new("n1");
    let controller = fake.controller(HealthApi::Legacy).await;
    fake.state.lock().unwrap().silent = true;
    let response = controller.create_volume(Request::new(create("v")));
    let got = tokio::time::timeout(Duration::from_secs(8), response)
        .await
        .unwrap();
    assert_eq!(code(got), Code::Ok);
}

#[tokio::test]
async fn a_node_id_that_is_none_is_not_taken_in() {
    let fake = Fake::new("../etc");
    let agents = Agents::single(in_process_channel(fake.router()));
    let controller = service(agents.clone(), HealthApi::Legacy);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(agents.all().is_empty());
    let got = controller.create_volume(Request::new(create("v"))).await;
    assert_eq!(code(got), Code::Unavailable);
}

fn dial(path: std::path::PathBuf) -> Channel {
    drivebay_common::dial::reconnecting(path, Duration::from_secs(5))
}

#[tokio::test]
async fn the_binary_serves_before_its_agent_is_there_finds_it_and_ends_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (csi_socket, agent_socket) = (dir.path().join("csi.sock"), dir.path().join("agent.sock"));
    let socket = agent_socket.to_str().unwrap();
    let commands = dir.path().join("cluster.sock");
    let commands = commands.to_str().unwrap();
    let args = [
        "drivebay-controller",
        "run",
        "--agent-socket",
        socket,
        "--socket",
        commands,
    ];
    let Command::Run(options) = Cli::parse_from(args).command else {
        panic!("that is `run`");
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(app::serve(*options, csi_socket.clone(), async {
        let _ = stopped.await;
    }));
    until(async || csi_socket.exists()).await;
    let mut identity = IdentityClient::new(dial(csi_socket.clone()));
    let mut controller = ControllerClient::new(dial(csi_socket.clone()));
    let info = identity
        .get_plugin_info(csi::GetPluginInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.name, DRIVER);
    let probe = identity
        .probe(csi::ProbeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(probe.ready, Some(false));
    assert_eq!(
        code(controller.create_volume(create("v")).await),
        Code::Unavailable
    );

    let fake = Fake::new("n1");
    let agent = authority::incoming(UnixListener::bind(&agent_socket).unwrap());
    let agent = tokio::spawn(fake.router().serve_with_incoming(agent));
    until(async || {
        identity
            .probe(csi::ProbeRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready
            == Some(true)
    })
    .await;
    controller.create_volume(create("v")).await.unwrap();
    drop((identity, controller));
    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), serving)
        .await
        .unwrap();
    ended.unwrap().unwrap();
    assert!(!csi_socket.exists());
    agent.abort();
}

#[tokio::test]
async fn identity_describes_the_plugin() {
    use csi::identity_server::Identity;
    for controller in [false, true] {
        let (sender, ready) = tokio::sync::watch::channel(false);
        let identity = drivebay_common::IdentityService::new(drivebay_common::IdentityConfig {
            driver_name: DRIVER.into(),
            version: "1".into(),
            controller,
            ready,
        });
        let got = identity
            .get_plugin_capabilities(Request::new(Default::default()))
            .await
            .unwrap();
        assert_eq!(
            got.into_inner().capabilities.len(),
            2 + 2 * usize::from(controller)
        );
        for ready in [false, true] {
            sender.send_replace(ready);
            let probe = identity
                .probe(Request::new(Default::default()))
                .await
                .unwrap()
                .into_inner();
            assert_eq!(probe.ready, Some(ready));
        }
    }
}

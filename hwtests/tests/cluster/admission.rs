//! Admission under a node's name: no other agent while the connected one responds; then the node's own machine with its own key, and other
//! machines only with its drives.

use drivebay_hwtests::{
    cluster::{Cluster, Controller, LIMIT, SimHost},
    fleet::{Command, FleetOptions},
    need, wait,
};

use super::helpers::{creating, unavailable};

/// Waits until the node is connected from this host.
async fn is_at(controller: &Controller, node: &SimHost) {
    let (what, ip) = (
        format!("{} is at {}", node.id, node.host.address()),
        node.host.address(),
    );
    wait::until_async(LIMIT, &what, async || {
        let listed = controller.node(&node.id).await?;
        let here = listed.address.starts_with(&format!("{ip}:"));
        (here && listed.state == "connected").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_vanished_makes_way_for_the_agent_that_comes_back() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let dial = [controller.address()];
    let journal = cluster.dir("drives").join("a0");
    let mut old = cluster
        .node_on(cluster.host(), "a", &dial, |options| {
            options.journal = Some(journal.clone());
        })
        .await;
    is_at(&controller, &old).await;
    old.send(Command::Hush).await;
    old.send(Command::HoldCreate).await;
    let creation = creating(&controller, "v", &["a0"]);
    old.has("v").await;
    // The machine boots elsewhere on the network; it cannot connect yet.
    let host = cluster.host();
    host.cut();
    let new = cluster
        .node_on(host, "a", &dial, |options| {
            options.journal = Some(journal.clone());
        })
        .await;

    // No FIN or RST of the old host's kernel arrives.
    old.host.cut();
    new.host.heal();
    unavailable(creation).await;
    is_at(&controller, &new).await;
    // If the keepalive had detected the dead session, there would have been none to replace.
    controller
        .wait_for_log_line(&[
            "previous session does not answer",
            &new.host.address().to_string(),
        ])
        .await;
    let id = controller.create_on("v", &["a0"]).await.unwrap();
    assert_eq!(old.ids().await, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_and_a_thief_with_a_certificate_of_their_own_take_no_session_and_no_volume() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let dial = [controller.address()];
    let mut first = cluster.node("a", &dial).await;
    is_at(&controller, &first).await;
    let session = controller.node("a0").await.unwrap().address;
    let id = controller.create_on("v", &["a0"]).await.unwrap();
    let here = first.host.address().to_string();

    // The same node id and machine id, with the same certificate, then with another key of the same CA.
    for renew in [false, true] {
        if renew {
            cluster.authority.renew("a0").unwrap();
        }
        let thief = cluster.node("a", &dial).await;
        let there = thief.host.address().to_string();
        controller
            .wait_for_log_line(&["agent refused", "that answers", &here, &there])
            .await;
        let line = thief
            .wait_for_log_line(&["controller refused this agent"])
            .await;
        assert!(!line.contains(&here), "{line}");
        let node = controller.node("a0").await.unwrap();
        assert_eq!(
            (node.state.as_str(), &node.address),
            ("connected", &session)
        );
        assert!(
            node.notes.iter().any(|note| note.contains(&there)),
            "{node:?}"
        );
        assert_eq!(
            controller.csi.ids().await.unwrap(),
            std::slice::from_ref(&id)
        );
    }
    controller.csi.delete(&id).await.unwrap();
    assert!(first.ids().await.is_empty(), "its own agent was asked");
    let entered = controller.log().matches("agent connected").count();
    assert_eq!(entered, 1, "they do not take turns");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_is_refused_unless_it_has_the_drives_of_the_one_that_is_away() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let dial = [controller.address()];
    let journal = cluster.dir("drives").join("a0");
    let drives = |options: &mut FleetOptions| options.journal = Some(journal.clone());
    let first = cluster.node_on(cluster.host(), "a", &dial, drives).await;
    is_at(&controller, &first).await;
    // On the last one of its drives.
    let id = controller.create_on("v", &["a0"]).await.unwrap();
    let other = |machine: &'static str| {
        move |options: &mut FleetOptions| options.plan.machine = machine.to_owned()
    };

    let mut stranger = cluster
        .node_on(cluster.host(), "a", &dial, |options| {
            other("stranger-")(options);
            options.plan.drives = 1;
        })
        .await;
    let (here, there) = (
        first.host.address().to_string(),
        stranger.host.address().to_string(),
    );
    controller
        .wait_for_log_line(&["agent refused", "machine-a0", &here, "stranger-a0", &there])
        .await;
    is_at(&controller, &first).await;

    drop(first);
    controller.node_is("a0", "away").await;
    stranger.send(Command::Restart).await;
    controller
        .wait_for_log_line(&[
            "agent refused",
            "machine-a0",
            "stranger-a0",
            &there,
            "none of that node's drives",
        ])
        .await;
    stranger
        .wait_for_log_line(&["controller refused this agent", "has not shown any drive"])
        .await;
    assert_eq!(
        controller.csi.ids().await.unwrap(),
        std::slice::from_ref(&id)
    );

    let moved = cluster
        .node_on(cluster.host(), "a", &dial, |options| {
            drives(options);
            other("spare-")(options);
        })
        .await;
    is_at(&controller, &moved).await;
    assert_eq!(controller.csi.ids().await.unwrap(), [id]);
}

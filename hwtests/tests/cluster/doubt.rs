//! CreateVolume calls whose response was lost: however often they are repeated, and whichever process was killed meanwhile, there is one
//! volume.

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    cluster::{Cluster, Controller, GRACE, LIMIT},
    fleet::Command,
    need, wait,
};
use tonic::Code;

use super::helpers::{creating, unavailable};

/// Repeats CreateVolume until it succeeds, as a provisioner does.
async fn create_at_last(controller: &Controller, name: &str, nodes: &[&str]) -> String {
    let what = format!("{name} is created");
    wait::until_async(LIMIT, &what, async || {
        match controller.create_on(name, nodes).await {
            Ok(id) => Some(id),
            Err(status) => {
                let code = status.code();
                assert!(
                    matches!(code, Code::Unavailable | Code::Aborted),
                    "{status:?}"
                );
                None
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_in_the_middle_of_a_create_leaves_exactly_one_volume() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let mut controller = cluster.controller(1).await;
    let mut a = cluster.node("a", &[controller.address()]).await;
    let mut b = cluster.node("b", &[controller.address()]).await;
    for node in [&a, &b] {
        controller.node_is(&node.id, "connected").await;
    }
    a.send(Command::Hush).await;
    a.send(Command::HoldCreate).await;
    let creation = creating(&controller, "v", &["a0", "b0"]);
    a.has("v").await;

    controller.kill();
    creation.await.unwrap().unwrap_err();
    controller.start_again().await.unwrap();
    // The node that has the volume may be the last one to return.
    a.host.cut();
    controller.node_is(&b.id, "connected").await;
    unavailable(creating(&controller, "v", &["a0", "b0"])).await;
    a.host.heal();
    a.send(Command::GoOn).await;
    let id = create_at_last(&controller, "v", &["a0", "b0"]).await;
    assert_eq!(a.ids().await, [id]);
    assert!(b.names().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_a_lost_node_has_carried_out_waits_for_it_also_after_a_restart() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let mut controller = cluster.controller(1).await;
    let mut a = cluster.node("a", &[controller.address()]).await;
    let mut b = cluster.node("b", &[controller.address()]).await;
    for node in [&a, &b] {
        controller.node_is(&node.id, "connected").await;
    }
    a.send(Command::Hush).await;
    a.send(Command::HoldCreate).await;
    // The second as a scheduler requests it: when the node cannot create it, it chooses another.
    let wanted: [(&str, &[&str]); 2] = [("v", &["a0", "b0"]), ("w", &["a0"])];
    let creations = wanted.map(|(name, nodes)| creating(&controller, name, nodes));
    for (name, _) in wanted {
        a.has(name).await;
    }
    a.host.cut();
    a.send(Command::GoOn).await;
    for call in creations {
        unavailable(call).await;
    }

    for life in ["first", "second"] {
        let start = Instant::now();
        let grace = Duration::from_secs(GRACE);
        while start.elapsed() < 2 * grace {
            for (name, nodes) in wanted {
                let status = controller.create_on(name, nodes).await.unwrap_err();
                assert_eq!(
                    status.code(),
                    Code::Unavailable,
                    "{life} life, {name}: {status:?}"
                );
            }
            tokio::time::sleep(wait::STEP).await;
        }
        if life == "first" {
            controller.kill();
            controller.start_again().await.unwrap();
            controller.node_is(&b.id, "connected").await;
        }
    }
    a.host.heal();
    for (name, nodes) in wanted {
        let id = create_at_last(&controller, name, nodes).await;
        assert!(id.ends_with("@a0"), "{id}");
    }
    let mut names = a.names().await;
    names.sort();
    assert_eq!(names, ["v", "w"]);
    assert!(b.names().await.is_empty());
}

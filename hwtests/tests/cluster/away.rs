//! Nodes that are cut off, slow or frozen: what is reported of them, and that other nodes are not affected.

use std::time::Instant;

use drivebay_hwtests::{
    cluster::{Cluster, Controller, LIMIT},
    fleet::Command,
    long_on_drives, need, wait,
};
use drivebay_proto::csi::VolumeCondition;
use tonic::Code;

use super::helpers::{creating, unavailable};

/// Returns a volume's condition in ListVolumes.
async fn condition(controller: &Controller, id: &str) -> VolumeCondition {
    let entry = controller.listed(id).await.expect("it stays listed");
    entry.status.unwrap().volume_condition.unwrap()
}

async fn until_abnormal(controller: &Controller, id: &str) -> String {
    let abnormal = wait::until_async(LIMIT, "the volume is abnormal", async || {
        Some(condition(controller, id).await).filter(|condition| condition.abnormal)
    });
    abnormal.await.message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_stays_listed_as_abnormal_in_stable_words_and_comes_back_by_itself()
{
    need!(root, network, tool "ip", tool "nsenter");
    long_on_drives!();
    let cluster = Cluster::new().unwrap();
    let mut controller = cluster.controller(1).await;
    let dial = [controller.address()];
    // One whose packets are lost on the way, and one whose cable is unplugged.
    let mut lost = cluster.node("lost", &dial).await;
    let mut pulled = cluster.node("pulled", &dial).await;
    let mut ids = Vec::new();
    for node in [&lost, &pulled] {
        controller.node_is(&node.id, "connected").await;
        let id = controller.create_on(&node.id, &[&node.id]).await.unwrap();
        assert!(!condition(&controller, &id).await.abnormal);
        ids.push(id);
    }

    let start = Instant::now();
    lost.host.cut();
    pulled.host.unplug();
    for node in [&mut lost, &mut pulled] {
        let id = node.id.clone();
        controller.node_is(&id, "away").await;
        println!("the controller misses {id} after {:?}", start.elapsed());
        node.has_sessions(0).await;
        println!("{id} misses the controller after {:?}", start.elapsed());
    }
    let mut words = Vec::new();
    for id in &ids {
        words.push(until_abnormal(&controller, id).await);
    }
    println!("{words:?} after {:?}", start.elapsed());
    for (id, node, words) in [(&ids[0], &lost, &words[0]), (&ids[1], &pulled, &words[1])] {
        assert!(
            words.contains("NodeUnreachable") && words.contains(&node.id),
            "{words}"
        );
        let status = controller.csi.delete(id).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        let capacity = controller.capacity_of(&node.id).await.unwrap();
        assert_eq!(capacity, 0, "nothing is promised of a node that is away");
    }

    // A controller that starts while they are disconnected has them in its persisted state.
    controller.stop().unwrap();
    controller.start_again().await.unwrap();
    for (id, words) in ids.iter().zip(&words) {
        assert_eq!(until_abnormal(&controller, id).await, *words);
    }
    let healed = Instant::now();
    lost.host.heal();
    pulled.host.plug();
    for (node, id) in [(&mut lost, &ids[0]), (&mut pulled, &ids[1])] {
        controller.node_is(&node.id, "connected").await;
        node.has_sessions(1).await;
        println!("{} is back after {:?}", node.id, healed.elapsed());
        assert!(!condition(&controller, id).await.abnormal);
        controller.csi.delete(id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_answer_nothing_delay_nothing_but_their_own_calls() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let dial = [controller.address()];
    let mut busy = cluster.node("busy", &dial).await;
    let mut frozen = cluster.node("frozen", &dial).await;
    let lost = cluster.node("lost", &dial).await;
    let well = cluster.node("well", &dial).await;
    for node in [&busy, &frozen, &lost, &well] {
        controller.node_is(&node.id, "connected").await;
    }
    // Busy withholds its responses, frozen only exists in TCP, and lost is unreachable.
    busy.send(Command::HoldCreate).await;
    frozen.freeze();
    lost.host.cut();
    let creations =
        [&busy, &frozen, &lost].map(|node| creating(&controller, &node.id, &[&node.id]));
    busy.has("busy0").await;

    let start = Instant::now();
    let id = controller.create_on("w", &[&well.id]).await.unwrap();
    for _ in 0..20 {
        assert!(controller.csi.ids().await.unwrap().contains(&id));
        assert!(controller.csi.capacity().await.unwrap() > 0);
        for node in [&busy, &frozen, &lost, &well] {
            controller.capacity_of(&node.id).await.unwrap();
        }
    }
    controller.csi.delete(&id).await.unwrap();
    assert!(
        creations.iter().all(|call| !call.is_finished()),
        "the calls that are held up were still open when all others had been answered"
    );
    println!("others were answered within {:?}", start.elapsed());

    let [held, of_frozen, of_lost] = creations;
    unavailable(of_frozen).await;
    unavailable(of_lost).await;
    println!("the dead ones were found after {:?}", start.elapsed());
    controller.node_is(&frozen.id, "away").await;
    controller.node_is(&busy.id, "connected").await;
    busy.send(Command::GoOn).await;
    held.await.unwrap().unwrap();
    frozen.thaw();
    controller.node_is(&frozen.id, "connected").await;
    controller.create_on("frozen0", &["frozen0"]).await.unwrap();
    assert_eq!(frozen.names().await, ["frozen0"], "it was made once");
}

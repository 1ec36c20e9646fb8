//! Properties that make a simulated node equivalent to an agent.

use std::pin::Pin;

use drivebay_proto::agent::{
    CreateVolumeRequest, CreateVolumeResponse, KeepPlacementRequest, WatchInventoryRequest,
    agent_server::Agent,
};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response};

use super::*;
use crate::{GIB, fleet::Plan};

type Updates = Pin<Box<dyn Stream<Item = Result<InventoryUpdate, Status>> + Send>>;

fn machine(volumes: usize) -> Arc<Machine> {
    let plan = Plan {
        volumes,
        ..Plan::default()
    };
    let contents = Contents::planned(&plan, 0);
    Machine::new(plan.node(0), plan.machine_id(0), contents, None)
}

async fn watch(node: &SimNode) -> Updates {
    let request = Request::new(WatchInventoryRequest {});
    node.watch_inventory(request).await.unwrap().into_inner()
}

async fn create(node: &SimNode, name: &str) -> Result<Response<CreateVolumeResponse>, Status> {
    node.create_volume(Request::new(CreateVolumeRequest {
        name: name.into(),
        class: "nvme".into(),
        required_bytes: GIB,
        mode: "mount".into(),
        ..CreateVolumeRequest::default()
    }))
    .await
}

#[tokio::test]
async fn changes_follow_from_the_snapshot_and_contain_nothing_else() {
    let node = SimNode::start(&machine(3));
    let mut updates = watch(&node).await;
    let full = updates.next().await.unwrap().unwrap();
    assert!(full.full && full.ready);
    assert_eq!((full.volumes.len(), full.drives.len()), (3, 8));

    let made = create(&node, "a").await.unwrap().into_inner();
    let delta = updates.next().await.unwrap().unwrap();
    assert!(!delta.full);
    assert_eq!(delta.since_revision, full.revision);
    assert_eq!(delta.revision, made.revision);
    assert_eq!(delta.volumes, [made.volume.unwrap()]);
    assert_eq!(delta.drives.len(), 1);
}

#[tokio::test]
async fn a_replayed_snapshot_is_older_than_the_updates_before_it() {
    let node = SimNode::start(&machine(1));
    let mut updates = watch(&node).await;
    let mut revisions = Vec::new();
    for step in 0..3 {
        let update = updates.next().await.unwrap().unwrap();
        revisions.push((update.full, update.revision));
        if step == 0 {
            node.replay_old_snapshot();
        }
    }
    assert_eq!(revisions, [(true, 1), (false, 2), (true, 1)]);
}

#[tokio::test]
async fn a_held_creation_is_done_but_neither_answered_nor_reported_until_it_may_go_on() {
    let machine = machine(0);
    let node = SimNode::start(&machine);
    let mut updates = watch(&node).await;
    updates.next().await;
    node.hold_create();
    node.hush();
    let mut answer = Box::pin(create(&node, "a"));
    tokio::select! {
        biased;
        _ = &mut answer => panic!("it was answered"),
        _ = updates.next() => panic!("it was told"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(machine.contents().volumes.len(), 1);
    node.go_on();
    answer.await.unwrap();
    assert_eq!(updates.next().await.unwrap().unwrap().volumes.len(), 1);
}

#[tokio::test]
async fn a_new_life_has_the_drives_of_the_former_one_which_changes_nothing_any_more() {
    let machine = machine(2);
    let former = SimNode::start(&machine);
    create(&former, "a").await.unwrap();
    let next = SimNode::start(&machine);
    assert!(create(&former, "b").await.is_err());
    let full = watch(&next).await.next().await.unwrap().unwrap();
    assert_eq!((full.revision, full.volumes.len()), (1, 3));
    assert_ne!(full.instance, former.inner.sender.instance);

    let mut updates = watch(&next).await;
    updates.next().await;
    next.end();
    assert!(updates.next().await.is_none());
    assert!(create(&next, "c").await.is_err());
}

#[tokio::test]
async fn a_placement_is_kept_for_every_controller_until_this_life_ends() {
    let machine = machine(0);
    let keep = async |node: &SimNode, of: &str| {
        let request = KeepPlacementRequest {
            name: "v".into(),
            node: of.into(),
            refused_by: Vec::new(),
        };
        let answer = node.keep_placement(Request::new(request)).await;
        answer.unwrap().into_inner().node
    };
    let node = SimNode::start(&machine);
    assert_eq!(keep(&node, "a").await, "a");
    assert_eq!(keep(&node, "b").await, "a");
    node.end();
    assert_eq!(keep(&SimNode::start(&machine), "b").await, "b");
}

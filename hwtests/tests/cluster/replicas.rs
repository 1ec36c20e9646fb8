//! Several controllers: a session with each, by their addresses or through one address for all.

use drivebay_hwtests::{
    cluster::{Cluster, Controller, ControllerOptions, LIMIT, SimHost},
    need, wait,
};

/// Creates a volume at one replica, and waits until the other one lists it.
async fn share(node: &SimHost, one: &Controller, other: &Controller, name: &str) {
    let id = one.create_on(name, &[&node.id]).await.unwrap();
    wait::until_async(LIMIT, "the other replica shows it", async || {
        other.listed(&id).await
    })
    .await;
    assert_eq!(other.create_on(name, &[&node.id]).await.unwrap(), id);
}

/// Kills one replica, and starts it again.
async fn lives_through_a_death(node: &mut SimHost, one: &Controller, other: &mut Controller) {
    node.has_sessions(2).await;
    for controller in [one, &*other] {
        controller.node_is(&node.id, "connected").await;
    }
    share(node, one, other, "v").await;
    share(node, other, one, "w").await;
    let before = one.node(&node.id).await.unwrap();
    other.kill();
    node.has_sessions(1).await;
    let id = one.create_on("x", &[&node.id]).await.unwrap();
    other.start_again().await.unwrap();
    other.node_is(&node.id, "connected").await;
    assert!(other.listed(&id).await.is_some());
    node.has_sessions(2).await;
    let now = one.node(&node.id).await.unwrap();
    assert_eq!(
        now.address, before.address,
        "the session with the other went on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_a_session_with_each_of_two_controllers_at_their_addresses() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let (one, mut other) = (cluster.controller(1).await, cluster.controller(2).await);
    let dial = [one.address(), other.address()];
    let mut node = cluster.node("a", &dial).await;
    lives_through_a_death(&mut node, &one, &mut other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_a_session_with_each_of_two_controllers_behind_one_virtual_address() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let pair = |options: &mut ControllerOptions| {
        options
            .more
            .extend(["--replicas".to_owned(), "2".to_owned()]);
    };
    let one = cluster.controller_with(1, pair).await;
    let mut other = cluster.controller_with(2, pair).await;
    let balancer = cluster.balancer(&[&one, &other]);
    let mut node = cluster.node("a", &[balancer.address()]).await;
    lives_through_a_death(&mut node, &one, &mut other).await;
}

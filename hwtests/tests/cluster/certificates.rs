//! Certificates over their lifetimes: of another node, expired, renewed, and a CA that is removed.

use std::{fs, time::Duration};

use drivebay_hwtests::{
    authority::{Authority, replace},
    cluster::{Cluster, LIMIT},
    long_on_drives, need, wait,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_another_nodes_certificate_is_refused_by_name() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let (own, others) = (
        cluster.authority.node("a0").unwrap(),
        cluster.authority.node("b0").unwrap(),
    );
    fs::copy(&others.cert, &own.cert).unwrap();
    fs::copy(&others.key, &own.key).unwrap();
    let a = cluster.node("a", &[controller.address()]).await;
    let address = a.host.address().to_string();
    controller
        .wait_for_log_line(&["agent refused", &address, "\"a0\"", "\"b0\""])
        .await;
    a.wait_for_log_line(&["controller refused this agent", "b0"])
        .await;
    assert!(controller.nodes().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_last_as_long_as_their_certificates_and_new_ones_are_used_without_a_restart() {
    need!(root, network, tool "ip", tool "nsenter");
    long_on_drives!();
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let dial = [controller.address()];
    let lasts = Duration::from_secs(20);
    for node in ["renewed0", "forgotten0"] {
        cluster.authority.shorten(node, lasts);
    }
    let renewed = cluster.node("renewed", &dial).await;
    let forgotten = cluster.node("forgotten", &dial).await;
    let before = controller.node_is(&renewed.id, "connected").await;
    controller.node_is(&forgotten.id, "connected").await;

    cluster.authority.renew(&renewed.id).unwrap();
    cluster.authority.renew_controller().unwrap();
    renewed.wait_for_log_line(&["certificate loaded"]).await;
    controller.wait_for_log_line(&["certificate loaded"]).await;
    let now = controller.node(&renewed.id).await.unwrap();
    assert_eq!(now.address, before.address, "its session goes on");

    // The session of the former certificate ends when that expires, and the next one uses the new certificate.
    controller
        .wait_for_log_line(&["closing the agent's session", "expired", "renewed0"])
        .await;
    wait::until_async(LIMIT, "the renewed one is back", async || {
        let listed = controller.node(&renewed.id).await.unwrap();
        (listed.state == "connected" && listed.address != before.address).then_some(())
    })
    .await;
    controller
        .wait_for_log_line(&["connection rejected", "expired"])
        .await;
    forgotten
        .wait_for_log_line(&["cannot open a session", "expired"])
        .await;
    controller.node_is(&forgotten.id, "away").await;
    cluster.authority.renew(&forgotten.id).unwrap();
    controller.node_is(&forgotten.id, "connected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_ca_end_when_it_is_taken_away_on_either_side() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let one = &cluster.authority;
    let two = Authority::new(&cluster.dir("ca2"), &[]).unwrap();
    let bundles = [one, &two].map(|ca| fs::read_to_string(ca.controller().ca).unwrap());
    let both = bundles.concat();
    // The certificates of two nodes are of the other CA.
    for node in ["b0", "c0"] {
        let (place, from) = (one.node(node).unwrap(), two.node(node).unwrap());
        fs::copy(from.cert, place.cert).unwrap();
        fs::copy(from.key, place.key).unwrap();
        replace(&place.ca, &both);
    }
    replace(&one.controller().ca, &both);
    let controller = cluster.controller(1).await;
    let dial = [controller.address()];
    let a = cluster.node("a", &dial).await;
    let b = cluster.node("b", &dial).await;
    let c = cluster.node("c", &dial).await;
    let before = controller.node_is(&a.id, "connected").await;
    for node in [&b, &c] {
        controller.node_is(&node.id, "connected").await;
    }

    // A node removes the controller's CA.
    replace(&one.node("c0").unwrap().ca, &bundles[1]);
    c.wait_for_log_line(&["controller session ended", "CA"])
        .await;
    c.wait_for_log_line(&["cannot open a session with the controller", "CA"])
        .await;
    controller.node_is(&c.id, "away").await;
    // The controller removes the CA of two nodes.
    replace(&one.controller().ca, &bundles[0]);
    controller
        .wait_for_log_line(&["closing the agent's session", "CA", "b0"])
        .await;
    controller
        .wait_for_log_line(&["connection rejected", &b.host.address().to_string()])
        .await;
    controller.node_is(&b.id, "away").await;
    let now = controller.node(&a.id).await.unwrap();
    assert_eq!(now.address, before.address, "the other CA's sessions go on");
}

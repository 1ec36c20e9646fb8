//! Those who only knock: nothing that they do keeps honest agents out, and nothing that they say is believed.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use drivebay_common::limits::raise_open_files;
use drivebay_hwtests::{
    attacker::{self, Attack, Attacker},
    cluster::{Cluster, Controller, LIMIT, PORT},
    fleet::Command,
    need,
    netns::Host,
};

/// More than may stand in the door at a time, which is 512.
const CROWD: usize = 700;

fn connect(host: &Host, to: SocketAddr, times: usize) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect_timeout(&to, LIMIT).unwrap();
    host.inside(|| (0..times).map(connect).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_says_nothing_and_one_that_speaks_no_tls_keep_no_agent_out() {
    need!(root, network, tool "ip", tool "nsenter");
    raise_open_files().unwrap();
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let host = cluster.host();
    let mut crowd = connect(&host, controller.address(), CROWD);
    let mut plain = connect(&host, controller.address(), 1).remove(0);
    plain
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();

    let node = cluster.node("a", &[controller.address()]).await;
    controller.node_is(&node.id, "connected").await;
    controller.create_on("v", &[&node.id]).await.unwrap();
    // The crowd is shown out, by others that came later or by the clock.
    controller
        .says(&["connection rejected", "too many connections"])
        .await;
    crowd.push(plain);
    for mut stream in crowd {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut said = Vec::new();
        // What it says to plaintext is an alert; both ends are fine, waiting for ever is not.
        if let Err(error) = stream.read_to_end(&mut said) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
    controller.node_is(&node.id, "connected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_of_a_hundred_megabytes_is_not_taken() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let before = controller.usage().unwrap().resident;
    let files = cluster.authority.node("a0").unwrap();
    let host = cluster.host();
    let boasting = attacker::start(
        &host,
        controller.address(),
        files,
        Attacker {
            node: "a0".to_owned(),
            attack: Attack::Boast(100 << 20),
        },
        1,
    );
    controller
        .says(&["agent refused", "did not say hello", "message"])
        .await;
    let grown = controller.usage().unwrap().resident.saturating_sub(before);
    assert!(grown < 50 << 20, "it has taken {grown} bytes more");
    drop(boasting);
    let node = cluster.node("a", &[controller.address()]).await;
    controller.node_is(&node.id, "connected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_is_not_believed() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let controller = cluster.controller(1).await;
    let mut node = cluster.node("a", &[controller.address()]).await;
    controller.node_is(&node.id, "connected").await;
    let id = controller.create_on("v", &[&node.id]).await.unwrap();
    // Of the time before the volume was made.
    node.tell(Command::ReplayOldSnapshot).await;
    controller.says(&["it is an old one"]).await;
    assert_eq!(
        controller.csi.ids().await.unwrap(),
        std::slice::from_ref(&id)
    );
    let later = controller.create_on("w", &[&node.id]).await.unwrap();
    let mut both = [id, later];
    both.sort();
    assert_eq!(controller.csi.ids().await.unwrap(), both);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_certificates_nobody_goes_beyond_loopback() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let mut options = cluster.controller_options(1, |options| options.certs = None);
    let (status, said) = Controller::refused(&options).unwrap();
    assert!(
        !status.success() && said.contains("not for 10.77.0.1:9443"),
        "{said}"
    );

    options.listen = SocketAddr::from(([127, 0, 0, 1], PORT));
    let host = options.host.clone();
    let controller = Controller::start(options).await.unwrap();
    let elsewhere = host.at(PORT);
    let node = cluster
        .node_on(host, "a", &[elsewhere, controller.address()], |options| {
            options.certs = None;
        })
        .await;
    node.says(&["not connecting to the controller", "10.77.0.1:9443"])
        .await;
    controller.node_is(&node.id, "connected").await;
}

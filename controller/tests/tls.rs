//! Handshakes with the certificates of `drivebay-controller certs`: accepted and refused peers, error texts, and
//! renewal while connections are open.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ca;

use std::{fs, io, sync::Arc, time::Duration, time::SystemTime};

use ca::{Ca, DAY, Issued, certs, put};
use drivebay_common::tls::{Role, TlsError, expires, explain, node_id};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, ServerConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(30);

type Met<S> = (
    io::Result<server::TlsStream<S>>,
    io::Result<client::TlsStream<S>>,
);

/// Performs both sides of a handshake, then sends one byte from the server: only then a client knows that it was accepted.
async fn meet_over<S: AsyncRead + AsyncWrite + Unpin>(
    (near, far): (S, S),
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: &'static str,
) -> Met<S> {
    let serving = async {
        let mut stream = TlsAcceptor::from(server).accept(near).await?;
        stream.write_all(b"!").await?;
        stream.flush().await?;
        Ok(stream)
    };
    let dialling = async {
        let name = ServerName::try_from(name).unwrap();
        let mut stream = TlsConnector::from(client).connect(name, far).await?;
        assert_eq!(stream.read_u8().await?, b'!');
        Ok(stream)
    };
    tokio::time::timeout(DEADLINE, async { tokio::join!(serving, dialling) })
        .await
        .expect("the handshake ends")
}

async fn meet(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> Met<DuplexStream> {
    meet_over(tokio::io::duplex(1 << 16), server, client, "localhost").await
}

/// Returns the errors of both sides of a handshake that must fail.
async fn refusal(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> (String, String) {
    let (server, client) = meet(server, client).await;
    let server = explain(&server.expect_err("the server fails"));
    (server, explain(&client.expect_err("the client fails")))
}

fn at(distance: Duration, past: bool) -> SystemTime {
    let now = SystemTime::now();
    if past { now - distance } else { now + distance }
}

#[track_caller]
fn assert_contains(text: &str, words: &str) {
    assert!(text.contains(words), "{text:?} does not say {words:?}");
}

#[tokio::test]
async fn controller_and_agent_know_each_other_over_tcp() {
    let ca = Ca::new();
    let (controller, agent) = (ca.controller().await, ca.agent().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (near, _) = listener.accept().await.unwrap();
    let (config, client_config) = (controller.server_config(), agent.client_config());
    let (server, client) = meet_over((near, far), config, client_config, "localhost").await;
    let (server, client) = (server.unwrap(), client.unwrap());

    let (_, server) = server.get_ref();
    let chain = server.peer_certificates().unwrap();
    let leaf = chain.first().unwrap();
    assert_eq!(node_id(leaf).as_deref(), Ok("n1"));
    assert_eq!(expires(leaf).unwrap(), agent.valid_until().unwrap());
    assert_eq!(agent.own_node().as_deref(), Some("n1"));
    controller.still_trusts(chain, Role::Agent).unwrap();
    assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(server.alpn_protocol(), Some(b"h2".as_slice()));
    let (_, client) = client.get_ref();
    assert_eq!(client.alpn_protocol(), Some(b"h2".as_slice()));
}

/// Returns the kind of the second handshake between the same configurations, on which both sides must agree.
async fn second(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> Option<HandshakeKind> {
    meet(server.clone(), client.clone()).await.1.unwrap();
    let (server, client) = meet(server, client).await;
    let kind = server.unwrap().get_ref().1.handshake_kind();
    assert_eq!(kind, client.unwrap().get_ref().1.handshake_kind());
    kind
}

#[tokio::test]
async fn no_session_is_resumed_whatever_the_other_side_would_do() {
    let ca = Ca::new();
    let (controller, agent) = (ca.controller().await, ca.agent().await);
    let client = ca.raw_client(Some(Ca::read(&ca.node_files("n1"))));
    let server = ca.raw_server(Ca::read(&ca.controller_files()));
    let resumed = second(server.clone(), client.clone()).await;
    assert_eq!(resumed, Some(HandshakeKind::Resumed), "others do resume");
    let full = Some(HandshakeKind::Full);
    assert_eq!(second(controller.server_config(), client).await, full);
    assert_eq!(second(server, agent.client_config()).await, full);
}

#[tokio::test]
async fn a_client_without_certificate_is_refused() {
    let ca = Ca::new();
    let controller = ca.controller().await;
    let (server, client) = refusal(controller.server_config(), ca.raw_client(None)).await;
    assert_contains(&server, "presented no certificate");
    assert_contains(&client, "this side presented none");
}

#[tokio::test]
async fn a_client_of_another_ca_is_refused() {
    let (ca, other) = (Ca::new(), Ca::new());
    let controller = ca.controller().await;
    let foreign = Ca::read(&other.node_files("n1"));
    let client = ca.raw_client(Some(foreign));
    let (server, client) = refusal(controller.server_config(), client).await;
    assert_contains(&server, "not signed by a CA that is trusted here");
    assert_contains(&client, "does not trust the CA that signed this side's");
}

#[tokio::test]
async fn a_server_of_another_ca_is_refused() {
    let (ca, other) = (Ca::new(), Ca::new());
    let foreign = Ca::read(&other.controller_files());
    let agent = ca.agent().await;
    let (server, client) = refusal(ca.raw_server(foreign), agent.client_config()).await;
    assert_contains(&client, "not signed by a CA that is trusted here");
    assert_contains(&server, "does not trust the CA that signed this side's");
}

#[tokio::test]
async fn an_expired_client_is_refused() {
    let ca = Ca::new();
    let controller = ca.controller().await;
    let (from, until) = (at(2 * DAY, true), at(DAY, true));
    let expired = ca.issue(from, until, ClientAuth, "drivebay://node/n1");
    let client = ca.raw_client(Some(expired));
    let (server, client) = refusal(controller.server_config(), client).await;
    assert_contains(&server, "the peer's certificate expired at 20");
    assert_contains(&client, "refuses this side's certificate as expired");
}

#[tokio::test]
async fn an_expired_server_is_refused() {
    let ca = Ca::new();
    let agent = ca.agent().await;
    let expired = ca.issue(at(2 * DAY, true), at(DAY, true), ServerAuth, "localhost");
    let (server, client) = refusal(ca.raw_server(expired), agent.client_config()).await;
    assert_contains(&client, "the peer's certificate expired at 20");
    assert_contains(&server, "refuses this side's certificate as expired");
}

#[tokio::test]
async fn a_certificate_of_tomorrow_is_refused() {
    let ca = Ca::new();
    let agent = ca.agent().await;
    let early = ca.issue(at(DAY, false), at(2 * DAY, false), ServerAuth, "localhost");
    let (server, client) = refusal(ca.raw_server(early), agent.client_config()).await;
    assert_contains(&client, "valid only from 20");
    assert_contains(&server, "not yet valid");
}

#[tokio::test]
async fn a_nodes_certificate_is_no_servers() {
    let ca = Ca::new();
    let agent = ca.agent().await;
    let node = Ca::read(&ca.node_files("n1"));
    let (server, client) = refusal(ca.raw_server(node), agent.client_config()).await;
    assert_contains(&client, "not meant for servers");
    assert_contains(&server, "meant for something else");
}

#[tokio::test]
async fn a_nodes_certificate_with_a_controllers_name_is_no_servers_either() {
    let ca = Ca::new();
    let agent = ca.agent().await;
    let node = ca.issue(at(DAY, true), at(DAY, false), ClientAuth, "localhost");
    let (_, client) = refusal(ca.raw_server(node), agent.client_config()).await;
    assert_contains(&client, "not meant for servers");
}

#[tokio::test]
async fn a_controllers_certificate_is_no_clients() {
    let ca = Ca::new();
    let controller = ca.controller().await;
    let client = ca.raw_client(Some(Ca::read(&ca.controller_files())));
    let (server, client) = refusal(controller.server_config(), client).await;
    assert_contains(&server, "not meant for clients");
    assert_contains(&client, "meant for something else");
}

#[tokio::test]
async fn a_controller_dialled_by_another_name_is_refused() {
    let ca = Ca::new();
    let (controller, agent) = (ca.controller().await, ca.agent().await);
    let (config, client_config) = (controller.server_config(), agent.client_config());
    let pair = tokio::io::duplex(1 << 16);
    let (server, client) = meet_over(pair, config, client_config, "drivebay.example").await;
    let client = explain(&client.unwrap_err());
    assert_contains(&client, "not for drivebay.example, only for: ");
    assert_contains(&client, "localhost");
    assert_contains(
        &explain(&server.unwrap_err()),
        "not for the name that it dialled",
    );
}

#[tokio::test]
async fn plaintext_is_refused_and_called_so() {
    let ca = Ca::new();
    let (controller, agent) = (ca.controller().await, ca.agent().await);
    // HTTP/2's client preface, and the first frame of an HTTP/2 server.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0].as_slice();
    for bytes in [preface, settings, b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(bytes).await.unwrap();
        let accepting = TlsAcceptor::from(controller.server_config()).accept(near);
        let error = accepting.await.unwrap_err();
        assert_contains(&explain(&error), "does not speak TLS");

        let (mut near, far) = tokio::io::duplex(1 << 16);
        near.write_all(bytes).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let dialling = TlsConnector::from(agent.client_config()).connect(name, far);
        let error = dialling.await.unwrap_err();
        assert_contains(&explain(&error), "does not speak TLS");
    }
}

#[tokio::test]
async fn a_peer_that_hangs_up_is_called_so() {
    let ca = Ca::new();
    let (near, far) = tokio::io::duplex(1 << 16);
    drop(far);
    let config = ca.controller().await.server_config();
    let error = TlsAcceptor::from(config).accept(near).await.unwrap_err();
    assert_contains(&explain(&error), "closed the connection");
}

#[tokio::test]
async fn renewed_certificates_are_presented_from_then_on_and_old_connections_go_on() {
    let ca = Ca::new();
    let (controller, agent) = (ca.controller().await, ca.agent().await);
    let trust = controller.trust_changes();
    let (server, client) = meet(controller.server_config(), agent.client_config()).await;
    let (mut server, mut client) = (server.unwrap(), client.unwrap());
    let (old_controller, old_agent) = (controller.certificate(), agent.certificate());

    let dir = ca.path_text();
    certs(&["controller", "--dir", dir, "--renew"]).unwrap();
    certs(&["node", "n1", "--dir", dir, "--renew"]).unwrap();
    assert!(controller.refresh().await.unwrap());
    assert!(agent.refresh().await.unwrap());
    assert!(!agent.refresh().await.unwrap(), "nothing new since");

    let (new_server, new_client) = meet(controller.server_config(), agent.client_config()).await;
    let (new_server, new_client) = (new_server.unwrap(), new_client.unwrap());
    let leaf = |certificates: Option<&[_]>| certificates.unwrap().first().cloned();
    let client_leaf = leaf(new_server.get_ref().1.peer_certificates());
    let server_leaf = leaf(new_client.get_ref().1.peer_certificates());
    assert_eq!(client_leaf, agent.certificate());
    assert_ne!(client_leaf, old_agent);
    assert_eq!(server_leaf, controller.certificate());
    assert_ne!(server_leaf, old_controller);

    client.write_all(b"still here").await.unwrap();
    let mut heard = [0; 10];
    server.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"still here");
    assert!(!trust.has_changed().unwrap(), "the CA is the same");
}

#[tokio::test]
async fn half_replaced_files_leave_the_former_ones_in_force() {
    let ca = Ca::new();
    let (controller, agent) = (ca.controller().await, ca.agent().await);
    let former = agent.certificate();
    let files = ca.node_files("n1");
    let old = Ca::read(&files);
    certs(&["node", "n1", "--dir", ca.path_text(), "--renew"]).unwrap();
    let new = Ca::read(&files);

    for (certificate, key) in [
        (&new.certificate_pem, &old.key_pem),
        (&old.certificate_pem, &new.key_pem),
    ] {
        put(&files.cert, certificate);
        put(&files.key, key);
        let error = agent.refresh().await.unwrap_err();
        assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
        assert_eq!(agent.certificate(), former);
        let (server, client) = meet(controller.server_config(), agent.client_config()).await;
        server.and(client.map(|_| ())).unwrap();
    }
    put(&files.cert, &new.certificate_pem);
    assert!(agent.refresh().await.unwrap());
    assert_eq!(agent.certificate().as_ref(), new.chain.first());
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_former_ones_in_force() {
    let ca = Ca::new();
    let agent = ca.agent().await;
    let (files, former) = (ca.node_files("n1"), agent.certificate());
    let whole = Ca::read(&files);
    let node = |from, until, name: &str| ca.issue(from, until, ClientAuth, name);
    let expired = node(at(2 * DAY, true), at(DAY, true), "drivebay://node/n1");
    let another = node(at(DAY, true), at(DAY, false), "drivebay://node/n2");
    let nobody = node(at(DAY, true), at(DAY, false), "n1");
    let foreign = Ca::read(&Ca::new().node_files("n1"));
    let put_pair = |pair: &Issued| {
        put(&files.cert, &pair.certificate_pem);
        put(&files.key, &pair.key_pem);
    };
    for (pair, assert_contains) in [
        (&expired, "expired at"),
        (&another, "is now node n2's, and this is node n1"),
        (&nobody, "is no node's"),
        (&foreign, "is not signed by the CA"),
    ] {
        put_pair(pair);
        let error = agent.refresh().await.unwrap_err().to_string();
        assert!(error.contains(assert_contains), "{error}");
        assert_eq!(agent.certificate(), former);
    }
    put_pair(&whole);
    for file in [&files.ca, &files.cert, &files.key] {
        let there = fs::read(file).unwrap();
        put(file, "");
        let error = agent.refresh().await.unwrap_err();
        assert!(matches!(error, TlsError::NoPem { .. }), "{error}");
        fs::remove_file(file).unwrap();
        let error = agent.refresh().await.unwrap_err();
        assert!(matches!(error, TlsError::Unreadable { .. }), "{error}");
        put(file, there);
    }
    assert!(!agent.refresh().await.unwrap(), "all as it was");
}

#[tokio::test]
async fn a_ca_is_exchanged_without_cutting_anybody_off() {
    let (old, new) = (Ca::new(), Ca::new());
    let controller = old.controller().await;
    let mut trust = controller.trust_changes();
    let (old_ca, new_ca) = (
        fs::read_to_string(old.path("ca.pem")).unwrap(),
        fs::read_to_string(new.path("ca.pem")).unwrap(),
    );
    let both = format!("{old_ca}{new_ca}");

    // All trust both CAs; the certificates are still of the old one.
    put(&old.path("ca.pem"), &both);
    assert!(controller.refresh().await.unwrap());
    assert_eq!(*trust.borrow_and_update(), 1);
    let old_agent = old.agent().await;
    put(&new.node_files("n1").ca, &both);
    let new_agent = new.agent().await;
    let mut chains = Vec::new();
    for agent in [&old_agent, &new_agent] {
        let (server, client) = meet(controller.server_config(), agent.client_config()).await;
        let server = server.and_then(|server| client.map(|_| server));
        // The old agent trusts only one of them so far, which signed the controller's certificate.
        let server = server.unwrap();
        chains.push(server.get_ref().1.peer_certificates().unwrap().to_vec());
    }
    for chain in &chains {
        controller.still_trusts(chain, Role::Agent).unwrap();
    }

    // The controller's certificate is of the new CA, the only one it trusts.
    let renewed = Ca::read(&new.controller_files());
    put(&old.path("controller.pem"), &renewed.certificate_pem);
    put(&old.path("controller-key.pem"), &renewed.key_pem);
    put(&old.path("ca.pem"), &new_ca);
    assert!(controller.refresh().await.unwrap());
    assert!(trust.has_changed().unwrap());
    assert_eq!(*trust.borrow_and_update(), 2);
    let [old_chain, new_chain] = chains.as_slice() else {
        panic!("two")
    };
    let error = controller.still_trusts(old_chain, Role::Agent).unwrap_err();
    assert!(matches!(error, TlsError::NotTrusted { .. }), "{error}");
    controller.still_trusts(new_chain, Role::Agent).unwrap();

    let old_leaf = Ca::read(&old.node_files("n1"));
    let (server, _) = refusal(controller.server_config(), new.raw_client(Some(old_leaf))).await;
    assert_contains(&server, "not signed by a CA that is trusted here");
    let (server, client) = meet(controller.server_config(), new_agent.client_config()).await;
    server.and(client.map(|_| ())).unwrap();
}

#[tokio::test]
async fn a_chain_that_has_expired_or_is_empty_is_trusted_no_longer() {
    let ca = Ca::new();
    let controller = ca.controller().await;
    let (from, until) = (at(2 * DAY, true), at(DAY, true));
    let expired = ca.issue(from, until, ClientAuth, "drivebay://node/n1");
    let error = controller
        .still_trusts(&expired.chain, Role::Agent)
        .unwrap_err();
    assert_contains(&error.to_string(), "expired at");
    let server = Ca::read(&ca.controller_files());
    let error = controller
        .still_trusts(&server.chain, Role::Agent)
        .unwrap_err();
    assert_contains(&error.to_string(), "not meant for clients");
    let agent = ca.agent().await;
    agent.still_trusts(&server.chain, Role::Controller).unwrap();
    let node = Ca::read(&ca.node_files("n1"));
    let error = agent
        .still_trusts(&node.chain, Role::Controller)
        .unwrap_err();
    assert_contains(&error.to_string(), "not meant for servers");
    for peer in [Role::Agent, Role::Controller] {
        let error = controller.still_trusts(&[], peer);
        assert!(matches!(error, Err(TlsError::NoChain)));
    }
}

#[tokio::test]
async fn files_that_are_followed_come_into_force_by_themselves() {
    let (ca, other) = (Ca::new(), Ca::new());
    let controller = ca.controller().await;
    let (mut trust, stop) = (controller.trust_changes(), CancellationToken::new());
    let every = Duration::from_millis(5);
    let following = tokio::spawn(controller.clone().follow(every, stop.clone()));
    let bundle = [&ca, &other].map(|ca| fs::read_to_string(ca.path("ca.pem")).unwrap());
    put(&ca.path("ca.pem"), bundle.concat());
    tokio::time::timeout(DEADLINE, trust.changed())
        .await
        .unwrap()
        .unwrap();
    let chain = Ca::read(&other.node_files("n1")).chain;
    controller.still_trusts(&chain, Role::Agent).unwrap();
    stop.cancel();
    tokio::time::timeout(DEADLINE, following)
        .await
        .unwrap()
        .unwrap();
}

//! Unauthenticated clients: they cannot keep honest agents out, and nothing that they send is accepted.

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use drivebay_common::limits::raise_open_files;
use drivebay_hwtests::{
    attacker::{self, Attack, Attacker},
    cluster::{Cluster, Controller, LIMIT, PORT},
    fleet::{self, Fleet, FleetOptions, Place, Plan, command::Percent},
    need,
    netns::Host,
    wait,
};
use tempfile::TempDir;

/// More than the connection limit, which is 512.
const CROWD: usize = 700;

fn connect(host: &Host, to: SocketAddr, times: usize) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect_timeout(&to, LIMIT).unwrap();
    host.inside(|| (0..times).map(connect).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_sends_nothing_and_one_that_speaks_no_tls_keep_no_agent_out() {
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
    // The connections are closed because of later ones, or at their deadline.
    controller
        .wait_for_log_line(&["connection rejected", "too many connections"])
        .await;
    crowd.push(plain);
    for mut stream in crowd {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut response = Vec::new();
        // On plaintext the server sends an alert. Either end of the connection is fine; not waiting indefinitely.
        if let Err(error) = stream.read_to_end(&mut response) {
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
        .wait_for_log_line(&["agent refused", "did not say hello", "message"])
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
    // A snapshot from before the volume was created.
    node.send(fleet::Command::ReplayOldSnapshot).await;
    controller.wait_for_log_line(&["it is an old one"]).await;
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
async fn without_certificates_nobody_listens_on_tcp_and_no_agent_dials_it() {
    need!(root, network, tool "ip", tool "nsenter");
    let cluster = Cluster::new().unwrap();
    let options = cluster.controller_options(1, |options| options.certs = None);
    let (status, output) = Controller::refused(&options).unwrap();
    assert!(
        !status.success() && output.contains("needs --ca, --cert and --key"),
        "{output}"
    );
    let dial = [SocketAddr::from(([127, 0, 0, 1], PORT))];
    let node = cluster.node_on(cluster.host(), "a", &dial, |options| {
        options.certs = None;
    });
    node.await
        .wait_for_log_line(&["over TCP certificates are needed"])
        .await;
}

/// Returns a command that runs a Perl program as an unprivileged user, with a Unix socket as its argument.
fn as_nobody(program: &str, socket: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "perl"])
        .args(["-MIO::Socket::UNIX", "-e", program])
        .arg(socket)
        .stdout(Stdio::piped());
    command
}

/// Returns a directory in which every user may create sockets.
fn open_dir() -> TempDir {
    let dir = TempDir::with_prefix("drivebay-socket-").unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    dir
}

async fn one_node(controller: String, log: &Path) -> Fleet {
    let options = FleetOptions {
        plan: Plan {
            nodes: 1,
            ..Plan::default()
        },
        controllers: vec![controller],
        certs: None,
        journal: None,
        change: Percent::default(),
    };
    let place = Place {
        log: Some(log.to_owned()),
        ..Place::default()
    };
    Fleet::start_at(&options, &place).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controllers_unix_socket_is_for_root_and_its_own_user() {
    need!(root, tool "setpriv", tool "perl");
    let dir = open_dir();
    let controller = fleet::Controller::start(dir.path(), None, &[])
        .await
        .unwrap();
    let socket = dir.path().join("agents.sock");
    let mode = || fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let read = "my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 7; exit(read($s, my $b, 1) ? 1 : 0)";
    let ended = || as_nobody(read, &socket).status().unwrap().code();
    assert_eq!(ended(), Some(7), "it may not connect");
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ended(), Some(0), "it gets no message");
    wait::until(LIMIT, "the connection is logged", || {
        wait::line(&controller.log(), &["connection rejected", "user 65534"])
    });
    let _fleet = one_node(controller.address(), &dir.path().join("fleet.log")).await;
    controller.until_connected(1, LIMIT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_sends_nothing_to_a_unix_socket_of_another_user() {
    need!(root, tool "setpriv", tool "perl");
    let dir = open_dir();
    let socket = dir.path().join("agents.sock");
    let listen = "my $l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or exit 7; \
                  my $n = read($l->accept, my $b, 1); print $n; exit 0";
    let listening = as_nobody(listen, &socket).spawn().unwrap();
    wait::until(LIMIT, "it listens", || socket.exists().then_some(()));
    let log = dir.path().join("fleet.log");
    let _fleet = one_node(format!("unix:{}", socket.display()), &log).await;
    let output = listening.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0");
    wait::until(LIMIT, "the agent logs why", || {
        let log = fs::read_to_string(&log).ok()?;
        wait::line(&log, &["cannot open a session", "user 65534"])
    });
}

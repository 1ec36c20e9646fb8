//! Attacks on a controller, with real certificates or none: its memory, its log, and the wait of honest agents, before and during the
//! attack. Printed as a table.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use drivebay_common::{
    limits::raise_open_files,
    tls::{Credentials, Role, TlsFiles},
};
use drivebay_hwtests::{
    attacker::{self, Attack, Attacker},
    cluster::{Cluster, Controller, LIMIT, SimHost},
    need,
    netns::Host,
    scrape,
};
use tokio::io::AsyncReadExt;
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// Duration of each attack, in a long run and in a short one.
const ATTACK: Duration = Duration::from_secs(5);
const SHORT_ATTACK: Duration = Duration::from_secs(2);
/// Number of honest agents whose handshakes are timed before and during an attack.
const HANDSHAKES: usize = 10;
/// Silent connections per second.
const SILENT: u64 = 400;
/// Number of connections with one certificate.
const CONNECTIONS: usize = 400;
const MIB: u64 = 1 << 20;

/// Returns the time from connecting until the controller has accepted the certificate and sends the first byte of HTTP/2.
fn handshake(host: &Host, to: SocketAddr, files: &TlsFiles) -> Duration {
    host.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let credentials = Credentials::load(files.clone(), Role::Agent).await.unwrap();
            let name = ServerName::try_from(to.ip().to_string()).unwrap();
            let began = Instant::now();
            let attempt = async {
                let stream = tokio::net::TcpStream::connect(to).await?;
                let connector = TlsConnector::from(credentials.client_config());
                connector.connect(name, stream).await?.read_u8().await
            };
            tokio::time::timeout(LIMIT, attempt).await.unwrap().unwrap();
            began.elapsed()
        })
    })
}

/// Returns the longest handshake of several nodes, one after the other. Several nodes, since the connections of one identity are limited,
/// and the last ones may not have been detected as closed yet.
fn handshakes(host: &Host, to: SocketAddr, nodes: &[TlsFiles]) -> Duration {
    let all = nodes.iter().map(|files| handshake(host, to, files));
    all.max().unwrap()
}

fn silent_connections(
    host: &Host,
    to: SocketAddr,
    stop: Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let host = host.clone();
    thread::spawn(move || {
        host.inside(|| {
            let mut open = Vec::new();
            let began = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let due = u64::try_from(began.elapsed().as_millis()).unwrap() * SILENT / 1000;
                while (open.len() as u64) < due {
                    open.push(TcpStream::connect_timeout(&to, LIMIT).ok());
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
    })
}

struct Measured {
    resident: u64,
    log: u64,
    handshake: Duration,
}

struct Scene {
    controller: Controller,
    honest: SimHost,
    bystander: Host,
    bystanders: Vec<TlsFiles>,
    // Shared by all attacks: each one gets a new address, and a node without previous connections.
    cluster: Cluster,
}

impl Scene {
    async fn measure(&self) -> Measured {
        let (host, to) = (&self.bystander, self.controller.address());
        let handshake = tokio::task::block_in_place(|| handshakes(host, to, &self.bystanders));
        Measured {
            resident: self.controller.usage().unwrap().resident,
            log: self.controller.log().len() as u64,
            handshake,
        }
    }

    fn refusals(&self, reason: &str) -> f64 {
        let text = scrape::scrape(&self.controller.metrics_socket()).unwrap();
        let label = format!("reason=\"{reason}\"");
        scrape::value(&text, "drivebay_controller_refusals_total", &[&label]).unwrap()
    }

    /// Runs `attack` for a while, and measures. The attack ends when its return value is dropped.
    async fn during<T>(
        &self,
        name: &str,
        bound: &str,
        reason: &str,
        most: u64,
        attack: impl FnOnce(&Host) -> T,
    ) {
        let host = self.cluster.host();
        let session = self.controller.node(&self.honest.id).await.unwrap().address;
        let (before, refused) = (self.measure().await, self.refusals(reason));
        let attacking = attack(&host);
        let began = Instant::now();
        let (mut resident, mut handshake) = (before.resident, Duration::ZERO);
        // On a slow machine it takes longer until the limit is reached.
        let unbounded = || self.refusals(reason) <= refused && began.elapsed() < LIMIT;
        let lasts = match need::is_long() {
            true => ATTACK,
            false => SHORT_ATTACK,
        };
        while began.elapsed() < lasts || unbounded() {
            let now = self.measure().await;
            resident = resident.max(now.resident);
            handshake = handshake.max(now.handshake);
        }
        let id = self
            .controller
            .create_on(name, &[&self.honest.id])
            .await
            .unwrap();
        self.controller.csi.delete(&id).await.unwrap();
        drop(attacking);
        let log = self.controller.log().len() as u64 - before.log;
        let refused = self.refusals(reason) - refused;
        // Written to stderr directly, which the test runner does not capture.
        let line = format!(
            "attack: {name:24} | {bound:34} | {refused:8} {reason:20} | RSS {:4} -> {:4} MiB | log {:6} bytes | honest handshake {:4} -> {:4} ms\n",
            before.resident / MIB,
            resident / MIB,
            log,
            before.handshake.as_millis(),
            handshake.as_millis(),
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
        assert!(refused > 0.0, "{name} is not counted as {reason}");
        let grown = resident.saturating_sub(before.resident);
        assert!(grown < most * MIB, "{name}: {grown} bytes more");
        assert!(log < 64 << 10, "{name}: {log} bytes of log");
        assert!(handshake < Duration::from_secs(3), "{name}: {handshake:?}");
        let node = self.controller.node(&self.honest.id).await.unwrap();
        assert_eq!((node.state.as_str(), node.address), ("connected", session));
    }

    fn node(&self, name: &str) -> TlsFiles {
        self.cluster.authority.node(name).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attack_takes_the_controllers_memory_log_or_time_from_honest_nodes() {
    need!(root, network, tool "ip", tool "nsenter");
    raise_open_files().unwrap();
    let cluster = Cluster::new().unwrap();
    let audit = cluster.dir("audit").join("audit.json");
    let path = audit.display().to_string();
    let controller = cluster
        .controller_with(1, |options| {
            options.more.extend(["--audit-log".to_owned(), path]);
        })
        .await;
    let to = controller.address();
    let honest = cluster.node("honest", &[to]).await;
    controller.node_is(&honest.id, "connected").await;
    let scene = Scene {
        bystander: cluster.host(),
        bystanders: (0..HANDSHAKES)
            .map(|number| format!("bystander{number}"))
            .map(|node| cluster.authority.node(&node).unwrap())
            .collect(),
        controller,
        honest,
        cluster,
    };

    let sim = |name: &'static str, attack, connections| {
        let files = scene.node(name);
        move |host: &Host| {
            let node = name.to_owned();
            attacker::start(host, to, files, Attacker { node, attack }, connections)
        }
    };
    let thief = scene.node(&scene.honest.id);
    let node = scene.honest.id.clone();
    scene
        .during(
            "take over a node",
            "its agent is asked",
            "connected",
            32,
            |host| {
                let attack = Attack::Grow;
                attacker::start(host, to, thief, Attacker { node, attack }, 1)
            },
        )
        .await;
    scene
        .during(
            "volumes without end",
            "20,000 volumes",
            "volumes",
            256,
            sim("grow0", Attack::Grow, 1),
        )
        .await;
    let node = scene.controller.node("grow0").await.unwrap();
    assert!(
        node.notes.iter().any(|note| note.contains("20000 volumes")),
        "{node:?}"
    );
    scene
        .during(
            "small messages that grow",
            "32 MiB decoded",
            "message",
            128,
            sim("bomb0", Attack::Bomb, 1),
        )
        .await;
    scene
        .during(
            "foreign ids of 4 kB",
            "10 lines a minute, cut",
            "foreign_volumes",
            128,
            sim("foreign0", Attack::Foreign, 1),
        )
        .await;
    scene
        .during(
            "forged log lines",
            "printable, 10 lines a minute",
            "updates",
            32,
            sim("forge0", Attack::Forge, 1),
        )
        .await;
    assert!(
        !scene
            .controller
            .log()
            .lines()
            .any(|line| line.starts_with("2026-01-01")),
        "a line was forged"
    );
    scene
        .during(
            "connections of one key",
            "4 connections",
            "identity_connections",
            64,
            sim("many0", Attack::Hang, CONNECTIONS),
        )
        .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut silent = None;
    scene
        .during(
            "400 silent connections/s",
            "512 at work, 1024 of a source",
            "source_connections",
            64,
            |host| {
                silent = Some(silent_connections(host, to, stop.clone()));
            },
        )
        .await;
    stop.store(true, Ordering::Relaxed);
    silent.unwrap().join().unwrap();
    audited(&audit, &scene.honest.id);
}

/// Checks that these events were recorded, and that repeated ones were limited: fewer than 400 records in total.
fn audited(path: &Path, honest: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let records: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |what: &str, node: &str, allowed: bool| {
        let is_it = |record: &&serde_json::Value| {
            record["what"] == what && record["allowed"] == allowed && record["node"] == node
        };
        records.iter().filter(is_it).count()
    };
    assert_eq!(count("session", honest, true), 1, "{text}");
    assert!(count("session-end", honest, false) > 0, "{text}");
    assert!(count("session-end", "grow0", false) > 0, "{text}");
    let calls = |what: &str| {
        records
            .iter()
            .filter(|record| record["what"] == what)
            .count()
    };
    assert_eq!((calls("CreateVolume"), calls("DeleteVolume")), (7, 7));
    assert!(records.len() < 400, "{}", records.len());
}

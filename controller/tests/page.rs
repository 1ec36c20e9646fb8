//! The page of a running controller: its data from an agent, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::{net::SocketAddr, path::Path, time::Duration};

use clap::Parser;
use common::*;
use drivebay_common::socket;
use drivebay_controller::{
    app,
    config::{Cli, Command, RunOptions},
};
use drivebay_proto::{
    VolumeId,
    agent::{
        Condition, CreatedFor, Drive, DriveHealth, Finding, Reading, SmartReport, Volume,
        agent_server::AgentServer,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use uuid::Uuid;

const NODE: &str = "n1";
const HOSTILE: &str = "<script>alert(1)</script>\"\u{202e}";
const LIMIT: Duration = Duration::from_secs(30);

fn options(dir: &Path, page: &str) -> Result<RunOptions, clap::Error> {
    let path = |name: &str| dir.join(name).display().to_string();
    let (csi, admin, agent) = (path("csi.sock"), path("admin.sock"), path("agent.sock"));
    let line = [
        "drivebay-controller",
        "run",
        "--csi-socket",
        &csi,
        "--socket",
        &admin,
        "--agent-socket",
        &agent,
        "--metrics",
        "off",
        "--page",
        page,
    ];
    match Cli::try_parse_from(line)?.command {
        Command::Run(options) => Ok(*options),
        other => panic!("{other:?}"),
    }
}

fn drive(verdict: &str) -> Drive {
    let is_bad = verdict == "BAD";
    Drive {
        id: "wwn-0x5000c500a1b2c3d4".into(),
        kernel_name: "sda".into(),
        state: "claimed".into(),
        class: "hdd".into(),
        verdict: verdict.into(),
        media: "hdd".into(),
        model: HOSTILE.into(),
        serial: "ZA1".into(),
        size_bytes: 100 * GIB,
        usable_bytes: 99 * GIB,
        free_bytes: 90 * GIB,
        health: Some(DriveHealth {
            findings: (is_bad.then(|| Finding {
                code: "StatusFailed".into(),
                message: "the drive's own health status is \"failed\"; replace the drive".into(),
                since: 7,
                acknowledged: false,
            }))
            .into_iter()
            .collect(),
            smart: Some(SmartReport {
                readings: vec![Reading {
                    name: "ata-197".into(),
                    value: 48,
                }],
                ..SmartReport::default()
            }),
            ..DriveHealth::default()
        }),
        ..Drive::default()
    }
}

fn volume() -> Volume {
    Volume {
        id: VolumeId {
            uuid: Uuid::from_u128(1),
            node: NODE.into(),
        }
        .to_string(),
        name: "pvc-1".into(),
        class: "hdd".into(),
        drive: drive("GOOD").id,
        size_bytes: GIB,
        mode: "mount".into(),
        fs_type: "xfs".into(),
        state: "ready".into(),
        conditions: vec![Condition {
            abnormal: true,
            status: "DEGRADED".into(),
            reason: "VolumeFull".into(),
            message: "it is full; expand it".into(),
            since: 5,
        }],
        created_at: drivebay_view::unix_seconds() - 60,
        created_for: Some(CreatedFor {
            claim: "db".into(),
            namespace: "shop".into(),
            ..CreatedFor::default()
        }),
        ..Volume::default()
    }
}

async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

async fn json(address: SocketAddr, path: &str) -> serde_json::Value {
    let (status, body) = get(address, path).await.unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Reads until the text has arrived.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&text).contains(end) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "ended: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&buffer[..count]);
        }
    };
    timeout(LIMIT, read).await.unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_controller_shows_what_its_agent_reports_and_a_bad_drive_within_two_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let options = options(dir.path(), &address.to_string()).unwrap();
    let fake = Fake::new(NODE).with(|state| state.drives = vec![drive("GOOD")]);
    fake.put(volume());
    let stop = CancellationToken::new();
    let bound = socket::bind(&dir.path().join("agent.sock")).await.unwrap();
    let routes = Routes::new(AgentServer::new(fake.clone()));
    let agent = socket::serve(routes, bound, stop.clone().cancelled_owned(), LIMIT);
    let agent = tokio::spawn(agent);
    let csi = dir.path().join("csi.sock");
    let controller = app::serve(options, csi, stop.clone().cancelled_owned());
    let controller = tokio::spawn(controller);

    let shown = async {
        loop {
            if let Some((200, body)) = get(address, "/api/fleet").await
                && body.contains("\"state\":\"connected\"")
            {
                break serde_json::from_str::<serde_json::Value>(&body).unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let fleet = timeout(LIMIT, shown).await.expect("the agent connects");
    let of_drive = &fleet["drives"][0];
    assert_eq!(of_drive["model"], HOSTILE);
    assert_eq!(
        (&of_drive["verdict"], &of_drive["volumes"]),
        (&"GOOD".into(), &1.into())
    );
    assert_eq!(of_drive["claims"], serde_json::json!(["shop/db"]));
    assert_eq!(of_drive["freeBytes"], 90 * GIB);
    assert_eq!(json(address, "/api/session").await["needsToken"], false);
    assert_eq!(get(address, "/").await.unwrap().0, 200);

    let volumes = json(address, "/api/volumes").await;
    let of_volume = &volumes["volumes"][0];
    assert_eq!(
        (&of_volume["claim"], &of_volume["layout"]),
        (&"shop/db".into(), &"partition".into())
    );
    assert_eq!(of_volume["conditions"][0]["reason"], "VolumeFull");
    let activity = json(address, "/api/activity").await;
    assert_eq!(activity["erases"], serde_json::json!([]));

    let history = json(address, "/api/history").await;
    let events = history["events"].as_array().unwrap();
    // Its condition is older than a week.
    assert_eq!(events.len(), 1, "{history}");
    let created = &events[0];
    assert_eq!(created["what"], "volume-created");
    assert_eq!(
        (&created["claim"], &created["text"]),
        (&"shop/db".into(), &"volume pvc-1 created".into())
    );

    let revision = &fleet["revision"];
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /api/changes?since={revision} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, ": changes").await;
    let began = Instant::now();
    fake.change(|state| state.drives = vec![drive("BAD")]);
    let event = read_until(&mut stream, "\"verdict\":\"BAD\"").await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(event.contains("\"findings\":[\"StatusFailed\"]"), "{event}");

    let id = drive("BAD").id;
    let detail = json(address, &format!("/api/drive?node={NODE}&id={id}")).await;
    let finding = &detail["findings"][0];
    assert_eq!(
        (&finding["code"], &finding["severity"]),
        (&"StatusFailed".into(), &"BAD".into())
    );
    assert_eq!(finding["todo"], "replace the drive");
    let command = format!("drivebay-controller drive evacuate {id} --plan");
    assert_eq!(finding["commands"][0], command);

    let latency = &detail["latency"];
    assert_eq!(latency["read"]["history"], serde_json::json!([5.0, null]));
    assert_eq!(latency["comparedWith"], "model");
    let history = &detail["smart"][0]["history"];
    assert_eq!(*history, serde_json::json!([[60, 3], [3660, 48]]));

    // A stop ends streams, too.
    stop.cancel();
    let ended = timeout(LIMIT, controller).await.expect("it stops");
    ended.unwrap().unwrap();
    drop(agent);
}

#[test]
fn an_address_that_other_machines_reach_is_refused_at_the_command_line() {
    let error = options(Path::new("/x"), "0.0.0.0:9813")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("127.0.0.1:9813") && error.contains("port-forward"),
        "{error}"
    );
    assert!(options(Path::new("/x"), "127.0.0.1:9813").is_ok());
}

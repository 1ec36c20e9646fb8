//! Serves the page over made-up data that changes: `cargo run -p drivebay-page --example fake -- [ADDRESS] [NODES] [DRIVES] [TOKEN]`.
//! With a token, requests need it, and it sees the claims of namespace `shop` alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an example for tests of the page"
)]

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use drivebay_page::{
    Access, Page, Source,
    access::{Act, Review, Tokens, Unavailable, User},
    http,
    model::{
        Activity, Check, Condition, Direction, Drive, DriveDetail, DriveFacts, Erase, Event,
        EventKind, Events, Finding, Latency, Move, Node, Reading, Remedy, Snapshot, Unreadable,
        Volume, Volumes,
    },
    source::{Answer, NodeView, Stamp},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const GIB: u64 = 1 << 30;
const START: u64 = 1_795_000_000;
const DAY: u64 = 86_400;
const WEEK: u64 = 7 * DAY;
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&\u{202e}\n";
/// Most volumes of an answer: fewer than the real limit, so that a small server exceeds it.
const VOLUMES: usize = 3000;
/// The node whose moves and copies cannot be read; it is disconnected.
const AWAY: u64 = 7;

/// A problem of a drive whose verdict is GOOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Problem {
    /// The drive gives no answer to I/O; latency and unreadable ranges are not known.
    NoAnswer,
    /// The drive answers, and has a condition.
    Overheating,
}

fn problem(node: u64, drive: u64) -> Option<Problem> {
    match (node, drive) {
        (5, 4) => Some(Problem::NoAnswer),
        (6, 6) => Some(Problem::Overheating),
        _ => None,
    }
}

struct Fake {
    nodes: u64,
    drives: u64,
    /// Seconds since the start, which select the drive that turns BAD.
    tick: AtomicU64,
}

fn node_name(node: u64) -> String {
    format!("node-{node:03}")
}

fn drive_id(node: u64, drive: u64) -> String {
    format!("wwn-0x5000c500{node:04x}{drive:04x}")
}

fn finding(code: &str, severity: &str, text: &str, todo: &str) -> Finding {
    Finding {
        code: code.into(),
        severity: severity.into(),
        text: text.into(),
        todo: Some(todo.into()),
        since: Some(START - 7200),
        acknowledged: false,
    }
}

impl Fake {
    fn verdict(&self, node: u64, drive: u64) -> &'static str {
        let number = node * self.drives + drive;
        let tick = self.tick.load(Ordering::Relaxed);
        // One drive after the other is BAD for ten seconds; node-000's first always.
        let turns = tick.saturating_sub(10)..tick;
        let all = self.nodes * self.drives;
        let is_its_turn = turns.into_iter().any(|at| (at * 37) % all == number);
        match number % 97 {
            0 => "BAD",
            _ if problem(node, drive).is_some() => "GOOD",
            _ if is_its_turn => "BAD",
            13 | 51 => "SUSPECT",
            29 => "UNKNOWN",
            _ => "GOOD",
        }
    }

    fn findings(&self, node: u64, drive: u64) -> Vec<Finding> {
        match self.verdict(node, drive) {
            "BAD" => vec![
                finding(
                    "UncorrectableErrors",
                    "BAD",
                    "14 sectors could not be read, 3 more since yesterday",
                    "move the volumes off this drive, then replace it",
                ),
                finding(
                    "ReallocatedSectors",
                    "BAD",
                    "208 sectors were reallocated",
                    "move the volumes off this drive",
                ),
            ],
            "SUSPECT" => vec![finding(
                "Slow",
                "SUSPECT",
                "reads take 84 ms where its peers need 9 ms",
                "watch it; if it stays slow, replace it",
            )],
            _ => match problem(node, drive) {
                None => Vec::new(),
                Some(Problem::NoAnswer) => vec![finding(
                    "DriveStuck",
                    "NO_ANSWER",
                    "it does not answer: reads time out",
                    "see the kernel log, check cable, slot and power",
                )],
                Some(Problem::Overheating) => vec![finding(
                    "Overheating",
                    "WARNING",
                    "68 °C, more than the drive permits",
                    "improve the air flow",
                )],
            },
        }
    }

    fn facts(&self, node: u64, drive: u64) -> DriveFacts {
        let verdict = self.verdict(node, drive);
        let is_hostile = node == 1 && drive == 1;
        let bytes = [4_000, 8_000, 1_920, 3_840][(drive % 4) as usize] * 1_000_000_000;
        let free = bytes / 100 * ((node * 13 + drive * 29) % 101);
        DriveFacts {
            node: node_name(node),
            id: drive_id(node, drive),
            device: Some(format!("sd{}", char::from(b'a' + (drive % 26) as u8))),
            bay: (drive % 24 != 23).then(|| format!("bay {drive}")),
            model: Some(if is_hostile {
                HOSTILE.into()
            } else {
                format!("Acme DataStore {}", bytes / 1_000_000_000)
            }),
            serial: Some(format!("ZA{node:03}{drive:03}")),
            media: Some(["hdd", "hdd", "ssd", "nvme"][(drive % 4) as usize].into()),
            bytes,
            usable_bytes: Some(bytes),
            free_bytes: Some(free),
            class: Some(["hdd", "hdd", "ssd", "nvme"][(drive % 4) as usize].into()),
            state: match (node, drive) {
                (2, 2) => "missing",
                (2, 3) => "rejected",
                (2, 4) => "available",
                _ => "claimed",
            }
            .into(),
            verdict: verdict.into(),
            acknowledged: node == 3 && verdict == "BAD",
            severity: match (verdict, problem(node, drive)) {
                ("BAD" | "SUSPECT", _) => Some(verdict.into()),
                (_, Some(Problem::NoAnswer)) => Some("NO_ANSWER".into()),
                (_, Some(Problem::Overheating)) => Some("WARNING".into()),
                (_, None) => None,
            },
            unwanted: node == 2 && drive == 3,
            cordoned: drive % 31 == 5,
        }
    }

    fn claims(&self, node: u64, drive: u64) -> Vec<String> {
        match (node, drive) {
            (1, 1) => vec![format!("shop/{HOSTILE}")],
            _ => vec![
                format!("bank/ledger-{node}-{drive}"),
                format!("shop/db-{node}-{drive}"),
            ],
        }
    }

    fn brief(&self, node: u64, drive: u64) -> Drive {
        let codes = self.findings(node, drive);
        Drive {
            facts: self.facts(node, drive),
            findings: codes.into_iter().map(|one| one.code).collect(),
            volumes: 2,
            claims: self.claims(node, drive),
        }
    }

    fn volume(&self, node: u64, drive: u64, which: usize) -> Volume {
        let condition = match (self.verdict(node, drive), problem(node, drive)) {
            ("BAD", _) => Some((
                "DriveFailing",
                "its drive is failing; move the volume",
                "DEGRADED",
            )),
            (_, Some(Problem::NoAnswer)) => Some((
                "DriveStuck",
                "its drive does not answer; check the drive",
                "INACCESSIBLE",
            )),
            _ => None,
        };
        let claims = self.claims(node, drive);
        let name = format!("pvc-{node:03}{drive:03}{which}");
        Volume {
            id: format!(
                "{:08x}-0000-4000-8000-{drive:04x}{which:08x}@{}",
                node,
                node_name(node)
            ),
            persistent_volume: Some(name.clone()),
            name,
            node: node_name(node),
            drive: Some(drive_id(node, drive)),
            class: Some("hdd".into()),
            bytes: 100 * GIB,
            used_bytes: (which == 0).then_some(63 * GIB),
            claim: claims.get(which).cloned(),
            layout: Some("lvm".into()),
            filesystem: Some("xfs".into()),
            mode: "mount".into(),
            state: "ready".into(),
            in_use: which == 0,
            created_at: Some(START - 30 * DAY),
            conditions: condition
                .into_iter()
                .map(|(reason, text, status)| Condition {
                    reason: reason.into(),
                    text: text.into(),
                    status: Some(status.into()),
                    since: Some(START - 7200),
                })
                .collect(),
            snapshots: match which {
                0 => vec![Snapshot {
                    id: format!("snap-{node}-{drive}@{}", node_name(node)),
                    name: "nightly".into(),
                    created_at: Some(START - 3600),
                    state: "ready".into(),
                    bytes: 100 * GIB,
                    reserve_bytes: 10 * GIB,
                    used_bytes: Some(GIB),
                    text: None,
                }],
                _ => Vec::new(),
            },
        }
    }

    fn parse(&self, node: &str, id: &str) -> Option<(u64, u64)> {
        let node = node.strip_prefix("node-")?.parse().ok()?;
        let drive = (0..self.drives).find(|drive| drive_id(node, *drive) == id)?;
        (node < self.nodes).then_some((node, drive))
    }
}

impl Source for Fake {
    fn host(&self) -> Option<String> {
        (self.nodes == 1).then(|| node_name(0))
    }

    fn stamps(&self) -> Vec<(Arc<str>, Stamp)> {
        let stamp = Stamp(self.tick.load(Ordering::Relaxed));
        (0..self.nodes)
            .map(|node| (node_name(node).into(), stamp))
            .collect()
    }

    fn node(&self, name: &str) -> Option<NodeView> {
        let node: u64 = name.strip_prefix("node-")?.parse().ok()?;
        let is_away = node == AWAY;
        Some(NodeView {
            node: Node {
                name: name.into(),
                state: if is_away { "away" } else { "connected" }.into(),
                away_since: is_away.then_some(START),
                away_seconds: is_away.then_some(0),
                version: Some("0.1.0".into()),
                findings: match node {
                    4 => vec![finding(
                        "StateNotSaved",
                        "WARNING",
                        "a state file cannot be saved",
                        "free space on /var",
                    )],
                    _ => Vec::new(),
                },
            },
            drives: (0..self.drives)
                .map(|drive| self.brief(node, drive))
                .collect(),
        })
    }

    fn drive<'a>(&'a self, node: &'a str, id: &'a str) -> Answer<'a, Option<DriveDetail>> {
        Box::pin(async move {
            let (node, drive) = self.parse(node, id)?;
            let facts = self.facts(node, drive);
            let is_silent = problem(node, drive) == Some(Problem::NoAnswer);
            let findings = self
                .findings(node, drive)
                .into_iter()
                .map(|finding| Remedy {
                    commands: vec![format!("drivebay-agent drive evacuate {id}")],
                    finding,
                });
            let history: Vec<Option<f64>> = (0..60)
                .map(|minute| (minute % 11 != 0).then(|| 6.0 + f64::from(minute % 7)))
                .collect();
            let direction = Direction {
                bytes_per_second: 31e6,
                requests_per_second: 240.0,
                mean: Some(9.4),
                expected: Some(8.8),
                usual: Some(8.1),
                history,
                slow_since: None,
            };
            Some(DriveDetail {
                claims: self.claims(node, drive),
                findings: findings.collect(),
                commands: vec![format!("drivebay-agent drive locate {id} on")],
                notes: vec!["made up".into()],
                smart: vec![
                    Reading {
                        name: "temperature-celsius".into(),
                        shown: "Temperature: 41 °C".into(),
                        value: 41,
                        history: None,
                    },
                    Reading {
                        name: "ata-5".into(),
                        shown: "Reallocated_Sector_Ct (5): 208".into(),
                        value: 208,
                        history: Some(vec![
                            (START - WEEK, 160),
                            (START - 5 * DAY, 168),
                            (START - 2 * DAY, 176),
                            (START - DAY, 204),
                            (START - 60, 208),
                        ]),
                    },
                    Reading {
                        name: "ata-197".into(),
                        shown: "Current_Pending_Sector (197): 0".into(),
                        value: 0,
                        history: Some(vec![(START - WEEK, 0), (START - 60, 0)]),
                    },
                ],
                smart_answered_at: Some(START - 60),
                smart_failure: None,
                latency: (!is_silent).then(|| Latency {
                    unit: "ms",
                    buckets: Vec::new(),
                    peers: Vec::new(),
                    at: START,
                    compared_with: Some("model".into()),
                    peer_drives: 17,
                    read: direction.clone(),
                    write: Direction {
                        slow_since: Some(START - 600),
                        ..direction
                    },
                }),
                unreadable: (!is_silent).then(|| match facts.verdict.as_str() {
                    "BAD" => vec![Unreadable {
                        offset: 123_456_789_504,
                        bytes: 4096,
                        volume: Some(self.volume(node, drive, 0).id),
                        holds: "files".into(),
                        files: Some(2),
                    }],
                    _ => Vec::new(),
                }),
                unreadable_more: false,
                volumes: (0..2)
                    .map(|which| self.volume(node, drive, which))
                    .collect(),
                temperature_celsius: Some(41),
                power_on_hours: Some(23_456),
                wear_percent: Some(12),
                firmware: Some("SN05".into()),
                wwn: Some(id.trim_start_matches("wwn-").into()),
                transport: Some("sas".into()),
                path: Some(format!("/dev/disk/by-id/{id}")),
                largest_free_bytes: facts.free_bytes,
                cordon: facts
                    .cordoned
                    .then(|| "cordoned by ann: replaced on Friday".into()),
                verdict_since: Some(START - 7200),
                facts,
            })
        })
    }

    fn volumes(&self) -> Answer<'_, Volumes> {
        let drives =
            (0..self.nodes).flat_map(|node| (0..self.drives).map(move |drive| (node, drive)));
        let volumes = drives
            .flat_map(|(node, drive)| (0..2).map(move |which| self.volume(node, drive, which)));
        let volumes: Vec<Volume> = volumes.take(VOLUMES).collect();
        let more = self.nodes * self.drives * 2 > VOLUMES as u64;
        Box::pin(async move { Volumes { volumes, more } })
    }

    fn activity(&self) -> Answer<'_, Activity> {
        let tick = self.tick.load(Ordering::Relaxed);
        let volume = self.volume(0, 0, 0);
        let one = Move {
            node: volume.node.clone(),
            volume: volume.id.clone(),
            name: volume.name.clone(),
            from: drive_id(0, 0),
            to: drive_id(0, 1),
            done_bytes: (tick * GIB) % (100 * GIB),
            total_bytes: 100 * GIB,
            bytes_per_second: Some(GIB),
            seconds_left: Some(100 - tick % 100),
            state: "copying".into(),
            text: None,
        };
        let hostile = Move {
            volume: self.volume(0, 0, 1).id,
            name: HOSTILE.into(),
            to: HOSTILE.into(),
            state: "waiting".into(),
            text: Some(HOSTILE.into()),
            ..one.clone()
        };
        let erase = Erase {
            node: volume.node.clone(),
            volume: volume.id.clone(),
            name: HOSTILE.into(),
            drive: drive_id(0, 2),
            done_bytes: (tick * GIB / 2) % (100 * GIB),
            total_bytes: 100 * GIB,
            seconds_left: None,
            state: "erasing".into(),
        };
        let check = Check {
            node: volume.node,
            volume: volume.id,
            name: volume.name,
            at: START - DAY,
            outcome: "clean".into(),
            text: HOSTILE.into(),
            method: Some("snapshot".into()),
        };
        let running = Check {
            at: START - DAY / 24,
            outcome: "running".into(),
            text: "has not ended".into(),
            method: Some("scrub".into()),
            ..check.clone()
        };
        let silent = (self.nodes > AWAY).then(|| node_name(AWAY));
        let silent = silent.into_iter().collect();
        Box::pin(async move {
            Activity {
                moves: vec![one, hostile],
                copies: Vec::new(),
                erases: vec![erase],
                checks: vec![running, check],
                silent,
                more: false,
            }
        })
    }

    fn history(&self) -> Answer<'_, Events> {
        let (node, drive) = (node_name(0), drive_id(0, 0));
        let of_node = |at: u64, what: EventKind, text: &str| Event {
            at,
            node: node.clone(),
            drive: None,
            volume: None,
            claim: None,
            what,
            text: text.into(),
        };
        let of_drive = |at: u64, what: EventKind, text: &str| Event {
            drive: Some(drive.clone()),
            ..of_node(at, what, text)
        };
        let of_volume = |which: usize, at: u64, what: EventKind, text: &str| {
            let volume = self.volume(0, 0, which);
            Event {
                volume: Some(volume.id),
                claim: volume.claim,
                ..of_drive(at, what, text)
            }
        };
        let events = vec![
            of_drive(
                START - 600,
                EventKind::Acknowledged,
                "acknowledged by ann: replaced on Friday (it takes no new volumes)",
            ),
            of_volume(1, START - 3600, EventKind::SnapshotCreated, HOSTILE),
            of_volume(
                0,
                START - 7100,
                EventKind::VolumeCondition,
                "DriveFailing: its drive is failing; move the volume",
            ),
            of_drive(
                START - 7200,
                EventKind::Finding,
                "StatusFailed: the drive's own health status is \"failed\"; replace the drive",
            ),
            of_node(START - 2 * DAY, EventKind::Connected, "version 0.1.0"),
            of_node(
                START - 2 * DAY - 90,
                EventKind::Disconnected,
                "the connection was closed",
            ),
            of_volume(
                0,
                START - 6 * DAY,
                EventKind::Checked,
                "filesystem of volume pvc-0000000: clean",
            ),
        ];
        Box::pin(async move {
            Events {
                events,
                more: false,
            }
        })
    }
}

struct OneToken(String);

impl Review for OneToken {
    fn authenticate<'a>(&'a self, token: &'a str) -> Answer<'a, Result<Option<User>, Unavailable>> {
        let user = (token == self.0).then(User::default);
        Box::pin(async move { Ok(user) })
    }

    fn authorize<'a>(&'a self, _: &'a User, act: Act<'a>) -> Answer<'a, Result<bool, Unavailable>> {
        let may = !matches!(act, Act::ListClaims(namespace) if namespace != Some("shop"));
        Box::pin(async move { Ok(may) })
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9813".into());
    let mut number = |default: u64| {
        arguments
            .next()
            .map_or(default, |one| one.parse().expect("a number"))
    };
    let (nodes, drives) = (number(50), number(24));
    let access = match arguments.next() {
        None => Access::Open,
        Some(token) => Access::Tokens(Arc::new(Tokens::new(Arc::new(OneToken(token))))),
    };
    let fake = Arc::new(Fake {
        nodes,
        drives,
        tick: AtomicU64::new(0),
    });
    let listener = TcpListener::bind(address)
        .await
        .expect("the address is free");
    println!("http://{}/", listener.local_addr().expect("it is bound"));
    let page = Page::new(fake.clone(), access, CancellationToken::new());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fake.tick.fetch_add(1, Ordering::Relaxed);
        }
    });
    let error = http::serve_on(listener, page).await;
    eprintln!("{error}");
}

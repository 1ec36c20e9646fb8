//! A source and a reviewer for tests, both of which a test changes while they are used.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::{
    access::{Act, Review, Unavailable, User},
    model::{
        Activity, Drive, DriveDetail, DriveFacts, Event, EventKind, Events, Node, Volume, Volumes,
    },
    source::{Answer, NodeView, Source, Stamp},
};

/// A drive on which all is well.
pub(crate) fn drive(node: &str, id: &str, claims: &[&str]) -> Drive {
    Drive {
        facts: DriveFacts {
            node: node.into(),
            id: id.into(),
            device: None,
            bay: None,
            model: None,
            serial: None,
            media: None,
            bytes: 1,
            usable_bytes: None,
            free_bytes: None,
            class: None,
            state: "claimed".into(),
            verdict: "GOOD".into(),
            acknowledged: false,
            severity: None,
            unwanted: false,
            cordoned: false,
        },
        findings: Vec::new(),
        volumes: claims.len() as u64,
        claims: claims.iter().map(|one| (*one).to_owned()).collect(),
    }
}

/// A volume of a claim.
pub(crate) fn volume(node: &str, claim: &str) -> Volume {
    Volume {
        id: format!("v@{node}"),
        name: "pvc-1".into(),
        node: node.into(),
        drive: Some("d".into()),
        class: None,
        bytes: 1,
        used_bytes: None,
        claim: Some(claim.into()),
        persistent_volume: Some("pvc-1".into()),
        layout: None,
        filesystem: None,
        mode: "mount".into(),
        state: "ready".into(),
        in_use: false,
        created_at: None,
        conditions: Vec::new(),
        snapshots: Vec::new(),
    }
}

/// Nodes with drives. Counts how often a node was read.
#[derive(Debug, Default)]
pub(crate) struct TestSource {
    nodes: Mutex<BTreeMap<String, (u64, Vec<Drive>)>>,
    pub(crate) reads: AtomicUsize,
    /// Reading the nodes panics.
    pub(crate) is_broken: AtomicBool,
}

impl TestSource {
    pub(crate) fn put(&self, node: &str, drives: Vec<Drive>) {
        let mut nodes = self.nodes.lock().unwrap();
        let entry = nodes.entry(node.to_owned()).or_default();
        *entry = (entry.0 + 1, drives);
    }

    pub(crate) fn remove(&self, node: &str) {
        self.nodes.lock().unwrap().remove(node);
    }
}

impl Source for TestSource {
    fn host(&self) -> Option<String> {
        None
    }

    fn stamps(&self) -> Vec<(Arc<str>, Stamp)> {
        assert!(!self.is_broken.load(Ordering::Relaxed), "of a test");
        let nodes = self.nodes.lock().unwrap();
        let stamps = nodes
            .iter()
            .map(|(node, (stamp, _))| (node.as_str().into(), Stamp(*stamp)));
        stamps.collect()
    }

    fn node(&self, name: &str) -> Option<NodeView> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (_, drives) = self.nodes.lock().unwrap().get(name)?.clone();
        Some(NodeView {
            node: Node {
                name: name.into(),
                state: "connected".into(),
                away_since: None,
                away_seconds: None,
                version: None,
                findings: Vec::new(),
            },
            drives,
        })
    }

    fn drive<'a>(&'a self, node: &'a str, id: &'a str) -> Answer<'a, Option<DriveDetail>> {
        let drives = self.node(node).map(|view| view.drives).unwrap_or_default();
        let drive = drives.into_iter().find(|drive| drive.facts.id == id);
        Box::pin(async move {
            let drive = drive?;
            Some(DriveDetail {
                volumes: drive
                    .claims
                    .iter()
                    .map(|claim| volume(node, claim))
                    .collect(),
                claims: drive.claims,
                facts: drive.facts,
                findings: Vec::new(),
                commands: Vec::new(),
                notes: Vec::new(),
                smart: Vec::new(),
                smart_answered_at: None,
                smart_failure: None,
                latency: None,
                unreadable: None,
                unreadable_more: false,
                temperature_celsius: None,
                power_on_hours: None,
                wear_percent: None,
                firmware: None,
                wwn: None,
                transport: None,
                path: None,
                largest_free_bytes: None,
                cordon: None,
                verdict_since: None,
            })
        })
    }

    fn volumes(&self) -> Answer<'_, Volumes> {
        let nodes = self.nodes.lock().unwrap();
        let drives = nodes
            .iter()
            .flat_map(|(node, (_, drives))| drives.iter().map(move |drive| (node, drive)));
        let volumes = drives
            .flat_map(|(node, drive)| drive.claims.iter().map(move |claim| volume(node, claim)));
        let volumes = volumes.collect();
        Box::pin(async move {
            Volumes {
                volumes,
                more: false,
            }
        })
    }

    fn activity(&self) -> Answer<'_, Activity> {
        Box::pin(async { Activity::default() })
    }

    /// The creation of each volume.
    fn history(&self) -> Answer<'_, Events> {
        Box::pin(async {
            let volumes = self.volumes().await.volumes.into_iter();
            let events = volumes.map(|volume| Event {
                at: 1,
                node: volume.node,
                drive: volume.drive,
                volume: Some(volume.id),
                claim: volume.claim,
                what: EventKind::VolumeCreated,
                text: "volume pvc-1 created".into(),
            });
            Events {
                events: events.collect(),
                more: false,
            }
        })
    }
}

/// Users by token, and what each may do. Counts reviews of tokens.
#[derive(Debug, Default)]
pub(crate) struct TestReview {
    /// Token, and the namespaces whose claims it may list; `*`: all. Without an entry it is no token.
    pub(crate) tokens: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Users that may read drives.
    pub(crate) readers: Mutex<BTreeSet<String>>,
    pub(crate) reviews: AtomicUsize,
    pub(crate) is_down: Mutex<bool>,
}

impl TestReview {
    /// Adds a reader, whose token is its name.
    pub(crate) fn reader(&self, name: &str, namespaces: &[&str]) {
        let namespaces = namespaces.iter().map(|one| (*one).to_owned()).collect();
        self.tokens.lock().unwrap().insert(name.into(), namespaces);
        self.readers.lock().unwrap().insert(name.into());
    }

    fn check(&self) -> Result<(), Unavailable> {
        match *self.is_down.lock().unwrap() {
            true => Err(Unavailable("down".into())),
            false => Ok(()),
        }
    }
}

impl Review for TestReview {
    fn authenticate<'a>(&'a self, token: &'a str) -> Answer<'a, Result<Option<User>, Unavailable>> {
        Box::pin(async move {
            self.reviews.fetch_add(1, Ordering::Relaxed);
            self.check()?;
            let exists = self.tokens.lock().unwrap().contains_key(token);
            Ok(exists.then(|| User {
                name: token.to_owned(),
                ..User::default()
            }))
        })
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        act: Act<'a>,
    ) -> Answer<'a, Result<bool, Unavailable>> {
        Box::pin(async move {
            self.check()?;
            Ok(match act {
                Act::OpenPage => self.readers.lock().unwrap().contains(&user.name),
                Act::ListClaims(namespace) => {
                    let tokens = self.tokens.lock().unwrap();
                    let of = tokens.get(&user.name);
                    of.is_some_and(|of| of.contains(namespace.unwrap_or("*")))
                }
            })
        })
    }
}

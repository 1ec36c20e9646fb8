//! The current fleet and its changes. One task reads it, only while a page is open, at most twice a second, and only nodes that have
//! changed. When that task ends, so do streams and requests: a page must not show an old fleet as the current one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::body::Bytes;
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::Visibility,
    model::{Drive, Node},
    render,
    renderings::Renderings,
    source::{NodeView, Source, Stamp},
};

/// Shortest time between two readings, and so between two changes.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);
/// Changes kept for streams that connect again, …
const KEPT: usize = 64;
/// … and drives in them. A change with more is not sent: streams get `reset`.
const KEPT_DRIVES: usize = 4096;
/// Events that a slow stream may be behind; beyond them it gets `reset`.
const BEHIND: usize = 16;

/// A node and its drives.
#[derive(Debug)]
pub(crate) struct Entry {
    stamp: Stamp,
    pub(crate) node: Arc<Node>,
    pub(crate) drives: Vec<Arc<Drive>>,
}

/// All nodes and drives at one moment.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) revision: u64,
    pub(crate) at: u64,
    pub(crate) nodes: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Namespaces of all claims.
    pub(crate) namespaces: Arc<BTreeSet<Arc<str>>>,
    renderings: Renderings,
}

impl Fleet {
    /// Returns the fleet as JSON, for readers of this visibility.
    pub(crate) fn json(&self, visibility: &Visibility) -> Bytes {
        self.renderings
            .get(visibility, || render::fleet(self, visibility))
    }
}

/// Differences between one revision and the next.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) drives: Vec<Arc<Drive>>,
    /// Node and identity of drives that are not known any more.
    pub(crate) removed: Vec<(String, String)>,
    renderings: Renderings,
}

impl Change {
    /// Returns the change as an event, for streams of this visibility.
    pub(crate) fn event(&self, visibility: &Visibility) -> Bytes {
        self.renderings
            .get(visibility, || render::change(self, visibility))
    }
}

/// An event of all streams.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Change(Arc<Change>),
    /// The client has to read the whole fleet again.
    Reset,
}

#[derive(Debug, Clone)]
struct Published {
    fleet: Arc<Fleet>,
    read_at: Option<Instant>,
    // The last request that this answers.
    answers: u64,
}

/// The fleet and its changes, shared by all requests.
#[derive(Debug)]
pub(crate) struct Live {
    published: watch::Sender<Published>,
    requests: watch::Sender<u64>,
    streams: watch::Sender<usize>,
    events: broadcast::Sender<Event>,
    kept: Mutex<VecDeque<Arc<Change>>>,
    // The fleet is not read any more.
    ended: CancellationToken,
}

/// A stream's place in the events. The fleet is read while one exists.
#[derive(Debug)]
pub(crate) struct Subscription {
    live: Arc<Live>,
    events: broadcast::Receiver<Event>,
    backlog: VecDeque<Event>,
    // Changes up to this revision were sent, or are not needed.
    past: u64,
}

impl Live {
    /// Starts to follow `source`, until `stop`. Must be called within a tokio runtime.
    pub(crate) fn start(source: Arc<dyn Source>, stop: CancellationToken) -> Arc<Self> {
        // Grows over restarts, so that a stream of an earlier process is not taken for a current one.
        let first = drivebay_view::unix_seconds().saturating_mul(1000);
        let fleet = Fleet {
            revision: first,
            ..Fleet::default()
        };
        let live = Arc::new(Self {
            published: watch::Sender::new(Published {
                fleet: Arc::new(fleet),
                read_at: None,
                answers: 0,
            }),
            requests: watch::Sender::new(0),
            streams: watch::Sender::new(0),
            events: broadcast::Sender::new(BEHIND),
            kept: Mutex::default(),
            ended: CancellationToken::new(),
        });
        let follow = live.clone().follow(source);
        // Dropped at the end of the task, also by a panic.
        let ended = live.ended.clone().drop_guard();
        tokio::spawn(async move {
            let _ended = ended;
            stop.run_until_cancelled(follow).await
        });
        live
    }

    /// Returns the fleet, no older than [`PERIOD`] before the call; None: it is not read any more, after a stop or a panic.
    pub(crate) async fn fleet(&self) -> Option<Arc<Fleet>> {
        if self.ended.is_cancelled() {
            return None;
        }
        let mut published = self.published.subscribe();
        {
            let now = published.borrow();
            if now.read_at.is_some_and(|at| at.elapsed() < PERIOD) {
                return Some(now.fleet.clone());
            }
        }
        let mut request = 0;
        self.requests.send_modify(|last| {
            *last += 1;
            request = *last;
        });
        let answered = published.wait_for(|now| now.answers >= request);
        let answered = self.ended.run_until_cancelled(answered).await?;
        answered.ok().map(|now| now.fleet.clone())
    }

    /// Returns the fleet that was read last.
    pub(crate) fn last(&self) -> Arc<Fleet> {
        self.published.borrow().fleet.clone()
    }

    /// Begins a stream with what came after revision `since`; a reset if that is not known any more.
    pub(crate) fn subscribe(self: &Arc<Self>, since: Option<u64>) -> Subscription {
        let events = self.events.subscribe();
        self.streams.send_modify(|count| *count += 1);
        let current = self.last().revision;
        let mut backlog = VecDeque::new();
        let mut past = current;
        if let Some(since) = since.filter(|since| *since != current) {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            // Revisions grow by one, and a reset empties what is kept.
            let follows = kept
                .front()
                .is_some_and(|first| first.revision <= since.saturating_add(1));
            if follows && since < current {
                let missed = kept.iter().filter(|one| one.revision > since);
                backlog.extend(missed.cloned().map(Event::Change));
                past = kept.back().map_or(current, |last| last.revision);
            } else {
                backlog.push_back(Event::Reset);
            }
        }
        Subscription {
            live: self.clone(),
            events,
            backlog,
            past,
        }
    }

    async fn follow(self: Arc<Self>, source: Arc<dyn Source>) {
        let (mut requests, mut streams) = (self.requests.subscribe(), self.streams.subscribe());
        let mut first = true;
        loop {
            let answers = *requests.borrow_and_update();
            let began = Instant::now();
            let before = self.last();
            let (fleet, event) = read(&*source, &before, first).await;
            first = false;
            // Kept before it is published: a stream that begins with the revision finds the change.
            if let Some(event) = &event {
                self.keep(event);
            }
            self.published.send_replace(Published {
                fleet: Arc::new(fleet),
                read_at: Some(began),
                answers,
            });
            if let Some(event) = event {
                // Errs without streams.
                let _ = self.events.send(event);
            }
            sleep_until(began + PERIOD).await;
            if *streams.borrow_and_update() == 0 {
                tokio::select! {
                    _ = requests.wait_for(|last| *last > answers) => {}
                    _ = streams.wait_for(|count| *count > 0) => {}
                }
            }
        }
    }

    fn keep(&self, event: &Event) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Reset => kept.clear(),
            Event::Change(change) => {
                kept.push_back(change.clone());
                let drives = |kept: &VecDeque<Arc<Change>>| {
                    kept.iter().map(|one| one.drives.len()).sum::<usize>()
                };
                while kept.len() > KEPT || drives(&kept) > KEPT_DRIVES {
                    kept.pop_front();
                }
            }
        }
    }
}

impl Subscription {
    /// Returns the next event; None: the fleet is not read any more, after a stop or a panic. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.backlog.pop_front() {
            return Some(event);
        }
        loop {
            let ended = &self.live.ended;
            match ended.run_until_cancelled(self.events.recv()).await? {
                Ok(Event::Change(change)) if change.revision <= self.past => {}
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Event::Reset),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.live.streams.send_modify(|count| *count -= 1);
    }
}

/// Reads what changed since `before`. `quiet`: no client can have `before`, so there is no event.
async fn read(source: &dyn Source, before: &Fleet, quiet: bool) -> (Fleet, Option<Event>) {
    let mut nodes = BTreeMap::new();
    let mut change = Change::default();
    for (name, stamp) in source.stamps() {
        let former = before.nodes.get(&name);
        if let Some(former) = former.filter(|former| former.stamp == stamp) {
            nodes.insert(name, former.clone());
            continue;
        }
        let Some(view) = source.node(&name) else {
            continue;
        };
        let entry = entry(view, stamp, former.map(|former| &**former), &mut change);
        nodes.insert(name, Arc::new(entry));
        // A fleet of thousands of nodes must not keep a thread of the runtime.
        tokio::task::yield_now().await;
    }
    let node_is_gone = before.nodes.keys().any(|name| !nodes.contains_key(name));
    let changed =
        !(change.nodes.is_empty() && change.drives.is_empty() && change.removed.is_empty());
    let changed = changed || node_is_gone;
    let revision = before.revision + u64::from(changed);
    change.revision = revision;
    let namespaces = match changed {
        true => Arc::new(namespaces(&nodes)),
        false => before.namespaces.clone(),
    };
    let event = match changed && !quiet {
        false => None,
        true if node_is_gone || change.drives.len() > KEPT_DRIVES => Some(Event::Reset),
        true => Some(Event::Change(Arc::new(change))),
    };
    let fleet = Fleet {
        revision,
        at: drivebay_view::unix_seconds(),
        nodes,
        namespaces,
        renderings: Renderings::default(),
    };
    (fleet, event)
}

/// Returns the entry of a node, with unchanged drives shared with `before`, and adds what differs to `change`.
fn entry(view: NodeView, stamp: Stamp, before: Option<&Entry>, change: &mut Change) -> Entry {
    let NodeView { node, drives } = view;
    let node = match before {
        Some(former) if is_same(&former.node, &node) => former.node.clone(),
        _ => {
            let node = Arc::new(node);
            change.nodes.push(node.clone());
            node
        }
    };
    let mut former_drives: HashMap<&str, &Arc<Drive>> = before
        .iter()
        .flat_map(|before| &before.drives)
        .map(|drive| (&*drive.facts.id, drive))
        .collect();
    let drives = drives
        .into_iter()
        .map(|drive| match former_drives.remove(&*drive.facts.id) {
            Some(former) if **former == drive => former.clone(),
            _ => {
                let drive = Arc::new(drive);
                change.drives.push(drive.clone());
                drive
            }
        });
    let drives = drives.collect();
    let gone = former_drives.into_values();
    let gone = gone.map(|drive| (drive.facts.node.clone(), drive.facts.id.clone()));
    change.removed.extend(gone);
    Entry {
        stamp,
        node,
        drives,
    }
}

// The duration of a disconnection grows by itself.
fn is_same(one: &Node, other: &Node) -> bool {
    let other = Node {
        away_seconds: one.away_seconds,
        ..other.clone()
    };
    *one == other
}

fn namespaces(nodes: &BTreeMap<Arc<str>, Arc<Entry>>) -> BTreeSet<Arc<str>> {
    let drives = nodes.values().flat_map(|entry| &entry.drives);
    let claims = drives.flat_map(|drive| &drive.claims);
    let mut all: BTreeSet<&str> = BTreeSet::new();
    all.extend(claims.filter_map(|claim| claim.split_once('/').map(|(namespace, _)| namespace)));
    all.into_iter().map(Arc::from).collect()
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;

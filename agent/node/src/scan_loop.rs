//! Keeps the inventory up to date: scans after kernel events, on request, and periodically in case events were lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::NodeContext,
    inventory::{InventoryState, is_newer, present::Observed, unscanned},
};
use drivebay_discovery::{
    claim::Rules,
    scan::{Listener, Questions, Scanned, Settings, scan},
    system::HostUse,
    udev::Changed,
};
use drivebay_layout::jobs::ReadDrive;
use drivebay_model::{
    Contents, Drive, DriveFacts, DriveId, DriveRef, DriveState, Placed, Snapshot, Stamp,
    cause::chain,
};
use drivebay_sys::{
    clock::since_boot,
    dm,
    host_udev::{self, HostUdev},
    offload::offload,
};
use drivebay_worker::{RunError, Slot};

/// Longest time for which a scan waits for one drive. Most drives are read in a few milliseconds; one that has to spin
/// up first is shown some seconds later.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest duration of a repair.
const REPAIR_DEADLINE: Duration = Duration::from_secs(60);
/// Concurrent repairs on the whole node; they start tools where the layout is `lvm`.
const REPAIRS: usize = 8;
/// Interval at which drives without an answer are scanned again. A stuck one costs nothing: its slot answers at once.
const RETRY: Duration = Duration::from_secs(5);
/// Number of scans after which a drive that cannot be read is left to the periodic scan.
const UNREAD_MAX: u32 = 6;
/// Requests that may wait for the running scan.
const QUEUE: usize = 16;

/// Handle for requesting scans of all drives. Clones share one queue, and a request waits while the queue is full.
#[derive(Debug, Clone)]
pub struct Rescans(mpsc::Sender<oneshot::Sender<Result<u64, String>>>);

impl Rescans {
    /// Scans every drive, and returns the revision that shows the result, once the repairs that the scan began have
    /// ended.
    pub async fn now(&self) -> Result<u64, String> {
        let stopping = || "the agent is stopping".to_owned();
        let (answer, result) = oneshot::channel();
        self.0.send(answer).await.map_err(|_| stopping())?;
        result.await.map_err(|_| stopping())?
    }
}

/// Receiving end of scan requests, for the loop.
pub type Requests = mpsc::Receiver<oneshot::Sender<Result<u64, String>>>;

/// Creates the channel for scan requests.
pub fn rescans() -> (Rescans, Requests) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Rescans(sender), receiver)
}

/// True if a drive is scanned again soon: its answer was late, or it could not be read in the last few scans. One that
/// can never be read is left to the periodic scan after a while. Pure.
fn is_scanned_again(drive: &Scanned) -> bool {
    drive.seen.late > 0 || (1..=UNREAD_MAX).contains(&drive.seen.unread)
}

/// Device-mapper uuid and number of the changed devices, by kernel name; None: the device does not exist any more.
type Changes = BTreeMap<String, Option<(String, (u32, u32))>>;

/// Returns the kernel names of drives with a volume whose device-mapper device is not the recorded one, by the changed
/// devices. Pure.
fn moved(snapshot: &Snapshot, changes: &Changes) -> BTreeSet<String> {
    let is_moved = |placed: &Placed| {
        placed.dm_uuid.as_ref().is_some_and(|uuid| {
            changes.iter().any(|(name, now)| {
                let its = now.as_ref().filter(|(of, _)| of == uuid);
                if placed.device.as_ref() == Some(name) {
                    its.map(|(_, dev)| *dev) != placed.dev
                } else {
                    its.is_some()
                }
            })
        })
    };
    snapshot
        .volumes
        .values()
        .filter(|volume| is_moved(&volume.placed))
        .filter_map(|volume| snapshot.drives.get(&volume.drive))
        .map(|drive| drive.facts.kernel_name.clone())
        .collect()
}

/// Returns the inventory key of each drive: its identity; devices that share one get their kernel name appended, so
/// that all are listed. A path that the kernel hides is no second device. Pure.
fn keys(drives: &[DriveFacts]) -> Vec<DriveId> {
    let mut count: BTreeMap<&DriveId, u32> = BTreeMap::new();
    for drive in drives.iter().filter(|drive| !drive.hidden) {
        *count.entry(&drive.id).or_default() += 1;
    }
    drives
        .iter()
        .map(|drive| match count.get(&drive.id) {
            Some(1) if !drive.hidden => drive.id.clone(),
            _ => DriveId(format!("{}.{}", drive.id, drive.kernel_name)),
        })
        .collect()
}

struct Scanner {
    node: NodeContext,
    rules: Rules,
    settings: Settings,
    last: Vec<Scanned>,
    /// True if the last scan failed as a whole.
    failed: bool,
    /// Time at which all drives without an answer were last scanned.
    retried_at: Instant,
    /// Drives (key and diskseq) and sequence numbers of their contents for which a repair was tried since the last
    /// periodic scan. A repair opens the drive for writing, which udevd answers with an event, which leads to a scan: a
    /// repair that fails must not be repeated in a loop.
    tried: BTreeSet<(DriveId, u64, u64)>,
    repairs: Arc<Semaphore>,
}

/// Scans all drives once, for a command that runs without an agent. Repairs nothing.
pub async fn scan_once(node: NodeContext, rules: Rules) -> Result<(), String> {
    let mut scanner = Scanner::new(node, rules);
    let result = scanner
        .scan_and_publish(None, None, &mut Questions::default())
        .await;
    result.map(drop)
}

/// Runs until `stop` is cancelled, or the sender of `requests` is dropped.
pub async fn run(
    node: NodeContext,
    rules: Rules,
    mut requests: Requests,
    mut events: mpsc::Receiver<Changed>,
    stop: CancellationToken,
) {
    let mut slow = tokio::time::interval(node.config().rescan);
    slow.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut scanner = Scanner::new(node, rules);
    let mut questions = Questions::default();
    let mut events_end = false;
    // By then every drive has appeared; an absent one is missing.
    let grace = scanner.node.config().boot_grace;
    let left = grace.checked_sub(since_boot());
    let mut grace_ends = left.map(|left| Instant::now() + left);
    loop {
        let mut late = BTreeSet::new();
        // The first tick comes at once: the first scan.
        let (only, mut waiting) = tokio::select! {
            () = stop.cancelled() => return,
            _ = slow.tick() => {
                scanner.tried.clear();
                (None, Vec::new())
            }
            request = requests.recv() => match request {
                Some(request) => (None, vec![request]),
                None => return,
            },
            troubled = scanner.troubled() => (troubled, Vec::new()),
            () = sleep_until(grace_ends.unwrap_or_else(Instant::now)), if grace_ends.is_some() => {
                grace_ends = None;
                (Some(BTreeSet::new()), Vec::new())
            }
            // After a failed scan the next one probes all drives.
            names = questions.answered(), if !scanner.failed => {
                late = names;
                (Some(BTreeSet::new()), Vec::new())
            }
            changed = events.recv(), if !events_end => match changed {
                Some(Changed { lost: true, .. }) => (None, Vec::new()),
                Some(Changed { names, .. }) => (Some(names), Vec::new()),
                None => {
                    tracing::error!("kernel event stream ended; drives are scanned periodically only");
                    events_end = true;
                    continue;
                }
            },
        };
        // Requests made before the scan began are answered by it.
        while let Ok(request) = requests.try_recv() {
            waiting.push(request);
        }
        let only = only.filter(|_| waiting.is_empty());
        // A request waits for every drive's answer.
        let patience = waiting.is_empty().then_some(PATIENCE);
        let scanned = async {
            let only = match only {
                Some(names) => Some(scanner.with_moved(names).await),
                None => None,
            };
            let scanned = scanner.once(only.as_ref(), patience, &mut questions);
            (scanned.await, only)
        };
        let (result, only) = tokio::select! {
            () = stop.cancelled() => return,
            scanned = scanned => scanned,
        };
        let (result, repairs) = match result {
            Ok((revision, repairs)) => (Ok(revision), repairs),
            Err(why) => (Err(why), JoinSet::new()),
        };
        scanner.failed = result.is_err();
        let silent = scanner.silent(&scanner.node.inventory().current());
        if only.is_none_or(|mut only| {
            only.extend(late);
            silent.is_subset(&only)
        }) {
            scanner.retried_at = Instant::now();
        }
        if result.is_ok() {
            scanner.node.inventory().scanned();
        }
        if let Err(why) = &result {
            tracing::error!(
                why,
                "drive scan failed; keeping the previous inventory, will retry"
            );
        }
        tokio::spawn(answer(scanner.node.clone(), repairs, result, waiting));
    }
}

/// Answers the requests for a scan, once its repairs have ended. Nothing else waits for them: a repair that hangs
/// delays neither other drives nor the next scan.
async fn answer(
    node: NodeContext,
    mut repairs: JoinSet<()>,
    result: Result<u64, String>,
    waiting: Vec<oneshot::Sender<Result<u64, String>>>,
) {
    let repaired = !repairs.is_empty();
    // A repair that panicked is in the log.
    while repairs.join_next().await.is_some() {}
    let result = match result {
        Ok(revision) if repaired => node
            .mounts()
            .reread()
            .map(|later| later.max(revision))
            .map_err(|error| chain(&error)),
        result => result,
    };
    for reply in waiting {
        // The requester may have stopped waiting.
        let _ = reply.send(result.clone());
    }
}

impl Scanner {
    fn new(node: NodeContext, rules: Rules) -> Self {
        Self {
            settings: Settings::here(node.config().kubelet_dir.clone()),
            node,
            rules,
            last: Vec::new(),
            failed: false,
            retried_at: Instant::now(),
            tried: BTreeSet::new(),
            repairs: Arc::new(Semaphore::new(REPAIRS)),
        }
    }

    /// Returns the drives to scan again, at least `RETRY` after the last attempt; None, for all, after a failed scan.
    /// Waits while every drive answers: an operation may find one that does not, between two scans.
    async fn troubled(&self) -> Option<BTreeSet<String>> {
        let due = self.retried_at + RETRY;
        if self.failed {
            sleep_until(due).await;
            return None;
        }
        let mut snapshots = self.node.inventory().subscribe();
        loop {
            let names = self.silent(&snapshots.borrow_and_update());
            if !names.is_empty() {
                sleep_until(due).await;
                return Some(names);
            }
            if snapshots.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Adds the drives whose volumes have another device than recorded, or none any more, by the device-mapper devices
    /// in `names`.
    async fn with_moved(&self, mut names: BTreeSet<String>) -> BTreeSet<String> {
        let changed: Vec<_> = names.iter().filter(|name| dm::is_one(name)).collect();
        if !changed.is_empty() {
            let changed: Vec<_> = changed.into_iter().cloned().collect();
            let sys = self.settings.sys.clone();
            let read = offload("dm", self.settings.deadline, move || {
                let changed = changed.into_iter();
                let now = changed.map(|name| Ok((name.clone(), dm::identify(&sys, &name)?)));
                now.collect::<io::Result<Changes>>()
            });
            match read.await.and_then(|read| read) {
                Ok(changes) => {
                    names.extend(moved(&self.node.inventory().current(), &changes));
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot read device-mapper devices; a volume's new device is found by the periodic scan");
                }
            }
        }
        names
    }

    /// Returns the drives that gave no answer, none in time, or could not be read in the last few scans.
    fn silent(&self, snapshot: &Snapshot) -> BTreeSet<String> {
        let late = self.last.iter().filter(|drive| is_scanned_again(drive));
        let late = late.map(|drive| &drive.facts);
        let troubled = snapshot
            .drives
            .values()
            .filter(|drive| drive.trouble.is_some() && drive.state.is_present())
            .map(|drive| &drive.facts);
        troubled
            .chain(late)
            .map(|facts| facts.kernel_name.clone())
            .collect()
    }

    /// Runs one scan: probes `only` these kernel names, or all. Returns the revision that shows it, and the repairs it
    /// began.
    async fn once(
        &mut self,
        only: Option<&BTreeSet<String>>,
        patience: Option<Duration>,
        questions: &mut Questions,
    ) -> Result<(u64, JoinSet<()>), String> {
        let (revision, keys) = self.scan_and_publish(only, patience, questions).await?;
        let mut repairs = JoinSet::new();
        let snapshot = self.node.inventory().current();
        for (key, drive) in keys.iter().zip(&self.last) {
            let shown = snapshot.drives.get(key);
            // If a drive was copied, neither of the two is changed.
            if shown.is_some_and(|drive| drive.state == DriveState::Claimed)
                && let Some(contents) = &drive.seen.contents
                && contents.needs_repair()
                && self
                    .tried
                    .insert((key.clone(), drive.facts.diskseq, contents.sequence))
            {
                let permits = Arc::clone(&self.repairs);
                let (node, key) = (self.node.clone(), key.clone());
                let drive = DriveRef::from(&drive.facts);
                repairs.spawn(async move {
                    // The semaphore is never closed.
                    let _permit = permits.acquire_owned().await;
                    repair(&node, &key, drive).await;
                });
            }
        }
        self.node
            .mounts()
            .reread()
            .map(|later| (later.max(revision), repairs))
            .map_err(|error| chain(&error))
    }

    /// Scans and publishes. Returns the revision that shows it, and the key of each drive of `last`.
    async fn scan_and_publish(
        &mut self,
        only: Option<&BTreeSet<String>>,
        patience: Option<Duration>,
        questions: &mut Questions,
    ) -> Result<(u64, Vec<DriveId>), String> {
        match only {
            Some(names) => tracing::debug!(?names, "scanning changed drives"),
            None => tracing::debug!("scanning all drives"),
        }
        // A copy: a failed or interrupted scan must keep the results of the previous one.
        let mut previous = self.last.clone();
        refresh(&self.node.inventory().current(), &mut previous);
        self.settings.patience = patience;
        self.settings.known = known_facts(&self.node.inventory().current());
        let scanned = scan(
            self.node.pool(),
            &self.rules,
            &self.settings,
            only,
            previous,
            questions,
            &*self,
        )
        .await
        .map_err(|error| chain(&error))?;
        for drive in scanned.drives.iter().filter(|drive| drive.seen.late > 0) {
            tracing::warn!(
                drive = %drive.facts.id,
                times = drive.seen.late,
                "drive scan timed out; keeping previous result"
            );
        }
        let facts: Vec<_> = scanned
            .drives
            .iter()
            .map(|drive| drive.facts.clone())
            .collect();
        let keys = keys(&facts);
        let host_udev = self.host_udev(&scanned.host).await;
        let revision = self.publish(&keys, &scanned.drives, host_udev);
        self.last = scanned.drives;
        Ok((revision, keys))
    }

    /// Reads the host's udev; None where pid 1 is not the host's, or it cannot be read.
    async fn host_udev(&self, host: &HostUse) -> Option<HostUdev> {
        if host.unknown.is_some() {
            return None;
        }
        let root = self.settings.proc.join("1/root");
        let read = offload("host-udev", self.settings.deadline, move || {
            host_udev::read(&root)
        });
        match read.await.and_then(|read| read) {
            Ok(udev) => Some(udev),
            Err(error) => {
                tracing::debug!(%error, "cannot read the host's udev rules");
                None
            }
        }
    }

    fn publish(&self, keys: &[DriveId], drives: &[Scanned], host_udev: Option<HostUdev>) -> u64 {
        self.node.inventory().update(|state| {
            state.host_udev = host_udev;
            let mut troubles = drives
                .iter()
                .filter_map(|drive| drive.seen.host_trouble.clone());
            state.host_trouble = troubles.next();
            let here: BTreeSet<&DriveId> = keys.iter().collect();
            state.drives.retain(|id, _| here.contains(id));
            state.stuck.retain(|id, _| here.contains(id));
            for (key, drive) in keys.iter().zip(drives) {
                take_in(state, key, drive);
            }
            state.ready = true;
        })
    }
}

impl Listener for Scanner {
    fn enumerated(&self, all: &[DriveFacts]) {
        let inventory = self.node.inventory();
        // None is left after the first scans.
        if inventory.unscanned().is_none() {
            return;
        }
        let complete = since_boot() >= self.node.config().boot_grace;
        let keys = keys(all);
        inventory.update(|state| {
            let present = keys.iter().collect();
            unscanned::enumerate(&mut state.unscanned, &present, complete);
        });
    }

    fn scanned(&self, all: &[DriveFacts], drives: Vec<Scanned>) {
        let names = all.iter().map(|facts| facts.kernel_name.as_str());
        let keys: BTreeMap<&str, DriveId> = names.zip(keys(all)).collect();
        self.node.inventory().update(|state| {
            for drive in &drives {
                if let Some(key) = keys.get(drive.facts.kernel_name.as_str()) {
                    take_in(state, key, drive);
                }
            }
        });
    }
}

/// Applies the result of scanning one drive.
fn take_in(state: &mut InventoryState, key: &DriveId, drive: &Scanned) {
    let before = state.drives.remove(key);
    let results = &drive.seen;
    let observed = settle(observed(drive), before, results.begun);
    match &results.trouble {
        Some(why) if results.stuck => state.stuck.insert(key.clone(), why.clone()),
        _ => state.stuck.remove(key),
    };
    if results.trouble.is_none() {
        state.unscanned.remove(key);
    }
    state.drives.insert(key.clone(), observed);
}

async fn repair(node: &NodeContext, key: &DriveId, drive: DriveRef) {
    let id = drive.id.clone();
    let job = ReadDrive {
        drive,
        repair: true,
    };
    let pool = node.pool();
    match pool
        .run((&id, Slot::Foreground), job, REPAIR_DEADLINE)
        .await
    {
        Ok(contents) => {
            for note in &contents.notes {
                tracing::error!(drive = %id, note, "drive metadata repaired or in need of repair");
            }
            node.inventory().put_contents(key, contents);
        }
        Err(error @ (RunError::Busy { .. } | RunError::Stopping)) => {
            tracing::info!(drive = %id, error = %chain(&error), "drive repair postponed to the next periodic scan");
        }
        Err(error) => {
            tracing::error!(drive = %id, error = %chain(&error), "drive repair failed; drive left unchanged");
        }
    }
}

/// Returns the facts of all drives of a snapshot, also missing ones. Pure.
fn known_facts(snapshot: &Snapshot) -> BTreeMap<DriveId, DriveFacts> {
    let drives = snapshot.drives.iter();
    drives
        .map(|(id, drive)| (id.clone(), drive.facts.clone()))
        .collect()
}

/// Updates previous results with the contents that jobs have read since the last scan, for drives that are not probed
/// again. A drive that a job has claimed is probed again: its probe result predates the claim. Pure.
fn refresh(now: &Snapshot, previous: &mut [Scanned]) {
    for drive in previous {
        let current = now.drives.get(&drive.facts.id);
        let same = |current: &&Drive| {
            // Kernels before 5.15 have no diskseq.
            (current.facts.diskseq, &current.facts.kernel_name)
                == (drive.facts.diskseq, &drive.facts.kernel_name)
        };
        if let Some(current) = current.filter(same)
            && let Some(contents) = &current.contents
        {
            if label_of(drive.seen.contents.as_ref()) != label_of(Some(contents)) {
                drive.seen.probed = None;
            }
            drive.seen.contents = Some(contents.clone());
        }
    }
}

fn label_of(contents: Option<&Contents>) -> Option<uuid::Uuid> {
    contents.map(|contents| contents.label.drive_uuid)
}

/// Merges the result `scanned` of a scan with the state `before`; `begun` is the stamp of the drive's contents when the
/// scan began. Contents that a job read meanwhile win over contents that the scan read earlier; otherwise the scan's
/// contents win. The scan's judgement is kept in any case. Pure.
fn settle(mut scanned: Observed, before: Option<Observed>, begun: Option<Stamp>) -> Observed {
    let Some(before) = before.filter(|before| before.facts.diskseq == scanned.facts.diskseq) else {
        return scanned;
    };
    let stamp = before.contents.as_ref().map(Contents::stamp);
    let answered = stamp.is_some() && stamp != begun;
    let is_older = match &scanned.contents {
        None => answered,
        Some(contents) => !is_newer(before.contents.as_ref(), contents),
    };
    if is_older {
        scanned.contents = before.contents;
    }
    scanned
}

/// Converts a scan result to the inventory's type. Pure.
fn observed(drive: &Scanned) -> Observed {
    let results = &drive.seen;
    Observed {
        facts: drive.facts.clone(),
        judgement: drive.judgement.clone(),
        judged: results.contents.as_ref().map(Contents::stamp),
        contents: results.contents.clone(),
        trouble: results.trouble.clone(),
    }
}

#[cfg(test)]
#[path = "scan_loop_tests.rs"]
mod tests;

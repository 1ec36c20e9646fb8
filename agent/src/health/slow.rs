//! Compares the latencies of the node's drives: reads the kernel's counters several times a minute, hands each minute to the
//! comparison, and keeps over a restart what it knows.
//!
//! It reads sysfs only, which waits for no drive, and starts no process. A finding is held while nothing can be told.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::acknowledge::AcknowledgeError;
use crate::{
    evidence::registry::Source,
    model::{Drive, DriveId, DriveState, Finding, Snapshot, finding::Code},
    slow::{Comparison, Counters, Direction, Flow, Input, Kept, Kind, Minute, Slice, Slowdown},
    sys::{
        blockstat::{self, Counted, Requests, SYSFS_DEADLINE},
        clock::unix_seconds,
        offload::{blocking, offload},
        statefile,
    },
    volumes::Volumes,
};

/// Times that the counters are read in a minute.
const SLICES: u32 = 12;
/// Minutes between two writes of what is known, when nothing else happens.
const SAVE_EVERY: u32 = 30;
/// A hundred drives with four hours each have about 10 MiB.
const MAX_FILE: u64 = 64 * 1024 * 1024;
const FILE_DEADLINE: Duration = Duration::from_secs(10);
/// Acknowledgements come one at a time.
const QUEUE: usize = 1;
/// Of the file.
pub const VERSION: u32 = 1;

/// Hands over that an operator has seen that a drive is slow. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<Request>);

/// One acknowledgement.
#[derive(Debug)]
pub struct Request {
    drive: DriveId,
    done: oneshot::Sender<Result<Vec<Finding>, AcknowledgeError>>,
}

impl Acknowledger {
    /// The handle, and what the task takes.
    pub fn new() -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Answers what does not count any more, when that is durable.
    pub(super) async fn acknowledge(
        &self,
        drive: DriveId,
    ) -> Result<Vec<Finding>, AcknowledgeError> {
        let (done, answer) = oneshot::channel();
        let stopping = || AcknowledgeError::Stopping;
        let sent = self.0.send(Request { drive, done }).await;
        sent.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

/// What is kept over a restart.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered {
    version: u32,
    drives: BTreeMap<DriveId, RememberedDrive>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RememberedDrive {
    kind: Kind,
    #[serde(flatten)]
    kept: Kept,
}

/// The counters of one drive, and what came of them in this minute.
#[derive(Debug)]
struct Watched {
    /// Of this appearance of the device.
    name: String,
    diskseq: u64,
    last: Option<(Instant, Counters)>,
    slices: Vec<Slice>,
    erasing: bool,
    checking: bool,
}

struct Task {
    volumes: Volumes,
    path: PathBuf,
    comparison: Comparison,
    watched: BTreeMap<DriveId, Watched>,
    unsaved: u32,
}

/// Compares until `stop`.
pub async fn run(
    volumes: Volumes,
    mut acknowledgements: mpsc::Receiver<Request>,
    stop: CancellationToken,
) {
    let path = volumes.config().state_dir.join("latency.json");
    let mut task = Task {
        comparison: load(&path).await,
        volumes,
        path,
        watched: BTreeMap::new(),
        unsaved: 0,
    };
    // What was found stays found, from the beginning.
    task.tell();
    let mut snapshots = task.volumes.inventory().subscribe();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = snapshots.wait_for(|snapshot| snapshot.ready) => {}
    }
    let mut ticks = interval(task.volumes.config().health.latency_interval / SLICES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut slices = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                if task.unsaved > 0 {
                    task.save_or_log().await;
                }
                return;
            }
            Some(request) = acknowledgements.recv() => {
                let done = task.acknowledge(&request.drive).await;
                // Whoever asked may have gone; it is written all the same.
                let _ = request.done.send(done);
            }
            _ = ticks.tick() => {
                task.read().await;
                slices += 1;
                if slices > SLICES {
                    slices = 1;
                    task.minute().await;
                }
            }
        }
    }
}

/// Whether its latencies are compared: what another system's drive does is of use as well, but the drives of a class are those
/// whose findings count.
fn is_compared(drive: &Drive) -> bool {
    drive.state != DriveState::Missing
        && (drive.class.is_some() || drive.facts.virtual_kind.is_none())
}

fn kind(drive: &Drive) -> Kind {
    Kind {
        model: drive.facts.model.clone(),
        media: drive.facts.media,
    }
}

impl Task {
    /// Reads the counters of every drive once.
    async fn read(&mut self) {
        let snapshot = self.volumes.inventory().current();
        self.follow(&snapshot);
        let names: Vec<(DriveId, String)> = self
            .watched
            .iter()
            .map(|(id, watched)| (id.clone(), watched.name.clone()))
            .collect();
        if names.is_empty() {
            return;
        }
        let looked = offload("latency", SYSFS_DEADLINE, move || {
            let read = |(id, name): (DriveId, String)| {
                let counted = blockstat::counters(&name);
                let now = |counted: Counted| (Instant::now(), counters(&counted));
                (id, counted.map(|counted| counted.map(now)))
            };
            names.into_iter().map(read).collect::<Vec<_>>()
        });
        match looked.await {
            Ok(looked) => {
                for (id, now) in looked {
                    // One drive that cannot be read costs the others nothing.
                    let now = now.unwrap_or_else(|error| {
                        tracing::warn!(drive = %id, %error, "cannot read drive latency counters; will retry");
                        None
                    });
                    if let Some(watched) = self.watched.get_mut(&id) {
                        watched.take(now);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read drive latency counters; will retry"),
        }
    }

    fn follow(&mut self, snapshot: &Snapshot) {
        let erased = snapshot.volumes.values();
        let erased: Vec<&DriveId> = erased
            .filter(|volume| volume.erasing.is_some())
            .map(|volume| &volume.drive)
            .collect();
        let checked = self.volumes.checked_drives();
        self.watched
            .retain(|id, _| snapshot.drives.get(id).is_some_and(is_compared));
        for (id, drive) in snapshot
            .drives
            .iter()
            .filter(|(_, drive)| is_compared(drive))
        {
            let facts = &drive.facts;
            let fresh = || Watched {
                name: facts.kernel_name.clone(),
                diskseq: facts.diskseq,
                last: None,
                slices: Vec::new(),
                erasing: false,
                checking: false,
            };
            let watched = self.watched.entry(id.clone()).or_insert_with(fresh);
            if watched.name != facts.kernel_name || watched.diskseq != facts.diskseq {
                *watched = fresh();
            }
            watched.erasing |= erased.contains(&id);
            watched.checking |= checked.contains(id);
        }
    }

    /// A minute is over.
    async fn minute(&mut self) {
        let snapshot = self.volumes.inventory().current();
        let mut inputs = Vec::new();
        for (id, drive) in &snapshot.drives {
            let watched = self.watched.get_mut(id);
            // A drive that is away is as slow as it was.
            if watched.is_some() || self.comparison.has(id) {
                inputs.push(Input {
                    drive: id.clone(),
                    kind: kind(drive),
                    minute: watched.and_then(Watched::end),
                });
            }
        }
        let at = unix_seconds();
        let before = self.slow();
        // A copy: a comparison that fails loses neither what was found nor the history.
        let mut comparison = self.comparison.clone();
        // Milliseconds for a shelf of drives.
        let fed = blocking(move || {
            comparison.feed(at, inputs);
            comparison
        });
        match fed.await {
            Ok(comparison) => self.comparison = comparison,
            Err(error) => {
                tracing::error!(%error, "internal task failed; this is a bug in Drivebay, please report it")
            }
        }
        self.tell();
        self.unsaved += 1;
        if self.unsaved >= SAVE_EVERY || self.slow() != before {
            self.save_or_log().await;
        }
    }

    fn slow(&self) -> BTreeMap<DriveId, Vec<Slowdown>> {
        let drives = self.comparison.drives();
        drives
            .map(|drive| (drive.clone(), self.comparison.slow(drive)))
            .collect()
    }

    /// Publishes findings to the inventory, and latencies to metrics.
    fn tell(&self) {
        let inventory = self.volumes.inventory();
        let snapshot = inventory.current();
        let ids: BTreeSet<&DriveId> = self
            .comparison
            .drives()
            .chain(snapshot.drives.keys())
            .collect();
        for id in ids {
            let nobodys = |drive: &Drive| drive.class.is_none();
            let findings = if snapshot.drives.get(id).is_some_and(nobodys) {
                Vec::new()
            } else {
                finding(&self.comparison.slow(id)).into_iter().collect()
            };
            let same = |seen: &[Finding]| seen == findings.as_slice();
            if !inventory.health(|registry| same(registry.seen_of_drive(id, Source::Latency))) {
                inventory.update(|known| {
                    known
                        .health
                        .record_drive(id.clone(), Source::Latency, findings);
                });
            }
        }
        self.volumes.latest_speeds().put(self.comparison.speeds());
    }

    async fn acknowledge(&mut self, drive: &DriveId) -> Result<Vec<Finding>, AcknowledgeError> {
        let known = finding(&self.comparison.slow(drive));
        let before = self.comparison.clone();
        if !self.comparison.acknowledge(drive) {
            return Ok(Vec::new());
        }
        if let Err(source) = self.save().await {
            self.comparison = before;
            let drive = drive.clone();
            return Err(AcknowledgeError::Write { drive, source });
        }
        self.tell();
        Ok(known.into_iter().collect())
    }

    async fn save(&mut self) -> std::io::Result<()> {
        let comparison = self.comparison.clone();
        let text = move || {
            let kept = comparison.kept();
            let remembered = Remembered {
                version: VERSION,
                drives: kept
                    .into_iter()
                    .map(|(id, (kind, kept))| (id, RememberedDrive { kind, kept }))
                    .collect(),
            };
            Ok(serde_json::to_vec(&remembered)?)
        };
        statefile::save(self.path.clone(), FILE_DEADLINE, text).await?;
        self.unsaved = 0;
        Ok(())
    }

    async fn save_or_log(&mut self) {
        if let Err(error) = self.save().await {
            tracing::warn!(path = %self.path.display(), %error, "cannot save drive latency history");
        }
    }
}

impl Watched {
    /// Takes the counters of now.
    fn take(&mut self, now: Option<(Instant, Counters)>) {
        let last = std::mem::replace(&mut self.last, now);
        let (Some((before, counters)), Some((at, now))) = (last, now) else {
            return;
        };
        let millis = at.duration_since(before).as_millis();
        match now.since(&counters, u64::try_from(millis).unwrap_or(u64::MAX)) {
            Some(slice) => self.slices.push(slice),
            // The counters began again: another device.
            None => self.slices.clear(),
        }
    }

    /// Ends the minute.
    fn end(&mut self) -> Option<Minute> {
        let slices = std::mem::take(&mut self.slices);
        let erasing = std::mem::take(&mut self.erasing);
        let checking = std::mem::take(&mut self.checking);
        // A drive that came within the minute has its first one later.
        (slices.len() * 2 >= SLICES as usize).then(|| Minute::new(&slices, erasing, checking))
    }
}

fn counters(counted: &Counted) -> Counters {
    let flow = |of: &Requests| Flow {
        requests: of.requests,
        bytes: of.bytes,
        wait_ms: of.wait_ms,
    };
    Counters {
        reads: flow(&counted.reads),
        writes: flow(&counted.writes),
        flushes: counted.flushes,
        busy_ms: counted.busy_ms,
    }
}

/// The finding about a slow drive, with its numbers as they were when it was raised, so that the message does not change. Pure.
fn finding(slow: &[Slowdown]) -> Option<Finding> {
    let one = |slowdown: &Slowdown| {
        let outcome = &slowdown.outcome;
        let what = match slowdown.direction {
            Direction::Read => "reads",
            Direction::Write => "writes",
        };
        format!(
            "{what} take {} ms where other drives of its kind take {} ms at such a load ({} times as long)",
            rounded(outcome.observed_ms),
            rounded(outcome.expected_ms),
            rounded(outcome.factor()),
        )
    };
    let told: Vec<String> = slow.iter().map(one).collect();
    (!told.is_empty()).then(|| {
        let message = format!(
            "{}; see `drivebay-agent drive show`, check cable, slot, temperature and firmware, and expect the drive to fail",
            told.join(", ")
        );
        Finding::new(Code::Slow, message)
    })
}

/// Two digits that matter.
pub(crate) fn rounded(value: f64) -> String {
    let digits = 1 - value.abs().max(1e-3).log10().floor() as i32;
    let digits = usize::try_from(digits.max(0)).unwrap_or(0);
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Reads the history of an earlier agent. One that is invalid is logged and moved aside, and the history begins anew.
async fn load(path: &Path) -> Comparison {
    let wanted = path.to_owned();
    let read = offload("latency-read", FILE_DEADLINE, move || read(&wanted));
    match read.await.and_then(|read| read) {
        Ok(comparison) => comparison,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read drive latency history; starting with empty history");
            Comparison::default()
        }
    }
}

fn read(path: &Path) -> std::io::Result<Comparison> {
    let mut comparison = Comparison::default();
    let bytes = match statefile::read(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(comparison),
        Err(error) => return Err(error),
    };
    match serde_json::from_slice::<Remembered>(&bytes) {
        Ok(old) if old.version == VERSION => {
            for (id, drive) in old.drives {
                comparison.restore(id, drive.kind, drive.kept);
            }
        }
        other => {
            let why = match other {
                Ok(old) => format!("version {}", old.version),
                Err(error) => error.to_string(),
            };
            let aside = statefile::move_aside(path)?;
            tracing::warn!(why, aside = %aside.display(), "invalid drive latency history moved aside; starting with empty history");
        }
    }
    Ok(comparison)
}

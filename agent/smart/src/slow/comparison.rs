//! All drives of the node, minute by minute: each is compared with the others of its kind.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    minute::{Direction, Load, Minute},
    reference,
    report::{Peers, Side, Slowdown, Speed},
    tracker::{OUTSIDE, Tracker},
};
use drivebay_model::{DriveId, Media};

/// Minimum of peers for a comparison.
pub const PEERS: usize = 3;
/// Maximum of minutes that are kept of each drive.
const KEPT: usize = 240;
/// Minimum of a drive's minutes from which its usual difference from peers of its model is known.
const USUAL: usize = 30;
/// Minimum of a drive's minutes from which its usual difference from peers of other models is known.
const USUAL_OF_OTHERS: usize = 60;
/// Longest interval that counts as a minute, milliseconds: a longer one means that the agent or the machine was suspended.
const LONGEST_MS: u64 = 150_000;

/// Properties by which drives are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    pub model: String,
    pub media: Media,
}

/// One minute of one drive.
#[derive(Debug, Clone)]
pub struct Input {
    pub drive: DriveId,
    pub kind: Kind,
    /// None if the minute is unknown.
    pub minute: Option<Minute>,
}

/// A minute and its scores, by direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Judged {
    /// Unix time of the end of the minute.
    pub(super) at: u64,
    pub(super) minute: Minute,
    pub(super) read: Option<Score>,
    pub(super) write: Option<Score>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Score {
    /// Expected latency, milliseconds, with the drive's usual difference from its peers.
    pub(super) expected_ms: f64,
    /// Slowdown against the peers alone, as a factor.
    pub(super) raw: f64,
    /// True if the drive counted as healthy in this minute.
    pub(super) well: bool,
}

impl Judged {
    pub(super) fn score(&self, direction: Direction) -> Option<&Score> {
        match direction {
            Direction::Read => self.read.as_ref(),
            Direction::Write => self.write.as_ref(),
        }
    }
}

/// State of one drive, which is kept over a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    minutes: VecDeque<Judged>,
    read: Tracker,
    write: Tracker,
}

impl Kept {
    fn tracker(&self, direction: Direction) -> &Tracker {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    fn loads(&self, direction: Direction) -> impl Iterator<Item = &Load> {
        let slow = self.tracker(direction).slow().map(|slow| slow.since);
        self.minutes
            .iter()
            // A slow drive is no reference; its minutes before that are.
            .filter(move |minute| slow.is_none_or(|since| minute.at < since))
            .filter_map(move |minute| minute.minute.load(direction))
    }

    /// Returns the drive's usual difference from its peers, as a logarithm, at this quantile of its minutes; None with fewer than `enough`
    /// minutes.
    fn usual(&self, direction: Direction, enough: usize, part: f64) -> Option<f64> {
        let well = self.minutes.iter().filter_map(|minute| {
            let score = minute.score(direction)?;
            score.well.then(|| score.raw.ln())
        });
        let mut well: Vec<f64> = well.collect();
        if well.len() < enough {
            return None;
        }
        well.sort_by(f64::total_cmp);
        well.get((well.len() as f64 * part) as usize).copied()
    }

    /// Adds later minutes. A slowdown that was found before stays.
    fn follow(&mut self, since: Self) {
        self.minutes.extend(since.minutes);
        for (before, since) in [(&mut self.read, since.read), (&mut self.write, since.write)] {
            if before.slow().is_none() {
                *before = since;
            }
        }
    }
}

/// Observed and expected latency of one direction in one minute, milliseconds.
struct Raw {
    observed: f64,
    expected: f64,
}

/// State of all drives.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    drives: BTreeMap<DriveId, (Kind, Kept)>,
}

impl Comparison {
    /// Restores the state that an earlier agent kept. If the drive has minutes already, they follow the restored ones, and a slowdown that
    /// was found stays.
    pub fn restore(&mut self, drive: DriveId, kind: Kind, mut kept: Kept) {
        if let Some((_, since)) = self.drives.remove(&drive) {
            kept.follow(since);
        }
        while kept.minutes.len() > KEPT {
            kept.minutes.pop_front();
        }
        self.drives.insert(drive, (kind, kept));
    }

    /// Drops the state of a drive, e.g. because it is another one than before.
    pub fn forget(&mut self, drive: &DriveId) {
        self.drives.remove(drive);
    }

    /// True if state of the drive is kept.
    pub fn has(&self, drive: &DriveId) -> bool {
        self.drives.contains_key(drive)
    }

    /// Returns the drives of which state is kept.
    pub fn drives(&self) -> impl Iterator<Item = &DriveId> {
        self.drives.keys()
    }

    /// Returns the state that is to be saved.
    pub fn kept(self) -> BTreeMap<DriveId, (Kind, Kept)> {
        self.drives
    }

    /// Adds a minute that ended at `at` (unix seconds) for every present drive, and drops the state of the others.
    pub fn feed(&mut self, at: u64, inputs: Vec<Input>) {
        let mut minutes: BTreeMap<DriveId, Option<Minute>> = BTreeMap::new();
        for input in inputs {
            let usable = |minute: &Minute| (1..=LONGEST_MS).contains(&minute.millis);
            let entry = self.drives.entry(input.drive.clone());
            let entry = entry.or_insert_with(|| (input.kind.clone(), Kept::default()));
            entry.0 = input.kind;
            minutes.insert(input.drive, input.minute.filter(usable));
        }
        self.drives.retain(|id, _| minutes.contains_key(id));
        let mut judged: BTreeMap<DriveId, Judged> = BTreeMap::new();
        for (id, minute) in &minutes {
            if let Some(minute) = minute {
                let empty = Judged {
                    at,
                    minute: *minute,
                    read: None,
                    write: None,
                };
                judged.insert(id.clone(), empty);
            }
        }
        for direction in Direction::ALL {
            self.judge(at, direction, &minutes, &mut judged);
        }
        for (id, minute) in judged {
            if let Some((_, kept)) = self.drives.get_mut(&id) {
                kept.minutes.push_back(minute);
                while kept.minutes.len() > KEPT {
                    kept.minutes.pop_front();
                }
            }
        }
    }

    fn judge(
        &mut self,
        at: u64,
        direction: Direction,
        minutes: &BTreeMap<DriveId, Option<Minute>>,
        judged: &mut BTreeMap<DriveId, Judged>,
    ) {
        let loads: BTreeMap<&DriveId, Vec<&Load>> = self
            .drives
            .iter()
            .map(|(id, (_, kept))| (id, kept.loads(direction).collect()))
            .collect();
        let mut raw: BTreeMap<DriveId, Raw> = BTreeMap::new();
        for (id, minute) in minutes {
            let load = minute.as_ref().and_then(|minute| minute.load(direction));
            let (Some(load), Some((kind, _))) = (load, self.drives.get(id)) else {
                continue;
            };
            let (peers, peers_are) = self.peers(id);
            let own = loads.get(id).map_or(&[][..], Vec::as_slice);
            let able = reference::is_able(load, own);
            let estimates = peers
                .iter()
                .filter_map(|peer| {
                    let of_peer = loads.get(*peer)?;
                    reference::estimate(
                        kind.media,
                        direction,
                        load,
                        of_peer.iter().rev().copied(),
                        able,
                    )
                })
                .collect();
            if let Some(expected) = reference::expected(
                kind.media,
                direction,
                load,
                estimates,
                own,
                peers_are == Peers::Media,
            ) {
                let observed = f64::from(load.latency_ms);
                raw.insert(id.clone(), Raw { observed, expected });
            }
        }
        let mut latencies: BTreeMap<DriveId, (f64, f64)> = BTreeMap::new();
        for (id, Raw { observed, expected }) in &raw {
            // A slowdown of all peers is not attributed to this drive.
            let (peers, peers_are) = self.peers(id);
            let now = peers.iter().filter_map(|peer| raw.get(*peer));
            let mut now: Vec<f64> = now.map(|raw| raw.observed / raw.expected).collect();
            let common = reference::median(&mut now).unwrap_or(1.0).max(1.0);
            let load = minutes.get(id).and_then(Option::as_ref);
            let load = load.and_then(|minute| minute.load(direction));
            let own = loads.get(id).map_or(&[][..], Vec::as_slice);
            if load.is_none_or(|load| reference::is_loaded(load, own)) {
                continue;
            }
            let Some((_, kept)) = self.drives.get(id) else {
                continue;
            };
            let factor = observed / (expected * common);
            let usual = match peers_are {
                Peers::Model => kept
                    .usual(direction, USUAL, 0.5)
                    .map_or(0.0, |usual| usual.clamp(0.85f64.ln(), 1.4f64.ln())),
                // Another model may be slower by any factor, which only the drive's own past shows.
                Peers::Media => match kept.usual(direction, USUAL_OF_OTHERS, 0.9) {
                    Some(usual) => usual.clamp(0.85f64.ln(), 8.0f64.ln()),
                    None => {
                        self.note(
                            judged,
                            id,
                            direction,
                            *expected,
                            factor,
                            factor < OUTSIDE * 4.0,
                        );
                        continue;
                    }
                },
                Peers::TooFew => continue,
            };
            let expected = expected * common * usual.exp();
            latencies.insert(id.clone(), (*observed, expected));
            let well = kept.tracker(direction).is_well();
            self.note(judged, id, direction, expected, factor, well);
        }
        for id in minutes.keys() {
            if let Some((_, kept)) = self.drives.get_mut(id) {
                let tracker = match direction {
                    Direction::Read => &mut kept.read,
                    Direction::Write => &mut kept.write,
                };
                tracker.feed(at, latencies.get(id).copied());
            }
        }
    }

    fn note(
        &self,
        judged: &mut BTreeMap<DriveId, Judged>,
        id: &DriveId,
        direction: Direction,
        expected_ms: f64,
        raw: f64,
        well: bool,
    ) {
        if let Some(minute) = judged.get_mut(id) {
            let score = Some(Score {
                expected_ms,
                raw,
                well,
            });
            match direction {
                Direction::Read => minute.read = score,
                Direction::Write => minute.write = score,
            }
        }
    }

    /// Returns the drives with which one is compared: those of its model, else those of its medium.
    fn peers(&self, of: &DriveId) -> (Vec<&DriveId>, Peers) {
        let Some((kind, _)) = self.drives.get(of) else {
            return (Vec::new(), Peers::TooFew);
        };
        let others = |same: &dyn Fn(&Kind) -> bool| -> Vec<&DriveId> {
            let others = self.drives.iter();
            others
                .filter(|(id, (other, _))| *id != of && same(other))
                .map(|(id, _)| id)
                .collect()
        };
        let model = others(&|other| other == kind);
        if model.len() >= PEERS {
            return (model, Peers::Model);
        }
        let media = others(&|other| other.media == kind.media);
        if media.len() >= PEERS {
            return (media, Peers::Media);
        }
        (Vec::new(), Peers::TooFew)
    }

    /// Returns the slowdowns of a drive, with the acknowledged ones.
    pub fn slowdowns(&self, drive: &DriveId) -> Vec<Slowdown> {
        let Some((_, kept)) = self.drives.get(drive) else {
            return Vec::new();
        };
        let slowdowns = Direction::ALL.into_iter().filter_map(|direction| {
            let tracker = kept.tracker(direction);
            Some(Slowdown {
                direction,
                outcome: tracker.slow()?,
                acknowledged: tracker.counts().is_none(),
            })
        });
        slowdowns.collect()
    }

    /// Returns the slowdowns that are not acknowledged.
    pub fn slow(&self, drive: &DriveId) -> Vec<Slowdown> {
        let mut slowdowns = self.slowdowns(drive);
        slowdowns.retain(|slow| !slow.acknowledged);
        slowdowns
    }

    /// Acknowledges the slowdowns of a drive. Returns true if one was not acknowledged before.
    pub fn acknowledge(&mut self, drive: &DriveId) -> bool {
        self.drives.get_mut(drive).is_some_and(|(_, kept)| {
            let read = kept.read.acknowledge();
            kept.write.acknowledge() || read
        })
    }

    /// Withdraws the acknowledgement of a drive's slowdowns: they count again.
    pub fn withdraw(&mut self, drive: &DriveId) {
        if let Some((_, kept)) = self.drives.get_mut(drive) {
            kept.read.withdraw();
            kept.write.withdraw();
        }
    }

    /// Returns the latest values of every drive, for metrics and commands.
    pub fn speeds(&self) -> BTreeMap<DriveId, Speed> {
        let drives = self.drives.iter();
        drives
            .map(|(id, (_, kept))| {
                let (peers, peers_are) = self.peers(id);
                let side = |direction| Side::of(direction, &kept.minutes, kept.tracker(direction));
                let speed = Speed {
                    at: kept.minutes.back().map_or(0, |minute| minute.at),
                    peers: peers_are,
                    peer_count: peers.len(),
                    read: side(Direction::Read),
                    write: side(Direction::Write),
                };
                (id.clone(), speed)
            })
            .collect()
    }
}

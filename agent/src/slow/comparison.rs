//! All drives of the node, minute by minute: each is compared with the others of its kind.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    minute::{Direction, Load, Minute},
    report::{Peers, Side, Slowdown, Speed},
    tracker::{OUTSIDE, Tracker},
};
use crate::model::{DriveId, Media};

/// With fewer peers than this there is no comparison.
pub const PEERS: usize = 3;
/// Minutes kept of each drive.
const KEPT: usize = 240;
/// An interval of another length was not a minute: the agent or the machine slept.
const LONGEST_MS: u64 = 150_000;

/// With which drives a drive can be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    pub model: String,
    pub media: Media,
}

/// One drive's minute.
#[derive(Debug, Clone)]
pub struct Input {
    pub drive: DriveId,
    pub kind: Kind,
    /// None: nothing is known of this minute.
    pub minute: Option<Minute>,
}

/// A minute, and how it was judged: by direction, the expected milliseconds and the slowdown before what is usual for the drive
/// was taken into account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Judged {
    /// Unix time of its end.
    pub(super) at: u64,
    pub(super) minute: Minute,
    pub(super) read: Option<Score>,
    pub(super) write: Option<Score>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Score {
    /// What is usual for the drive is in it.
    pub(super) expected_ms: f64,
    /// Against the peers alone.
    pub(super) raw: f64,
    /// The drive was well.
    pub(super) well: bool,
}

impl Judged {
    pub(super) fn new(at: u64, minute: Minute) -> Self {
        Self {
            at,
            minute,
            read: None,
            write: None,
        }
    }

    fn is_outside(&self, direction: Direction) -> bool {
        let (load, score) = (self.minute.load(direction), self.score(direction));
        load.zip(score)
            .is_some_and(|(load, score)| f64::from(load.latency_ms) >= OUTSIDE * score.expected_ms)
    }

    pub(super) fn put(&mut self, direction: Direction, score: Score) {
        match direction {
            Direction::Read => self.read = Some(score),
            Direction::Write => self.write = Some(score),
        }
    }

    pub(super) fn score(&self, direction: Direction) -> Option<&Score> {
        match direction {
            Direction::Read => self.read.as_ref(),
            Direction::Write => self.write.as_ref(),
        }
    }
}

/// What is kept of one drive, also over a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    minutes: VecDeque<Judged>,
    read: Tracker,
    write: Tracker,
}

impl Kept {
    pub(super) fn tracker(&self, direction: Direction) -> &Tracker {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    pub(super) fn tracker_mut(&mut self, direction: Direction) -> &mut Tracker {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// The minutes before the drive became slow: a slow drive is no reference; what it was before is.
    fn before(&self, direction: Direction) -> impl Iterator<Item = &Judged> {
        let slow = self.tracker(direction).slow().map(|slow| slow.since);
        let minutes = self.minutes.iter();
        minutes.filter(move |minute| slow.is_none_or(|since| minute.at < since))
    }

    /// What the drive had to do, the latest last.
    pub(super) fn loads(&self, direction: Direction) -> Vec<&Load> {
        let minutes = self.before(direction);
        minutes
            .filter_map(|judged| judged.minute.load(direction))
            .collect()
    }

    /// As `loads`, without the minutes in which it was not well.
    pub(super) fn well(&self, direction: Direction) -> Vec<&Load> {
        let well = |judged: &&Judged| {
            judged
                .score(direction)
                .is_none_or(|score| score.well && !judged.is_outside(direction))
        };
        let minutes = self.before(direction).filter(well);
        minutes
            .filter_map(|judged| judged.minute.load(direction))
            .collect()
    }

    fn follow(&mut self, since: Self) {
        self.minutes.extend(since.minutes);
        for (before, since) in [(&mut self.read, since.read), (&mut self.write, since.write)] {
            if before.slow().is_none() {
                *before = since;
            }
        }
    }

    /// In how many minutes it was compared and well.
    pub(super) fn compared(&self, direction: Direction) -> usize {
        let scores = self.minutes.iter().filter_map(|of| of.score(direction));
        scores.filter(|score| score.well).count()
    }
}

/// All drives.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    pub(super) drives: BTreeMap<DriveId, (Kind, Kept)>,
}

impl Comparison {
    /// What an earlier agent had. Where a drive is followed already, its minutes come after those, and what was found of it stays.
    pub fn restore(&mut self, drive: DriveId, kind: Kind, mut kept: Kept) {
        if let Some((_, since)) = self.drives.remove(&drive) {
            kept.follow(since);
        }
        while kept.minutes.len() > KEPT {
            kept.minutes.pop_front();
        }
        self.drives.insert(drive, (kind, kept));
    }

    /// Whether a drive is followed.
    pub fn has(&self, drive: &DriveId) -> bool {
        self.drives.contains_key(drive)
    }

    /// The drives that are followed.
    pub fn drives(&self) -> impl Iterator<Item = &DriveId> {
        self.drives.keys()
    }

    /// What is to be written.
    pub fn kept(self) -> BTreeMap<DriveId, (Kind, Kept)> {
        self.drives
    }

    /// Takes in a minute of every drive that is here, which ended at `at` (unix seconds). Lets go of the others.
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
                judged.insert(id.clone(), Judged::new(at, *minute));
            }
        }
        for direction in Direction::ALL {
            self.judge(at, direction, &mut judged);
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

    /// The drives with which one is compared: of its model, else of its medium.
    pub(super) fn peers(&self, of: &DriveId) -> (Vec<&DriveId>, Peers) {
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

    /// What counts against a drive.
    pub fn slow(&self, drive: &DriveId) -> Vec<Slowdown> {
        let Some((_, kept)) = self.drives.get(drive) else {
            return Vec::new();
        };
        let found = Direction::ALL.into_iter().filter_map(|direction| {
            let outcome = kept.tracker(direction).counts()?;
            Some(Slowdown { direction, outcome })
        });
        found.collect()
    }

    /// An operator has seen what counts against a drive. True when something did.
    pub fn acknowledge(&mut self, drive: &DriveId) -> bool {
        self.drives.get_mut(drive).is_some_and(|(_, kept)| {
            let read = kept.read.acknowledge();
            kept.write.acknowledge() || read
        })
    }

    /// What is to be shown of every drive.
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

//! Judges one minute of one direction: what each drive took against what its load should cost.

use std::collections::BTreeMap;

use super::{
    comparison::{Comparison, Judged, Score},
    law,
    minute::{Direction, Load},
    own, reference,
    report::Peers,
    tracker::OUTSIDE,
};
use crate::model::DriveId;

/// Compared minutes from which it is known how a drive differs from those of other models.
const KNOWN: usize = 60;

/// What was found of one drive.
struct Raw {
    observed: f64,
    /// By the peers alone.
    expected: f64,
    /// The load with the queue that it needs.
    needed: Load,
    able: bool,
    loaded: bool,
}

impl Comparison {
    /// Judges the minute `at` of every drive, and hands to each tracker what it took and what was expected.
    pub(super) fn judge(
        &mut self,
        at: u64,
        direction: Direction,
        judged: &mut BTreeMap<DriveId, Judged>,
    ) {
        let raw = self.raw(direction, judged);
        let mut told: BTreeMap<DriveId, (f64, f64)> = BTreeMap::new();
        for (id, of) in raw.iter().filter(|(_, of)| !of.loaded) {
            let Some((kind, kept)) = self.drives.get(id) else {
                continue;
            };
            let (peers, peers_are) = self.peers(id);
            if peers_are == Peers::TooFew {
                continue;
            }
            // What slows all of them is no fault of this one.
            let now = peers.iter().filter_map(|peer| raw.get(*peer));
            let mut now: Vec<f64> = now.map(|raw| raw.observed / raw.expected).collect();
            let common = reference::median(&mut now).unwrap_or(1.0).max(1.0);
            let factor = of.observed / (of.expected * common);
            let one_model = peers_are == Peers::Model;
            let known = one_model || kept.compared(direction) >= KNOWN;
            let score = if known {
                let well = kept.well(direction);
                let usual = own::usual(
                    kind.media,
                    direction,
                    &of.needed,
                    of.able,
                    &well,
                    of.expected,
                );
                let usual = usual.map_or(0.0, |usual| {
                    let (least, most) = own::bounds(kind.media, usual, one_model);
                    usual.clamp(least, most)
                });
                let expected = of.expected * common * usual.exp();
                told.insert(id.clone(), (of.observed, expected));
                Score {
                    expected_ms: expected,
                    raw: factor,
                    well: kept.tracker(direction).is_well(),
                }
            } else {
                Score {
                    expected_ms: of.expected,
                    raw: factor,
                    well: factor < OUTSIDE * 4.0,
                }
            };
            if let Some(minute) = judged.get_mut(id) {
                minute.put(direction, score);
            }
        }
        for id in judged.keys() {
            if let Some((_, kept)) = self.drives.get_mut(id) {
                let told = told.get(id).copied();
                kept.tracker_mut(direction).feed(at, told);
            }
        }
    }

    /// What each drive took, and what its peers would take.
    fn raw(
        &self,
        direction: Direction,
        judged: &BTreeMap<DriveId, Judged>,
    ) -> BTreeMap<DriveId, Raw> {
        let drives = self.drives.iter();
        let loads: BTreeMap<&DriveId, Vec<&Load>> = drives
            .map(|(id, (_, kept))| (id, kept.loads(direction)))
            .collect();
        let of = |(id, judged): (&DriveId, &Judged)| {
            let load = judged.minute.load(direction)?;
            let (kind, _) = self.drives.get(id)?;
            let (peers, peers_are) = self.peers(id);
            let past = loads.get(id)?.as_slice();
            let able = own::is_able(load, past);
            let needed = own::needed(load, past);
            let of_peer = |peer: &&DriveId| {
                let minutes = loads.get(*peer)?.iter().rev().copied();
                reference::estimate(kind.media, direction, &needed, minutes, able)
            };
            let expected = reference::expected(
                kind.media,
                direction,
                &needed,
                peers.iter().filter_map(of_peer).collect(),
                peers_are == Peers::Media,
                own::is_stream(direction, &needed, past),
            )?;
            let reads = judged.minute.load(Direction::Read);
            let reads = reads.filter(|_| law::shares_queue(kind.media, direction, load));
            let expected = expected.max(reads.map_or(0.0, |reads| f64::from(reads.latency_ms)));
            let raw = Raw {
                observed: f64::from(load.latency_ms),
                expected,
                needed,
                able,
                loaded: own::is_loaded(load, past),
            };
            Some((id.clone(), raw))
        };
        judged.iter().filter_map(of).collect()
    }
}

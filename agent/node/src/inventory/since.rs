//! Times since which findings and conditions have held: carried from snapshot to snapshot. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_model::{DriveId, Snapshot};

/// Seconds after its start within which an agent finds again, by its polls, scans and samples, what an earlier one had
/// found.
const REDISCOVERY_SECONDS: u64 = 15 * 60;

/// The moments at which what an earlier agent knew began, seconds since 1970, by code or reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    pub drives: BTreeMap<DriveId, BTreeMap<String, u64>>,
    pub volumes: BTreeMap<Uuid, BTreeMap<String, u64>>,
    /// When this agent started: what is found again soon after it went on meanwhile.
    #[serde(skip)]
    pub started: u64,
}

impl Earlier {
    /// Returns the times for the next agent: of what is found now, and of what this one may still find again.
    pub fn and_now(&self, snapshot: &Snapshot, now: u64) -> Self {
        let mut all = match self.counts(now) {
            true => self.clone(),
            false => Self::default(),
        };
        all.started = 0;
        for (id, drive) in &snapshot.drives {
            put(&mut all.drives, id, &drive.health.since);
        }
        for (uuid, volume) in &snapshot.volumes {
            put(&mut all.volumes, uuid, &volume.since);
        }
        all
    }

    fn counts(&self, now: u64) -> bool {
        now.saturating_sub(self.started) < REDISCOVERY_SECONDS
    }
}

fn put<K: Ord + Clone>(
    all: &mut BTreeMap<K, BTreeMap<String, u64>>,
    key: &K,
    since: &BTreeMap<String, u64>,
) {
    if !since.is_empty() {
        all.entry(key.clone()).or_default().extend(since.clone());
    }
}

/// Stamps the findings and conditions of `next` with the time they began: that in `old` if they held there already,
/// that of an earlier agent if this one has just started, else `now` (Unix seconds).
pub(super) fn stamp(old: &Snapshot, earlier: &Earlier, next: &mut Snapshot, now: u64) {
    let counts = earlier.counts(now);
    for (id, drive) in &mut next.drives {
        let before = old.drives.get(id).map(|drive| &drive.health.since);
        let earlier = earlier.drives.get(id).filter(|_| counts);
        let health = &mut drive.health;
        let codes = health.findings.iter().chain(&health.conditions);
        let codes = codes.map(|finding| finding.code.as_str());
        health.since = carried(codes, [before, earlier], now);
    }
    for (uuid, volume) in &mut next.volumes {
        let before = old.volumes.get(uuid).map(|volume| &volume.since);
        let earlier = earlier.volumes.get(uuid).filter(|_| counts);
        let reasons = volume.conditions.iter();
        let reasons = reasons.map(|condition| condition.reason.as_str());
        volume.since = carried(reasons, [before, earlier], now);
    }
}

fn carried<'a>(
    codes: impl Iterator<Item = &'a str>,
    before: [Option<&BTreeMap<String, u64>>; 2],
    now: u64,
) -> BTreeMap<String, u64> {
    codes
        .map(|code| {
            let mut began = before.into_iter().flatten().filter_map(|of| of.get(code));
            (code.to_owned(), began.next().copied().unwrap_or(now))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, Finding, samples};

    fn snapshot(codes: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        drive.health.findings = codes.iter().map(|code| Finding::new(code, "")).collect();
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot
    }

    #[test]
    fn what_goes_on_keeps_its_beginning_and_what_comes_back_begins_anew() {
        let since = |snapshot: &Snapshot| {
            let drive = snapshot.drives.values().next().unwrap();
            drive.health.since.clone().into_iter().collect::<Vec<_>>()
        };
        let mut first = snapshot(&["A"]);
        stamp(&Snapshot::default(), &Earlier::default(), &mut first, 10);
        let mut second = snapshot(&["B", "A"]);
        stamp(&first, &Earlier::default(), &mut second, 20);
        assert_eq!(since(&second), [("A".into(), 10), ("B".into(), 20)]);
        let mut third = snapshot(&["B"]);
        stamp(&second, &Earlier::default(), &mut third, 30);
        let mut fourth = snapshot(&["A", "B"]);
        stamp(&third, &Earlier::default(), &mut fourth, 40);
        assert_eq!(since(&fourth), [("A".into(), 40), ("B".into(), 20)]);
    }

    #[test]
    fn what_an_earlier_agent_knew_keeps_its_beginning_when_it_is_found_again_soon() {
        let mut before = snapshot(&["A", "B"]);
        stamp(&Snapshot::default(), &Earlier::default(), &mut before, 10);
        let earlier = Earlier {
            started: 1_000_000,
            ..Earlier::default().and_now(&before, 5_000)
        };
        let since = |codes: &[&str], now| {
            let mut next = snapshot(codes);
            stamp(&Snapshot::default(), &earlier, &mut next, now);
            let drive = next.drives.into_values().next().unwrap();
            drive.health.since.into_iter().collect::<Vec<_>>()
        };
        let soon = 1_000_000 + REDISCOVERY_SECONDS - 1;
        assert_eq!(
            since(&["A", "C"], soon),
            [("A".into(), 10), ("C".into(), soon)]
        );
        assert_eq!(since(&["A"], soon + 1), [("A".into(), soon + 1)]);
    }
}

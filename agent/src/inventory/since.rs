//! Since when what is wrong has been so: carried from snapshot to snapshot. Pure.

use std::collections::BTreeMap;

use crate::model::Snapshot;

/// Gives what `next` says the moment it began: that of `old` where it was so already, else `now` (seconds since 1970).
pub(super) fn stamp(old: &Snapshot, next: &mut Snapshot, now: u64) {
    for (id, drive) in &mut next.drives {
        let before = old.drives.get(id).map(|drive| &drive.health.since);
        let health = &mut drive.health;
        let codes = health.findings.iter().chain(&health.conditions);
        health.since = carried(codes.map(|finding| finding.code.as_str()), before, now);
    }
    for (uuid, volume) in &mut next.volumes {
        let before = old.volumes.get(uuid).map(|volume| &volume.since);
        let reasons = volume
            .conditions
            .iter()
            .map(|condition| condition.reason.as_str());
        volume.since = carried(reasons, before, now);
    }
}

fn carried<'a>(
    codes: impl Iterator<Item = &'a str>,
    before: Option<&BTreeMap<String, u64>>,
    now: u64,
) -> BTreeMap<String, u64> {
    codes
        .map(|code| {
            let began = before.and_then(|before| before.get(code));
            (code.to_owned(), began.copied().unwrap_or(now))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DriveState, Finding, samples};

    fn snapshot(codes: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        drive.health.findings = codes
            .iter()
            .map(|code| Finding {
                code: (*code).into(),
                message: String::new(),
            })
            .collect();
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
        stamp(&Snapshot::default(), &mut first, 10);
        let mut second = snapshot(&["B", "A"]);
        stamp(&first, &mut second, 20);
        assert_eq!(since(&second), [("A".into(), 10), ("B".into(), 20)]);
        let mut third = snapshot(&["B"]);
        stamp(&second, &mut third, 30);
        let mut fourth = snapshot(&["A", "B"]);
        stamp(&third, &mut fourth, 40);
        assert_eq!(since(&fourth), [("A".into(), 40), ("B".into(), 20)]);
    }
}

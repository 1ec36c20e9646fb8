//! What was seen of drives and volumes, and what it adds up to. Pure: time comes in.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    attribute::Subject,
    kmsg::Kind,
    unreadable::{self, Located, UnreadableRanges},
};
use drivebay_model::{
    Drive, DriveHealth, DriveId, Finding, Snapshot, Verdict,
    condition::{Condition, Reason},
    finding::Code,
    unreadable::{LocatedPiece, WindowRead},
};

/// What the kernel has said of a drive counts for so long after it was said last (drives.md, state machine: SUSPECT
/// is left after 24 clean hours).
pub const COUNTS_FOR: Duration = Duration::from_secs(24 * 3600);

/// What was noted within this is not noted again.
const FRESH: Duration = Duration::from_secs(60);

/// Requests that fail as a drive goes away began to so long before: they are its going, and say nothing of it.
const GOING: Duration = Duration::from_secs(30);
/// A drive that was away so often within a day is not plugged in well, or resets itself.
const AWAY: usize = 3;

/// Who looked, for what is seen by looking and true until somebody looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The table of mounts: staged or published mounts missing, of another device, turned read-only.
    Mounts,
    /// The partition or logical volume itself: gone, inactive, resized behind the agent's back.
    Device,
    /// Reading the root directory.
    Reading,
    /// A read-only check of the filesystem.
    Check,
    /// Space and inodes.
    Space,
    /// The kernel's counters of requests, compared with those of other drives.
    Latency,
    /// A call that staged the volume or grew its filesystem, or failed to.
    Call,
}

impl Source {
    /// Every source, in the order in which a volume's conditions are listed.
    pub const ALL: [Self; 7] = [
        Self::Device,
        Self::Mounts,
        Self::Call,
        Self::Reading,
        Self::Check,
        Self::Space,
        Self::Latency,
    ];
}

/// When something was said last, on a clock that does not jump.
type Seen = BTreeMap<Kind, Duration>;

/// What was said and cannot be seen by looking again: what is kept over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Of drives.
    pub drives: BTreeMap<DriveId, Seen>,
    /// Of volumes.
    pub volumes: BTreeMap<Uuid, Seen>,
    /// Up to when what was said of a drive and its volumes is acknowledged, on the same clock.
    #[serde(default)]
    pub acknowledged: BTreeMap<DriveId, Duration>,
}

impl Notes {
    /// What of it still counts after a restart of the machine: every filesystem is mounted afresh, and what was said
    /// last so long ago that `then` gives it no time is over.
    pub fn after_a_boot(mut self, then: impl Fn(Duration) -> Option<Duration>) -> Self {
        for seen in self.drives.values_mut().chain(self.volumes.values_mut()) {
            let of_drives = std::mem::take(seen).into_iter();
            let of_drives = of_drives.filter(|(kind, _)| is_of_drive(*kind));
            *seen = of_drives
                .filter_map(|(kind, at)| Some((kind, then(at)?)))
                .collect();
        }
        let acknowledged = std::mem::take(&mut self.acknowledged).into_iter();
        self.acknowledged = acknowledged
            .filter_map(|(drive, at)| Some((drive, then(at)?)))
            .collect();
        self
    }
}

/// Everything seen. At most one entry per kind and drive or volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthRegistry {
    notes: Notes,
    // Drives that have requests and complete none, now.
    stalled: BTreeSet<DriveId>,
    // Volumes whose ext4 has errors counted in its superblock, when it was mounted last.
    counted: BTreeSet<Uuid>,
    // What the drives themselves say. Also of drives that are not here: it is the last known when they come back.
    smart: BTreeMap<DriveId, DriveHealth>,
    // Drives without an identity of their own: which appearance in the kernel everything here is of.
    appearances: BTreeMap<DriveId, u64>,
    // What was seen at the last look, by who looked; nothing wrong is not kept.
    looks: BTreeMap<(Uuid, Source), Vec<Condition>>,
    drive_looks: BTreeMap<(DriveId, Source), Vec<Finding>>,
    // Since when what is noted of a drive's requests is known, by drive and volume.
    began: BTreeMap<(DriveId, Option<Uuid>, Kind), Duration>,
    // When a drive went away.
    went: BTreeMap<DriveId, Vec<Duration>>,
    // What does not read.
    unreadable: BTreeMap<DriveId, UnreadableRanges>,
    // What the filesystems say of that.
    located: Located,
}

impl HealthRegistry {
    /// This is what is wrong with the volume as this source sees it now; what it saw before is over.
    /// True when that is another answer than before.
    pub fn record(&mut self, volume: Uuid, source: Source, conditions: Vec<Condition>) -> bool {
        replace(&mut self.looks, (volume, source), conditions)
    }

    /// These are the drive's findings by this source now; what it saw before is over. Each makes the
    /// drive SUSPECT. True when that is another answer than before.
    pub fn record_drive(&mut self, drive: DriveId, source: Source, findings: Vec<Finding>) -> bool {
        replace(&mut self.drive_looks, (drive, source), findings)
    }

    /// Notes that the kernel said this of the subject. True when it is news: it was not known before.
    /// `now`: when it said so.
    pub fn note(&mut self, subject: &Subject, kind: Kind, now: Duration) -> bool {
        // The latest time counts: a record may be read twice.
        let known = self.acknowledged_at(&subject.drive);
        let put = |seen: &mut Seen| {
            let last = seen.insert(kind, now);
            if let Some(last) = last.filter(|last| *last > now) {
                seen.insert(kind, last);
            }
            last.is_none_or(|last| known.is_some_and(|known| last <= known && now > known))
        };
        let mut news = false;
        let mut begun = |volume| {
            let key = (subject.drive.clone(), volume, kind);
            self.began.insert(key, now);
        };
        if is_of_drive(kind) && put(self.notes.drives.entry(subject.drive.clone()).or_default()) {
            news = true;
            begun(None);
        }
        if let Some(volume) = subject.volume
            && put(self.notes.volumes.entry(volume).or_default())
        {
            news = true;
            begun(Some(volume));
        }
        news
    }

    /// The drive is not there any more. Requests that began to fail just before failed because it went, which is told
    /// as such; places that do not read are another matter. One that goes again and again is told of, too.
    pub fn went_away(&mut self, drive: &DriveId, now: Duration) {
        let going =
            |kind: Kind, at: Duration| is_of_absence(kind) && now.saturating_sub(at) <= GOING;
        for ((of, volume, kind), at) in &self.began {
            if of != drive || !going(*kind, *at) {
                continue;
            }
            let seen = match volume {
                None => self.notes.drives.get_mut(drive),
                Some(volume) => self.notes.volumes.get_mut(volume),
            };
            if let Some(seen) = seen {
                seen.remove(kind);
            }
        }
        self.began
            .retain(|(of, _, kind), at| of != drive || !going(*kind, *at));
        let went = self.went.entry(drive.clone()).or_default();
        went.push(now);
        went.retain(|at| now.saturating_sub(*at) < COUNTS_FOR);
    }

    /// What reading windows of a drive found.
    pub fn read(&mut self, drive: &DriveId, found: &WindowRead) {
        let known = self.unreadable.entry(drive.clone()).or_default();
        known.take(found);
        if known.is_empty() {
            self.unreadable.remove(drive);
        }
    }

    /// What of a drive does not read.
    pub fn unreadable(&self, drive: &DriveId) -> UnreadableRanges {
        self.unreadable.get(drive).cloned().unwrap_or_default()
    }

    /// The unreadable ranges of every drive, to be kept over a restart.
    pub fn all_unreadable(&self) -> &BTreeMap<DriveId, UnreadableRanges> {
        &self.unreadable
    }

    /// The ranges that an earlier agent knew.
    pub fn restore_unreadable(&mut self, known: BTreeMap<DriveId, UnreadableRanges>) {
        self.unreadable = known;
    }

    /// What a volume's filesystem says of its unreadable pieces; what it said before is over.
    pub fn locate(&mut self, volume: Uuid, pieces: Vec<LocatedPiece>) {
        replace(&mut self.located, volume, pieces);
    }

    /// What the filesystems of volumes say.
    pub fn located(&self) -> &Located {
        &self.located
    }

    /// What this source saw of the volume at its last look.
    pub fn seen(&self, volume: Uuid, source: Source) -> &[Condition] {
        self.looks.get(&(volume, source)).map_or(&[], Vec::as_slice)
    }

    /// What calls found of each volume, to be kept over a restart: nobody may repeat them.
    pub fn of_calls(&self) -> BTreeMap<Uuid, Vec<Condition>> {
        let of_calls = self
            .looks
            .iter()
            .filter(|((_, source), _)| *source == Source::Call);
        of_calls
            .map(|((volume, _), conditions)| (*volume, conditions.clone()))
            .collect()
    }

    /// What calls to an earlier agent found.
    pub fn restore_of_calls(&mut self, known: BTreeMap<Uuid, Vec<Condition>>) {
        for (volume, conditions) in known {
            self.record(volume, Source::Call, conditions);
        }
    }

    /// What this source saw of the drive at its last look.
    pub fn seen_of_drive(&self, drive: &DriveId, source: Source) -> &[Finding] {
        let seen = self.drive_looks.get(&(drive.clone(), source));
        seen.map_or(&[], Vec::as_slice)
    }

    /// What was said.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// What was said to an earlier agent.
    pub fn restore(&mut self, notes: Notes) {
        self.notes = notes;
    }

    /// Whether this was noted within the last minute: a drive that fails says so a thousand times a second.
    pub fn is_fresh(&self, subject: &Subject, kind: Kind, now: Duration) -> bool {
        let known = self.acknowledged_at(&subject.drive);
        let fresh = |seen: Option<&Seen>| {
            seen.and_then(|seen| seen.get(&kind)).is_some_and(|at| {
                now.saturating_sub(*at) < FRESH && known.is_none_or(|known| *at > known)
            })
        };
        (!is_of_drive(kind) || fresh(self.notes.drives.get(&subject.drive)))
            && subject
                .volume
                .is_none_or(|volume| fresh(self.notes.volumes.get(&volume)))
    }

    /// These drives are stalled, and no others.
    pub fn stalled(&mut self, now: BTreeSet<DriveId>) {
        self.stalled = now;
    }

    /// What the drives said of themselves to an earlier agent: the last known, until they are polled.
    pub fn restore_reports(&mut self, said: BTreeMap<DriveId, DriveHealth>) {
        self.smart = said;
    }

    /// What the drive said last of itself, now or to an earlier agent.
    pub fn report(&self, drive: &DriveId) -> Option<&DriveHealth> {
        self.smart.get(drive)
    }

    /// Which appearances of drives without an identity of their own the restored evidence is of, in this boot.
    pub fn restore_appearances(&mut self, known: BTreeMap<DriveId, u64>) {
        self.appearances = known;
    }

    /// A drive that is known by its place alone is there, as this appearance in the kernel. What is known of another
    /// appearance may be of a drive that was replaced since: it is dropped, but for how often a drive was missing there.
    pub fn appeared(&mut self, drive: &DriveId, diskseq: u64) {
        if self.appearances.insert(drive.clone(), diskseq) == Some(diskseq) {
            return;
        }
        self.notes.drives.remove(drive);
        self.notes.acknowledged.remove(drive);
        self.stalled.remove(drive);
        self.smart.remove(drive);
        self.drive_looks.retain(|(of, _), _| of != drive);
        self.began
            .retain(|(of, volume, _), _| of != drive || volume.is_some());
        self.unreadable.remove(drive);
    }

    /// What the drive says of itself, by SMART.
    pub fn says(&mut self, drive: DriveId, health: DriveHealth) {
        self.smart.insert(drive, health);
    }

    /// An operator knows what the kernel said of the drive up to `now`: it is acknowledged, for the drive and for the volumes on
    /// it. What the kernel says from now on is not. Answers what was not acknowledged before.
    pub fn acknowledge(&mut self, drive: &DriveId, now: Duration) -> Vec<Finding> {
        let counted: Vec<Finding> = self
            .said_of(drive)
            .filter(|finding| !finding.acknowledged)
            .collect();
        self.notes.acknowledged.insert(drive.clone(), now);
        counted
    }

    /// What an acknowledgement would cover now, of what is not the drive's own word.
    pub fn acknowledgeable(&self, drive: &DriveId) -> Vec<Finding> {
        let slow = self.seen_of_drive(drive, Source::Latency).iter().cloned();
        let all = self.said_of(drive).chain(slow);
        all.filter(|finding| !finding.acknowledged).collect()
    }

    /// What the kernel said of the drive is not acknowledged any more.
    pub fn withdraw(&mut self, drive: &DriveId) {
        self.notes.acknowledged.remove(drive);
    }

    /// Up to when what was said of the drive is acknowledged.
    pub fn acknowledged_at(&self, drive: &DriveId) -> Option<Duration> {
        self.notes.acknowledged.get(drive).copied()
    }

    /// What the kernel said of the drive, and that it came and went.
    fn said_of(&self, drive: &DriveId) -> impl Iterator<Item = Finding> {
        let known = self.acknowledged_at(drive);
        let seen = self.notes.drives.get(drive).into_iter().flatten();
        let said = seen.filter_map(move |(kind, at)| {
            Some(Finding {
                acknowledged: known.is_some_and(|known| *at <= known),
                ..finding(*kind)?
            })
        });
        said.chain(self.comes_and_goes(drive))
    }

    /// That the drive was away too often.
    fn comes_and_goes(&self, drive: &DriveId) -> Option<Finding> {
        let went = self.went.get(drive).filter(|went| went.len() >= AWAY)?;
        let known = self.acknowledged_at(drive);
        let message = format!(
            "it was missing at least {AWAY} times within a day; check slot, cable and power, or replace it"
        );
        Some(Finding {
            acknowledged: known.is_some_and(|known| went.iter().all(|at| *at <= known)),
            ..Finding::new(Code::ComesAndGoes, message)
        })
    }

    /// Whether any drive is stalled.
    pub fn any_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Whether a volume's ext4 has counted errors.
    pub fn counted(&mut self, volume: Uuid, errors: bool) {
        if errors {
            self.counted.insert(volume);
        } else {
            self.counted.remove(&volume);
        }
    }

    /// Whether the kernel has said something against the volume's filesystem, since it was mounted last.
    pub fn speaks_against_filesystem(&self, volume: Uuid) -> bool {
        let said = self.notes.volumes.get(&volume).into_iter().flatten();
        self.counted.contains(&volume) || said.into_iter().any(|(kind, _)| !is_of_drive(*kind))
    }

    /// The volume has been mounted afresh: what its filesystem said before is over. What was said of its blocks is not.
    pub fn mounted_afresh(&mut self, volume: Uuid) -> bool {
        // What was seen of the filesystem itself is of the one before, too.
        self.looks.remove(&(volume, Source::Reading));
        let Some(seen) = self.notes.volumes.get_mut(&volume) else {
            return false;
        };
        let before = seen.len();
        seen.retain(|kind, _| is_of_drive(*kind));
        before != seen.len()
    }

    /// Lets go of what no longer counts, and of what is about nothing there is. True when something went.
    pub fn tidy(&mut self, snapshot: &Snapshot, now: Duration) -> bool {
        let before = self.clone();
        let counts = |seen: &mut Seen| {
            seen.retain(|kind, at| !is_of_drive(*kind) || now.saturating_sub(*at) < COUNTS_FOR);
            !seen.is_empty()
        };
        self.notes
            .drives
            .retain(|id, seen| snapshot.drives.contains_key(id) && counts(seen));
        self.notes
            .volumes
            .retain(|id, seen| snapshot.volumes.contains_key(id) && counts(seen));
        self.notes
            .acknowledged
            .retain(|id, _| snapshot.drives.contains_key(id));
        self.stalled.retain(|id| snapshot.drives.contains_key(id));
        self.went.retain(|id, went| {
            went.retain(|at| now.saturating_sub(*at) < COUNTS_FOR);
            snapshot.drives.contains_key(id) && !went.is_empty()
        });
        let notes = &self.notes;
        self.began.retain(|(drive, volume, kind), _| {
            let seen = match volume {
                None => notes.drives.get(drive),
                Some(volume) => notes.volumes.get(volume),
            };
            seen.is_some_and(|seen| seen.contains_key(kind))
        });
        self.counted.retain(|id| snapshot.volumes.contains_key(id));
        self.located
            .retain(|id, _| snapshot.volumes.contains_key(id));
        self.unreadable
            .retain(|id, _| snapshot.drives.contains_key(id));
        self.looks
            .retain(|(id, _), _| snapshot.volumes.contains_key(id));
        self.drive_looks
            .retain(|(id, _), _| snapshot.drives.contains_key(id));
        *self != before
    }

    /// How well the drive is, by what was seen.
    pub fn drive(&self, id: &DriveId) -> DriveHealth {
        let mut findings: Vec<Finding> = self.said_of(id).collect();
        if self.stalled.contains(id) {
            findings.push(Finding::new(
                Code::IoStalled,
                "it has requests and has completed none for ten seconds; see the kernel log, check cable and slot",
            ));
        }
        for source in Source::ALL {
            let looked = self.drive_looks.get(&(id.clone(), source));
            findings.extend(looked.into_iter().flatten().cloned());
        }
        let unreadable = self.unreadable.get(id);
        findings.extend(unreadable.and_then(unreadable::finding));
        let against = if findings.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Suspect
        };
        let said = self.smart.get(id).cloned().unwrap_or_default();
        findings.extend(said.findings);
        DriveHealth {
            // The worst word counts; of two that say nothing against it, the one that knows.
            verdict: against.max(said.verdict),
            poll: said.poll,
            findings,
            conditions: said.conditions,
            worn_out: said.worn_out,
            acknowledged: said.acknowledged,
            smart: said.smart,
            unreadable_more: unreadable.is_some_and(UnreadableRanges::has_more),
            ..DriveHealth::default()
        }
    }

    /// What is wrong with the volume, by what was seen. Left out is what the kernel said of its drive up to `acknowledged`.
    pub fn volume(&self, volume: Uuid, acknowledged: Option<Duration>) -> Vec<Condition> {
        let counts = |kind: Kind, at: Duration| {
            !is_of_drive(kind) || acknowledged.is_none_or(|known| at > known)
        };
        let mut kinds: BTreeSet<Kind> = self
            .notes
            .volumes
            .get(&volume)
            .into_iter()
            .flatten()
            .filter(|(kind, at)| counts(**kind, **at))
            .map(|(kind, _)| *kind)
            .collect();
        if self.counted.contains(&volume) {
            kinds.insert(Kind::FilesystemError);
        }
        let mut conditions: Vec<Condition> = kinds.into_iter().map(condition).collect();
        for source in Source::ALL {
            let looked = self.looks.get(&(volume, source));
            conditions.extend(looked.into_iter().flatten().cloned());
        }
        conditions
    }
}

/// Puts a value, none for an empty one. True when another one was there.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, Vec<V>>, key: K, value: Vec<V>) -> bool {
    if value.is_empty() {
        map.remove(&key).is_some()
    } else {
        match map.get(&key) {
            Some(same) if *same == value => false,
            _ => {
                map.insert(key, value);
                true
            }
        }
    }
}

/// Whether a drive that is only away makes the kernel say it.
pub fn is_of_absence(kind: Kind) -> bool {
    matches!(kind, Kind::IoError | Kind::DeviceLost)
}

/// Whether it says something of the drive, and not of a filesystem alone.
fn is_of_drive(kind: Kind) -> bool {
    match kind {
        Kind::MediumError | Kind::IoError | Kind::DeviceLost => true,
        Kind::FilesystemError
        | Kind::FilesystemCorrupt
        | Kind::FilesystemShutDown
        | Kind::FilesystemReadOnly => false,
    }
}

fn finding(kind: Kind) -> Option<Finding> {
    let (code, message) = match kind {
        Kind::MediumError => (
            Code::KernelMediumError,
            "the kernel reports places that cannot be read or written; move the data off, and replace the drive",
        ),
        Kind::IoError => (
            Code::KernelIoError,
            "the kernel reports requests that failed; see its log, check cable and slot, and expect the drive to fail",
        ),
        Kind::DeviceLost => (
            Code::KernelDeviceLost,
            "the kernel lost its controller or link; check slot, cable and power",
        ),
        Kind::FilesystemError
        | Kind::FilesystemCorrupt
        | Kind::FilesystemShutDown
        | Kind::FilesystemReadOnly => return None,
    };
    Some(Finding::new(code, message))
}

fn condition(kind: Kind) -> Condition {
    let (reason, message) = match kind {
        Kind::MediumError => (
            Reason::MediumErrors,
            "its drive has places under this volume that cannot be read or written; save the data, and move it off the drive",
        ),
        Kind::IoError => (
            Reason::IoErrors,
            "requests of this volume to its drive have failed; see the kernel log, and save the data",
        ),
        Kind::DeviceLost => (
            Reason::DeviceLost,
            "the kernel lost its drive; check slot, cable and power",
        ),
        Kind::FilesystemError => (
            Reason::FilesystemError,
            "the kernel reports errors of its filesystem; save the data, delete the pod, and have the filesystem checked",
        ),
        Kind::FilesystemCorrupt => (
            Reason::FilesystemCorrupted,
            "the kernel found its filesystem damaged; save what reads, delete the pod, and have the filesystem checked and repaired",
        ),
        Kind::FilesystemShutDown => (
            Reason::FilesystemShutDown,
            "its filesystem was shut down after an error; see the kernel log, and delete the pod so that it is mounted again",
        ),
        Kind::FilesystemReadOnly => (
            Reason::ReadOnly,
            "the filesystem turned read-only; see the kernel log, save the data, and check the filesystem",
        ),
    };
    Condition::new(reason, message)
}

/// What a drive's verdict means for each volume on it.
pub fn of_its_drive(drive: &Drive) -> Option<Condition> {
    let stalled = drive.health.stalled();
    let (reason, what) = match drive.health.verdict {
        // What stands still is no opinion that an operator can overrule.
        _ if stalled => (Reason::DriveStalled, "stands still"),
        _ if drive.health.is_acknowledged() => return None,
        Verdict::Unknown | Verdict::Good => return None,
        Verdict::Suspect => (Reason::DriveSuspect, "is suspect"),
        Verdict::Bad => (Reason::DriveFailing, "is failing"),
    };
    let why: Vec<String> = drive
        .health
        .counting()
        .map(|finding| format!("{}: {}", finding.code, finding.message))
        .collect();
    Some(Condition::new(
        reason,
        format!("drive {} {what}: {}", drive.describe(), why.join("; ")),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drivebay_model::DriveState;
    use drivebay_model::samples;

    const ALL: [Kind; 7] = [
        Kind::MediumError,
        Kind::IoError,
        Kind::DeviceLost,
        Kind::FilesystemError,
        Kind::FilesystemCorrupt,
        Kind::FilesystemShutDown,
        Kind::FilesystemReadOnly,
    ];

    fn subject(volume: Option<u128>) -> Subject {
        Subject {
            drive: DriveId("wwn-sda".into()),
            volume: volume.map(Uuid::from_u128),
        }
    }

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        let drive = samples::drive("sda", DriveState::Claimed, None);
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot
    }

    #[test]
    fn what_is_noted_twice_counts_from_the_later_time_whichever_is_read_first() {
        for times in [[5, 9], [9, 5]] {
            let mut registry = HealthRegistry::default();
            for at in times {
                registry.note(&subject(None), Kind::MediumError, Duration::from_secs(at));
            }
            let late = COUNTS_FOR + Duration::from_secs(8);
            assert!(!registry.tidy(&snapshot(), late));
            assert!(registry.tidy(&snapshot(), late + Duration::from_secs(1)));
        }
    }

    #[test]
    fn what_was_said_is_known_to_a_book_that_it_is_given_to() {
        let mut registry = HealthRegistry::default();
        registry.note(&subject(Some(7)), Kind::FilesystemCorrupt, Duration::ZERO);
        registry.note(&subject(Some(7)), Kind::IoError, Duration::ZERO);
        let mut next = HealthRegistry::default();
        next.restore(registry.notes().clone());
        assert_eq!(
            next.volume(Uuid::from_u128(7), None),
            registry.volume(Uuid::from_u128(7), None)
        );
        assert_eq!(
            next.drive(&subject(None).drive),
            registry.drive(&subject(None).drive)
        );
    }

    #[test]
    fn a_filesystem_mounted_afresh_is_read_afresh() {
        let mut registry = HealthRegistry::default();
        let volume = Uuid::from_u128(7);
        let unreadable = Condition::new(Reason::Unreadable, "");
        registry.record(volume, Source::Reading, vec![unreadable.clone()]);
        registry.record(volume, Source::Device, vec![unreadable.clone()]);
        registry.mounted_afresh(volume);
        assert_eq!(registry.seen(volume, Source::Reading), []);
        assert_eq!(registry.seen(volume, Source::Device), [unreadable]);
    }

    #[test]
    fn a_filesystems_trouble_is_its_volumes_alone_and_the_drives_is_both() {
        for kind in ALL {
            let mut registry = HealthRegistry::default();
            assert!(registry.note(&subject(Some(7)), kind, Duration::ZERO));
            assert!(!registry.note(&subject(Some(7)), kind, Duration::from_secs(1)));
            let of_drive = registry.drive(&subject(None).drive);
            assert_eq!(of_drive.findings.len(), usize::from(is_of_drive(kind)));
            assert_eq!(
                of_drive.verdict,
                if is_of_drive(kind) {
                    Verdict::Suspect
                } else {
                    Verdict::Unknown
                }
            );
            assert_eq!(
                registry.volume(Uuid::from_u128(7), None).len(),
                1,
                "{kind:?}"
            );
            assert!(registry.volume(Uuid::from_u128(8), None).is_empty());
        }
    }

    #[test]
    fn what_a_source_saw_stands_until_it_looks_again_and_no_other_source_takes_it_away() {
        let mut registry = HealthRegistry::default();
        let volume = Uuid::from_u128(7);
        let found = vec![condition(Kind::FilesystemCorrupt)];
        assert!(registry.record(volume, Source::Check, found.clone()));
        assert!(!registry.record(volume, Source::Check, found.clone()));
        assert!(!registry.record(volume, Source::Mounts, Vec::new()));
        assert_eq!(registry.volume(volume, None), found);
        assert!(registry.record(volume, Source::Check, Vec::new()));
        assert!(registry.volume(volume, None).is_empty());

        let drive = subject(None).drive;
        let finding = finding(Kind::IoError).unwrap();
        assert!(registry.record_drive(drive.clone(), Source::Reading, vec![finding]));
        assert_eq!(registry.drive(&drive).verdict, Verdict::Suspect);
        registry.tidy(&Snapshot::default(), Duration::ZERO);
        assert_eq!(registry.drive(&drive).verdict, Verdict::Unknown);
    }

    #[test]
    fn reasons_are_unique_so_that_none_hides_another() {
        let mut registry = HealthRegistry::default();
        for kind in ALL {
            registry.note(&subject(Some(7)), kind, Duration::ZERO);
        }
        let conditions = registry.volume(Uuid::from_u128(7), None);
        let reasons: std::collections::BTreeSet<_> = conditions
            .iter()
            .map(|condition| &condition.reason)
            .collect();
        assert_eq!(reasons.len(), ALL.len());
    }

    #[test]
    fn mounting_afresh_ends_what_the_filesystem_said_and_not_what_the_drive_did() {
        let mut registry = HealthRegistry::default();
        for kind in ALL {
            registry.note(&subject(Some(7)), kind, Duration::ZERO);
        }
        assert!(registry.mounted_afresh(Uuid::from_u128(7)));
        assert!(!registry.mounted_afresh(Uuid::from_u128(7)));
        let left = registry.volume(Uuid::from_u128(7), None).len();
        assert_eq!(left, ALL.iter().filter(|kind| is_of_drive(**kind)).count());
    }

    #[test]
    fn a_drive_is_suspect_for_a_day_after_the_last_word_against_it() {
        let mut registry = HealthRegistry::default();
        let (snapshot, id) = (snapshot(), subject(None).drive);
        registry.note(&subject(None), Kind::IoError, Duration::ZERO);
        let hour = Duration::from_secs(3600);
        registry.note(&subject(None), Kind::IoError, hour);
        assert!(!registry.tidy(&snapshot, COUNTS_FOR));
        assert_eq!(registry.drive(&id).verdict, Verdict::Suspect);
        assert!(registry.tidy(&snapshot, COUNTS_FOR + hour));
        assert_eq!(registry.drive(&id), DriveHealth::default());
    }

    #[test]
    fn the_worst_word_on_a_drive_counts_and_all_are_told() {
        use Verdict::{Bad, Good, Suspect, Unknown};
        for (says, kernel, expected) in [
            (Unknown, false, Unknown),
            (Good, false, Good),
            (Suspect, false, Suspect),
            (Bad, false, Bad),
            (Unknown, true, Suspect),
            (Good, true, Suspect),
            (Suspect, true, Suspect),
            (Bad, true, Bad),
        ] {
            let mut registry = HealthRegistry::default();
            let id = subject(None).drive;
            let said = DriveHealth {
                verdict: says,
                findings: vec![Finding::new("Said", "")],
                ..DriveHealth::default()
            };
            registry.says(id.clone(), said);
            if kernel {
                registry.note(&subject(None), Kind::IoError, Duration::ZERO);
            }
            let health = registry.drive(&id);
            assert_eq!(health.verdict, expected, "{says} {kernel}");
            assert_eq!(health.findings.len(), 1 + usize::from(kernel));
        }
    }

    #[test]
    fn a_stalled_drive_is_suspect_and_its_volumes_cannot_be_used_until_it_goes_on() {
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        let mut registry = HealthRegistry::default();
        let id = drive.id.clone();
        for _ in 0..2 {
            registry.stalled([id.clone()].into());
        }
        drive.health = registry.drive(&id);
        assert_eq!(drive.health.verdict, Verdict::Suspect);
        let condition = of_its_drive(&drive).unwrap();
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("INACCESSIBLE", "DriveStalled")
        );
        registry.stalled(BTreeSet::new());
        assert_eq!(registry.drive(&id), DriveHealth::default());
    }

    #[test]
    fn requests_that_fail_as_a_drive_goes_away_say_nothing_of_it_and_what_was_before_does() {
        let (id, at) = (subject(None).drive, Duration::from_secs);
        let volume = Uuid::from_u128(7);
        let mut registry = HealthRegistry::default();
        registry.note(&subject(Some(7)), Kind::IoError, at(100));
        registry.went_away(&id, at(110));
        assert_eq!(registry.drive(&id), DriveHealth::default());
        assert!(registry.volume(volume, None).is_empty());
        // A place that does not read, and requests that began to fail a while ago, are the drive's.
        registry.note(&subject(Some(7)), Kind::MediumError, at(200));
        registry.note(&subject(Some(7)), Kind::IoError, at(200));
        registry.note(&subject(Some(7)), Kind::IoError, at(299));
        registry.went_away(&id, at(300));
        assert_eq!(registry.drive(&id).findings.len(), 2);
        assert_eq!(registry.volume(volume, None).len(), 2);
        // Another drive's going is none of its business.
        registry.note(&subject(Some(7)), Kind::DeviceLost, at(400));
        registry.went_away(&DriveId("other".into()), at(401));
        assert_eq!(registry.drive(&id).findings.len(), 3);
    }

    #[test]
    fn a_drive_that_was_away_three_times_in_a_day_is_suspect_until_that_is_over_or_known() {
        let id = subject(None).drive;
        let (mut registry, hour) = (HealthRegistry::default(), Duration::from_secs(3600));
        for turn in [1, 30, 31] {
            registry.went_away(&id, hour * turn);
        }
        assert_eq!(
            registry.drive(&id).verdict,
            Verdict::Unknown,
            "two within a day"
        );
        registry.went_away(&id, hour * 32);
        assert_eq!(registry.drive(&id).verdict, Verdict::Suspect);
        assert_eq!(registry.drive(&id).findings[0].code, "ComesAndGoes");
        let mut known = registry.clone();
        assert_eq!(known.acknowledge(&id, hour * 33).len(), 1);
        assert!(known.acknowledge(&id, hour * 34).is_empty());
        assert_eq!(known.drive(&id).verdict, Verdict::Suspect);
        assert!(known.drive(&id).findings[0].acknowledged);
        known.went_away(&id, hour * 35);
        assert!(!known.drive(&id).findings[0].acknowledged, "once more");
        let mut snapshot = Snapshot::default();
        let drive = samples::drive("sda", DriveState::Claimed, None);
        snapshot.drives.insert(id.clone(), drive);
        assert!(registry.tidy(&snapshot, hour * 55));
        assert_eq!(registry.drive(&id).verdict, Verdict::Unknown);
    }

    #[test]
    fn errors_that_ext4_has_counted_are_one_trouble_with_those_it_reports() {
        let mut registry = HealthRegistry::default();
        let volume = Uuid::from_u128(7);
        registry.counted(volume, true);
        assert_eq!(registry.volume(volume, None).len(), 1);
        registry.note(&subject(Some(7)), Kind::FilesystemError, Duration::ZERO);
        assert_eq!(registry.volume(volume, None).len(), 1);
        registry.mounted_afresh(volume);
        assert_eq!(registry.volume(volume, None).len(), 1);
        registry.counted(volume, false);
        assert!(registry.volume(volume, None).is_empty());
    }

    #[test]
    fn what_was_said_just_now_is_known_until_the_volume_is_mounted_afresh() {
        let mut registry = HealthRegistry::default();
        let second = Duration::from_secs(1);
        for kind in ALL {
            assert!(!registry.is_fresh(&subject(Some(7)), kind, second));
            registry.note(&subject(Some(7)), kind, Duration::ZERO);
            assert!(registry.is_fresh(&subject(Some(7)), kind, second));
            assert!(!registry.is_fresh(&subject(Some(7)), kind, FRESH));
            // Of another volume on the same drive it was not said.
            assert!(!registry.is_fresh(&subject(Some(8)), kind, second));
        }
        registry.mounted_afresh(Uuid::from_u128(7));
        assert!(!registry.is_fresh(&subject(Some(7)), Kind::FilesystemShutDown, second));
        assert!(registry.is_fresh(&subject(Some(7)), Kind::IoError, second));
    }

    #[test]
    fn an_acknowledgement_silences_what_the_kernel_said_of_the_drive_until_it_says_it_again() {
        let mut registry = HealthRegistry::default();
        let (second, volume) = (Duration::from_secs(1), Uuid::from_u128(7));
        for kind in ALL {
            registry.note(&subject(Some(7)), kind, second);
        }
        let id = subject(None).drive;
        let of_drive = ALL.iter().filter(|kind| is_of_drive(**kind)).count();
        assert_eq!(registry.acknowledge(&id, second).len(), of_drive);
        let health = registry.drive(&id);
        assert_eq!(health.verdict, Verdict::Suspect, "it is as it was");
        assert_eq!(health.counting().count(), 0);
        // Its volumes are told nothing of it either; what a filesystem said is another matter.
        let counts = |registry: &HealthRegistry, known| registry.volume(volume, known).len();
        assert_eq!(
            counts(&registry, registry.acknowledged_at(&id)),
            ALL.len() - of_drive
        );
        assert_eq!(counts(&registry, None), ALL.len());
        // It is noted at once when the kernel says it again, and only that counts.
        assert!(!registry.is_fresh(&subject(Some(7)), Kind::IoError, second * 2));
        assert!(registry.note(&subject(Some(7)), Kind::IoError, second * 2));
        assert!(!registry.note(&subject(Some(7)), Kind::IoError, second * 3));
        let counting = registry.drive(&id);
        let counting: Vec<_> = counting.counting().map(|one| one.code.as_str()).collect();
        assert_eq!(counting, ["KernelIoError"]);
        assert_eq!(
            counts(&registry, registry.acknowledged_at(&id)),
            ALL.len() - of_drive + 1
        );
        // Withdrawn, all of it counts.
        registry.withdraw(&id);
        assert_eq!(registry.drive(&id).counting().count(), of_drive);
    }

    #[test]
    fn what_is_about_nothing_there_is_is_let_go() {
        let mut registry = HealthRegistry::default();
        registry.note(&subject(Some(7)), Kind::FilesystemError, Duration::ZERO);
        assert!(registry.tidy(&snapshot(), Duration::ZERO));
        assert_eq!(registry, HealthRegistry::default());
    }

    #[test]
    fn a_volume_says_what_its_drive_is_suspected_of() {
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        assert_eq!(of_its_drive(&drive), None);
        let mut registry = HealthRegistry::default();
        registry.note(&subject(None), Kind::MediumError, Duration::ZERO);
        drive.health = registry.drive(&drive.id);
        let condition = of_its_drive(&drive).unwrap();
        assert_eq!(condition.reason, Reason::DriveSuspect);
        assert!(
            condition.message.contains("KernelMediumError"),
            "{condition:?}"
        );
        drive.health.verdict = Verdict::Good;
        assert_eq!(of_its_drive(&drive), None);
    }

    #[test]
    fn what_is_known_of_a_place_is_not_said_of_the_drive_that_is_put_there_next() {
        let id = DriveId("path-pci-0000:00:1f.2-ata-1".into());
        let subject = Subject {
            drive: id.clone(),
            volume: None,
        };
        let known = || {
            let mut registry = HealthRegistry::default();
            registry.appeared(&id, 7);
            registry.note(&subject, Kind::MediumError, Duration::ZERO);
            let bad = DriveHealth {
                verdict: Verdict::Bad,
                ..DriveHealth::default()
            };
            registry.says(id.clone(), bad);
            registry
        };
        let mut same = known();
        same.appeared(&id, 7);
        assert_eq!(same, known());
        let mut replaced = known();
        replaced.appeared(&id, 8);
        assert_eq!(replaced.drive(&id), DriveHealth::default());
        assert_eq!(replaced.report(&id), None);
        // After a restart of the agent in the same boot, and after a boot, when nothing says that it is the same.
        let mut restarted = known();
        restarted.restore_appearances([(id.clone(), 7)].into());
        restarted.appeared(&id, 7);
        assert_eq!(restarted.drive(&id).verdict, Verdict::Bad);
        let mut booted = known();
        booted.restore_appearances(BTreeMap::new());
        booted.appeared(&id, 7);
        assert_eq!(booted.drive(&id), DriveHealth::default());
    }
}

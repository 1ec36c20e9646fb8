//! Evidence about drives and volumes, and the findings and conditions derived from it. Pure: time is passed in.

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

/// Time for which a kernel report about a drive counts after its last occurrence (drives.md, state machine: SUSPECT is left
/// after 24 clean hours).
pub const COUNTS_FOR: Duration = Duration::from_secs(24 * 3600);

/// Evidence noted within this time is not noted again.
const FRESH: Duration = Duration::from_secs(60);

/// Requests that began to fail within this time before a drive disappeared are no evidence against it: they failed because
/// it did.
const GOING: Duration = Duration::from_secs(30);
/// Number of disappearances within a day that raise a finding: the drive has a bad connection, or resets itself.
const AWAY: usize = 3;

/// Check that evidence comes from. The next result of the same source replaces the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The table of mounts: staged or published mounts missing, of another device, turned read-only.
    Mounts,
    /// The partition or logical volume itself: missing, suspended, read-only, or changed by another program.
    Device,
    /// Reading the root directory.
    Reading,
    /// A read-only check of the filesystem.
    Check,
    /// Free space and inodes, by the last sample of the volume's usage.
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

/// Time of the last occurrence of each kind, on the registry's clock.
type EvidenceTimes = BTreeMap<Kind, Duration>;

/// Evidence that no check can find again, so that it is kept over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    pub drives: BTreeMap<DriveId, EvidenceTimes>,
    pub volumes: BTreeMap<Uuid, EvidenceTimes>,
    /// Time up to which the evidence about a drive and its volumes is acknowledged, on the same clock.
    #[serde(default)]
    pub acknowledged: BTreeMap<DriveId, Duration>,
}

impl Notes {
    /// Returns the evidence that still counts after a reboot. Filesystem errors are dropped, since every filesystem is
    /// mounted again. `then` converts times to the clock of this boot; an entry for which it returns None is dropped.
    pub fn after_a_boot(mut self, then: impl Fn(Duration) -> Option<Duration>) -> Self {
        for times in self.drives.values_mut().chain(self.volumes.values_mut()) {
            let of_drives = std::mem::take(times).into_iter();
            let of_drives = of_drives.filter(|(kind, _)| is_of_drive(*kind));
            *times = of_drives
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

/// Evidence about all drives and volumes, at most one entry per kind and drive or volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthRegistry {
    notes: Notes,
    // Drives that have requests in flight and complete none, now.
    stalled: BTreeSet<DriveId>,
    // Volumes whose ext4 had errors counted in its superblock when it was last read.
    counted: BTreeSet<Uuid>,
    // SMART reports. Those of missing drives are kept: they are the last known ones when the drives return.
    smart: BTreeMap<DriveId, DriveHealth>,
    // Diskseq that the evidence belongs to, of drives without an identity of their own.
    appearances: BTreeMap<DriveId, u64>,
    // Result of the last check, by source; empty results are not kept.
    conditions: BTreeMap<(Uuid, Source), Vec<Condition>>,
    findings: BTreeMap<(DriveId, Source), Vec<Finding>>,
    // Time at which an entry of `notes` was new, by drive, volume and kind.
    began: BTreeMap<(DriveId, Option<Uuid>, Kind), Duration>,
    // Times at which a drive disappeared.
    went: BTreeMap<DriveId, Vec<Duration>>,
    unreadable: BTreeMap<DriveId, UnreadableRanges>,
    // Contents of unreadable ranges, as the filesystems report them.
    located: Located,
}

impl HealthRegistry {
    /// Replaces the conditions that this source found for the volume. True if they differ from the last ones.
    pub fn record(&mut self, volume: Uuid, source: Source, conditions: Vec<Condition>) -> bool {
        replace(&mut self.conditions, (volume, source), conditions)
    }

    /// Replaces the findings of this source for the drive. Each makes the drive SUSPECT. True if they differ from the last
    /// ones.
    pub fn record_drive(&mut self, drive: DriveId, source: Source, findings: Vec<Finding>) -> bool {
        replace(&mut self.findings, (drive, source), findings)
    }

    /// Notes that the kernel reported this kind for the subject at `now`. True if that is new: not noted before, or reported
    /// again for the first time since an acknowledgement.
    pub fn note(&mut self, subject: &Subject, kind: Kind, now: Duration) -> bool {
        // The latest time counts: a record may be read twice.
        let acknowledged = self.acknowledged_at(&subject.drive);
        let put = |times: &mut EvidenceTimes| {
            let last = times.insert(kind, now);
            if let Some(last) = last.filter(|last| *last > now) {
                times.insert(kind, last);
            }
            last.is_none_or(|last| acknowledged.is_some_and(|until| last <= until && now > until))
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

    /// Notes that the drive disappeared at `now`. Drops I/O errors and lost links that began up to 30 seconds before, since
    /// they failed because it disappeared; medium errors stay. The third disappearance within a day raises a finding.
    pub fn went_away(&mut self, drive: &DriveId, now: Duration) {
        let going =
            |kind: Kind, at: Duration| is_of_absence(kind) && now.saturating_sub(at) <= GOING;
        for ((of, volume, kind), at) in &self.began {
            if of != drive || !going(*kind, *at) {
                continue;
            }
            let times = match volume {
                None => self.notes.drives.get_mut(drive),
                Some(volume) => self.notes.volumes.get_mut(volume),
            };
            if let Some(times) = times {
                times.remove(kind);
            }
        }
        self.began
            .retain(|(of, _, kind), at| of != drive || !going(*kind, *at));
        let went = self.went.entry(drive.clone()).or_default();
        went.push(now);
        went.retain(|at| now.saturating_sub(*at) < COUNTS_FOR);
    }

    /// Updates the unreadable ranges of a drive with the result of reading windows of it.
    pub fn read(&mut self, drive: &DriveId, windows: &WindowRead) {
        let ranges = self.unreadable.entry(drive.clone()).or_default();
        ranges.take(windows);
        if ranges.is_empty() {
            self.unreadable.remove(drive);
        }
    }

    /// Returns the unreadable ranges of a drive; empty if none is known.
    pub fn unreadable(&self, drive: &DriveId) -> UnreadableRanges {
        self.unreadable.get(drive).cloned().unwrap_or_default()
    }

    /// Returns the unreadable ranges of all drives, to be persisted.
    pub fn all_unreadable(&self) -> &BTreeMap<DriveId, UnreadableRanges> {
        &self.unreadable
    }

    /// Replaces the unreadable ranges of all drives with those of an earlier agent.
    pub fn restore_unreadable(&mut self, ranges: BTreeMap<DriveId, UnreadableRanges>) {
        self.unreadable = ranges;
    }

    /// Replaces the contents of a volume's unreadable ranges, as its filesystem reports them.
    pub fn locate(&mut self, volume: Uuid, pieces: Vec<LocatedPiece>) {
        replace(&mut self.located, volume, pieces);
    }

    /// Returns the contents of unreadable ranges, by volume.
    pub fn located(&self) -> &Located {
        &self.located
    }

    /// Returns the conditions that this source found in its last check of the volume.
    pub fn conditions_of(&self, volume: Uuid, source: Source) -> &[Condition] {
        self.conditions
            .get(&(volume, source))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the conditions that calls found, by volume, to be persisted: a call may never be repeated.
    pub fn of_calls(&self) -> BTreeMap<Uuid, Vec<Condition>> {
        let of_calls = self
            .conditions
            .iter()
            .filter(|((_, source), _)| *source == Source::Call);
        of_calls
            .map(|((volume, _), conditions)| (*volume, conditions.clone()))
            .collect()
    }

    /// Restores the conditions that calls to an earlier agent found.
    pub fn restore_of_calls(&mut self, by_volume: BTreeMap<Uuid, Vec<Condition>>) {
        for (volume, conditions) in by_volume {
            self.record(volume, Source::Call, conditions);
        }
    }

    /// Returns the findings of this source's last check of the drive.
    pub fn findings_of(&self, drive: &DriveId, source: Source) -> &[Finding] {
        let findings = self.findings.get(&(drive.clone(), source));
        findings.map_or(&[], Vec::as_slice)
    }

    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Replaces the notes with those of an earlier agent.
    pub fn restore(&mut self, notes: Notes) {
        self.notes = notes;
    }

    /// True if this was noted within the last minute and not acknowledged since: a failing drive logs thousands of lines per
    /// second.
    pub fn is_fresh(&self, subject: &Subject, kind: Kind, now: Duration) -> bool {
        let acknowledged = self.acknowledged_at(&subject.drive);
        let fresh = |times: Option<&EvidenceTimes>| {
            times.and_then(|times| times.get(&kind)).is_some_and(|at| {
                now.saturating_sub(*at) < FRESH && acknowledged.is_none_or(|until| *at > until)
            })
        };
        (!is_of_drive(kind) || fresh(self.notes.drives.get(&subject.drive)))
            && subject
                .volume
                .is_none_or(|volume| fresh(self.notes.volumes.get(&volume)))
    }

    /// Sets the drives that are stalled now; no others are.
    pub fn stalled(&mut self, now: BTreeSet<DriveId>) {
        self.stalled = now;
    }

    /// Replaces all SMART reports with those of an earlier agent, which are the last known ones until the drives are polled.
    pub fn restore_reports(&mut self, reports: BTreeMap<DriveId, DriveHealth>) {
        self.smart = reports;
    }

    /// Returns the last SMART report of the drive, which may be that of an earlier agent.
    pub fn report(&self, drive: &DriveId) -> Option<&DriveHealth> {
        self.smart.get(drive)
    }

    /// Sets the diskseq, in this boot, that the restored evidence belongs to, for drives without an identity of their own.
    pub fn restore_appearances(&mut self, appearances: BTreeMap<DriveId, u64>) {
        self.appearances = appearances;
    }

    /// Notes that a drive identified by its slot alone is present with this diskseq. With another diskseq it may be another
    /// drive: the evidence about it is dropped, except how often a drive disappeared there.
    pub fn appeared(&mut self, drive: &DriveId, diskseq: u64) {
        if self.appearances.insert(drive.clone(), diskseq) == Some(diskseq) {
            return;
        }
        self.notes.drives.remove(drive);
        self.notes.acknowledged.remove(drive);
        self.stalled.remove(drive);
        self.smart.remove(drive);
        self.findings.retain(|(of, _), _| of != drive);
        self.began
            .retain(|(of, volume, _), _| of != drive || volume.is_some());
        self.unreadable.remove(drive);
    }

    /// Replaces the SMART report of the drive.
    pub fn record_report(&mut self, drive: DriveId, health: DriveHealth) {
        self.smart.insert(drive, health);
    }

    /// Acknowledges what the kernel reported about the drive and the volumes on it up to `now`, and its disappearances;
    /// later reports count again. Returns the findings that were not acknowledged before.
    pub fn acknowledge(&mut self, drive: &DriveId, now: Duration) -> Vec<Finding> {
        let counted: Vec<Finding> = self
            .kernel_findings(drive)
            .filter(|finding| !finding.acknowledged)
            .collect();
        self.notes.acknowledged.insert(drive.clone(), now);
        counted
    }

    /// Returns the findings that an acknowledgement would cover now, without those of SMART.
    pub fn acknowledgeable(&self, drive: &DriveId) -> Vec<Finding> {
        let slow = self.findings_of(drive, Source::Latency).iter().cloned();
        let all = self.kernel_findings(drive).chain(slow);
        all.filter(|finding| !finding.acknowledged).collect()
    }

    /// Removes the acknowledgement of what the kernel reported about the drive.
    pub fn withdraw(&mut self, drive: &DriveId) {
        self.notes.acknowledged.remove(drive);
    }

    /// Returns the time up to which the evidence about the drive is acknowledged.
    pub fn acknowledged_at(&self, drive: &DriveId) -> Option<Duration> {
        self.notes.acknowledged.get(drive).copied()
    }

    /// Returns the findings from kernel reports about the drive, and from its disappearances.
    fn kernel_findings(&self, drive: &DriveId) -> impl Iterator<Item = Finding> {
        let acknowledged = self.acknowledged_at(drive);
        let times = self.notes.drives.get(drive).into_iter().flatten();
        let reported = times.filter_map(move |(kind, at)| {
            Some(Finding {
                acknowledged: acknowledged.is_some_and(|until| *at <= until),
                ..finding(*kind)?
            })
        });
        reported.chain(self.comes_and_goes(drive))
    }

    /// Returns a finding if the drive disappeared too often.
    fn comes_and_goes(&self, drive: &DriveId) -> Option<Finding> {
        let went = self.went.get(drive).filter(|went| went.len() >= AWAY)?;
        let acknowledged = self.acknowledged_at(drive);
        let message = format!(
            "it was missing at least {AWAY} times within a day; check slot, cable and power, or replace it"
        );
        Some(Finding {
            acknowledged: acknowledged.is_some_and(|until| went.iter().all(|at| *at <= until)),
            ..Finding::new(Code::ComesAndGoes, message)
        })
    }

    /// True if any drive is stalled.
    pub fn any_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Sets whether a volume's ext4 has counted errors.
    pub fn counted(&mut self, volume: Uuid, errors: bool) {
        if errors {
            self.counted.insert(volume);
        } else {
            self.counted.remove(&volume);
        }
    }

    /// True if the kernel reported errors of the volume's filesystem since it was mounted last, or ext4 has counted some.
    pub fn speaks_against_filesystem(&self, volume: Uuid) -> bool {
        let times = self.notes.volumes.get(&volume).into_iter().flatten();
        self.counted.contains(&volume) || times.into_iter().any(|(kind, _)| !is_of_drive(*kind))
    }

    /// Drops the filesystem errors of a volume that was unmounted and mounted again, but not the errors of its blocks. True
    /// if any was dropped.
    pub fn mounted_afresh(&mut self, volume: Uuid) -> bool {
        // The result of reading the root directory belongs to the mount before, too.
        self.conditions.remove(&(volume, Source::Reading));
        let Some(times) = self.notes.volumes.get_mut(&volume) else {
            return false;
        };
        let before = times.len();
        times.retain(|kind, _| is_of_drive(*kind));
        before != times.len()
    }

    /// Drops evidence that no longer counts, or is about drives and volumes that no longer exist. True if anything was
    /// dropped.
    pub fn tidy(&mut self, snapshot: &Snapshot, now: Duration) -> bool {
        let before = self.clone();
        let counts = |times: &mut EvidenceTimes| {
            times.retain(|kind, at| !is_of_drive(*kind) || now.saturating_sub(*at) < COUNTS_FOR);
            !times.is_empty()
        };
        self.notes
            .drives
            .retain(|id, times| snapshot.drives.contains_key(id) && counts(times));
        self.notes
            .volumes
            .retain(|id, times| snapshot.volumes.contains_key(id) && counts(times));
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
            let times = match volume {
                None => notes.drives.get(drive),
                Some(volume) => notes.volumes.get(volume),
            };
            times.is_some_and(|times| times.contains_key(kind))
        });
        self.counted.retain(|id| snapshot.volumes.contains_key(id));
        self.located
            .retain(|id, _| snapshot.volumes.contains_key(id));
        self.unreadable
            .retain(|id, _| snapshot.drives.contains_key(id));
        self.conditions
            .retain(|(id, _), _| snapshot.volumes.contains_key(id));
        self.findings
            .retain(|(id, _), _| snapshot.drives.contains_key(id));
        *self != before
    }

    /// Returns verdict, findings and conditions of the drive, derived from all evidence about it.
    pub fn drive(&self, id: &DriveId) -> DriveHealth {
        let mut findings: Vec<Finding> = self.kernel_findings(id).collect();
        if self.stalled.contains(id) {
            findings.push(Finding::new(
                Code::IoStalled,
                "it has requests and has completed none for ten seconds; see the kernel log, check cable and slot",
            ));
        }
        for source in Source::ALL {
            let checked = self.findings.get(&(id.clone(), source));
            findings.extend(checked.into_iter().flatten().cloned());
        }
        let unreadable = self.unreadable.get(id);
        findings.extend(unreadable.and_then(unreadable::finding));
        let against = if findings.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Suspect
        };
        let report = self.smart.get(id).cloned().unwrap_or_default();
        findings.extend(report.findings);
        DriveHealth {
            // The worst verdict counts; without findings, the drive's own.
            verdict: against.max(report.verdict),
            poll: report.poll,
            findings,
            conditions: report.conditions,
            worn_out: report.worn_out,
            acknowledged: report.acknowledged,
            smart: report.smart,
            unreadable_more: unreadable.is_some_and(UnreadableRanges::has_more),
            ..DriveHealth::default()
        }
    }

    /// Returns the conditions of the volume, without what the kernel reported about its drive up to `acknowledged`.
    pub fn volume(&self, volume: Uuid, acknowledged: Option<Duration>) -> Vec<Condition> {
        let counts = |kind: Kind, at: Duration| {
            !is_of_drive(kind) || acknowledged.is_none_or(|until| at > until)
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
            let checked = self.conditions.get(&(volume, source));
            conditions.extend(checked.into_iter().flatten().cloned());
        }
        conditions
    }
}

/// Sets a value; removes the key if it is empty. True if the map changed.
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

/// True if the kernel also reports this kind when a drive only disappears.
pub fn is_of_absence(kind: Kind) -> bool {
    matches!(kind, Kind::IoError | Kind::DeviceLost)
}

/// True if this kind is evidence about the drive, and not about a filesystem alone.
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

/// Returns the condition that a drive's verdict implies for each volume on it; None if it is good, unknown, or acknowledged
/// without a stall.
pub fn of_its_drive(drive: &Drive) -> Option<Condition> {
    let stalled = drive.health.stalled();
    let (reason, what) = match drive.health.verdict {
        // An acknowledgement does not cover a stall.
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
    fn restored_notes_give_the_same_conditions_and_findings() {
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
        assert_eq!(registry.conditions_of(volume, Source::Reading), []);
        assert_eq!(registry.conditions_of(volume, Source::Device), [unreadable]);
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
    fn a_result_stays_until_its_source_checks_again_and_no_other_source_replaces_it() {
        let mut registry = HealthRegistry::default();
        let volume = Uuid::from_u128(7);
        let conditions = vec![condition(Kind::FilesystemCorrupt)];
        assert!(registry.record(volume, Source::Check, conditions.clone()));
        assert!(!registry.record(volume, Source::Check, conditions.clone()));
        assert!(!registry.record(volume, Source::Mounts, Vec::new()));
        assert_eq!(registry.volume(volume, None), conditions);
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
    fn mounting_afresh_drops_filesystem_errors_and_keeps_those_of_the_drive() {
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
    fn the_worst_verdict_on_a_drive_counts_and_all_findings_are_reported() {
        use Verdict::{Bad, Good, Suspect, Unknown};
        for (own, kernel, expected) in [
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
            let report = DriveHealth {
                verdict: own,
                findings: vec![Finding::new("Said", "")],
                ..DriveHealth::default()
            };
            registry.record_report(id.clone(), report);
            if kernel {
                registry.note(&subject(None), Kind::IoError, Duration::ZERO);
            }
            let health = registry.drive(&id);
            assert_eq!(health.verdict, expected, "{own} {kernel}");
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
    fn requests_that_fail_as_a_drive_disappears_do_not_count_and_earlier_ones_do() {
        let (id, at) = (subject(None).drive, Duration::from_secs);
        let volume = Uuid::from_u128(7);
        let mut registry = HealthRegistry::default();
        registry.note(&subject(Some(7)), Kind::IoError, at(100));
        registry.went_away(&id, at(110));
        assert_eq!(registry.drive(&id), DriveHealth::default());
        assert!(registry.volume(volume, None).is_empty());
        // Medium errors, and I/O errors that began earlier, stay.
        registry.note(&subject(Some(7)), Kind::MediumError, at(200));
        registry.note(&subject(Some(7)), Kind::IoError, at(200));
        registry.note(&subject(Some(7)), Kind::IoError, at(299));
        registry.went_away(&id, at(300));
        assert_eq!(registry.drive(&id).findings.len(), 2);
        assert_eq!(registry.volume(volume, None).len(), 2);
        // The disappearance of another drive changes nothing.
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
        let mut acknowledged = registry.clone();
        assert_eq!(acknowledged.acknowledge(&id, hour * 33).len(), 1);
        assert!(acknowledged.acknowledge(&id, hour * 34).is_empty());
        assert_eq!(acknowledged.drive(&id).verdict, Verdict::Suspect);
        assert!(acknowledged.drive(&id).findings[0].acknowledged);
        acknowledged.went_away(&id, hour * 35);
        assert!(
            !acknowledged.drive(&id).findings[0].acknowledged,
            "once more"
        );
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
    fn a_recent_kernel_report_is_fresh_until_the_volume_is_mounted_afresh() {
        let mut registry = HealthRegistry::default();
        let second = Duration::from_secs(1);
        for kind in ALL {
            assert!(!registry.is_fresh(&subject(Some(7)), kind, second));
            registry.note(&subject(Some(7)), kind, Duration::ZERO);
            assert!(registry.is_fresh(&subject(Some(7)), kind, second));
            assert!(!registry.is_fresh(&subject(Some(7)), kind, FRESH));
            // Nothing was reported for another volume on the same drive.
            assert!(!registry.is_fresh(&subject(Some(8)), kind, second));
        }
        registry.mounted_afresh(Uuid::from_u128(7));
        assert!(!registry.is_fresh(&subject(Some(7)), Kind::FilesystemShutDown, second));
        assert!(registry.is_fresh(&subject(Some(7)), Kind::IoError, second));
    }

    #[test]
    fn an_acknowledgement_covers_kernel_reports_until_the_kernel_reports_again() {
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
        // Conditions of its volumes leave it out, too; filesystem errors stay.
        let counts =
            |registry: &HealthRegistry, acknowledged| registry.volume(volume, acknowledged).len();
        assert_eq!(
            counts(&registry, registry.acknowledged_at(&id)),
            ALL.len() - of_drive
        );
        assert_eq!(counts(&registry, None), ALL.len());
        // It is noted at once when the kernel reports it again, and only that counts.
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
    fn a_volume_reports_the_findings_of_its_suspect_drive() {
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
    fn evidence_about_a_slot_is_not_reported_of_the_next_drive_in_it() {
        let id = DriveId("path-pci-0000:00:1f.2-ata-1".into());
        let subject = Subject {
            drive: id.clone(),
            volume: None,
        };
        let with_evidence = || {
            let mut registry = HealthRegistry::default();
            registry.appeared(&id, 7);
            registry.note(&subject, Kind::MediumError, Duration::ZERO);
            let bad = DriveHealth {
                verdict: Verdict::Bad,
                ..DriveHealth::default()
            };
            registry.record_report(id.clone(), bad);
            registry
        };
        let mut same = with_evidence();
        same.appeared(&id, 7);
        assert_eq!(same, with_evidence());
        let mut replaced = with_evidence();
        replaced.appeared(&id, 8);
        assert_eq!(replaced.drive(&id), DriveHealth::default());
        assert_eq!(replaced.report(&id), None);
        // After a restart of the agent in the same boot, and after a reboot, when nothing proves that it is the same drive.
        let mut restarted = with_evidence();
        restarted.restore_appearances([(id.clone(), 7)].into());
        restarted.appeared(&id, 7);
        assert_eq!(restarted.drive(&id).verdict, Verdict::Bad);
        let mut booted = with_evidence();
        booted.restore_appearances(BTreeMap::new());
        booted.appeared(&id, 7);
        assert_eq!(booted.drive(&id), DriveHealth::default());
    }
}

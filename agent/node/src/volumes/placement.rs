//! Placement: the drives to try for a new volume, in order, by the request, the inventory and the creations in flight.
//! Pure. The result is an estimate: each drive decides when its job runs.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

use drivebay_proto::names;

use crate::inventory::assemble::is_live;
use drivebay_layout::{gpt, plan};
use drivebay_model::{Drive, DriveId, DriveState, Extent, Layout, Placement, Snapshot};
use drivebay_sys::lvm::INSTEAD;

/// Creations sent to one drive at a time: further ones wait where they can still be given to another drive. Below the
/// queue length of its worker.
const IN_FLIGHT_PER_DRIVE: usize = 4;

/// Requirements of a new volume.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    pub class: &'a str,
    pub bytes: u64,
    pub placement: Placement,
    /// Anti-affinity group: its volumes belong on other drives.
    pub group: Option<&'a Group>,
}

/// An anti-affinity group: its volumes belong on different drives. Kept among a volume's parameters, on its drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// True: different drives are required. False: preferred, as far as there is room.
    pub hard: bool,
}

impl Group {
    /// Reads the group from a request's parameters; None: no group.
    pub fn of(parameters: &BTreeMap<String, String>) -> Option<Self> {
        let hard = parameters.get(names::PARAM_ANTI_AFFINITY);
        Some(Self {
            name: parameters.get(names::KEPT_ANTI_AFFINITY_GROUP)?.clone(),
            hard: hard.is_some_and(|value| value == names::ANTI_AFFINITY_HARD),
        })
    }

    /// Returns the drive of each live volume of this group; a drive with several appears several times.
    fn drives<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a DriveId> {
        let volumes = snapshot.volumes.values().filter(|volume| {
            let group = volume
                .placed
                .record
                .parameters
                .get(names::KEPT_ANTI_AFFINITY_GROUP);
            is_live(volume.state) && group == Some(&self.name)
        });
        volumes.map(|volume| &volume.drive)
    }
}

/// A creation that was sent to a drive and is not answered; its bytes count as allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    pub drive: DriveId,
    pub bytes: u64,
    /// Name of its anti-affinity group.
    pub group: Option<String>,
}

/// A drive that could take the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub drive: DriveId,
    /// True: the drive must be claimed first.
    pub claim: bool,
}

/// Result of [`choose`]: the drives to try, and whether others might take the volume later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Drives to try, best first.
    pub candidates: Vec<Candidate>,
    /// True: another drive might take the volume once a creation in flight has ended.
    pub others_later: bool,
    /// True: another drive might take the volume after its first poll.
    pub awaits_poll: bool,
}

/// Returns the drives for a volume, except `excluded` ones. Drives without a volume of its group come first; if the
/// group is hard, only those are returned.
///
/// `Spread`: first the drive with the largest free share afterwards, so that drives of different sizes fill evenly;
/// among equals the one with fewer volumes. `Pack`: first the claimed drives, those with the smallest sufficient free
/// extent before others, so that large extents stay whole; then blank ones, the smallest sufficient first.
pub fn choose(
    snapshot: &Snapshot,
    need: Need<'_>,
    in_flight: &[InFlight],
    excluded: impl Fn(&DriveId) -> bool,
) -> Choice {
    choose_among(snapshot, need, in_flight, IN_FLIGHT_PER_DRIVE, excluded)
}

/// Like `choose`, for a copy: `planned` copies take room, without a limit per drive.
pub(super) fn choose_for_copy(
    snapshot: &Snapshot,
    need: Need<'_>,
    planned: &[InFlight],
    excluded: impl Fn(&DriveId) -> bool,
) -> Choice {
    choose_among(snapshot, need, planned, usize::MAX, excluded)
}

fn choose_among(
    snapshot: &Snapshot,
    need: Need<'_>,
    in_flight: &[InFlight],
    most_per_drive: usize,
    excluded: impl Fn(&DriveId) -> bool,
) -> Choice {
    let mut choice = Choice::default();
    let grouped: Vec<&DriveId> = need
        .group
        .into_iter()
        .flat_map(|group| group.drives(snapshot))
        .collect();
    let is_hard = need.group.is_some_and(|group| group.hard);
    let mut ranked: Vec<(Rank, Candidate)> = Vec::new();
    let drives = snapshot.drives.values().filter(|drive| {
        drive.class.as_deref() == Some(need.class)
            && drive.trouble.is_none()
            && drive.is_fit()
            && !(drive.state == DriveState::Available && cannot_claim(snapshot, need.class))
            && !excluded(&drive.id)
    });
    for drive in drives {
        let Some(mut room) = Room::of(drive).filter(|room| room.largest() >= need.bytes) else {
            continue;
        };
        let of_group = grouped.iter().filter(|id| **id == &drive.id).count();
        if of_group > 0 && is_hard {
            continue;
        }
        if !takes_new_volumes(drive) {
            choice.awaits_poll = true;
            continue;
        }
        let sent = in_flight.iter().filter(|one| one.drive == drive.id);
        let (mut count, mut sent_of_group) = (0, 0);
        for one in sent {
            room.take(one.bytes, need.placement);
            count += 1;
            let of_group = need
                .group
                .is_some_and(|group| one.group.as_ref() == Some(&group.name));
            sent_of_group += usize::from(of_group);
        }
        if sent_of_group > 0 && is_hard {
            choice.others_later = true;
            continue;
        }
        if count >= most_per_drive || room.largest() < need.bytes {
            choice.others_later = true;
            continue;
        }
        let claim = drive.state == DriveState::Available;
        let rank = Rank {
            of_group: of_group + sent_of_group,
            largest: room.largest(),
            free_after: room.free_bytes().saturating_sub(need.bytes),
            usable: room.usable,
            volumes: room.volumes + count,
            claim,
        };
        let drive = drive.id.clone();
        ranked.push((rank, Candidate { drive, claim }));
    }
    ranked.sort_by(|(a, one), (b, other)| {
        let by_class = match need.placement {
            Placement::Spread => a.spread(b),
            Placement::Pack => a.pack(b),
        };
        let by_group = a.of_group.cmp(&b.of_group);
        let order = by_group.then(by_class);
        order.then_with(|| one.drive.cmp(&other.drive))
    });
    choice.candidates = ranked.into_iter().map(|(_, candidate)| candidate).collect();
    choice
}

/// Returns the drives that could take the volume but for volumes of its hard group on them; None: the group is not the
/// reason.
pub fn only_its_group(
    snapshot: &Snapshot,
    need: Need<'_>,
    excluded: impl Fn(&DriveId) -> bool,
) -> Option<String> {
    let group = need.group.filter(|group| group.hard)?;
    let alone = Need {
        group: None,
        ..need
    };
    let drives = choose(snapshot, alone, &[], excluded).candidates;
    let taken: Vec<&str> = drives
        .iter()
        .filter(|one| group.drives(snapshot).any(|id| *id == one.drive))
        .map(|one| one.drive.0.as_str())
        .collect();
    (!taken.is_empty() && taken.len() == drives.len()).then(|| taken.join(", "))
}

/// Criteria by which drives are compared.
#[derive(Debug)]
struct Rank {
    /// Volumes of the same group on the drive, including creations in flight.
    of_group: usize,
    largest: u64,
    free_after: u64,
    usable: u64,
    volumes: usize,
    claim: bool,
}

impl Rank {
    fn spread(&self, other: &Self) -> Ordering {
        // Shares of the drive that stay free, compared as fractions without dividing.
        let share = |a: &Self, b: &Self| u128::from(a.free_after) * u128::from(b.usable);
        Reverse(share(self, other))
            .cmp(&Reverse(share(other, self)))
            .then(self.volumes.cmp(&other.volumes))
            .then(self.claim.cmp(&other.claim))
    }

    fn pack(&self, other: &Self) -> Ordering {
        (self.claim, self.largest).cmp(&(other.claim, other.largest))
    }
}

/// Free space of a drive after the creations in flight.
#[derive(Debug)]
struct Room {
    /// Free extents; those that one volume can use together count as one.
    free: Vec<Extent>,
    growable: Vec<Extent>,
    usable: u64,
    volumes: usize,
}

impl Room {
    /// Returns the free space of a drive; None: the drive takes no volumes.
    fn of(drive: &Drive) -> Option<Self> {
        let one = |len| vec![Extent { start: 0, len }];
        match (drive.state, &drive.contents) {
            (DriveState::Claimed, Some(contents)) if contents.table_full => None,
            (DriveState::Claimed, Some(contents)) => Some(Self {
                free: match contents.layout {
                    Layout::Partition => contents.free.clone(),
                    Layout::Lvm => one(contents.free_bytes()),
                },
                growable: match contents.layout {
                    Layout::Partition => plan::growable(&contents.volumes),
                    Layout::Lvm => Vec::new(),
                },
                usable: contents.usable_bytes,
                volumes: contents.volumes.len(),
            }),
            (DriveState::Available, _) => Some(Self {
                free: one(drive.claimable_bytes),
                growable: Vec::new(),
                usable: drive.claimable_bytes,
                volumes: 0,
            }),
            _ => None,
        }
    }

    fn largest(&self) -> u64 {
        self.free.iter().map(|run| run.len).max().unwrap_or(0)
    }

    fn free_bytes(&self) -> u64 {
        self.free.iter().map(|run| run.len).sum()
    }

    /// Allocates as the drive will: in the order in which the creations were sent.
    fn take(&mut self, bytes: u64, placement: Placement) {
        if let Some(place) = plan::place(&self.free, &self.growable, bytes, placement) {
            self.free = plan::without(&self.free, place);
            self.growable.push(place);
        }
    }
}

/// Returns the largest free extent of a class in bytes, and text that names its drive. Pure.
pub(super) fn largest(snapshot: &Snapshot, class: &str) -> (u64, String) {
    snapshot
        .drives
        .values()
        .filter(|drive| drive.class.as_deref() == Some(class) && takes_new_volumes(drive))
        .filter_map(|drive| match (drive.state, &drive.contents) {
            (DriveState::Claimed, Some(contents)) if !contents.table_full => {
                Some((contents.largest_free(), &drive.id))
            }
            (DriveState::Available, _) if !cannot_claim(snapshot, class) => {
                Some((drive.claimable_bytes, &drive.id))
            }
            _ => None,
        })
        .max()
        .map_or((0, String::new()), |(bytes, id)| {
            (bytes, format!(" on drive {id}"))
        })
}

/// Describes the drives of a class that are not counted, and why. Not an error of its own: a drive that never answers
/// must not prevent the creation of the volume on another node. Pure.
pub(super) fn silent(snapshot: &Snapshot, class: &str) -> String {
    let drives: Vec<String> = snapshot
        .drives
        .values()
        .filter(|drive| drive.class.as_deref() == Some(class))
        .filter(|drive| drive.state != DriveState::Missing)
        .filter_map(|drive| Some(format!("{} ({})", drive.id, why_not(drive)?)))
        .collect();
    let mut text = String::new();
    if !drives.is_empty() {
        text = format!("; not counted: {}", drives.join(", "));
    }
    let report = snapshot.classes.get(class);
    if let Some(why) = report.and_then(|report| report.cannot_claim.as_ref()) {
        text.push_str(&format!("; no drive can be claimed: {why}. {INSTEAD}"));
    }
    text
}

fn cannot_claim(snapshot: &Snapshot, class: &str) -> bool {
    let report = snapshot.classes.get(class);
    report.is_some_and(|report| report.cannot_claim.is_some())
}

/// True if new volumes may be placed on the drive now: it responds, its health has no findings, no operator has
/// cordoned it, and its first poll is over.
fn takes_new_volumes(drive: &Drive) -> bool {
    drive.trouble.is_none() && drive.is_fit() && drive.health.takes_new_volumes()
}

fn why_not(drive: &Drive) -> Option<String> {
    if let Some(trouble) = &drive.trouble {
        return Some(format!("it does not answer: {trouble}"));
    }
    if let Some(cordon) = drive.cordon() {
        return Some(format!("cordoned by {}: {}", cordon.by, cordon.reason));
    }
    let health = &drive.health;
    if health.takes_new_volumes() {
        let full = drive.contents.as_ref().is_some_and(|of| of.table_full);
        return full.then(|| {
            let most = gpt::ENTRIES - 1;
            format!(
                "its partition table is full: it has {} entries, for {most} volumes and Drivebay's label; delete a volume, \
                 or use a class of layout lvm for so many",
                gpt::ENTRIES
            )
        });
    }
    if health.is_fit() {
        return Some("it was not polled for SMART data yet".to_owned());
    }
    let against = health.findings.iter().chain(&health.conditions);
    let codes: Vec<&str> = against.map(|finding| finding.code.as_str()).collect();
    Some(format!("{}: {}", health.shown_verdict(), codes.join(", ")))
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;

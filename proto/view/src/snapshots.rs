//! Snapshots of volumes, and groups of them, as both command lines show them: rows of a list, sums, names, JSON. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::{pick::Names, units::count};
use drivebay_proto::{
    agent::{SnapshotGroup, Volume, VolumeSnapshot},
    words::SnapshotState,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    moment,
    order::by_name,
    row::Row,
    table::{
        Align::{self, Left, Right},
        Yielding, human_seconds, human_size, printable,
    },
    tally::part_of,
    terminal::Terminal,
};

/// Largest number of groups that a summary names.
const NAMED_GROUPS: usize = 8;

/// A snapshot with its volume: there is none without one.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotEntry<'a> {
    pub volume: &'a Volume,
    pub snapshot: &'a VolumeSnapshot,
}

/// Returns all snapshots of these volumes, in any state, ordered by the volume's name, then by creation time.
pub fn entries<'a>(volumes: impl IntoIterator<Item = &'a Volume>) -> Vec<SnapshotEntry<'a>> {
    let of_one = |volume: &'a Volume| {
        let snapshots = volume.snapshots.iter();
        snapshots.map(move |snapshot| SnapshotEntry { volume, snapshot })
    };
    let mut all: Vec<SnapshotEntry<'a>> = volumes.into_iter().flat_map(of_one).collect();
    all.sort_by(|a, b| {
        by_name(&a.volume.name, &b.volume.name)
            .then_with(|| a.volume.id.cmp(&b.volume.id))
            .then_with(|| a.snapshot.created_at.cmp(&b.snapshot.created_at))
            .then_with(|| by_name(&a.snapshot.name, &b.snapshot.name))
    });
    all
}

/// Snapshots that were taken at one moment.
#[derive(Debug, Clone)]
pub struct GroupEntry<'a> {
    pub group: &'a SnapshotGroup,
    /// At least one, in the order of the list. The group is complete if there are `group.members`.
    pub members: Vec<SnapshotEntry<'a>>,
}

/// Returns the groups of these snapshots, ordered by id.
pub fn groups<'a>(entries: &[SnapshotEntry<'a>]) -> Vec<GroupEntry<'a>> {
    let mut groups = BTreeMap::<&str, GroupEntry<'a>>::new();
    for entry in entries {
        if let Some(group) = &entry.snapshot.group {
            let members = Vec::new();
            let group_entry = groups.entry(&group.id);
            let group_entry = group_entry.or_insert(GroupEntry { group, members });
            group_entry.members.push(*entry);
        }
    }
    groups.into_values().collect()
}

impl<'a> GroupEntry<'a> {
    /// Returns the words by which a user can name the group: id, uuid and name.
    pub fn names(&self) -> Names<'a> {
        let group = self.group;
        let uuid = group.id.split('@').next().unwrap_or_default();
        Names {
            id: &group.id,
            others: vec![uuid, &group.name],
            deleted: false,
            label: format!(
                "{}, group of {}",
                group.name,
                count(self.members.len(), "snapshot")
            ),
        }
    }
}

/// The columns of a list.
pub fn columns(wide: bool) -> Vec<(&'static str, Align)> {
    let mut columns = vec![
        ("NAME", Left),
        ("VOLUME", Left),
        ("SIZE", Right),
        ("AGE", Right),
        ("EXPIRES", Right),
        ("RESERVE", Right),
        ("USED%", Right),
        ("STATE", Left),
    ];
    if wide {
        let more = ["DRIVE", "GROUP", "ID", "VOLUME-ID"];
        columns.extend(more.map(|name| (name, Left)));
    }
    columns
}

/// Columns that a list shortens or drops where it does not fit; none with `wide`.
pub fn yielding(wide: bool) -> Yielding<'static> {
    match wide {
        true => Yielding::default(),
        false => Yielding {
            names: &["NAME", "VOLUME"],
            dispensable: &["RESERVE", "SIZE", "USED%", "AGE", "EXPIRES"],
        },
    }
}

/// Returns the used part of the reserve in per cent, rounded up; None if the usage is not known or there is no reserve.
fn used_percent(snapshot: &VolumeSnapshot) -> Option<u128> {
    let all = u128::from(snapshot.reserve_bytes);
    let used = u128::from(snapshot.used_bytes?) * 100;
    (used + all.saturating_sub(1)).checked_div(all)
}

/// Returns the time until its age limit: `6d23h`; `now` when that has passed, as while it is still being copied; `never` without one.
/// `now`: seconds since 1970.
fn expires(snapshot: &VolumeSnapshot, now: u64) -> String {
    match moment(snapshot.expires_at) {
        None => "never".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => human_seconds(at - now),
    }
}

/// Returns the same as a phrase: `expires in 6d23h`, `expires now`, `never expires`. `now`: seconds since 1970.
pub fn expiry(snapshot: &VolumeSnapshot, now: u64) -> String {
    match moment(snapshot.expires_at) {
        None => "never expires".to_owned(),
        Some(at) if at <= now => "expires now".to_owned(),
        Some(_) => format!("expires in {}", expires(snapshot, now)),
    }
}

impl<'a> SnapshotEntry<'a> {
    /// One of a list. `now`: seconds since 1970.
    pub fn row(self, wide: bool, now: u64) -> Row {
        let Self { volume, snapshot } = self;
        let age = moment(snapshot.created_at).map(|at| human_seconds(now.saturating_sub(at)));
        let used = used_percent(snapshot).map(|used| format!("{used}%"));
        let mut cells = vec![
            snapshot.name.clone(),
            volume.name.clone(),
            human_size(snapshot.size_bytes),
            age.unwrap_or_default(),
            expires(snapshot, now),
            human_size(snapshot.reserve_bytes),
            used.unwrap_or_default(),
            snapshot.state.clone(),
        ];
        if wide {
            let group = snapshot.group.as_ref();
            cells.extend([
                volume.drive.clone(),
                group.map(|group| group.name.clone()).unwrap_or_default(),
                snapshot.id.clone(),
                volume.id.clone(),
            ]);
        }
        let message = Some(snapshot.message.clone()).filter(|message| !message.is_empty());
        Row {
            cells,
            below: message.into_iter().collect(),
        }
    }

    /// Returns the words by which a user can name the snapshot: id, uuid and name.
    pub fn names(self) -> Names<'a> {
        let Self { volume, snapshot } = self;
        let uuid = snapshot.id.split('@').next().unwrap_or_default();
        Names {
            id: &snapshot.id,
            others: vec![uuid, &snapshot.name],
            deleted: false,
            label: format!("{}, of volume {}", snapshot.name, volume.name),
        }
    }
}

/// One snapshot in one line, for its volume's sheet. `now`: seconds since 1970.
pub(super) fn describe(snapshot: &VolumeSnapshot, now: u64) -> String {
    let age = moment(snapshot.created_at).map(|at| human_seconds(now.saturating_sub(at)));
    let age = age.map_or_else(String::new, |age| format!(", {age} old"));
    let reserve = human_size(snapshot.reserve_bytes);
    let reserve = match used_percent(snapshot) {
        Some(used) => format!("{used}% of {reserve} reserve used"),
        None => format!("reserve {reserve}"),
    };
    let group = match &snapshot.group {
        Some(group) => format!(", in group {}", group.name),
        None => String::new(),
    };
    let expiry = expiry(snapshot, now);
    let why = match snapshot.message.as_str() {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let (name, state) = (&snapshot.name, &snapshot.state);
    let size = human_size(snapshot.size_bytes);
    format!("{name} ({size}{age}, {expiry}, {reserve}{group}): {state}{why}")
}

/// A snapshot for programs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedSnapshot<'a> {
    #[serde(flatten)]
    snapshot: &'a VolumeSnapshot,
    /// Id of its volume.
    volume: &'a str,
    /// The volume's name.
    volume_name: &'a str,
}

impl<'a> From<SnapshotEntry<'a>> for ListedSnapshot<'a> {
    fn from(SnapshotEntry { volume, snapshot }: SnapshotEntry<'a>) -> Self {
        Self {
            snapshot,
            volume: &volume.id,
            volume_name: &volume.name,
        }
    }
}

/// Sums over the snapshots of a list. Each must be added once.
#[derive(Debug, Default)]
pub struct SnapshotTally {
    // By their ids.
    volumes: BTreeSet<String>,
    states: BTreeMap<String, u64>,
    // None: not known of any.
    used_bytes: Option<u64>,
    reserve_bytes: u64,
    // By group id: the name, the number of snapshots added, and the number taken.
    groups: BTreeMap<String, (String, u32, u32)>,
}

impl SnapshotTally {
    /// Counts a snapshot, its volume, its state and its group, and adds its reserve and, if known, its used space.
    pub fn add(&mut self, SnapshotEntry { volume, snapshot }: SnapshotEntry<'_>) {
        self.volumes.insert(volume.id.clone());
        *self.states.entry(snapshot.state.clone()).or_default() += 1;
        self.reserve_bytes = self.reserve_bytes.saturating_add(snapshot.reserve_bytes);
        if let Some(used) = snapshot.used_bytes {
            self.used_bytes = Some(self.used_bytes.unwrap_or(0).saturating_add(used));
        }
        if let Some(group) = &snapshot.group {
            let new = || (group.name.clone(), 0, group.members);
            let counted = self.groups.entry(group.id.clone()).or_insert_with(new);
            counted.1 += 1;
        }
    }

    /// Returns `3 snapshots of 2 volumes: 2 ready, 1 overflowed; 5 of 40 GiB reserve used`, and below it the groups:
    /// `groups: nightly (2 of 2)`. Empty without snapshots.
    pub fn text(&self, terminal: Terminal) -> String {
        let snapshots: u64 = self.states.values().sum();
        if snapshots == 0 {
            return String::new();
        }
        let mut states: Vec<(&String, &u64)> = self.states.iter().collect();
        states.sort_by_key(|(state, _)| state.as_str() != SnapshotState::Ready.as_str());
        let states = states.into_iter();
        let states: Vec<String> = states
            .map(|(state, many)| format!("{many} {state}"))
            .collect();
        let reserve = match self.used_bytes {
            Some(used) => format!("{} reserve used", part_of(used, self.reserve_bytes)),
            None => format!("{} reserve", human_size(self.reserve_bytes)),
        };
        let line = format!(
            "{} of {}: {}; {reserve}",
            count(snapshots, "snapshot"),
            count(self.volumes.len(), "volume"),
            states.join(", ")
        );
        terminal.hanging("", "  ", &printable(&line)) + &self.groups(terminal)
    }

    fn groups(&self, terminal: Terminal) -> String {
        let named = self.groups.values().take(NAMED_GROUPS);
        let named = named.map(|(name, counted, all)| format!("{name} ({counted} of {all})"));
        let mut named: Vec<String> = named.collect();
        match self.groups.len().checked_sub(NAMED_GROUPS) {
            _ if named.is_empty() => return String::new(),
            Some(more @ 1..) => named.push(format!("{more} more")),
            _ => {}
        }
        let line = format!("groups: {}", named.join(", "));
        terminal.hanging("", "  ", &printable(&line))
    }
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;

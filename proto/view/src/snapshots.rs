//! Snapshots of volumes as both command lines show them: rows of a list, what they add up to, names, JSON. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::{pick::Names, units::count};
use drivebay_proto::{
    agent::{Volume, VolumeSnapshot},
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

/// A snapshot with its volume: there is none without one.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotEntry<'a> {
    pub volume: &'a Volume,
    pub snapshot: &'a VolumeSnapshot,
}

/// All snapshots of these volumes: by the name of the volume, then by the moment that they are of.
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

/// The columns of a list.
pub fn columns(wide: bool) -> Vec<(&'static str, Align)> {
    let mut columns = vec![
        ("NAME", Left),
        ("VOLUME", Left),
        ("SIZE", Right),
        ("AGE", Right),
        ("RESERVE", Right),
        ("USED%", Right),
        ("STATE", Left),
    ];
    if wide {
        columns.extend([("DRIVE", Left), ("ID", Left), ("VOLUME-ID", Left)]);
    }
    columns
}

/// How a list gives way where it does not fit.
pub fn yielding(wide: bool) -> Yielding<'static> {
    match wide {
        true => Yielding::default(),
        false => Yielding {
            names: &["NAME", "VOLUME"],
            dispensable: &["RESERVE", "SIZE", "USED%", "AGE"],
        },
    }
}

/// How much of the reserve is used, per cent, rounded up; None: that is not known.
fn used_percent(snapshot: &VolumeSnapshot) -> Option<u128> {
    let all = u128::from(snapshot.reserve_bytes);
    let used = u128::from(snapshot.used_bytes?) * 100;
    (used + all.saturating_sub(1)).checked_div(all)
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
            human_size(snapshot.reserve_bytes),
            used.unwrap_or_default(),
            snapshot.state.clone(),
        ];
        if wide {
            cells.extend([volume.drive.clone(), snapshot.id.clone(), volume.id.clone()]);
        }
        let message = Some(snapshot.message.clone()).filter(|message| !message.is_empty());
        Row {
            cells,
            below: message.into_iter().collect(),
        }
    }

    /// What a snapshot is called: its id, uuid and name.
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
    let why = match snapshot.message.as_str() {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let (name, state) = (&snapshot.name, &snapshot.state);
    let size = human_size(snapshot.size_bytes);
    format!("{name} ({size}{age}, {reserve}): {state}{why}")
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

/// What the snapshots of a list add up to.
#[derive(Debug, Default)]
pub struct SnapshotTally {
    // By their ids.
    volumes: BTreeSet<String>,
    states: BTreeMap<String, u64>,
    // None: not known of any.
    used_bytes: Option<u64>,
    reserve_bytes: u64,
}

impl SnapshotTally {
    /// Counts a snapshot.
    pub fn add(&mut self, SnapshotEntry { volume, snapshot }: SnapshotEntry<'_>) {
        self.volumes.insert(volume.id.clone());
        *self.states.entry(snapshot.state.clone()).or_default() += 1;
        self.reserve_bytes = self.reserve_bytes.saturating_add(snapshot.reserve_bytes);
        if let Some(used) = snapshot.used_bytes {
            self.used_bytes = Some(self.used_bytes.unwrap_or(0).saturating_add(used));
        }
    }

    /// `3 snapshots of 2 volumes: 2 ready, 1 overflowed; 5 of 40 GiB reserve used`. Nothing for no snapshot.
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
        terminal.hanging("", "  ", &printable(&line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    fn snapshot(name: &str, at: u64, state: &str, used_mib: Option<u64>) -> VolumeSnapshot {
        VolumeSnapshot {
            id: format!("uuid-{name}@n"),
            name: name.into(),
            created_at: at,
            size_bytes: 10 << 30,
            state: state.into(),
            reserve_bytes: 2 << 30,
            used_bytes: used_mib.map(|used| used << 20),
            ..VolumeSnapshot::default()
        }
    }

    fn volume(name: &str, snapshots: Vec<VolumeSnapshot>) -> Volume {
        Volume {
            id: format!("uuid-{name}@n"),
            name: name.into(),
            drive: "wwn-a".into(),
            snapshots,
            ..Volume::default()
        }
    }

    fn volumes() -> [Volume; 3] {
        let mut lost = snapshot("a", 1000, "overflowed", Some(2048));
        lost.message = "more was written than its reserve holds; delete it".into();
        [
            volume("db-10", vec![lost, snapshot("z", 0, "ambiguous", None)]),
            volume("web", Vec::new()),
            volume(
                "db-9",
                vec![
                    snapshot("new\u{1b}", 4000, "ready", Some(205)),
                    snapshot("old", 2000, "ready", Some(0)),
                ],
            ),
        ]
    }

    fn shown(volumes: &[Volume], wide: bool, width: Option<usize>) -> String {
        let terminal = Terminal {
            width,
            ..Terminal::NONE
        };
        let mut table = Table::new(&columns(wide)).on(terminal, yielding(wide));
        let mut tally = SnapshotTally::default();
        for entry in entries(volumes) {
            let row = entry.row(wide, 4600);
            table.row(row.cells, row.below);
            tally.add(entry);
        }
        table.render() + &tally.text(terminal)
    }

    #[test]
    fn snapshots_are_listed_by_volume_and_moment_with_what_is_used_of_their_reserve() {
        assert_eq!(
            shown(&volumes(), false, None),
            "\
NAME       VOLUME    SIZE     AGE  RESERVE  USED%  STATE
old        db-9    10 GiB  43m20s    2 GiB     0%  ready
new\\u{1b}  db-9    10 GiB     10m    2 GiB    11%  ready
z          db-10   10 GiB       -    2 GiB      -  ambiguous
a          db-10   10 GiB      1h    2 GiB   100%  overflowed
    more was written than its reserve holds; delete it
4 snapshots of 2 volumes: 2 ready, 1 ambiguous, 1 overflowed; 2.2 of 8 GiB reserve used
"
        );
        let wide = shown(&volumes(), true, Some(40));
        assert!(
            wide.contains("  ready       wwn-a  uuid-old@n        uuid-db-9@n\n"),
            "{wide}"
        );
        assert_eq!(SnapshotTally::default().text(Terminal::NONE), "");
        let unknown = [volume("db", vec![snapshot("a", 1, "creating", None)])];
        let text = shown(&unknown, false, None);
        assert!(
            text.ends_with("\n1 snapshot of 1 volume: 1 creating; 2 GiB reserve\n"),
            "{text}"
        );
    }

    #[test]
    fn snapshots_of_claims_fit_80_columns_and_columns_without_a_value_go_first() {
        let claim = "pvc-3f2c9d1e-5b0c-4a6e-9a57-0d5d8f0c8a11";
        let of = |state, used| {
            let name = format!("{claim}-20261128-020000");
            let snapshots = vec![snapshot(&name, 1000, state, used); 2];
            shown(&[volume(claim, snapshots)], false, Some(80))
        };
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        let text = of("overflowed", Some(2048));
        assert!(widest(&text) <= Some(80), "{text}");
        assert!(text.contains("pvc-3f2c…8-020000  pvc-3f2c"), "{text}");
        assert!(text.contains("  overflowed\n"), "{text}");
        let text = of("ready", None);
        assert!(widest(&text) <= Some(80), "{text}");
        assert!(
            text.contains("RESERVE") && !text.contains("USED%") && !text.contains("-o wide"),
            "{text}"
        );
    }

    #[test]
    fn programs_get_bytes_with_the_volume_and_no_use_that_is_not_known() {
        let volumes = volumes();
        let json: Vec<serde_json::Value> = entries(&volumes)
            .into_iter()
            .map(|entry| serde_json::to_value(ListedSnapshot::from(entry)).unwrap())
            .collect();
        let (old, unknown) = (&json[0], &json[2]);
        assert_eq!(old["id"], "uuid-old@n");
        assert_eq!(old["volume"], "uuid-db-9@n");
        assert_eq!(old["volume_name"], "db-9");
        assert_eq!(old["size_bytes"], 10_u64 << 30);
        assert_eq!(
            (&old["used_bytes"], &old["state"]),
            (&0.into(), &"ready".into())
        );
        assert!(unknown.get("used_bytes").is_none(), "{unknown}");
    }

    #[test]
    fn a_snapshot_of_a_sheet_has_its_state_and_why() {
        let [db, ..] = volumes();
        assert_eq!(
            describe(&db.snapshots[0], 4600),
            "a (10 GiB, 1h old, 100% of 2 GiB reserve used): overflowed: more was written than its reserve holds; delete it"
        );
        assert_eq!(
            describe(&db.snapshots[1], 4600),
            "z (10 GiB, reserve 2 GiB): ambiguous"
        );
    }
}

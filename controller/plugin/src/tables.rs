//! Lists of drives, nodes, volumes, snapshots and tasks, with the columns of the programs' own lists as far as the objects have them.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::{
    pick::{self, Typed},
    table::{
        Align::{self, Left, Right},
        Yielding, human_seconds, human_size,
    },
    terminal::Terminal,
    units::count,
};
use drivebay_objects::{
    drive::{DriveStatus, VolumeOnDrive},
    task::DriveTask,
    times::{now, parse_time},
};
use drivebay_proto::{agent, names::DRIVER_NAME, words::NodeState};
use drivebay_view::{
    args::ListArgs, drives, listing::Listing, order::by_name, row::Row, tally::Tally, unix_seconds,
};
use kube::core::DynamicObject;
use serde::Serialize;

use crate::{
    args::{DrivesArgs, NodesArgs, VolumesArgs},
    cluster::{Cluster, DRIVE, ListedDrive},
    error::PluginError,
    health::is_abnormal,
};

/// Columns of the programs' lists that objects of drives have no values for.
const NOT_IN_OBJECTS: [&str; 3] = ["TEMP", "WEAR", "SECTOR"];

/// Headings and texts of a list.
struct Layout<'a> {
    /// Key of the list in JSON and YAML.
    key: &'static str,
    columns: &'a [(&'static str, Align)],
    yielding: Yielding<'a>,
    /// In place of an empty table.
    nothing: &'a str,
    /// Below a table that is not empty.
    below: String,
}

/// Returns a list as text. `cells`: one for each column.
fn list<'a, T: Serialize + 'a>(
    items: impl Iterator<Item = &'a T>,
    args: &ListArgs,
    terminal: Terminal,
    layout: Layout<'_>,
    cells: impl Fn(&T) -> Vec<String>,
    name: impl Fn(&T) -> &str,
) -> Result<String, PluginError> {
    let mut text = Vec::new();
    let Layout {
        key,
        columns,
        yielding,
        nothing,
        below,
    } = layout;
    let mut listing = Listing::new(&mut text, args, terminal, key, columns, yielding);
    let mut is_empty = true;
    for item in items {
        is_empty = false;
        let row = || Row {
            cells: cells(item),
            below: Vec::new(),
        };
        listing.add(row, || item, name(item))?;
    }
    listing.end(nothing, if is_empty { "" } else { &below })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Converts a status to the drive that it was made from, as far as it has it.
pub(crate) fn reported(status: &DriveStatus) -> agent::Drive {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
    let health = &status.health;
    agent::Drive {
        id: status.drive.clone(),
        kernel_name: status.device.clone(),
        state: status.state.clone(),
        class: status.class.clone(),
        verdict: health.strip_suffix(" (ack)").unwrap_or(health).to_owned(),
        media: status.media.clone(),
        transport: status.transport.clone(),
        model: status.model.clone(),
        serial: status.serial.clone(),
        size_bytes: unsigned(status.size_bytes),
        usable_bytes: unsigned(status.usable_bytes),
        free_bytes: unsigned(status.free_bytes),
        largest_free_bytes: unsigned(status.largest_free_bytes),
        ..agent::Drive::default()
    }
}

/// Returns seconds since a time of an object; None if it has none.
fn ago(time: &str, now: i64) -> Option<u64> {
    let since = parse_time(time)?;
    u64::try_from(now.saturating_sub(since)).ok()
}

fn drive_cells(drive: &ListedDrive, wide: bool, now: i64) -> Vec<String> {
    let status = &drive.status;
    let it = reported(status);
    let findings = status
        .findings
        .iter()
        .filter_map(|one| ago(&one.since, now));
    let used = drives::used_percent(&it).map(|used| format!("{used}%"));
    let mut cells = vec![
        status.node.clone(),
        drive.name.clone(),
        status.device.clone(),
        status.media.clone(),
        status.size.clone(),
        used.unwrap_or_default(),
        status.state.clone(),
        status.class.clone(),
        status.free.clone(),
        status.health.clone(),
        findings.max().map(human_seconds).unwrap_or_default(),
    ];
    if wide {
        let largest = match status.free.is_empty() {
            true => String::new(),
            false => human_size(it.largest_free_bytes),
        };
        cells.extend([
            largest,
            status.transport.clone(),
            status.model.clone(),
            status.serial.clone(),
            status.bay.clone(),
            status.firmware.clone(),
        ]);
    }
    cells.push(status.reason.clone());
    cells
}

/// Returns the output of `kubectl drivebay drives`. Errs if the list fails, if a named node has no drive with an object, or if a name
/// selects no drive.
pub(crate) async fn drives(
    cluster: &Cluster,
    args: &DrivesArgs,
    terminal: Terminal,
) -> Result<String, PluginError> {
    let all = cluster.drives(&args.nodes).await?;
    let count_of_all = all.len() as u64;
    let mut chosen = BTreeSet::new();
    for name in &args.names {
        let typed = Typed::new(name, None);
        chosen.extend(pick::select(&all, typed, DRIVE, ListedDrive::names)?);
    }
    let all = all.into_iter().enumerate();
    let mut shown: Vec<(ListedDrive, agent::Drive)> = all
        .filter(|(at, _)| args.names.is_empty() || chosen.contains(at))
        .filter(|(_, drive)| !args.abnormal || is_abnormal(drive))
        .map(|(_, drive)| {
            let reported = reported(&drive.status);
            (drive, reported)
        })
        .collect();
    drives::sort(&mut shown, None, |(_, reported)| reported);
    shown.sort_by(|(a, _), (b, _)| by_name(&a.status.node, &b.status.node));
    let wide = args.list.output.is_wide();
    let mut columns = drives::columns(wide);
    columns.retain(|(name, _)| !NOT_IN_OBJECTS.contains(name));
    columns.insert(0, ("NODE", Left));
    let mut tally = Tally::default();
    for (_, reported) in &shown {
        tally.add(reported);
    }
    let now = now();
    let nothing = match (count_of_all, args.abnormal) {
        (0, _) => "no drives\n".to_owned(),
        (all, true) => format!("nothing is wrong with {}\n", count(all, "drive")),
        (all, false) => format!("none of {}\n", count(all, "drive")),
    };
    let layout = Layout {
        key: "drives",
        columns: &columns,
        yielding: drives::yielding(wide),
        nothing: &nothing,
        below: tally.text(terminal),
    };
    list(
        shown.iter().map(|(drive, _)| drive),
        &args.list,
        terminal,
        layout,
        |drive| drive_cells(drive, wide, now),
        |drive| &drive.name,
    )
}

/// Sums over the drives of a node.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeSum {
    node: String,
    connected: bool,
    drives: u64,
    abnormal_drives: u64,
    volumes: u64,
    free_bytes: u64,
}

/// Returns the output of `kubectl drivebay nodes`: sums over the drives with an object. Errs if the list fails, or if a named node has no
/// such drive.
pub(crate) async fn nodes(
    cluster: &Cluster,
    args: &NodesArgs,
    terminal: Terminal,
) -> Result<String, PluginError> {
    let mut sums: BTreeMap<String, NodeSum> = BTreeMap::new();
    for drive in cluster.drives(&args.nodes).await? {
        let status = &drive.status;
        let sum = sums.entry(status.node.clone()).or_insert_with(|| NodeSum {
            node: status.node.clone(),
            connected: true,
            ..NodeSum::default()
        });
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        sum.connected &= !drive.has("AgentConnected", "False");
        sum.drives += 1;
        sum.abnormal_drives += u64::from(is_abnormal(&drive));
        sum.volumes += unsigned(status.volume_count);
        if !status.free.is_empty() {
            sum.free_bytes = sum.free_bytes.saturating_add(unsigned(status.free_bytes));
        }
    }
    let mut sums: Vec<NodeSum> = sums.into_values().collect();
    sums.sort_by(|a, b| by_name(&a.node, &b.node));
    let columns = [
        ("NODE", Left),
        ("STATE", Left),
        ("DRIVES", Right),
        ("TROUBLE", Right),
        ("VOLUMES", Right),
        ("FREE", Right),
    ];
    let layout = Layout {
        key: "nodes",
        columns: &columns,
        yielding: Yielding::default(),
        nothing: "no node has a drive with an object\n",
        below: String::new(),
    };
    list(
        sums.iter(),
        &args.list,
        terminal,
        layout,
        |sum| {
            let state = match sum.connected {
                true => NodeState::Connected,
                false => NodeState::Away,
            };
            vec![
                sum.node.clone(),
                state.to_string(),
                sum.drives.to_string(),
                sum.abnormal_drives.to_string(),
                sum.volumes.to_string(),
                human_size(sum.free_bytes),
            ]
        },
        |sum| &sum.node,
    )
}

/// A volume with its drive.
#[derive(Debug, Serialize)]
struct Placed {
    #[serde(flatten)]
    volume: VolumeOnDrive,
    node: String,
    drive: String,
    device: String,
    class: String,
}

/// Returns the output of `kubectl drivebay volumes`: those that drive objects list. Errs if the list fails, or if a named node has no drive
/// with an object.
pub(crate) async fn volumes(
    cluster: &Cluster,
    args: &VolumesArgs,
    terminal: Terminal,
) -> Result<String, PluginError> {
    let mut placed = Vec::new();
    let mut more = 0_u64;
    for drive in cluster.drives(&args.of.nodes).await? {
        let status = drive.status;
        let listed = status.volumes.len() as u64;
        more += u64::try_from(status.volume_count)
            .unwrap_or_default()
            .saturating_sub(listed);
        placed.extend(status.volumes.into_iter().map(|volume| Placed {
            volume,
            node: status.node.clone(),
            drive: drive.name.clone(),
            device: status.device.clone(),
            class: status.class.clone(),
        }));
    }
    if let Some(namespace) = &args.namespace {
        let prefix = format!("{namespace}/");
        placed.retain(|one| one.volume.claim.starts_with(&prefix));
    }
    placed.sort_by(|a, b| by_name(&a.volume.name, &b.volume.name));
    let columns = [
        ("NODE", Left),
        ("NAME", Left),
        ("CLASS", Left),
        ("SIZE", Right),
        ("STATE", Left),
        ("USED-BY", Left),
        ("DRIVE", Left),
        ("REASON", Left),
    ];
    let wide = args.of.list.output.is_wide();
    let layout = Layout {
        key: "volumes",
        columns: &columns,
        yielding: Yielding {
            names: &["NAME", "USED-BY", "DRIVE"],
            dispensable: &["CLASS", "STATE"],
        },
        nothing: "no volumes\n",
        below: match more {
            0 => String::new(),
            more => format!(
                "{} of drives with many are not listed; kubectl exec deploy/drivebay-controller -- drivebay-controller volumes lists all\n",
                count(more, "volume")
            ),
        },
    };
    list(
        placed.iter(),
        &args.of.list,
        terminal,
        layout,
        |one| {
            let drive = match one.device.as_str() {
                device if !device.is_empty() && !wide => device,
                _ => &one.drive,
            };
            vec![
                one.node.clone(),
                one.volume.name.clone(),
                one.class.clone(),
                one.volume.size.clone(),
                one.volume.state.clone(),
                one.volume.claim.clone(),
                drive.to_owned(),
                one.volume.reason.clone(),
            ]
        },
        |one| &one.volume.name,
    )
}

/// A snapshot as its VolumeSnapshotContent says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot {
    name: String,
    /// NAMESPACE/NAME of the VolumeSnapshot.
    snapshot: String,
    node: String,
    ready: bool,
    size_bytes: u64,
    /// Time of the snapshot, seconds since 1970; None if the object's status has no `creationTime`.
    created_at: Option<u64>,
    error: String,
}

impl Snapshot {
    /// None for a snapshot of another driver.
    fn of(object: &DynamicObject) -> Option<Self> {
        let data = &object.data;
        let text = |pointer: &str| data.pointer(pointer).and_then(|it| it.as_str());
        let driver = text("/spec/driver")?;
        // A second Drivebay has a name of its own below the same domain.
        if !(driver == DRIVER_NAME || driver.ends_with(".drivebay.io")) {
            return None;
        }
        let handle = text("/status/snapshotHandle").unwrap_or_default();
        let namespace = text("/spec/volumeSnapshotRef/namespace").unwrap_or_default();
        let name = text("/spec/volumeSnapshotRef/name").unwrap_or_default();
        let number = |pointer: &str| data.pointer(pointer).and_then(|it| it.as_u64());
        Some(Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            snapshot: format!("{namespace}/{name}"),
            node: handle
                .rsplit_once('@')
                .map_or("", |(_, node)| node)
                .to_owned(),
            ready: data
                .pointer("/status/readyToUse")
                .and_then(|it| it.as_bool())
                == Some(true),
            size_bytes: number("/status/restoreSize").unwrap_or_default(),
            // Nanoseconds.
            created_at: number("/status/creationTime").map(|at| at / 1_000_000_000),
            error: text("/status/error/message").unwrap_or_default().to_owned(),
        })
    }
}

/// Returns the output of `kubectl drivebay snapshots`. Errs if the list fails; a named node without snapshots is no error.
pub(crate) async fn snapshots(
    cluster: &Cluster,
    args: &NodesArgs,
    terminal: Terminal,
) -> Result<String, PluginError> {
    let contents = cluster.snapshot_contents().await?;
    let mut all: Vec<Snapshot> = contents.iter().filter_map(Snapshot::of).collect();
    all.retain(|one| args.nodes.is_empty() || args.nodes.contains(&one.node));
    all.sort_by(|a, b| by_name(&a.snapshot, &b.snapshot));
    let columns = [
        ("NODE", Left),
        ("SNAPSHOT", Left),
        ("SIZE", Right),
        ("READY", Left),
        ("AGE", Right),
        ("REASON", Left),
    ];
    let layout = Layout {
        key: "snapshots",
        columns: &columns,
        yielding: Yielding::default(),
        nothing: "no snapshots\n",
        below: String::new(),
    };
    let now = unix_seconds();
    list(
        all.iter(),
        &args.list,
        terminal,
        layout,
        |one| {
            let age = one
                .created_at
                .map(|at| human_seconds(now.saturating_sub(at)));
            vec![
                one.node.clone(),
                one.snapshot.clone(),
                human_size(one.size_bytes),
                one.ready.to_string(),
                age.unwrap_or_default(),
                one.error.clone(),
            ]
        },
        |one| &one.name,
    )
}

/// Returns the output of `kubectl drivebay tasks`. Errs if the list fails; a named node without tasks is no error.
pub(crate) async fn tasks(
    cluster: &Cluster,
    args: &NodesArgs,
    terminal: Terminal,
) -> Result<String, PluginError> {
    let mut all = cluster.tasks().await?;
    all.retain(|task| {
        let node = task.status.as_ref().map(|status| &status.node);
        args.nodes.is_empty() || node.is_some_and(|node| args.nodes.contains(node))
    });
    let wide = args.list.output.is_wide();
    let mut columns = vec![
        ("TASK", Left),
        ("OPERATION", Left),
        ("DRIVE", Left),
        ("PHASE", Left),
        ("PROGRESS", Left),
        ("AGE", Right),
    ];
    if wide {
        columns.extend([("NODE", Left), ("BY", Left), ("MESSAGE", Left)]);
    }
    columns.push(("REASON", Left));
    let layout = Layout {
        key: "tasks",
        columns: &columns,
        yielding: Yielding {
            names: &["DRIVE"],
            dispensable: &["AGE"],
        },
        nothing: "no tasks\n",
        below: String::new(),
    };
    let now = now();
    let cells = |task: &DriveTask| {
        let status = task.status.clone().unwrap_or_default();
        let created = task.metadata.creation_timestamp.as_ref();
        let age = created.and_then(|at| u64::try_from(now.saturating_sub(at.0.as_second())).ok());
        let mut cells = vec![
            task.metadata.name.clone().unwrap_or_default(),
            status.operation,
            task.spec.drive.clone(),
            match status.phase.is_empty() {
                true => "Pending".to_owned(),
                false => status.phase,
            },
            status.progress,
            age.map(human_seconds).unwrap_or_default(),
        ];
        if wide {
            cells.extend([status.node, task.spec.by.clone(), status.message]);
        }
        cells.push(status.reason);
        cells
    };
    list(all.iter(), &args.list, terminal, layout, cells, |task| {
        task.metadata.name.as_deref().unwrap_or_default()
    })
}

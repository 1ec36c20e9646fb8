//! Volumes in tables of both command lines: cells and the lines below a row. Pure.

use std::cmp::Ordering;

use drivebay_proto::{
    agent::{Condition, Volume, VolumeUsage},
    words::{Mode, Status, VolumeState},
};

use super::{
    args::VolumeSort,
    copies,
    legend::Reasoned,
    moment,
    order::by_name,
    show::claim,
    table::{
        Align::{self, Left, Right},
        Yielding, human_seconds, human_size,
    },
};

/// Returns a number of volumes in words.
pub fn count(volumes: u64) -> String {
    drivebay_common::units::count(volumes, "volume")
}

/// Returns the columns of a list of volumes. `usage`: with used space and pods, which only the node's own agent reports.
pub fn columns(wide: bool, usage: bool) -> Vec<(&'static str, Align)> {
    let mut columns = vec![("NAME", Left), ("CLASS", Left), ("SIZE", Right)];
    if usage {
        columns.extend([("USED", Right), ("AVAIL", Right), ("USE%", Right)]);
    }
    columns.extend([
        ("FS", Left),
        ("STATE", Left),
        ("CONDITION", Left),
        ("AGE", Right),
        ("USED-BY", Left),
        ("DRIVE", Left),
    ]);
    if wide {
        columns.extend([
            ("DEVICE", Left),
            ("ID", Left),
            ("SNAPSHOTS", Right),
            ("SOURCE", Left),
            ("MADE", Left),
        ]);
        if usage {
            columns.push(("POD", Left));
        }
        columns.push(("MOUNTED-AT", Left));
    }
    columns.push(("REASON", Left));
    columns
}

/// Returns the columns that may be cut or left out if the table is too wide.
pub fn yielding(wide: bool) -> Yielding<'static> {
    match wide {
        true => Yielding::default(),
        false => Yielding {
            names: &["NAME", "USED-BY", "DRIVE"],
            dispensable: &["AGE", "CLASS", "AVAIL", "USED", "FS", "STATE", "USED-BY"],
        },
    }
}

/// Values of a list that take precedence over those of the volume.
#[derive(Debug, Default)]
pub struct Besides {
    /// User of the volume, if better known than from the volume.
    pub used_by: Option<String>,
    /// Short name of its drive; by default its identity.
    pub drive: Option<String>,
    /// State with the progress of the copy to it.
    pub state: Option<String>,
}

/// Returns the cells of a volume, one per column. `now`: seconds since 1970.
pub fn cells(volume: &Volume, wide: bool, usage: bool, besides: Besides, now: u64) -> Vec<String> {
    let mut cells = vec![
        volume.name.clone(),
        volume.class.clone(),
        // The size of a volume that is only expected is not known.
        match volume.size_bytes {
            0 => String::new(),
            bytes => human_size(bytes),
        },
    ];
    if usage {
        cells.extend(match &volume.usage {
            None => [String::new(), String::new(), String::new()],
            Some(usage) => [
                human_size(usage.used_bytes),
                human_size(usage.available_bytes),
                full(usage).map_or_else(String::new, |full| format!("{full}%")),
            ],
        });
    }
    let age = moment(volume.created_at).map(|at| human_seconds(now.saturating_sub(at)));
    let drive = besides.drive.filter(|_| !wide);
    cells.extend([
        match volume.known_mode() {
            Some(Mode::Block) => volume.mode.clone(),
            _ => volume.fs_type.clone(),
        },
        besides.state.unwrap_or_else(|| state(volume)),
        condition(volume),
        age.unwrap_or_default(),
        besides.used_by.unwrap_or_else(|| used_by(volume)),
        drive.unwrap_or_else(|| volume.drive.clone()),
    ]);
    if wide {
        let snapshots = match volume.snapshots.len() {
            0 => String::new(),
            many => many.to_string(),
        };
        cells.extend([
            volume.device.clone(),
            volume.id.clone(),
            snapshots,
            copies::source(volume),
            made_by(volume).to_owned(),
        ]);
        if usage {
            cells.push(volume.pods.join(", "));
        }
        cells.push(volume.mounts.join(", "));
    }
    let codes: Vec<&str> = abnormal(volume).map(|one| one.reason.as_str()).collect();
    cells.push(codes.join(", "));
    cells
}

/// Returns the origin of the volume. Nomad's plugin creates volumes with the manual commands.
fn made_by(volume: &Volume) -> &'static str {
    let created_for = volume.created_for.as_ref();
    let is_nomads = created_for.is_some_and(|origin| !origin.nomad_volume.is_empty());
    match (volume.manual, is_nomads) {
        (true, true) => "Nomad",
        (true, false) => "by hand",
        (false, _) => "CSI",
    }
}

fn abnormal(volume: &Volume) -> impl Iterator<Item = &Condition> {
    volume.conditions.iter().filter(|one| one.abnormal)
}

/// Returns its abnormal conditions for the legend of a list.
pub fn legend_of(volume: &Volume) -> Vec<Reasoned> {
    let reasoned = abnormal(volume).map(|one| Reasoned {
        label: volume.name.clone(),
        code: one.reason.clone(),
        text: one.message.clone(),
    });
    reasoned.collect()
}

/// Returns the used percentage of a filesystem as df shows it: rounded up, of the space available to unprivileged users.
pub fn full(usage: &VolumeUsage) -> Option<u128> {
    let used = u128::from(usage.used_bytes);
    let all = used + u128::from(usage.available_bytes);
    (used * 100 + all.saturating_sub(1)).checked_div(all)
}

/// Returns the user of a volume: the claim, else the pod, else the first mount point.
fn used_by(volume: &Volume) -> String {
    let claim = claim(volume);
    if !claim.is_empty() {
        return claim;
    }
    if let Some(pod) = volume.pods.first() {
        return format!("pod {pod}");
    }
    let pod = |path: &String| {
        let (_, inside) = path.split_once("/pods/")?;
        let (uid, _) = inside.split_once('/')?;
        Some(format!("pod {uid}"))
    };
    let mut pods = volume.mounts.iter().filter_map(pod);
    let first = pods.next().or_else(|| volume.mounts.first().cloned());
    first.unwrap_or_default()
}

/// Sorts volumes by the key, then by name and id.
pub fn sort<T>(volumes: &mut [T], by: Option<VolumeSort>, of: impl Fn(&T) -> &Volume) {
    let used = |volume: &Volume| volume.usage.map_or(0, |usage| usage.used_bytes);
    let fullness = |volume: &Volume| volume.usage.as_ref().and_then(full).unwrap_or(0);
    volumes.sort_by(|a, b| {
        let (a, b) = (of(a), of(b));
        let order = match by {
            None | Some(VolumeSort::Name) => Ordering::Equal,
            Some(VolumeSort::Class) => a.class.cmp(&b.class),
            Some(VolumeSort::Drive) => a.drive.cmp(&b.drive),
            Some(VolumeSort::Size) => b.size_bytes.cmp(&a.size_bytes),
            Some(VolumeSort::Used) => used(b).cmp(&used(a)),
            Some(VolumeSort::Full) => fullness(b).cmp(&fullness(a)),
            // Volumes of unknown age come first.
            Some(VolumeSort::Age) => a.created_at.cmp(&b.created_at),
            Some(VolumeSort::Condition) => badness(b).cmp(&badness(a)),
        };
        order
            .then_with(|| by_name(&a.name, &b.name))
            .then_with(|| a.id.cmp(&b.id))
    });
}

/// Returns a number that increases with severity.
fn badness(volume: &Volume) -> u8 {
    match worst(volume) {
        None => u8::from(is_abnormal(volume)),
        Some(Status::Degraded) => 2,
        Some(Status::Inaccessible) => 3,
        Some(Status::DataLoss) => 4,
    }
}

/// True if it has an abnormal condition.
pub fn is_abnormal(volume: &Volume) -> bool {
    abnormal(volume).next().is_some()
}

/// Returns every abnormal condition, one per line.
pub fn below(volume: &Volume) -> Vec<String> {
    let troubles = abnormal(volume);
    troubles
        .map(|trouble| format!("{}: {}", trouble.reason, trouble.message))
        .collect()
}

/// Returns its filesystem, or "raw block".
pub fn filesystem(volume: &Volume) -> &str {
    match volume.known_mode() {
        Some(Mode::Block) => "raw block",
        _ => &volume.fs_type,
    }
}

/// Returns its state, with the progress of erasing.
pub fn state(volume: &Volume) -> String {
    if volume.known_state() == Some(VolumeState::Erasing) && volume.size_bytes > 0 {
        let percent = u128::from(volume.erased_bytes.min(volume.size_bytes)) * 100
            / u128::from(volume.size_bytes);
        let eta = match volume.erase_eta_seconds {
            0 => String::new(),
            seconds => format!(", {} left", human_seconds(seconds)),
        };
        format!("erasing {percent}%{eta}")
    } else if volume.published {
        format!("{}, in use", volume.state)
    } else {
        volume.state.clone()
    }
}

/// Returns the worst status of its abnormal conditions; ignores statuses that this version does not know.
pub fn worst(volume: &Volume) -> Option<Status> {
    abnormal(volume).filter_map(Condition::known_status).max()
}

/// Returns the worst status of its conditions in one word; "ok" if none is abnormal.
pub fn condition(volume: &Volume) -> String {
    match worst(volume) {
        Some(status) => status.to_string(),
        None if is_abnormal(volume) => "abnormal".into(),
        None => "ok".into(),
    }
}

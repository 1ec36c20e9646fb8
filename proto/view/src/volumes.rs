//! A volume as both command lines show it: cells of a table, the lines below. Pure.

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

/// So many volumes, in words.
pub fn count(volumes: u64) -> String {
    drivebay_common::units::count(volumes, "volume")
}

/// The columns of a volume. `usage`: how full it is and which pods have it can be known, which only the node's own agent tells.
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

/// How a list of volumes gives way where it does not fit.
pub fn yielding(wide: bool) -> Yielding<'static> {
    match wide {
        true => Yielding::default(),
        false => Yielding {
            names: &["NAME", "USED-BY", "DRIVE"],
            dispensable: &["AGE", "CLASS", "AVAIL", "USED", "FS", "STATE", "USED-BY"],
        },
    }
}

/// What a list knows of a volume besides.
#[derive(Debug, Default)]
pub struct Besides {
    /// Who uses it, where that is known better than from the volume itself.
    pub used_by: Option<String>,
    /// What its drive is called in short; its identity by default.
    pub drive: Option<String>,
    /// Where it is in its life, with how far the copying to it is.
    pub state: Option<String>,
}

/// The cells of a volume, one per column. `now`: seconds since 1970.
pub fn cells(volume: &Volume, wide: bool, usage: bool, besides: Besides, now: u64) -> Vec<String> {
    let mut cells = vec![
        volume.name.clone(),
        volume.class.clone(),
        // Of one that is only expected, the size is not known.
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

/// By whom it was made. Nomad's plugin does what a person does by hand.
fn made_by(volume: &Volume) -> &'static str {
    let created_for = volume.created_for.as_ref();
    let is_nomads = created_for.is_some_and(|known| !known.nomad_volume.is_empty());
    match (volume.by_hand, is_nomads) {
        (true, true) => "Nomad",
        (true, false) => "by hand",
        (false, _) => "CSI",
    }
}

fn abnormal(volume: &Volume) -> impl Iterator<Item = &Condition> {
    volume.conditions.iter().filter(|one| one.abnormal)
}

/// Its abnormal conditions for the legend of a list.
pub fn legend_of(volume: &Volume) -> Vec<Reasoned> {
    let reasoned = abnormal(volume).map(|one| Reasoned {
        label: volume.name.clone(),
        code: one.reason.clone(),
        text: one.message.clone(),
    });
    reasoned.collect()
}

/// How full a filesystem is, in per cent, as df says it: rounded up, of what an ordinary user can have.
pub fn full(usage: &VolumeUsage) -> Option<u128> {
    let used = u128::from(usage.used_bytes);
    let all = used + u128::from(usage.available_bytes);
    (used * 100 + all.saturating_sub(1)).checked_div(all)
}

/// Whom it is for: the claim, else the pod, else where it is mounted.
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

/// Puts volumes into the order that is wanted, by their names where nothing else decides.
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
            // What is not known is oldest.
            Some(VolumeSort::Age) => a.created_at.cmp(&b.created_at),
            Some(VolumeSort::Condition) => badness(b).cmp(&badness(a)),
        };
        order
            .then_with(|| by_name(&a.name, &b.name))
            .then_with(|| a.id.cmp(&b.id))
    });
}

/// The worse, the more.
fn badness(volume: &Volume) -> u8 {
    match worst(volume) {
        None => u8::from(is_abnormal(volume)),
        Some(Status::Degraded) => 2,
        Some(Status::Inaccessible) => 3,
        Some(Status::DataLoss) => 4,
    }
}

/// Whether something is wrong with it.
pub fn is_abnormal(volume: &Volume) -> bool {
    abnormal(volume).next().is_some()
}

/// Every abnormal condition, one per line.
pub fn below(volume: &Volume) -> Vec<String> {
    let troubles = abnormal(volume);
    troubles
        .map(|trouble| format!("{}: {}", trouble.reason, trouble.message))
        .collect()
}

/// Its filesystem, or that it has none.
pub fn filesystem(volume: &Volume) -> &str {
    match volume.known_mode() {
        Some(Mode::Block) => "raw block",
        _ => &volume.fs_type,
    }
}

/// Where it is in its life, with how far erasing is.
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

/// The worst of its conditions, as far as their words are known.
pub fn worst(volume: &Volume) -> Option<Status> {
    abnormal(volume).filter_map(Condition::known_status).max()
}

/// The worst of its conditions in one word.
pub fn condition(volume: &Volume) -> String {
    match worst(volume) {
        Some(status) => status.to_string(),
        None if is_abnormal(volume) => "abnormal".into(),
        None => "ok".into(),
    }
}

//! A volume as both command lines show it: cells of a table, the lines below. Pure.

use std::cmp::Reverse;

use drivebay_proto::{
    agent::{Condition, Volume, VolumeUsage},
    words::{Mode, Status, VolumeState},
};

use super::{
    args::VolumeSort,
    moment,
    show::claim,
    table::{
        Align::{self, Left, Right},
        human_seconds, human_size,
    },
};

/// So many volumes, in words.
pub fn count(volumes: u64) -> String {
    match volumes {
        1 => "1 volume".to_owned(),
        more => format!("{more} volumes"),
    }
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
        columns.extend([("DEVICE", Left), ("ID", Left)]);
        if usage {
            columns.push(("POD", Left));
        }
        columns.push(("MOUNTED-AT", Left));
    }
    columns
}

/// Columns that a narrow terminal can do without, the first ones first.
pub const DISPENSABLE: [&str; 9] = [
    "DRIVE", "AGE", "CLASS", "AVAIL", "USED", "FS", "USED-BY", "USE%", "STATE",
];

/// The cells of a volume, one per column. `used_by`: where that is known better. `now`: seconds since 1970.
pub fn cells(
    volume: &Volume,
    wide: bool,
    usage: bool,
    used_by: Option<String>,
    now: u64,
) -> Vec<String> {
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
    cells.extend([
        match volume.known_mode() {
            Some(Mode::Block) => volume.mode.clone(),
            _ => volume.fs_type.clone(),
        },
        state(volume),
        condition(volume),
        age.unwrap_or_default(),
        used_by.unwrap_or_else(|| self::used_by(volume)),
        volume.drive.clone(),
    ]);
    if wide {
        cells.extend([volume.device.clone(), volume.id.clone()]);
        if usage {
            cells.push(volume.pods.join(", "));
        }
        cells.push(volume.mounts.join(", "));
    }
    cells
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

/// Puts volumes into the order that is wanted.
pub fn sort<T>(volumes: &mut [T], by: Option<VolumeSort>, of: impl Fn(&T) -> &Volume) {
    fn text(text: &str) -> (Reverse<u128>, String) {
        (Reverse(0), text.to_owned())
    }
    fn number(number: impl Into<u128>) -> (Reverse<u128>, String) {
        (Reverse(number.into()), String::new())
    }
    let Some(by) = by else { return };
    volumes.sort_by_cached_key(|one| {
        let volume = of(one);
        match by {
            VolumeSort::Name => text(&volume.name),
            VolumeSort::Class => text(&volume.class),
            VolumeSort::Drive => text(&volume.drive),
            VolumeSort::Size => number(volume.size_bytes),
            VolumeSort::Used => number(volume.usage.map_or(0, |usage| usage.used_bytes)),
            VolumeSort::Full => number(volume.usage.as_ref().and_then(full).unwrap_or(0)),
            // What is not known is oldest.
            VolumeSort::Age => number(u64::MAX - volume.created_at),
            VolumeSort::Condition => number(match worst(volume) {
                None if is_abnormal(volume) => 1_u64,
                None => 0,
                Some(Status::Degraded) => 2,
                Some(Status::Inaccessible) => 3,
                Some(Status::DataLoss) => 4,
            }),
        }
    });
}

/// Whether something is wrong with it.
pub fn is_abnormal(volume: &Volume) -> bool {
    volume.conditions.iter().any(|condition| condition.abnormal)
}

/// Every abnormal condition, one per line.
pub fn below(volume: &Volume) -> Vec<String> {
    let troubles = volume
        .conditions
        .iter()
        .filter(|condition| condition.abnormal);
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
    let abnormal = volume.conditions.iter().filter(|one| one.abnormal);
    abnormal.filter_map(Condition::known_status).max()
}

/// The worst of its conditions in one word.
pub fn condition(volume: &Volume) -> String {
    match worst(volume) {
        Some(status) => status.to_string(),
        None if is_abnormal(volume) => "abnormal".into(),
        None => "ok".into(),
    }
}

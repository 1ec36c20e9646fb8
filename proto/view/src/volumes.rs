//! A volume as both command lines show it: cells of a table, JSON, the lines below. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use drivebay_proto::agent::{Volume, VolumeUsage};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    args::VolumeSort,
    moment,
    show::claim,
    table::{
        Align::{self, Left, Right},
        human_seconds, human_size,
    },
    unreadable::{self, UnreadableJson},
};

/// One volume in JSON. Field names are stable; sizes are bytes, moments seconds since 1970.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VolumeJson<'a> {
    /// uuid@node.
    id: &'a str,
    /// The CSI name that it was created with.
    name: &'a str,
    /// The class of drives that it was made from.
    class: &'a str,
    /// Identity of its drive.
    drive: &'a str,
    /// The kernel's name of its device; empty when it has none.
    device: &'a str,
    /// Its size; of a volume that is only expected, 0.
    size_bytes: u64,
    /// mount or block.
    mode: &'a str,
    /// ext4, xfs or btrfs; empty for a raw volume.
    fs_type: &'a str,
    /// new, ready, erasing, ambiguous, quarantined, missing or not-scanned.
    state: &'a str,
    /// It is staged or published on this node.
    in_use: bool,
    /// Where it is mounted or published; some of the places when there are many.
    mounts: &'a [String],
    /// Pods that it is published to, NAMESPACE/NAME; empty where that is not known, and where the node's own agent is not asked.
    pods: &'a [String],
    /// What is wrong with it, or is not.
    conditions: Vec<ConditionJson<'a>>,
    /// The last check of its filesystem that said something, then the last attempt if that is another.
    checks: Vec<CheckJson<'a>>,
    /// Bytes erased so far, while it is being erased.
    erased_bytes: u64,
    /// Null when it is not being erased, and while that is not known.
    erase_eta_seconds: Option<u64>,
    /// Sorted: a map of the wire has no order.
    parameters: BTreeMap<&'a str, &'a str>,
    /// Made by hand on its node, and not through CSI.
    by_hand: bool,
    /// When it was created; null when it is not known.
    created_at: Option<u64>,
    /// What it was created for in Kubernetes; null when that is not known.
    created_for: Option<CreatedForJson<'a>>,
    /// How full its filesystem is; null of a volume that is not mounted, and where the node's own agent is not asked.
    usage: Option<UsageJson>,
    /// Only the node's own agent knows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableJson<'a>>,
}

/// The claim and the PersistentVolume; empty where one is not known.
#[derive(Debug, Serialize, JsonSchema)]
struct CreatedForJson<'a> {
    /// Its name; empty when that is not known.
    claim: &'a str,
    /// Of the claim.
    namespace: &'a str,
    /// Its name.
    persistent_volume: &'a str,
}

/// The last sample of a mounted filesystem.
#[derive(Debug, Serialize, JsonSchema)]
struct UsageJson {
    /// Size of the filesystem.
    total_bytes: u64,
    /// In use.
    used_bytes: u64,
    /// What an ordinary user can still write.
    available_bytes: u64,
    /// How old the sample is.
    age_seconds: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ConditionJson<'a> {
    /// Something is wrong.
    abnormal: bool,
    /// DEGRADED, INACCESSIBLE or DATA_LOSS; empty when nothing is wrong.
    status: &'a str,
    /// Stable code; empty when nothing is wrong.
    reason: &'a str,
    /// What it is, and what to do.
    message: &'a str,
    /// Since when; null when that is not known.
    since: Option<u64>,
}

/// A read-only check of the filesystem.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckJson<'a> {
    /// When it ended.
    at: u64,
    /// Of a check: clean, corrupt, inconclusive or not-checkable.
    outcome: &'a str,
    /// The same in words.
    text: &'a str,
    /// unmounted, snapshot, scrub or repeated; empty when it was not begun.
    method: &'a str,
    /// The command without the device; empty when there was none.
    tool: &'a str,
}

impl<'a> From<&'a Volume> for VolumeJson<'a> {
    fn from(volume: &'a Volume) -> Self {
        Self {
            id: &volume.id,
            name: &volume.name,
            class: &volume.class,
            drive: &volume.drive,
            device: &volume.device,
            size_bytes: volume.size_bytes,
            mode: &volume.mode,
            fs_type: &volume.fs_type,
            state: &volume.state,
            in_use: volume.published,
            mounts: &volume.mounts,
            pods: &volume.pods,
            conditions: volume
                .conditions
                .iter()
                .map(|condition| ConditionJson {
                    abnormal: condition.abnormal,
                    status: &condition.status,
                    reason: &condition.reason,
                    message: &condition.message,
                    since: moment(condition.since),
                })
                .collect(),
            checks: volume
                .checks
                .iter()
                .map(|check| CheckJson {
                    at: check.at,
                    outcome: &check.outcome,
                    text: &check.text,
                    method: &check.method,
                    tool: &check.tool,
                })
                .collect(),
            by_hand: volume.by_hand,
            created_at: moment(volume.created_at),
            created_for: volume.created_for.as_ref().map(|known| CreatedForJson {
                claim: &known.claim,
                namespace: &known.namespace,
                persistent_volume: &known.persistent_volume,
            }),
            usage: volume.usage.as_ref().map(|usage| UsageJson {
                total_bytes: usage.total_bytes,
                used_bytes: usage.used_bytes,
                available_bytes: usage.available_bytes,
                age_seconds: usage.age_seconds,
            }),
            unreadable: unreadable::json(&volume.unreadable),
            erased_bytes: volume.erased_bytes,
            erase_eta_seconds: moment(volume.erase_eta_seconds),
            parameters: volume
                .parameters
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        }
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
        if volume.mode == "block" {
            "block".into()
        } else {
            volume.fs_type.clone()
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
            VolumeSort::Condition => number(match condition(volume).as_str() {
                "ok" => 0_u64,
                "DEGRADED" => 2,
                "INACCESSIBLE" => 3,
                "DATA_LOSS" => 4,
                _ => 1,
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

/// Where it is in its life, with how far erasing is.
pub fn state(volume: &Volume) -> String {
    if volume.state == "erasing" && volume.size_bytes > 0 {
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

/// The worst of its conditions in one word.
pub fn condition(volume: &Volume) -> String {
    let worst = ["DATA_LOSS", "INACCESSIBLE", "DEGRADED"]
        .into_iter()
        .find(|status| {
            volume
                .conditions
                .iter()
                .any(|condition| condition.abnormal && condition.status == *status)
        });
    match worst {
        Some(status) => status.to_owned(),
        None if volume.conditions.iter().any(|condition| condition.abnormal) => "abnormal".into(),
        None => "ok".into(),
    }
}

//! A volume as both command lines show it: cells of a table, JSON, the lines below. And
//! `drivebay-controller volumes`: those of all nodes.

use std::{collections::BTreeMap, io::Write};

use drivebay_proto::{agent::Volume, controller::VolumeOnNode};
use serde::Serialize;

use super::{
    CommandError,
    args::{Format, VolumesArgs},
    claims::{Claim, Claims, Tally, claim_as_followed, claim_of, is_unclaimed},
    client::Client,
    listing::{Listing, write},
    nodes,
    table::{
        Align::{self, Left, Right},
        human_seconds, human_size,
    },
    unreadable::{self, UnreadableJson},
};

/// One volume in JSON. Field names are stable; sizes are bytes.
#[derive(Debug, Serialize)]
pub struct VolumeJson<'a> {
    id: &'a str,
    name: &'a str,
    class: &'a str,
    drive: &'a str,
    device: &'a str,
    size_bytes: u64,
    mode: &'a str,
    fs_type: &'a str,
    state: &'a str,
    in_use: bool,
    mounts: &'a [String],
    conditions: Vec<ConditionJson<'a>>,
    checks: Vec<CheckJson<'a>>,
    erased_bytes: u64,
    erase_eta_seconds: u64,
    /// Sorted: a map of the wire has no order.
    parameters: BTreeMap<&'a str, &'a str>,
    /// Made by hand on its node, and not through CSI.
    by_hand: bool,
    /// Only the node's own agent knows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableJson<'a>>,
}

#[derive(Debug, Serialize)]
struct ConditionJson<'a> {
    abnormal: bool,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
    since: u64,
}

/// A read-only check of the filesystem.
#[derive(Debug, Serialize)]
struct CheckJson<'a> {
    at: u64,
    outcome: &'a str,
    text: &'a str,
    method: &'a str,
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
            conditions: volume
                .conditions
                .iter()
                .map(|condition| ConditionJson {
                    abnormal: condition.abnormal,
                    status: &condition.status,
                    reason: &condition.reason,
                    message: &condition.message,
                    since: condition.since,
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
            unreadable: unreadable::json(&volume.unreadable),
            erased_bytes: volume.erased_bytes,
            erase_eta_seconds: volume.erase_eta_seconds,
            parameters: volume
                .parameters
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        }
    }
}

/// The columns of a volume.
pub fn columns(wide: bool) -> Vec<(&'static str, Align)> {
    let mut columns = vec![
        ("NAME", Left),
        ("CLASS", Left),
        ("SIZE", Right),
        ("USE", Left),
        ("STATE", Left),
        ("CONDITION", Left),
        ("DRIVE", Left),
    ];
    if wide {
        columns.extend([("DEVICE", Left), ("ID", Left)]);
    }
    columns
}

/// The cells of a volume, one per column.
pub fn cells(volume: &Volume, wide: bool) -> Vec<String> {
    let mut cells = vec![
        volume.name.clone(),
        volume.class.clone(),
        // Of one that is only expected, the size is not known.
        match volume.size_bytes {
            0 => String::new(),
            bytes => human_size(bytes),
        },
        if volume.mode == "block" {
            "block".into()
        } else {
            volume.fs_type.clone()
        },
        state(volume),
        condition(volume),
        volume.drive.clone(),
    ];
    if wide {
        cells.extend([volume.device.clone(), volume.id.clone()]);
    }
    cells
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

/// A line about a volume that the controller has not seen named for long.
fn unclaimed(there: &VolumeOnNode) -> Option<String> {
    is_unclaimed(there).then(|| {
        let long = human_seconds(there.unclaimed_seconds);
        format!("no PersistentVolume has named it for {long}")
    })
}

#[derive(Debug, Serialize)]
struct OnNodeJson<'a> {
    node: &'a str,
    node_state: &'a str,
    #[serde(flatten)]
    volume: VolumeJson<'a>,
    #[serde(flatten)]
    claimed: Option<ClaimedJson<'a>>,
    /// With `--unclaimed`: the PersistentVolume that names it on another node.
    #[serde(skip_serializing_if = "Option::is_none")]
    named_elsewhere: Option<ElsewhereJson<'a>>,
}

/// Where the controller follows PersistentVolumes.
#[derive(Debug, Serialize)]
struct ClaimedJson<'a> {
    persistent_volume: &'a str,
    claim: &'a str,
    unclaimed_seconds: u64,
}

#[derive(Debug, Serialize)]
struct ElsewhereJson<'a> {
    persistent_volume: &'a str,
    node: &'a str,
}

/// `drivebay-controller volumes`: asks and shows. Lines for a person go to `notes` when the list is JSON.
pub async fn run(
    client: &mut Client,
    args: &VolumesArgs,
    claims: Option<&Claims>,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), CommandError> {
    let known = nodes::known(client, &args.show.nodes).await?;
    if let Some(claims) = claims {
        claims.must_fit(client).await?;
    }
    let wants_unclaimed = args.unclaimed.is_some();
    let format = args.show.output;
    let wide = format == Format::Wide;
    let mut columns = columns(wide);
    columns.insert(0, ("NODE", Left));
    let mut listing = Listing::new(out, format, "volumes", &columns);
    let (mut all, mut tally) = (0, Tally::default());
    let mut incoming = client.volumes(&args.show.nodes, args.deleted).await?;
    while let Some(there) = incoming.next().await? {
        let Some(volume) = &there.volume else {
            return Err(client.senseless("a volume without a description").into());
        };
        all += 1;
        let claim = match claims {
            Some(claims) => claim_of(client, claims, volume)?,
            None if wants_unclaimed => claim_as_followed(&there)?,
            None => Claim::Nobody,
        };
        if wants_unclaimed {
            // What a person made by hand waits for no claim.
            if claim == Claim::Nobody && volume.by_hand {
                continue;
            }
            tally.count(claim);
        }
        let class = args
            .class
            .as_ref()
            .is_none_or(|class| *class == volume.class);
        let abnormal = volume.conditions.iter().any(|condition| condition.abnormal);
        if !class || (args.abnormal && !abnormal) || claim == Claim::Here {
            continue;
        }
        let row = || {
            let mut cells = cells(volume, wide);
            cells.insert(0, there.node_id.clone());
            let mut below = below(volume);
            if wants_unclaimed {
                below.extend(claim.note(volume));
            }
            below.extend(unclaimed(&there));
            (cells, below)
        };
        let json = || OnNodeJson {
            node: &there.node_id,
            node_state: &there.node_state,
            volume: volume.into(),
            claimed: there.claims_known.then_some(ClaimedJson {
                persistent_volume: &there.persistent_volume,
                claim: &there.claim,
                unclaimed_seconds: there.unclaimed_seconds,
            }),
            named_elsewhere: match claim {
                Claim::Elsewhere { pv, node } => Some(ElsewhereJson {
                    persistent_volume: pv,
                    node,
                }),
                Claim::Here | Claim::Nobody => None,
            },
        };
        listing.add(row, json)?;
    }
    let nothing = match all {
        0 => "no volumes\n".to_owned(),
        _ => format!("none of {all} volumes\n"),
    };
    let told = if wants_unclaimed && all > 0 {
        tally.describe()
    } else {
        String::new()
    };
    let below = nodes::footnotes(&known) + &told;
    listing.end(&nothing, &below)?;
    if format == Format::Json {
        write(notes, &told)?;
    }
    Ok(())
}

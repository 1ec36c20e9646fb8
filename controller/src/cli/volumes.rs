//! `drivebay-controller volumes`: lists the volumes of all nodes.

use std::{collections::BTreeSet, io::Write};

use drivebay_common::pick::{Typed, select};
use drivebay_proto::{agent::Volume, controller::VolumeOnNode};
use drivebay_view::{
    args::{ListFormat, VolumeSort},
    legend::Legend,
    listing::Listing,
    row::Row,
    show::{VOLUME, claim, volume_names},
    volumes::{Besides, below, cells, columns, is_abnormal, legend_of, sort, yielding},
};
use serde::Serialize;

use super::{
    CommandError,
    args::VolumesArgs,
    claims::{Claim, Claims, Tally, claim_as_followed, claim_of, is_unclaimed},
    client::Client,
    nodes,
    output::write,
    table::{Align::Left, human_seconds},
    terminal::Terminal,
};

/// Returns a note about an unclaimed volume.
fn unclaimed(there: &VolumeOnNode) -> Option<String> {
    is_unclaimed(there).then(|| {
        let long = human_seconds(there.unclaimed_seconds);
        format!("no PersistentVolume has named it for {long}")
    })
}

#[derive(Debug, Serialize)]
struct ListedVolume<'a> {
    node: &'a str,
    /// The node's state, as `nodes` shows it.
    node_state: &'a str,
    #[serde(flatten)]
    volume: &'a Volume,
    #[serde(flatten)]
    claimed: Option<FollowedClaim<'a>>,
    /// With `--unclaimed`: the PersistentVolume that names it on another node.
    #[serde(skip_serializing_if = "Option::is_none")]
    named_elsewhere: Option<NamedElsewhere<'a>>,
}

/// Claim of a volume; only if the controller follows PersistentVolumes.
#[derive(Debug, Serialize)]
struct FollowedClaim<'a> {
    /// The PersistentVolume that names it; empty when none does.
    persistent_volume: &'a str,
    /// The claim that one is bound to, NAMESPACE/NAME; empty when it is to none.
    claim: &'a str,
    /// For how long none has been seen to name it; 0 when one does.
    unclaimed_seconds: u64,
}

#[derive(Debug, Serialize)]
struct NamedElsewhere<'a> {
    /// The one that names it.
    persistent_volume: &'a str,
    node: &'a str,
}

/// Selects the volumes that match `names` (all, if there are none), and sorts them.
pub(super) fn ordered(
    names: &[String],
    by: Option<VolumeSort>,
    all: Vec<VolumeOnNode>,
) -> Result<Vec<VolumeOnNode>, CommandError> {
    let described: Vec<(Volume, String)> = all
        .iter()
        .map(|there| {
            let volume = there.volume.clone().unwrap_or_default();
            let claim = match there.claim.as_str() {
                "" => claim(&volume),
                claim => claim.to_owned(),
            };
            (volume, claim)
        })
        .collect();
    let mut chosen = BTreeSet::new();
    for name in names {
        let typed = Typed::new(name, None);
        chosen.extend(select(&described, typed, VOLUME, |(volume, claim)| {
            volume_names(volume, claim)
        })?);
    }
    let mut order: Vec<(usize, &Volume)> = described
        .iter()
        .enumerate()
        .filter(|(at, _)| names.is_empty() || chosen.contains(at))
        .map(|(at, (volume, _))| (at, volume))
        .collect();
    sort(&mut order, by, |(_, volume)| volume);
    let mut all: Vec<Option<VolumeOnNode>> = all.into_iter().map(Some).collect();
    let wanted = order.iter().filter_map(|(at, _)| all.get_mut(*at)?.take());
    Ok(wanted.collect())
}

/// Runs `drivebay-controller volumes`. Notes for the operator go below a table, and to `notes` for other formats.
pub async fn run(
    client: &mut Client,
    args: &VolumesArgs,
    claims: Option<&Claims>,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), CommandError> {
    let listed_nodes = nodes::query(client, &args.show.nodes).await?;
    if let Some(claims) = claims {
        claims.must_fit(client).await?;
    }
    let wants_unclaimed = args.unclaimed.is_some();
    let list = &args.show.list;
    let wide = list.output.is_wide();
    let mut columns = columns(wide, false);
    columns.insert(0, ("NODE", Left));
    let mut listing = Listing::new(out, list, terminal, "volumes", &columns, yielding(wide));
    let (mut all, mut tally) = (0_u64, Tally::default());
    let mut waiting: Vec<VolumeOnNode> = Vec::new();
    // With --watch, abnormal volumes are listed first.
    let watched = args.show.watch.watch.map(|_| VolumeSort::Condition);
    let by = args.sort.or(watched);
    let at_once = by.is_none() && args.names.is_empty();
    let is_whole = wide || !args.names.is_empty();
    let mut legend = Legend::default();
    let mut show = |client: &Client, there: &VolumeOnNode| -> Result<(), CommandError> {
        let Some(volume) = &there.volume else {
            return Err(client.senseless("a volume without a description").into());
        };
        all += 1;
        let claim = match claims {
            Some(claims) => claim_of(client, claims, volume)?,
            None if wants_unclaimed => claim_as_followed(there)?,
            None => Claim::Nobody,
        };
        if wants_unclaimed {
            // A manually created volume needs no claim.
            if claim == Claim::Nobody && volume.manual {
                return Ok(());
            }
            tally.count(claim);
        }
        let class = args
            .class
            .as_ref()
            .is_none_or(|class| *class == volume.class);
        let drive = args
            .drive
            .as_ref()
            .is_none_or(|drive| *drive == volume.drive);
        let abnormal = !args.abnormal || is_abnormal(volume);
        if !class || !drive || !abnormal || claim == Claim::Here {
            return Ok(());
        }
        legend.add(legend_of(volume));
        let row = || {
            let besides = Besides {
                used_by: Some(there.claim.clone()).filter(|claim| !claim.is_empty()),
                ..Besides::default()
            };
            let mut cells = cells(volume, wide, false, besides, now);
            cells.insert(0, there.node_id.clone());
            let mut below = match is_whole {
                true => below(volume),
                false => Vec::new(),
            };
            if wants_unclaimed {
                below.extend(claim.note(volume));
            }
            below.extend(unclaimed(there));
            Row { cells, below }
        };
        let json = || ListedVolume {
            node: &there.node_id,
            node_state: &there.node_state,
            volume,
            claimed: there.claims_known.then_some(FollowedClaim {
                persistent_volume: &there.persistent_volume,
                claim: &there.claim,
                unclaimed_seconds: there.unclaimed_seconds,
            }),
            named_elsewhere: match claim {
                Claim::Elsewhere { pv, node } => Some(NamedElsewhere {
                    persistent_volume: pv,
                    node,
                }),
                Claim::Here | Claim::Nobody => None,
            },
        };
        Ok(listing.add(row, json, &volume.name)?)
    };
    let mut incoming = client.volumes(&args.show.nodes, args.deleted).await?;
    while let Some(there) = incoming.next().await? {
        match at_once {
            true => show(client, &there)?,
            false => waiting.push(there),
        }
    }
    for there in ordered(&args.names, by, waiting)? {
        show(client, &there)?;
    }
    let nothing = match all {
        0 => "no volumes\n".to_owned(),
        _ => format!("none of {}\n", drivebay_common::units::count(all, "volume")),
    };
    let summary = if wants_unclaimed && all > 0 {
        tally.describe()
    } else {
        String::new()
    };
    let legend = match is_whole || terminal.height.is_some() {
        true => String::new(),
        false => legend.text("`drivebay-controller volume show`", terminal),
    };
    let below = legend + &nodes::footnotes(&listed_nodes) + &summary;
    listing.end(&nothing, &below)?;
    if list.output.document().is_some() || list.output == ListFormat::Name {
        write(notes, &summary)?;
    }
    Ok(())
}

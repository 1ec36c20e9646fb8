//! `drivebay-agent volumes`, also called `volume list`: the volumes of the node, with their manual mounts.

use drivebay_common::{pick::Part, query::QueryError, units::count};
use drivebay_proto::agent::{
    Drive, HandMount, InventoryUpdate, ListMountsRequest, Volume, VolumeCopy,
};
use drivebay_view::{
    args::{ListFormat, VolumeSort},
    copies,
    legend::Legend,
    show::claim,
    volumes::{Besides, below, cells, columns, is_abnormal, legend_of, sort, yielding},
};
use schemars::JsonSchema;
use serde::Serialize;
use tonic::Code;

use super::{
    CommandError,
    args::VolumesArgs,
    client::Client,
    name,
    table::{Table, printable},
    watch::OutputTarget,
};

/// What `volumes -o json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VolumeList<'a> {
    /// The node id.
    node: &'a str,
    /// False while the agent is still scanning its drives.
    ready: bool,
    /// The volumes.
    volumes: Vec<&'a Volume>,
    /// What was mounted by hand, and what is to be mounted at each start of the host.
    mounts: &'a [HandMount],
    /// How far the copying to volumes in state copying is; left out where there are none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    copies: &'a [VolumeCopy],
}

/// Fetches the volumes and renders them.
pub async fn list(
    client: &mut Client,
    args: &VolumesArgs,
    target: OutputTarget,
) -> Result<String, CommandError> {
    let inventory = client.inventory().await?;
    // An older agent does not support these mounts, and has none.
    let mounts = match list_mounts(client).await {
        Err(QueryError::Refused { status, .. }) if status.code() == Code::Unimplemented => {
            Vec::new()
        }
        mounts => mounts?,
    };
    let copies = client.copies_to(&inventory.volumes).await?;
    render(&inventory, &mounts, &copies, args, target)
}

/// Returns the manual mounts.
pub(super) async fn list_mounts(client: &mut Client) -> Result<Vec<HandMount>, QueryError> {
    let call = client.manual_volumes.list_mounts(ListMountsRequest {});
    Ok(client.agent.answered(call).await?.into_inner().mounts)
}

/// Returns the requested volumes, in the requested order.
fn chosen<'a>(
    inventory: &'a InventoryUpdate,
    args: &VolumesArgs,
) -> Result<Vec<&'a Volume>, CommandError> {
    let drive = match &args.drive {
        Some(drive) => Some(&name::drive(inventory, drive, Part::Beginning)?.id),
        None => None,
    };
    let mut volumes = name::volumes(inventory, &args.names)?;
    volumes.retain(|volume| {
        let class = args
            .class
            .as_ref()
            .is_none_or(|class| *class == volume.class);
        let drive = drive.is_none_or(|drive| *drive == volume.drive);
        class && drive && (!args.abnormal || is_abnormal(volume))
    });
    // A watched list is sorted by condition.
    let watched = args.watch.watch.map(|_| VolumeSort::Condition);
    let by = args.sort.or(watched);
    // For programs in the inventory's order, unless another one is requested.
    if by.is_some() || args.list.output.document().is_none() {
        sort(&mut volumes, by, |volume| volume);
    }
    Ok(volumes)
}

/// Renders the volumes of an inventory.
pub fn render(
    inventory: &InventoryUpdate,
    mounts: &[HandMount],
    copies: &[VolumeCopy],
    args: &VolumesArgs,
    target: OutputTarget,
) -> Result<String, CommandError> {
    let volumes = chosen(inventory, args)?;
    if let Some(document) = args.list.output.document() {
        let whole = VolumeList {
            node: &inventory.node_id,
            ready: inventory.ready,
            volumes,
            mounts,
            copies,
        };
        return Ok(document.write(&whole)?);
    }
    if args.list.output == ListFormat::Name {
        let names = volumes.iter().map(|volume| printable(&volume.name) + "\n");
        return Ok(names.collect());
    }
    let mut text = match (volumes.is_empty(), inventory.volumes.len()) {
        (false, _) => {
            let table = table(&volumes, inventory, mounts, copies, args, target);
            match args.list.no_headers {
                true => return Ok(table.without_header().render()),
                false => table.render(),
            }
        }
        (true, _) if args.list.no_headers => return Ok(String::new()),
        (true, 0) => "no volumes\n".to_owned(),
        (true, all) => format!("none of {}\n", count(all, "volume")),
    };
    if !is_whole(args) && target.terminal.height.is_none() {
        let mut legend = Legend::default();
        volumes
            .iter()
            .for_each(|volume| legend.add(legend_of(volume)));
        text.push_str(&legend.text("`drivebay-agent volume show`", target.terminal));
    }
    for mount in mounts {
        let mut listed = inventory.volumes.iter();
        if !listed.any(|one| one.id == mount.volume_id) {
            let line = format!(
                "({} is to be mounted at {}, and there is no such volume; forget it with `drivebay-agent volume unmount {}`)",
                mount.name, mount.path, mount.path
            );
            text.push_str(&target.terminal.wrapped("", &printable(&line)));
        }
    }
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    Ok(text)
}

/// True if every condition is shown below its volume.
fn is_whole(args: &VolumesArgs) -> bool {
    args.list.output.is_wide() || !args.names.is_empty()
}

fn table(
    volumes: &[&Volume],
    inventory: &InventoryUpdate,
    mounts: &[HandMount],
    copies: &[VolumeCopy],
    args: &VolumesArgs,
    target: OutputTarget,
) -> Table {
    let wide = args.list.output.is_wide();
    let mut table = Table::new(&columns(wide, true)).on(target.terminal, yielding(wide));
    for volume in volumes {
        let besides = Besides {
            used_by: mounted_at(volume, mounts).filter(|_| claim(volume).is_empty()),
            drive: device(volume, &inventory.drives),
            state: copies::of_volume(copies, volume).map(copies::state),
        };
        let below = match is_whole(args) {
            true => below(volume),
            false => Vec::new(),
        };
        table.row(cells(volume, wide, true, besides, target.now), below);
    }
    table
}

/// Returns the kernel name of the volume's drive, if it is present.
fn device(volume: &Volume, drives: &[Drive]) -> Option<String> {
    let drive = drives.iter().find(|drive| drive.id == volume.drive)?;
    Some(drive.kernel_name.clone()).filter(|name| !name.is_empty())
}

/// Returns the manual mount of a volume, with its persistence; None if there is none.
fn mounted_at(volume: &Volume, mounts: &[HandMount]) -> Option<String> {
    let mount = mounts.iter().find(|mount| mount.volume_id == volume.id)?;
    match (mount.persist, mount.mounted) {
        (true, true) => Some(format!("{} (persisted)", mount.path)),
        (true, false) => Some(format!("{} (persisted, not mounted now)", mount.path)),
        (false, true) => Some(mount.path.clone()),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_common::terminal::Terminal;
    use drivebay_proto::agent::VolumeSnapshot;

    use super::*;
    use crate::{Cli, Command};

    #[test]
    fn a_volume_that_is_copied_is_listed_with_its_progress_and_wide_with_snapshots_and_source() {
        let volume = |name: &str, last: u8, state: &str| Volume {
            id: format!("7b1d5c1e-0000-4000-8000-0000000000{last:02}@node7"),
            name: name.into(),
            class: "fast".into(),
            drive: "wwn-a".into(),
            size_bytes: 10 << 30,
            mode: "mount".into(),
            fs_type: "ext4".into(),
            state: state.into(),
            device: "sda2".into(),
            ..Volume::default()
        };
        let mut copied = volume("new", 1, "copying");
        let mut db = volume("db", 2, "ready");
        copied.source_volume.clone_from(&db.id);
        db.snapshots = vec![VolumeSnapshot::default(); 2];
        let copy = VolumeCopy {
            volume_id: copied.id.clone(),
            done_bytes: 4 << 30,
            total_bytes: 10 << 30,
            eta_seconds: 3700,
            ..VolumeCopy::default()
        };
        let inventory = InventoryUpdate {
            ready: true,
            volumes: vec![copied, db],
            ..InventoryUpdate::default()
        };
        let target = OutputTarget {
            now: 0,
            terminal: Terminal::NONE,
        };
        let shown =
            |line: &[&str]| match Cli::parse_from(["x", "volumes"].iter().chain(line)).command {
                Command::Volumes(args) => {
                    let copies = std::slice::from_ref(&copy);
                    render(&inventory, &[], copies, &args, target).unwrap()
                }
                other => panic!("{other:?}"),
            };
        assert_eq!(
            shown(&[]),
            "\
NAME  CLASS    SIZE  USED  AVAIL  USE%  FS    STATE                    CONDITION  AGE  USED-BY  DRIVE  REASON
db    fast   10 GiB     -      -     -  ext4  ready                    ok           -  -        wwn-a  -
new   fast   10 GiB     -      -     -  ext4  copying 40%, 1h01m left  ok           -  -        wwn-a  -
"
        );
        let wide = shown(&["-o", "wide"]);
        let rows: Vec<&str> = wide.lines().collect();
        assert!(rows[0].contains("  SNAPSHOTS  SOURCE  "), "{wide}");
        assert!(rows[1].contains("02@node7          2  -  "), "{wide}");
        let source = "01@node7          -  volume 7b1d5c1e-0000-4000-8000-000000000002@node7  CSI";
        assert!(rows[2].contains(source), "{wide}");
        let json: serde_json::Value = serde_json::from_str(&shown(&["-o", "json"])).unwrap();
        assert_eq!(json["copies"][0]["done_bytes"], 4_u64 << 30);
        assert_eq!(json["volumes"][1]["snapshots"].as_array().unwrap().len(), 2);
    }
}

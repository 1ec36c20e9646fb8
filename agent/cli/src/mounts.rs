//! `volume mount`, `volume unmount` and `volume list`: where volumes are mounted by hand.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::{
    ask::AskError,
    cli::WRONG,
    pick::{Part, PickError},
    progress::waiting,
};
use drivebay_proto::agent::{
    HandMount, InventoryUpdate, ListMountsRequest, MountVolumeRequest, UnmountVolumeRequest, Volume,
};
use drivebay_view::{
    args::ListFormat,
    volumes::{DISPENSABLE, below, cells, columns},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CommandError,
    args::{MountArgs, VolumesArgs},
    client::Client,
    complain, name,
    table::{
        Align::{self, Left},
        Table, printable,
    },
    volumes::{chosen, text},
    watch::Look,
};

/// The filesystem of a large, slow drive may be repaired first, for hours; the agent ends that.
const MOUNT_DEADLINE: Duration = Duration::from_secs(7 * 3600);
const UNMOUNT_DEADLINE: Duration = Duration::from_secs(90);

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(transparent)]
    Client(#[from] AskError),
    #[error("cannot find out which directory {} is", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    #[error("{} is not text (UTF-8)", .0.display())]
    NotText(PathBuf),
    #[error("{failed} of {all} volumes could not be mounted")]
    Some { failed: usize, all: usize },
    #[error(transparent)]
    Pick(#[from] PickError),
}

impl MountError {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Directory(..) | Self::NotText(_) | Self::Some { .. } => WRONG,
        }
    }
}

/// The id of the volume that is meant; what was typed where none is, for the agent to say what that means.
async fn meant(client: &mut Client, typed: &str) -> Result<String, MountError> {
    let inventory = client.inventory().await?;
    match name::volume(&inventory, typed, Part::Whole) {
        Ok(volume) => Ok(volume.id.clone()),
        Err(none) if none.is_none() => Ok(typed.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// Mounts one volume, or all that are kept. Answers with what to print.
pub async fn mount(args: &MountArgs) -> Result<String, MountError> {
    let mut client = Client::connect(&args.socket.socket).await?;
    let Some(name) = &args.name else {
        return mount_all(&mut client).await;
    };
    let path = match &args.dir {
        Some(dir) => absolute(dir)?,
        None => String::new(),
    };
    let options = args.options.iter().flat_map(|options| options.split(','));
    let request = MountVolumeRequest {
        volume: meant(&mut client, name).await?,
        path,
        mount_flags: options
            .map(str::trim)
            .filter(|option| !option.is_empty())
            .map(str::to_owned)
            .collect(),
        read_only: args.read_only,
        persist: args.persist,
    };
    mount_one(&mut client, request).await
}

async fn mount_one(client: &mut Client, request: MountVolumeRequest) -> Result<String, MountError> {
    let what = format!("mounting volume {}", printable(&request.volume));
    let call = client.by_hand.mount_volume(request);
    let answer = client.asked.answered_within(MOUNT_DEADLINE, call);
    let answer = waiting(&what, answer).await?;
    let mount = answer.into_inner().mount.unwrap_or_default();
    let kept = match mount.persist {
        true => ", also after each start of the host",
        false => "",
    };
    let text = format!("volume {} is mounted at {}{kept}", mount.name, mount.path);
    Ok(printable(&text) + "\n")
}

/// Every one is tried: one whose drive is missing holds up no other.
async fn mount_all(client: &mut Client) -> Result<String, MountError> {
    let kept = list_mounts(client).await?;
    let kept: Vec<HandMount> = kept.into_iter().filter(|mount| mount.persist).collect();
    let (all, mut failed, mut text) = (kept.len(), 0, String::new());
    for mount in kept {
        let request = MountVolumeRequest {
            volume: mount.volume_id.clone(),
            ..MountVolumeRequest::default()
        };
        match mount_one(client, request).await {
            Ok(line) => text.push_str(&line),
            Err(MountError::Client(error)) if error.is_absence() => return Err(error.into()),
            Err(error) => {
                failed += 1;
                eprintln!(
                    "volume {} at {}:",
                    printable(&mount.name),
                    printable(&mount.path)
                );
                complain(&error);
            }
        }
    }
    if failed > 0 {
        print!("{text}");
        return Err(MountError::Some { failed, all });
    }
    if all == 0 {
        text.push_str("no volume is to be mounted at each start of the host\n");
    }
    Ok(text)
}

async fn list_mounts(client: &mut Client) -> Result<Vec<HandMount>, AskError> {
    let call = client.by_hand.list_mounts(ListMountsRequest {});
    Ok(client.asked.answered(call).await?.into_inner().mounts)
}

/// Unmounts. Answers with what to print.
pub async fn unmount(socket: &Path, what: &str) -> Result<String, MountError> {
    let mut client = Client::connect(socket).await?;
    // A slash, `.` or `..` makes it a path.
    let is_path = what.contains('/') || what == "." || what == "..";
    let named = match is_path {
        true => absolute(Path::new(what))?,
        false => match meant(&mut client, what).await {
            // It may be unmounted and gone, as it is to be; that must not mean another.
            Err(MountError::Pick(PickError::OnlyBeginning { .. })) => what.to_owned(),
            meant => meant?,
        },
    };
    let request = UnmountVolumeRequest { what: named };
    let call = client.by_hand.unmount_volume(request);
    let answer = client.asked.answered_within(UNMOUNT_DEADLINE, call).await?;
    let text = match answer.into_inner().mount {
        Some(mount) => format!("volume {} is unmounted from {}", mount.name, mount.path),
        None => format!("{what} is not mounted by hand; nothing to unmount"),
    };
    Ok(printable(&text) + "\n")
}

/// Without asking the directory: it may be on a drive that does not answer.
fn absolute(dir: &Path) -> Result<String, MountError> {
    let path =
        std::path::absolute(dir).map_err(|source| MountError::Directory(dir.to_owned(), source))?;
    let text = path.to_str().map(str::to_owned);
    text.ok_or(MountError::NotText(path))
}

/// Shows volumes and mounts.
pub async fn list(
    client: &mut Client,
    args: &VolumesArgs,
    look: Look,
) -> Result<String, CommandError> {
    let inventory = client.inventory().await?;
    let mounts = list_mounts(client).await?;
    render(&inventory, &mounts, args, look)
}

/// What `volume list -o json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MountedVolumeList<'a> {
    /// The node id.
    node: &'a str,
    /// False while the agent is still scanning its drives.
    ready: bool,
    /// The volumes.
    volumes: Vec<&'a Volume>,
    /// What was mounted by hand, and what is to be mounted at each start of the host.
    mounts: &'a [HandMount],
}

fn render(
    inventory: &InventoryUpdate,
    mounts: &[HandMount],
    args: &VolumesArgs,
    look: Look,
) -> Result<String, CommandError> {
    let volumes = chosen(inventory, args)?;
    if let Some(document) = args.list.output.document() {
        let list = MountedVolumeList {
            node: &inventory.node_id,
            ready: inventory.ready,
            volumes,
            mounts,
        };
        return Ok(document.write(&list)?);
    }
    let mut text = text(inventory, &volumes, args, |wide| {
        table(&volumes, mounts, wide, look)
    });
    if args.list.no_headers || args.list.output == ListFormat::Name {
        return Ok(text);
    }
    for mount in mounts {
        if !inventory
            .volumes
            .iter()
            .any(|one| one.id == mount.volume_id)
        {
            let line = format!(
                "({} is to be mounted at {}, and there is no such volume; forget it with `drivebay-agent volume unmount {}`)",
                mount.name, mount.path, mount.path
            );
            text.push_str(&look.terminal.wrapped("", &printable(&line)));
        }
    }
    Ok(text)
}

/// Instead of whom a volume is for, who made it and where it is mounted.
fn table(volumes: &[&Volume], mounts: &[HandMount], wide: bool, look: Look) -> Table {
    let all = columns(wide, true);
    let is_kept = |(name, _): &(&str, Align)| !matches!(*name, "USED-BY" | "MOUNTED-AT");
    let mut columns: Vec<_> = all.iter().copied().filter(is_kept).collect();
    columns.extend([("MADE", Left), ("MOUNTED-AT", Left)]);
    let dispensable = match wide {
        true => Vec::new(),
        false => [&DISPENSABLE[..], &["MADE"]].concat(),
    };
    let mut table = Table::new(&columns).on(look.terminal, &dispensable);
    for volume in volumes {
        let cells = all.iter().zip(cells(volume, wide, true, None, look.now));
        let mut row: Vec<String> = cells
            .filter(|(column, _)| is_kept(column))
            .map(|(_, cell)| cell)
            .collect();
        row.push(if volume.by_hand { "by hand" } else { "CSI" }.to_owned());
        row.push(mounted_at(volume, mounts));
        table.row(row, below(volume));
    }
    table
}

/// Where a volume is mounted, and whether by a person and for long.
fn mounted_at(volume: &Volume, mounts: &[HandMount]) -> String {
    let by_hand = mounts.iter().find(|mount| mount.volume_id == volume.id);
    match by_hand {
        Some(mount) if mount.persist && mount.mounted => format!("{} (persisted)", mount.path),
        Some(mount) if mount.persist => format!("{} (persisted, not mounted now)", mount.path),
        Some(mount) if mount.mounted => mount.path.clone(),
        _ => volume.mounts.first().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_common::terminal::Terminal;

    use super::*;
    use crate::{Cli, Command, VolumeCommand};

    #[test]
    fn the_list_says_who_made_a_volume_and_where_it_is_mounted() {
        let volume = |name: &str, by_hand: bool, mounts: &[&str]| Volume {
            id: format!("{name}@n"),
            name: name.into(),
            class: "fast".into(),
            size_bytes: 1 << 30,
            fs_type: "ext4".into(),
            mode: "mount".into(),
            state: "ready".into(),
            drive: "wwn-a".into(),
            by_hand,
            published: !mounts.is_empty(),
            mounts: mounts.iter().map(|&at| at.into()).collect(),
            ..Volume::default()
        };
        let inventory = InventoryUpdate {
            ready: true,
            volumes: vec![
                volume("db", true, &["/srv/db", "/elsewhere"]),
                volume("logs", true, &[]),
                volume("pvc-1", false, &["/pods/1"]),
                volume("spare", true, &[]),
            ],
            ..InventoryUpdate::default()
        };
        let mount = |name: &str, path: &str, persist, mounted| HandMount {
            volume_id: format!("{name}@n"),
            name: name.into(),
            path: path.into(),
            persist,
            mounted,
            ..HandMount::default()
        };
        let mounts = [
            mount("db", "/srv/db", true, true),
            mount("logs", "/srv/logs", true, false),
            mount("lost", "/srv/lost", true, false),
        ];
        let args = |line: &[&str]| match Cli::parse_from(["x", "volume", "list"].iter().chain(line))
            .command
        {
            Command::Volume(VolumeCommand::List(args)) => args,
            other => panic!("{other:?}"),
        };
        let look = Look {
            now: 0,
            terminal: Terminal::NONE,
        };
        assert_eq!(
            render(&inventory, &mounts, &args(&[]), look).unwrap(),
            "\
NAME   CLASS   SIZE  USED  AVAIL  USE%  FS    STATE          CONDITION  AGE  DRIVE  MADE     MOUNTED-AT
db     fast   1 GiB     -      -     -  ext4  ready, in use  ok           -  wwn-a  by hand  /srv/db (persisted)
logs   fast   1 GiB     -      -     -  ext4  ready          ok           -  wwn-a  by hand  /srv/logs (persisted, not mounted now)
pvc-1  fast   1 GiB     -      -     -  ext4  ready, in use  ok           -  wwn-a  CSI      /pods/1
spare  fast   1 GiB     -      -     -  ext4  ready          ok           -  wwn-a  by hand  -
(lost is to be mounted at /srv/lost, and there is no such volume; forget it with `drivebay-agent volume unmount /srv/lost`)
"
        );
        let json = render(&inventory, &mounts, &args(&["-o", "json"]), look).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["volumes"][0]["by_hand"], true);
        assert_eq!(json["mounts"][1]["mounted"], false);
    }
}

//! `drivebay-agent snapshots`, `snapshot create` and `snapshot delete`.

use std::{path::Path, time::Duration};

use drivebay_common::{
    ask::AskError,
    cli::{USAGE, WRONG},
    pick::{Part, PickError},
    progress::waiting,
    units::count,
};
use drivebay_csi::validate::{self, InvalidRequest, MAX_STRING_BYTES};
use drivebay_proto::{
    agent::{CreateSnapshotRequest, DeleteSnapshotRequest, InventoryUpdate, Volume},
    words::VolumeState,
};
use drivebay_view::{
    args::ListFormat,
    snapshots::{ListedSnapshot, SnapshotEntry, SnapshotTally, columns, entries, yielding},
    unix_seconds,
};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    CommandError,
    args::{Reserve, SnapshotCreateArgs, SnapshotsArgs},
    by_hand::DELETE_DEADLINE,
    client::Client,
    name,
    table::{Table, human_size, printable},
    watch::Look,
};

/// The volume's filesystem is frozen for it, which waits for what is being written.
const CREATE_DEADLINE: Duration = Duration::from_secs(120);

/// Why no snapshot was taken or deleted.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Client(#[from] AskError),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Nothing was confirmed: what it is about, and what to type.
    #[error("{0}")]
    NotConfirmed(String),
    #[error("--confirm says {typed:?}, but the snapshot's name is {name:?}; nothing was changed")]
    WrongConfirmation { typed: String, name: String },
    #[error("cannot write the answer as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

impl SnapshotError {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Invalid(_) | Self::NotConfirmed(_) | Self::WrongConfirmation { .. } => USAGE,
            Self::Json(_) => WRONG,
        }
    }
}

/// What `snapshots -o json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SnapshotList<'a> {
    /// The node id.
    node: &'a str,
    /// False while the agent is still scanning its drives.
    ready: bool,
    /// The snapshots, by volume and moment.
    snapshots: Vec<ListedSnapshot<'a>>,
}

/// The snapshots of an inventory as text.
pub fn render(
    inventory: &InventoryUpdate,
    args: &SnapshotsArgs,
    look: Look,
) -> Result<String, CommandError> {
    let shown = entries(name::volumes(inventory, &args.names)?);
    let list = &args.list;
    if let Some(document) = list.output.document() {
        let whole = SnapshotList {
            node: &inventory.node_id,
            ready: inventory.ready,
            snapshots: shown.into_iter().map(ListedSnapshot::from).collect(),
        };
        return Ok(document.write(&whole)?);
    }
    if list.output == ListFormat::Name {
        let names = shown
            .iter()
            .map(|entry| printable(&entry.snapshot.name) + "\n");
        return Ok(names.collect());
    }
    let wide = list.output.is_wide();
    let mut table = Table::new(&columns(wide)).on(look.terminal, yielding(wide));
    let mut tally = SnapshotTally::default();
    for entry in &shown {
        let row = entry.row(wide, look.now);
        table.row(row.cells, row.below);
        tally.add(*entry);
    }
    if list.no_headers {
        return Ok(match shown.is_empty() {
            true => String::new(),
            false => table.without_header().render(),
        });
    }
    let mut text = match (shown.is_empty(), entries(&inventory.volumes).len()) {
        (false, _) => table.render() + &tally.text(look.terminal),
        (true, 0) => "no snapshots\n".to_owned(),
        (true, all) => format!("none of {}\n", count(all, "snapshot")),
    };
    if !inventory.ready {
        text.push_str("(the agent is still scanning its drives)\n");
    }
    Ok(text)
}

/// Takes a snapshot. Answers with what to print.
pub(super) async fn create(args: &SnapshotCreateArgs) -> Result<String, SnapshotError> {
    let mut client = Client::connect(&args.show.socket.socket).await?;
    let inventory = client.inventory().await?;
    let volume = name::volume(&inventory, &args.volume, Part::Beginning)?;
    let request = request(volume, args, unix_seconds())?;
    let is_there = volume.snapshots.iter().any(|one| one.name == request.name);
    let what = format!("taking snapshot {}", printable(&request.name));
    let call = client.raw.create_snapshot(request);
    let answer = client.asked.answered_within(CREATE_DEADLINE, call);
    let snapshot = waiting(&what, answer).await?.into_inner().snapshot;
    let snapshot = snapshot.ok_or_else(|| client.asked.senseless("no snapshot"))?;
    let entry = SnapshotEntry {
        volume,
        snapshot: &snapshot,
    };
    match args.show.output.document() {
        Some(document) => Ok(document.write(&ListedSnapshot::from(entry))?),
        None => Ok(taken(entry, is_there)),
    }
}

/// The request. `now`: seconds since 1970. Pure.
fn request(
    volume: &Volume,
    args: &SnapshotCreateArgs,
    now: u64,
) -> Result<CreateSnapshotRequest, InvalidRequest> {
    let name = match &args.name {
        Some(name) => validate::volume_name(name)?.to_owned(),
        None => default_name(&volume.name, now),
    };
    let (reserve_percent, bytes) = match args.reserve {
        None => (0, 0),
        Some(Reserve::Percent(percent)) => (percent, 0),
        Some(Reserve::Bytes(bytes)) => (0, bytes),
    };
    Ok(CreateSnapshotRequest {
        name,
        volume_id: volume.id.clone(),
        reserve_percent,
        least_reserve_bytes: bytes,
        most_reserve_bytes: bytes,
    })
}

/// The volume's name, shortened if need be, and the moment in UTC: `db-20261128-020000`.
fn default_name(volume: &str, now: u64) -> String {
    let at = i64::try_from(now).ok();
    let at = at.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let suffix = format!(
        "-{:04}{:02}{:02}-{:02}{:02}{:02}",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    );
    let room = MAX_STRING_BYTES.saturating_sub(suffix.len());
    let kept = volume.get(..volume.floor_char_boundary(room));
    format!("{}{suffix}", kept.unwrap_or(volume))
}

/// What was made, and how it is used.
fn taken(SnapshotEntry { volume, snapshot }: SnapshotEntry<'_>, is_there: bool) -> String {
    let how = match is_there {
        true => "exists already",
        false => "is created",
    };
    let name = printable(&snapshot.name);
    let described = printable(&format!(
        "volume {}, {}, reserve {}, id {}",
        volume.name,
        human_size(snapshot.size_bytes),
        human_size(snapshot.reserve_bytes),
        snapshot.id
    ));
    format!(
        "snapshot {name} {how}: {described}\nrestore it with `drivebay-agent snapshot restore {name} --name NAME`\n"
    )
}

/// Shows or deletes. Answers with what to print.
pub(super) async fn delete(
    socket: &Path,
    named: &str,
    confirm: Option<&str>,
) -> Result<String, SnapshotError> {
    let mut client = Client::connect(socket).await?;
    let inventory = client.inventory().await?;
    let Some(entry) = may_delete(&inventory, named, confirm)? else {
        return Ok(format!(
            "there is no snapshot {named:?}; nothing to delete\n"
        ));
    };
    let call = client.raw.delete_snapshot(DeleteSnapshotRequest {
        id: entry.snapshot.id.clone(),
    });
    client.asked.answered_within(DELETE_DEADLINE, call).await?;
    Ok(format!(
        "snapshot {} is deleted; its space is being erased, and is offered again afterwards\n",
        printable(&entry.snapshot.name)
    ))
}

/// The snapshot, if its name is confirmed; None: there is none of this name for certain. Pure.
fn may_delete<'a>(
    inventory: &'a InventoryUpdate,
    named: &str,
    confirm: Option<&str>,
) -> Result<Option<SnapshotEntry<'a>>, SnapshotError> {
    let is_gone = |error: &PickError| match error {
        PickError::None { .. } => true,
        // Whoever confirms this name has typed all of it: a repeated command, and the snapshot is gone.
        PickError::OnlyBeginning { .. } => confirm == Some(named),
        PickError::Several { .. } => false,
    };
    let entry = match name::snapshot(inventory, named) {
        Err(error) if is_gone(&error) && knows_all(inventory) => return Ok(None),
        found => found?,
    };
    let SnapshotEntry { volume, snapshot } = entry;
    match confirm {
        Some(typed) if typed == snapshot.name => Ok(Some(entry)),
        Some(typed) => Err(SnapshotError::WrongConfirmation {
            typed: typed.to_owned(),
            name: snapshot.name.clone(),
        }),
        None => {
            let name = printable(&snapshot.name);
            let (of, size) = (printable(&volume.name), human_size(snapshot.size_bytes));
            Err(SnapshotError::NotConfirmed(format!(
                "deleting destroys what is in this snapshot:\n\n  snapshot  {name} ({size})\n  volume    {of}, which is not changed\n  id        {}\n\nIf Kubernetes made it, delete its VolumeSnapshot instead.\nNothing was changed. To delete it, spell out its name:\n\n  drivebay-agent snapshot delete {name} --confirm {name}",
                printable(&snapshot.id),
            )))
        }
    }
}

/// Whether every drive that may hold snapshots was read: those of a missing drive are not known.
fn knows_all(inventory: &InventoryUpdate) -> bool {
    let is_unread = |volume: &Volume| {
        matches!(
            volume.known_state(),
            Some(VolumeState::Missing | VolumeState::NotScanned)
        )
    };
    inventory.ready && !inventory.volumes.iter().any(is_unread)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_common::{cli::NOT_FOUND, terminal::Terminal};
    use drivebay_proto::agent::VolumeSnapshot;

    use super::*;
    use crate::{Cli, Command, SnapshotCommand};

    fn snapshot(name: &str) -> VolumeSnapshot {
        VolumeSnapshot {
            id: format!("uuid-{name}@n"),
            name: name.into(),
            size_bytes: 10 << 30,
            reserve_bytes: 2 << 30,
            state: "ready".into(),
            ..VolumeSnapshot::default()
        }
    }

    fn inventory() -> InventoryUpdate {
        let volume = |name: &str, snapshots: &[&str]| Volume {
            id: format!("uuid-{name}@n"),
            name: name.into(),
            state: "ready".into(),
            snapshots: snapshots.iter().map(|name| snapshot(name)).collect(),
            ..Volume::default()
        };
        InventoryUpdate {
            node_id: "node7".into(),
            ready: true,
            volumes: vec![
                volume("web", &["w-1"]),
                volume("db", &["d-1", "d-10"]),
                volume("log", &[]),
            ],
            ..InventoryUpdate::default()
        }
    }

    fn create_args(line: &[&str]) -> SnapshotCreateArgs {
        let words = ["x", "snapshot", "create", "db"].iter().chain(line);
        match Cli::parse_from(words).command {
            Command::Snapshot(SnapshotCommand::Create(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    fn list(inventory: &InventoryUpdate, line: &[&str]) -> Result<String, CommandError> {
        let look = Look {
            now: 0,
            terminal: Terminal::NONE,
        };
        match Cli::parse_from(["x"].iter().chain(line)).command {
            Command::Snapshots(args) | Command::Snapshot(SnapshotCommand::List(args)) => {
                render(inventory, &args, look)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_snapshot_is_named_after_its_volume_and_the_moment_and_the_name_fits() {
        assert_eq!(default_name("db", 1_795_831_201), "db-20261128-020001");
        assert_eq!(default_name("db", u64::MAX), "db-19700101-000000");
        let long = default_name(&"ü".repeat(64), 0);
        assert_eq!(long, format!("{}-19700101-000000", "ü".repeat(56)));
        assert!(validate::volume_name(&long).is_ok());
    }

    #[test]
    fn the_reserve_is_a_share_or_exactly_the_size_that_is_typed() {
        let inventory = inventory();
        let db = &inventory.volumes[1];
        let of = |line: &[&str]| {
            let made = request(db, &create_args(line), 0).unwrap();
            assert_eq!(made.volume_id, "uuid-db@n");
            (
                made.name,
                made.reserve_percent,
                made.least_reserve_bytes,
                made.most_reserve_bytes,
            )
        };
        assert_eq!(of(&[]), ("db-19700101-000000".into(), 0, 0, 0));
        let share = of(&["--name", "s", "--reserve", "50%"]);
        assert_eq!(share, ("s".into(), 50, 0, 0));
        let size = of(&["--name", "s", "--reserve", "1GiB"]);
        assert_eq!(size, ("s".into(), 0, 1 << 30, 1 << 30));
        for bad in ["", "a\nb"] {
            let error = request(db, &create_args(&["--name", bad]), 0).unwrap_err();
            assert_eq!(SnapshotError::from(error).code(), USAGE);
        }
    }

    #[test]
    fn what_was_taken_is_said_with_its_volume_sizes_and_id() {
        let inventory = inventory();
        let entry = name::snapshot(&inventory, "w-1").unwrap();
        assert_eq!(
            taken(entry, false),
            "snapshot w-1 is created: volume web, 10 GiB, reserve 2 GiB, id uuid-w-1@n\n\
             restore it with `drivebay-agent snapshot restore w-1 --name NAME`\n"
        );
        assert!(taken(entry, true).starts_with("snapshot w-1 exists already: "));
    }

    #[test]
    fn only_a_snapshot_whose_name_is_confirmed_is_deleted_and_a_repeat_succeeds() {
        let mut all = inventory();
        let id = |found: Option<SnapshotEntry<'_>>| found.map(|it| it.snapshot.id.clone());
        for named in ["d-1", "uuid-d-1", "uuid-d-1@n"] {
            let found = may_delete(&all, named, Some("d-1")).unwrap();
            assert_eq!(id(found).as_deref(), Some("uuid-d-1@n"));
            for confirm in [None, Some("d"), Some("")] {
                let error = may_delete(&all, named, confirm).unwrap_err();
                assert_eq!(error.code(), USAGE, "{error}");
            }
        }
        let text = may_delete(&all, "d-1", None).unwrap_err().to_string();
        assert!(text.contains("snapshot delete d-1 --confirm d-1"), "{text}");
        assert!(text.contains("  volume    db, which"), "{text}");
        // Gone, and another one begins so.
        all.volumes[1].snapshots.remove(0);
        assert!(may_delete(&all, "d-1", Some("d-1")).unwrap().is_none());
        assert_eq!(may_delete(&all, "d-1", None).unwrap_err().code(), USAGE);
        assert!(may_delete(&all, "none", None).unwrap().is_none());
        // Where a drive is missing, nobody knows whether it has one.
        all.volumes[0].state = "missing".into();
        let error = may_delete(&all, "none", None).unwrap_err();
        assert_eq!(error.code(), NOT_FOUND, "{error}");
    }

    #[test]
    fn snapshots_of_the_volumes_that_are_named_are_listed_and_an_empty_list_says_why() {
        let mut inventory = inventory();
        let text = list(&inventory, &["snapshots"]).unwrap();
        assert_eq!(
            text,
            "\
NAME  VOLUME    SIZE  AGE  RESERVE  USED%  STATE
d-1   db      10 GiB    -    2 GiB      -  ready
d-10  db      10 GiB    -    2 GiB      -  ready
w-1   web     10 GiB    -    2 GiB      -  ready
3 snapshots of 2 volumes: 3 ready; 6 GiB reserve
"
        );
        let of = |line: &[&str]| list(&inventory, line).unwrap();
        assert_eq!(of(&["snapshot", "ls", "web", "-o", "name"]), "w-1\n");
        assert_eq!(of(&["snapshots", "log"]), "none of 3 snapshots\n");
        assert_eq!(of(&["snapshots", "log", "--no-headers"]), "");
        assert_eq!(of(&["snapshots", "--no-headers"]).lines().count(), 3);
        let json: serde_json::Value =
            serde_json::from_str(&of(&["snapshots", "db", "-o", "json"])).unwrap();
        assert_eq!(
            (&json["node"], &json["ready"]),
            (&"node7".into(), &true.into())
        );
        assert_eq!(json["snapshots"][1]["name"], "d-10");
        assert_eq!(json["snapshots"][1]["volume_name"], "db");
        let yaml = of(&["snapshots", "db", "-o", "yaml"]);
        assert!(
            yaml.starts_with("node: node7\nready: true\nsnapshots:\n- id: uuid-d-1@n\n"),
            "{yaml}"
        );
        let error = list(&inventory, &["snapshots", "none"]).unwrap_err();
        assert_eq!(error.code(), NOT_FOUND, "{error}");
        inventory.volumes.clear();
        inventory.ready = false;
        assert_eq!(
            list(&inventory, &["snapshots"]).unwrap(),
            "no snapshots\n(the agent is still scanning its drives)\n"
        );
    }
}

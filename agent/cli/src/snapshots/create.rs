//! `snapshot create`: takes a snapshot of one volume, or of several at one moment.

use std::time::Duration;

use drivebay_common::{pick::Part, progress::waiting, units::count};
use drivebay_csi::{
    NewGroupSnapshot, NewSnapshot,
    validate::{self, InvalidRequest, MAX_STRING_BYTES},
};
use drivebay_proto::agent::{
    CreateGroupSnapshotRequest, CreateSnapshotRequest, InventoryUpdate, SnapshotGroup, Volume,
    VolumeSnapshot,
};
use drivebay_view::{
    snapshots::{ListedSnapshot, SnapshotEntry, entries, expiry, groups},
    unix_seconds,
};
use time::OffsetDateTime;

use super::{SnapshotError, SnapshotList};
use crate::{
    args::SnapshotCreateArgs,
    client::Client,
    name,
    table::{human_size, printable},
};

/// Limit of a snapshot, for which the volume's filesystem is frozen after pending writes.
const DEADLINE: Duration = Duration::from_secs(120);
/// Limit of a group, whose snapshots LVM creates one by one before the volumes are suspended.
const GROUP_DEADLINE: Duration = Duration::from_secs(600);

/// Takes a snapshot, or a group of them, and returns the text to print.
pub(crate) async fn create(args: &SnapshotCreateArgs) -> Result<String, SnapshotError> {
    let mut client = Client::connect(&args.show.socket.socket).await?;
    let inventory = client.inventory().await?;
    let typed = args.volumes.iter();
    let volumes = typed.map(|typed| name::volume(&inventory, typed, Part::Beginning));
    let volumes = volumes.collect::<Result<Vec<&Volume>, _>>()?;
    match volumes.as_slice() {
        [volume] => create_one(&mut client, volume, args).await,
        several => create_group(&mut client, &inventory, several, args).await,
    }
}

async fn create_one(
    client: &mut Client,
    volume: &Volume,
    args: &SnapshotCreateArgs,
) -> Result<String, SnapshotError> {
    let request = request(volume, args, unix_seconds())?;
    let what = format!("taking snapshot {}", printable(&request.name));
    let call = client.raw.create_snapshot(request);
    let answer = client.agent.answered_within(DEADLINE, call);
    let answer = waiting(&what, answer).await?.into_inner();
    let snapshot = answer.snapshot.filter(|_| answer.volume_id == volume.id);
    let snapshot = snapshot.ok_or_else(|| client.agent.senseless("no snapshot of the volume"))?;
    let is_there = volume.snapshots.iter().any(|one| one.id == snapshot.id);
    let entry = SnapshotEntry {
        volume,
        snapshot: &snapshot,
    };
    match args.show.output.document() {
        Some(document) => Ok(document.write(&ListedSnapshot::from(entry))?),
        None => Ok(taken(entry, is_there, unix_seconds())),
    }
}

async fn create_group(
    client: &mut Client,
    inventory: &InventoryUpdate,
    volumes: &[&Volume],
    args: &SnapshotCreateArgs,
) -> Result<String, SnapshotError> {
    let request = group_request(volumes, args, unix_seconds())?;
    let what = format!(
        "taking snapshots of {} as group {}",
        count(volumes.len(), "volume"),
        printable(&request.name)
    );
    let call = client.raw.create_group_snapshot(request);
    let answer = client.agent.answered_within(GROUP_DEADLINE, call);
    let answer = waiting(&what, answer).await?.into_inner();
    let senseless = |what: &'static str| client.agent.senseless(what);
    let group = answer.group.ok_or_else(|| senseless("no group"))?;
    let existing = groups(&entries(&inventory.volumes));
    let is_there = existing.iter().any(|entry| entry.group.id == group.id);
    let members = answer.members.into_iter().map(|member| {
        let mut all = volumes.iter();
        let volume = all.find(|volume| volume.id == member.volume_id)?;
        Some((*volume, member.snapshot?))
    });
    let members: Option<Vec<(&Volume, VolumeSnapshot)>> = members.collect();
    let members = members.ok_or_else(|| senseless("a group of other volumes"))?;
    let entries = members
        .iter()
        .map(|(volume, snapshot)| SnapshotEntry { volume, snapshot });
    let entries: Vec<SnapshotEntry<'_>> = entries.collect();
    match args.show.output.document() {
        Some(document) => Ok(document.write(&SnapshotList::new(inventory, entries))?),
        None => Ok(taken_group(&group, &entries, is_there, unix_seconds())),
    }
}

/// Returns the request. `now`: Unix time in seconds. Pure.
fn request(
    volume: &Volume,
    args: &SnapshotCreateArgs,
    now: u64,
) -> Result<CreateSnapshotRequest, InvalidRequest> {
    let requested = NewSnapshot {
        name: name_of(args, &volume.name, now)?,
        volume_id: volume.id.clone(),
        reserve: args.reserve,
        max_age: args.max_age.0,
    };
    Ok(requested.agent_request(&volume.id))
}

/// Returns the request for a group. `now`: Unix time in seconds. Pure.
fn group_request(
    volumes: &[&Volume],
    args: &SnapshotCreateArgs,
    now: u64,
) -> Result<CreateGroupSnapshotRequest, InvalidRequest> {
    let ids: Vec<String> = volumes.iter().map(|volume| volume.id.clone()).collect();
    let requested = NewGroupSnapshot {
        name: name_of(args, "group", now)?,
        volume_ids: ids.clone(),
        reserve: args.reserve,
        max_age: args.max_age.0,
    };
    Ok(requested.agent_request(ids))
}

/// Returns the typed name, or a default with this beginning.
fn name_of(args: &SnapshotCreateArgs, begins: &str, now: u64) -> Result<String, InvalidRequest> {
    match &args.name {
        Some(name) => Ok(validate::volume_name(name)?.to_owned()),
        None => Ok(default_name(begins, now)),
    }
}

/// Returns the volume's name, shortened if necessary, and the time in UTC: `db-20261128-020000`.
fn default_name(of: &str, now: u64) -> String {
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
    let kept = of.get(..of.floor_char_boundary(room));
    format!("{}{suffix}", kept.unwrap_or(of))
}

fn how(is_there: bool) -> &'static str {
    match is_there {
        true => "exists already",
        false => "is created",
    }
}

/// Returns volume, sizes and id.
fn describe(SnapshotEntry { volume, snapshot }: SnapshotEntry<'_>) -> String {
    printable(&format!(
        "volume {}, {}, reserve {}, id {}",
        volume.name,
        human_size(snapshot.size_bytes),
        human_size(snapshot.reserve_bytes),
        snapshot.id
    ))
}

/// Returns a message about the created snapshot, and the command to restore it. `now`: Unix time in seconds.
fn taken(entry: SnapshotEntry<'_>, is_there: bool, now: u64) -> String {
    let name = printable(&entry.snapshot.name);
    format!(
        "snapshot {name} {}: {}; {}\nrestore it with `drivebay-agent snapshot restore {name} --name NAME`\n",
        how(is_there),
        describe(entry),
        expiry(entry.snapshot, now)
    )
}

/// Returns a message about a group, all snapshots of which have one age limit.
fn taken_group(
    group: &SnapshotGroup,
    members: &[SnapshotEntry<'_>],
    is_there: bool,
    now: u64,
) -> String {
    let (name, id) = (printable(&group.name), printable(&group.id));
    let expiry = members.first().map(|one| expiry(one.snapshot, now));
    let expiry = expiry.map_or_else(String::new, |expiry| format!("; {expiry}"));
    let lines = members.iter().map(|one| {
        let snapshot = printable(&one.snapshot.name);
        format!("  {snapshot}: {}\n", describe(*one))
    });
    format!(
        "group {name} {}: {}, id {id}{expiry}\n{}restore one with `drivebay-agent snapshot restore SNAPSHOT --name NAME`\n",
        how(is_there),
        count(members.len(), "snapshot"),
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drivebay_common::cli::USAGE;

    use super::{
        super::samples::{in_group, inventory},
        *,
    };
    use crate::{Cli, Command, SnapshotCommand};

    fn create_args(line: &[&str]) -> SnapshotCreateArgs {
        let words = ["x", "snapshot", "create", "db"].iter().chain(line);
        match Cli::parse_from(words).command {
            Command::Snapshot(SnapshotCommand::Create(args)) => args,
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
        assert_eq!(of(&[]), ("db-19700101-000000".into(), 20, 0, 0));
        let share = of(&["--name", "s", "--reserve", "50%"]);
        assert_eq!(share, ("s".into(), 50, 0, 0));
        let size = of(&["--name", "s", "--reserve", "1GiB"]);
        assert_eq!(size, ("s".into(), 20, 1 << 30, 1 << 30));
        for bad in ["", "a\nb"] {
            let error = request(db, &create_args(&["--name", bad]), 0).unwrap_err();
            assert_eq!(SnapshotError::from(error).code(), USAGE);
        }
    }

    #[test]
    fn a_taken_snapshot_is_reported_with_its_volume_sizes_and_id() {
        let inventory = inventory();
        let entry = name::snapshot(&inventory, "w-1").unwrap();
        assert_eq!(
            taken(entry, false, 0),
            "snapshot w-1 is created: volume web, 10 GiB, reserve 2 GiB, id uuid-w-1@n; never expires\n\
             restore it with `drivebay-agent snapshot restore w-1 --name NAME`\n"
        );
        assert!(taken(entry, true, 0).starts_with("snapshot w-1 exists already: "));
    }

    #[test]
    fn an_age_limit_is_sent_as_it_is_typed_and_none_as_never() {
        let inventory = inventory();
        let db = &inventory.volumes[1];
        for (line, sent) in [
            (&["--max-age", "36h"][..], 36 * 3600),
            (&["--max-age", "none"], 0),
            (&[], 7 * 86_400),
        ] {
            let made = request(db, &create_args(line), 0).unwrap();
            assert_eq!(made.max_age_seconds, Some(sent), "{line:?}");
            let args = create_args(&[&["log"][..], line].concat());
            let made = group_request(&[db], &args, 0).unwrap();
            assert_eq!(made.max_age_seconds, Some(sent), "{line:?}");
        }
    }

    #[test]
    fn a_group_is_requested_of_all_volumes_and_named_after_the_moment() {
        let inventory = inventory();
        let volumes = [&inventory.volumes[1], &inventory.volumes[2]];
        let of = |line: &[&str]| group_request(&volumes, &create_args(line), 0).unwrap();
        let made = of(&["log"]);
        assert_eq!(made.name, "group-19700101-000000");
        assert_eq!(made.volume_ids, ["uuid-db@n", "uuid-log@n"]);
        assert_eq!(made.reserve_percent, 20);
        let made = of(&["log", "--name", "nightly", "--reserve", "1GiB"]);
        assert_eq!(made.name, "nightly");
        assert_eq!(
            (made.least_reserve_bytes, made.most_reserve_bytes),
            (1 << 30, 1 << 30)
        );
    }

    #[test]
    fn a_taken_group_is_reported_with_each_snapshot() {
        let mut inventory = inventory();
        in_group(&mut inventory, &["w-1", "d-1"], "nightly");
        for volume in &mut inventory.volumes {
            for snapshot in &mut volume.snapshots {
                snapshot.expires_at = 7 * 86_400;
            }
        }
        let members = ["w-1", "d-1"].map(|named| name::snapshot(&inventory, named).unwrap());
        let group = members[0].snapshot.group.as_ref().unwrap();
        assert_eq!(
            taken_group(group, &members, false, 3600),
            "group nightly is created: 2 snapshots, id uuid-nightly@n; expires in 6d23h\n  \
             w-1: volume web, 10 GiB, reserve 2 GiB, id uuid-w-1@n\n  \
             d-1: volume db, 10 GiB, reserve 2 GiB, id uuid-d-1@n\n\
             restore one with `drivebay-agent snapshot restore SNAPSHOT --name NAME`\n"
        );
    }
}

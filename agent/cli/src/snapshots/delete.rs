//! `snapshot delete`: of one snapshot, or of all of a group.

use std::path::Path;

use drivebay_common::{pick::PickError, units::count};
use drivebay_proto::{
    agent::{DeleteGroupSnapshotRequest, DeleteSnapshotRequest, InventoryUpdate, Volume},
    words::VolumeState,
};
use drivebay_view::snapshots::{GroupEntry, SnapshotEntry};

use super::SnapshotError;
use crate::{
    client::Client,
    manual::DELETE_DEADLINE,
    name::{self, SnapshotOrGroup},
    table::{human_size, printable},
};

/// Deletes the snapshot or group if `confirm` is its name, and returns the text to print. Errs with a preview if `confirm` is None.
pub(crate) async fn delete(
    socket: &Path,
    named: &str,
    confirm: Option<&str>,
) -> Result<String, SnapshotError> {
    let mut client = Client::connect(socket).await?;
    let inventory = client.inventory().await?;
    let what = match may_delete(&inventory, named, confirm)? {
        None => {
            return Ok(format!(
                "there is no snapshot or group {named:?}; nothing to delete\n"
            ));
        }
        Some(SnapshotOrGroup::Snapshot(entry)) => {
            let id = entry.snapshot.id.clone();
            let call = client.raw.delete_snapshot(DeleteSnapshotRequest { id });
            client.agent.answered_within(DELETE_DEADLINE, call).await?;
            format!("snapshot {} is deleted", printable(&entry.snapshot.name))
        }
        Some(SnapshotOrGroup::Group(entry)) => {
            let id = entry.group.id.clone();
            let request = DeleteGroupSnapshotRequest { id };
            let call = client.raw.delete_group_snapshot(request);
            client.agent.answered_within(DELETE_DEADLINE, call).await?;
            let (name, many) = (printable(&entry.group.name), entry.members.len());
            format!("group {name} is deleted, {}", count(many, "snapshot"))
        }
    };
    Ok(format!(
        "{what}; its space is being erased, and is offered again afterwards\n"
    ))
}

/// Returns the snapshot or group to delete; None if there is certainly none of this name. Errs unless `confirm` is its full name, and for a
/// member of a group. Pure.
fn may_delete<'a>(
    inventory: &'a InventoryUpdate,
    named: &str,
    confirm: Option<&str>,
) -> Result<Option<SnapshotOrGroup<'a>>, SnapshotError> {
    let is_gone = |error: &PickError| match error {
        PickError::None { .. } => true,
        // A confirmed name is typed in full: the command is repeated, and the snapshot is deleted already.
        PickError::OnlyBeginning { .. } => confirm == Some(named),
        PickError::Several { .. } => false,
    };
    let target = match name::snapshot_or_group(inventory, named) {
        Err(error) if is_gone(&error) && knows_all(inventory) => return Ok(None),
        picked => picked?,
    };
    let (name, shown) = match &target {
        SnapshotOrGroup::Snapshot(entry) => {
            let name = &entry.snapshot.name;
            if let Some(group) = &entry.snapshot.group {
                return Err(SnapshotError::Member {
                    name: printable(name),
                    group: printable(&group.name),
                });
            }
            (name, show(*entry))
        }
        SnapshotOrGroup::Group(entry) => (&entry.group.name, show_group(entry)),
    };
    match confirm {
        Some(typed) if typed == name => Ok(Some(target)),
        Some(typed) => Err(SnapshotError::WrongConfirmation {
            typed: typed.to_owned(),
            name: name.clone(),
        }),
        None => {
            let name = printable(name);
            Err(SnapshotError::NotConfirmed(format!(
                "{shown}\nNothing was changed. To delete it, spell out its name:\n\n  drivebay-agent snapshot delete {name} --confirm {name}"
            )))
        }
    }
}

fn show(SnapshotEntry { volume, snapshot }: SnapshotEntry<'_>) -> String {
    let (name, size) = (printable(&snapshot.name), human_size(snapshot.size_bytes));
    let (of, id) = (printable(&volume.name), printable(&snapshot.id));
    format!(
        "deleting destroys what is in this snapshot:\n\n  snapshot  {name} ({size})\n  volume    {of}, which is not changed\n  id        {id}\n\nIf Kubernetes made it, delete its VolumeSnapshot instead."
    )
}

fn show_group(entry: &GroupEntry<'_>) -> String {
    let members = entry.members.iter().map(|one| {
        let (name, of) = (printable(&one.snapshot.name), printable(&one.volume.name));
        let size = human_size(one.snapshot.size_bytes);
        format!("  snapshot  {name} ({size}), of volume {of}, which is not changed\n")
    });
    let (name, id) = (printable(&entry.group.name), printable(&entry.group.id));
    format!(
        "deleting destroys what is in the snapshots of this group:\n\n  group     {name}\n{}  id        {id}\n\nIf Kubernetes made it, delete its VolumeGroupSnapshot instead.",
        members.collect::<String>()
    )
}

/// True if every drive that may hold snapshots was read: the agent is ready, and no volume is missing or not scanned.
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
    use drivebay_common::cli::{NOT_FOUND, USAGE};

    use super::{
        super::samples::{in_group, inventory},
        *,
    };

    fn id(target: Option<SnapshotOrGroup<'_>>) -> Option<String> {
        target.map(|it| it.names().id.to_owned())
    }

    #[test]
    fn only_a_snapshot_whose_name_is_confirmed_is_deleted_and_a_repeat_succeeds() {
        let mut all = inventory();
        for named in ["d-1", "uuid-d-1", "uuid-d-1@n"] {
            let target = may_delete(&all, named, Some("d-1")).unwrap();
            assert_eq!(id(target).as_deref(), Some("uuid-d-1@n"));
            for confirm in [None, Some("d"), Some("")] {
                let error = may_delete(&all, named, confirm).unwrap_err();
                assert_eq!(error.code(), USAGE, "{error}");
            }
        }
        let text = may_delete(&all, "d-1", None).unwrap_err().to_string();
        assert!(text.contains("snapshot delete d-1 --confirm d-1"), "{text}");
        assert!(text.contains("  volume    db, which"), "{text}");
        // Deleted, and its name is a prefix of another one.
        all.volumes[1].snapshots.remove(0);
        assert!(may_delete(&all, "d-1", Some("d-1")).unwrap().is_none());
        assert_eq!(may_delete(&all, "d-1", None).unwrap_err().code(), USAGE);
        assert!(may_delete(&all, "none", None).unwrap().is_none());
        // A missing drive may hold it.
        all.volumes[0].state = "missing".into();
        let error = may_delete(&all, "none", None).unwrap_err();
        assert_eq!(error.code(), NOT_FOUND, "{error}");
    }

    #[test]
    fn a_group_is_deleted_by_its_confirmed_name_and_none_of_its_snapshots_alone() {
        let mut all = inventory();
        in_group(&mut all, &["w-1", "d-1"], "nightly");
        for named in ["nightly", "uuid-nightly", "uuid-nightly@n"] {
            let target = may_delete(&all, named, Some("nightly")).unwrap();
            assert_eq!(id(target).as_deref(), Some("uuid-nightly@n"));
            for confirm in [None, Some("night"), Some("w-1")] {
                let error = may_delete(&all, named, confirm).unwrap_err();
                assert_eq!(error.code(), USAGE, "{error}");
            }
        }
        let text = may_delete(&all, "nightly", None).unwrap_err().to_string();
        let shown = "  group     nightly\n  snapshot  d-1 (10 GiB), of volume db, which is not changed\n  snapshot  w-1 (10 GiB), of volume web";
        assert!(text.contains(shown), "{text}");
        let command = "snapshot delete nightly --confirm nightly";
        assert!(text.ends_with(command), "{text}");
        for named in ["w-1", "uuid-w-1@n"] {
            let error = may_delete(&all, named, Some("w-1")).unwrap_err();
            assert_eq!(error.code(), USAGE, "{error}");
            let shows = "`drivebay-agent snapshot delete nightly` shows";
            assert!(error.to_string().contains(shows), "{error}");
        }
        let alone = may_delete(&all, "d-10", Some("d-10")).unwrap();
        assert_eq!(id(alone).as_deref(), Some("uuid-d-10@n"));
        let gone = inventory();
        let repeated = may_delete(&gone, "nightly", Some("nightly")).unwrap();
        assert!(repeated.is_none());
    }
}

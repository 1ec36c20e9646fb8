//! `drive adopt`: assigns another node's drive to this node, on an operator's explicit request.

use uuid::Uuid;

use super::{LAYOUT_DEADLINE, VolumeError, Volumes, guard::Key};
use crate::state::LastKnown;
use drivebay_layout::jobs::Adopt;
use drivebay_model::{
    Contents, Drive, DriveId, DriveRef, DriveState, Label, Layout, RejectCode, Snapshot,
};
use drivebay_worker::Slot;

/// Returns the label of a drive that may be adopted, or why it may not be. Pure; the worker checks again before it
/// writes.
fn adoptable(drive: &Drive) -> Result<&Label, String> {
    let contents = drive.contents.as_ref();
    let elsewhere = |code| code == RejectCode::OursElsewhere;
    if !drive.rejects.iter().any(|reject| elsewhere(reject.code)) {
        return Err(format!(
            "it is {} here and carries no label of another node",
            drive.state
        ));
    }
    // LVs that are active here (the drive was another node's on this very host) are on the VG that is adopted.
    let own_lvs = contents.is_some_and(|contents| contents.layout == Layout::Lvm)
        && drive.facts.holders.iter().all(|holder| {
            let uuid = holder.dm_uuid.as_deref();
            uuid.is_some_and(|uuid| uuid.starts_with("LVM-"))
        });
    // Reasons that only show that a drive is used do not matter: nothing is claimed here.
    let other: Vec<String> = drive
        .rejects
        .iter()
        .filter(|reject| {
            let held = matches!(reject.code, RejectCode::Holders | RejectCode::Busy);
            !(own_lvs && held)
        })
        .filter(|reject| {
            !matches!(
                reject.code,
                RejectCode::OursElsewhere
                    | RejectCode::HasPartitions
                    | RejectCode::NotSelected
                    | RejectCode::AmbiguousClass
                    | RejectCode::Removable
            )
        })
        .map(|reject| format!("{}: {}", reject.code, reject.detail))
        .collect();
    if !other.is_empty() {
        return Err(other.join("; "));
    }
    contents
        .map(|contents| &contents.label)
        .ok_or_else(|| "its label has not been read; rescan".to_owned())
}

/// Returns another drive that is not missing and has this label, or had it when it was read last: with two such drives of this node,
/// neither can be used. Pure.
fn other_with_label<'a>(
    snapshot: &'a Snapshot,
    last_known: &LastKnown,
    drive: &Drive,
    label: Uuid,
) -> Option<&'a DriveId> {
    let mut drives = snapshot.drives.values();
    let other = drives.find(|one| {
        let is_other = one.id != drive.id && one.state != DriveState::Missing;
        let read = one.contents.as_ref().map(|now| now.label.drive_uuid);
        let before = last_known.drives.get(&one.id);
        is_other && read.or(before.map(|before| before.drive_uuid)) == Some(label)
    });
    Some(&other?.id)
}

impl Volumes {
    /// Assigns a drive with another node's label to this node. Returns its contents.
    pub async fn adopt(&self, name: &str, confirm: &str) -> Result<Contents, VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = super::wipe::named(&snapshot, name)?;
        if confirm != drive.id.0 {
            return Err(VolumeError::Invalid {
                field: "confirm",
                why: format!(
                    "adopting {name} takes it from the node that its label names; spell out its identity to go on: {}",
                    drive.id
                ),
            });
        }
        let refused = |why| VolumeError::NotAdopted {
            drive: drive.id.clone(),
            why,
        };
        let from = adoptable(drive).map_err(refused)?.clone();
        let (last_known, _) = self.node.inventory().remembered();
        if let Some(other) = other_with_label(&snapshot, &last_known, drive, from.drive_uuid) {
            return Err(refused(format!(
                "its label is also that of drive {other}: one is a copy of the other; detach the one that is out of date"
            )));
        }
        let config = self.node.config();
        tracing::warn!(
            drive = %drive.id, cluster = %from.cluster, node = %from.node,
            "drive adoption requested by operator; it belonged to this cluster and node"
        );
        let job = Adopt {
            drive: DriveRef::from(&drive.facts),
            from,
            cluster: config.cluster.clone(),
            node: config.node_id.clone(),
        };
        let (key, id) = (Key::Drive(drive.id.clone()), drive.id.clone());
        self.changing(key, &format!("drive {id}"), |this| async move {
            let done = this
                .node
                .run((&id, Slot::Foreground), job, LAYOUT_DEADLINE)
                .await?;
            Ok(done.contents)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::tests::rig;
    use drivebay_model::{Reject, samples};

    fn drive(codes: &[RejectCode]) -> Drive {
        let contents = samples::contents(1, 1, vec![], 0);
        let mut drive = samples::drive("sda", DriveState::Rejected, Some(contents));
        drive.rejects = codes
            .iter()
            .map(|&code| Reject {
                code,
                detail: "x".into(),
            })
            .collect();
        drive
    }

    #[tokio::test]
    async fn a_drive_whose_label_another_one_has_too_is_not_adopted() {
        let rig = rig("exit 1").await;
        let refused = async |drive: &str| {
            let id = samples::facts(drive).id.0;
            let adopted = rig.volumes.adopt(&id, &id).await;
            matches!(adopted, Err(VolumeError::NotAdopted { .. }))
        };
        let put = |name: &str, label| {
            let mut drive = drive(&[RejectCode::OursElsewhere]);
            drive.facts = samples::facts(name);
            drive.id = drive.facts.id.clone();
            drive.contents = Some(samples::contents(label, 1, vec![], 0));
            let id = drive.id.clone();
            rig.inventory
                .update(|state| state.drives.insert(id, drive.into()));
        };
        put("sda", 1);
        // The request reaches its worker, which dies.
        assert!(!refused("sda").await);
        put("sdb", 1);
        assert!(refused("sda").await && refused("sdb").await);
        put("sdb", 2);
        assert!(!refused("sda").await);
        // One of this node that gives no answer now may have it still.
        let last_known = crate::state::KnownDrive {
            facts: samples::facts("sdb"),
            class: String::new(),
            usable_bytes: 0,
            layout: Layout::Partition,
            drive_uuid: Uuid::from_u128(1),
            volumes: Vec::new(),
            vanished: Vec::new(),
            retired: false,
            last_seen: 0,
        };
        let silent = samples::drive("sdb", DriveState::Unprobed, None);
        rig.inventory.update(|state| {
            let id = silent.id.clone();
            state.remembered.drives.insert(id.clone(), last_known);
            state.drives.insert(id, silent.into());
        });
        assert!(refused("sda").await);
        rig.end().await;
    }

    #[test]
    fn only_a_drive_with_another_nodes_label_and_no_other_trouble_is_adopted() {
        use RejectCode as Code;
        for (codes, may) in [
            (&[][..], false),
            (&[Code::LvmPv], false),
            (&[Code::OursElsewhere], true),
            (&[Code::OursElsewhere, Code::NotSelected], true),
            (&[Code::OursElsewhere, Code::DuplicateIdentity], false),
            (&[Code::OursElsewhere, Code::Mounted], false),
            (&[Code::OursElsewhere, Code::LvmPv], false),
            (&[Code::OursElsewhere, Code::Filesystem], false),
            (&[Code::OursElsewhere, Code::OursDamaged], false),
        ] {
            assert_eq!(adoptable(&drive(codes)).is_ok(), may, "{codes:?}");
        }
        let held = [Code::OursElsewhere, Code::Holders, Code::Busy];
        assert!(adoptable(&drive(&held)).is_err());
        let mut active = drive(&held);
        if let Some(contents) = &mut active.contents {
            contents.layout = Layout::Lvm;
        }
        for (uuid, may) in [
            (Some("LVM-x"), true),
            (Some("CRYPT-x"), false),
            (None, false),
        ] {
            active.facts.holders = vec![drivebay_model::drive::Holder {
                held: "sda".into(),
                name: "dm-0".into(),
                dm_uuid: uuid.map(str::to_owned),
            }];
            assert_eq!(adoptable(&active).is_ok(), may, "{uuid:?}");
        }
        let mut unread = drive(&[Code::OursElsewhere]);
        unread.contents = None;
        assert!(adoptable(&unread).is_err());
    }
}

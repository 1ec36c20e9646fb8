//! Operations that would lose a snapshot, or that are impossible while there is one, are refused with its name.

use drivebay_hwtests::{MIB, csi, lab::LabRig, node::Placed};
use drivebay_proto::agent::{MoveVolumesRequest, Volume};
use tonic::{Code, Status};

use super::helpers::{client, delete, delete_snapshot, lab, nothing_is_left, snapshot, volume};

const NAME: &str = "kept-by-a-person";

fn names_the_snapshot<T: std::fmt::Debug>(what: &str, answer: Result<T, Status>) {
    let refused = answer.expect_err(what);
    assert_eq!(
        refused.code(),
        Code::FailedPrecondition,
        "{what}: {refused}"
    );
    assert!(refused.message().contains(NAME), "{what}: {refused}");
}

async fn comparable(lab: &LabRig, of: &Placed) -> Volume {
    let mut listed = lab.volume_of(&of.id).await.expect("it is listed");
    // The used part of a reserve is counted periodically.
    for snapshot in &mut listed.snapshots {
        snapshot.used_bytes = None;
    }
    listed.usage = None;
    listed
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_volume_with_a_snapshot_is_neither_deleted_nor_expanded_nor_moved() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::block();
    let first = volume(lab, "kept-first", 32 * MIB, &how).await;
    let other = volume(lab, "kept-other", 16 * MIB, &how).await;
    let taken = snapshot(lab, NAME, &first, &[]).await;
    let before = comparable(lab, &first).await;
    assert_eq!(before.snapshots.len(), 1, "{before:?}");
    assert_eq!(before.snapshots[0].name, NAME);
    assert_eq!(before.snapshots[0].id, taken.snapshot_id);

    names_the_snapshot("delete", lab.csi.delete(&first.id).await);
    names_the_snapshot("expand", lab.csi.expand(&first.id, 64 * MIB, &how).await);
    let mover = async |request: MoveVolumesRequest| {
        let request = MoveVolumesRequest {
            by: "ann".to_owned(),
            ..request
        };
        client(lab).await.move_volumes(request).await
    };
    let alone = MoveVolumesRequest {
        volume_id: first.id.clone(),
        ..Default::default()
    };
    names_the_snapshot("move", mover(alone).await);
    let with_its_drive = MoveVolumesRequest {
        drive: before.drive.clone(),
        ..Default::default()
    };
    names_the_snapshot("evacuate", mover(with_its_drive).await);
    // The name is in use.
    let twice = lab.csi.create_snapshot(NAME, &other.id, &[]).await;
    assert_eq!(twice.unwrap_err().code(), Code::AlreadyExists);

    assert_eq!(comparable(lab, &first).await, before, "nothing was changed");
    let drive = lab.drive_where(|drive| drive.id == before.drive).await;
    assert!(drive.unwrap().cordon.is_none(), "it is cordoned");
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    let listed = lab.csi.list_snapshots(&first.id).await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    lab.csi.expand(&first.id, 64 * MIB, &how).await.unwrap();
    for volume in [&first, &other] {
        delete(lab, volume).await;
    }
    nothing_is_left(lab).await;
}

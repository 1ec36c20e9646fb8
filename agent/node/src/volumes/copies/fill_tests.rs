//! Tests of `fill`: reasons for which a copy waits before a byte is read.

use super::*;
use crate::keeper::tests::rig;
use drivebay_model::{DriveState, RecordState, samples};

#[tokio::test]
async fn a_copy_whose_source_drive_is_pulled_waits_and_one_whose_snapshot_is_gone_is_given_up() {
    let rig = rig("exit 1").await;
    let source = samples::placed(1, RecordState::Block);
    let mut on_source = samples::contents(8, 1, vec![source], 0);
    on_source.layout = Layout::Lvm;
    let source = samples::drive("sda", DriveState::Claimed, Some(on_source));
    let mut copy = samples::placed(2, RecordState::Block);
    copy.record.place = PlaceState::Incoming {
        generation: 1,
        from: Peer {
            label: Uuid::from_u128(8),
            drive: source.id.clone(),
        },
    };
    CopySource::Snapshot(Uuid::from_u128(10)).keep(&mut copy.record.parameters);
    let on_target = samples::contents(9, 1, vec![copy], 0);
    let target = samples::drive("sdb", DriveState::Claimed, Some(on_target));
    rig.scanned([source.clone(), target]);
    let uuid = Uuid::from_u128(2);
    let gone = rig.volumes.fill(uuid).await;
    assert!(matches!(gone, Err(FillError::Never(_))), "{gone:?}");
    rig.inventory
        .update(|state| state.drives.remove(&source.id));
    let waits = rig.volumes.fill(uuid).await;
    let Err(FillError::NotNow(why)) = waits else {
        panic!("{waits:?}");
    };
    assert!(why.contains("wwn-sda"), "{why}");
    rig.end().await;
}

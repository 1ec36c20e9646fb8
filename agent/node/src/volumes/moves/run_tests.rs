//! Tests of `run`: the task that executes moves ends while one of them goes on.

use super::*;
use crate::{
    keeper::tests::{answers, rig},
    state::moves::MoveRecord,
};
use drivebay_layout::jobs::{CopyError, CopyProgress};
use drivebay_model::{DriveState, Peer, PlaceState, RecordState, samples};

#[tokio::test]
async fn an_agent_that_stops_waits_for_a_move_that_is_being_completed() {
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("written");
    let copied = Ok::<_, CopyError>(CopyProgress {
        done_bytes: 1 << 30,
        total_bytes: 1 << 30,
        written_bytes: 0,
        unreadable: Vec::new(),
        source_writes: None,
    });
    // Answers the copy, and writes the source's record slowly.
    let worker = format!(
        "case $2 in background) {};; esac; sleep 1; touch {}; exit 1",
        answers(dir.path(), &copied),
        written.display()
    );
    let rig = rig(&worker).await;
    rig.volumes.load_moves().await;
    let mut source = samples::placed(1, RecordState::Block);
    (source.device, source.dev) = (None, None);
    let uuid = source.record.uuid;
    let from = samples::contents(8, 1, vec![source.clone()], 0);
    let from = samples::drive("sda", DriveState::Claimed, Some(from));
    let mut target = source;
    target.record.place = PlaceState::Incoming {
        generation: 2,
        from: Peer {
            label: Uuid::from_u128(8),
            drive: from.id.clone(),
        },
    };
    let to = samples::contents(9, 1, vec![target], 0);
    let to = samples::drive("sdb", DriveState::Claimed, Some(to));
    let record = MoveRecord::sample(from.id.clone(), to.id.clone(), MoveProgress::Requested);
    rig.scanned([from, to]);
    let requested = rig.volumes.save_moves(|all| {
        all.insert(uuid, record);
    });
    requested.await.unwrap();
    let stop = CancellationToken::new();
    let moving = {
        let (volumes, stop) = (rig.volumes.clone(), stop.clone());
        tokio::spawn(async move { volumes.move_all(stop).await })
    };
    let completing = async {
        let moves = &rig.volumes.inner.moves;
        while moves.running(uuid).phase != MovePhase::Completing {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), completing)
        .await
        .unwrap();
    stop.cancel();
    moving.await.unwrap();
    assert!(rig.volumes.drain(Duration::from_secs(20)).await);
    assert!(written.exists(), "it was cut off within a change");
    rig.end().await;
}

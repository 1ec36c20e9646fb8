//! Volumes leave failing drives: unreadable blocks, and targets that refuse writes or do not respond.

use std::{fs, path::Path, time::Duration};

use drivebay_hwtests::{MIB, need, tools, wait};
use drivebay_proto::agent::CancelMovesRequest;

use super::{
    failing::{Failing, SECTOR, id, text},
    moves::{client, lives_on, move_unless_unreadable, moves, read_letter, use_volume},
};

/// Longer than two attempts take, and the agent's queries of a filesystem meanwhile.
const LIMIT: Duration = Duration::from_secs(150);

/// Returns a volume in use, with a file `letter`.
async fn kept(fs_type: &str, moves: &str) -> Failing {
    let it = Failing::of(fs_type, "kept", moves).await;
    fs::write(it.volume.target.join("letter"), "kept").unwrap();
    it
}

impl Failing {
    async fn move_away(&self) {
        move_unless_unreadable(&self.rig, &self.volume.id, &id(&self.to), true)
            .await
            .unwrap();
    }

    /// Waits until the move is blocked, with these words as its reason.
    async fn stops(&self, words: &[&str]) {
        let stopped = wait::poll_async(LIMIT, async || {
            let reason = moves(&self.rig).await.into_iter().next()?.waits_for;
            words.iter().all(|word| reason.contains(word)).then_some(())
        })
        .await;
        let now = moves(&self.rig).await;
        assert!(stopped.is_some(), "not {words:?}: {now:?}");
        let now = self.rig.volume_of(&self.volume.id).await.unwrap();
        assert_eq!((&now.drive, now.state.as_str()), (&id(&self.from), "ready"));
    }

    /// Cancels the move, and waits until nothing of it is left.
    async fn cancel(&self) {
        let request = CancelMovesRequest {
            volume_id: self.volume.id.clone(),
            by: "ann".into(),
            ..Default::default()
        };
        let response = client(&self.rig).await.cancel_moves(request).await;
        response.unwrap();
        wait::until_async(LIMIT, "its copy is erased", async || {
            let now = self.rig.volume_of(&self.volume.id).await?;
            (now.places.is_empty() && moves(&self.rig).await.is_empty()).then_some(())
        })
        .await;
    }
}

fn write_file(path: &Path, word: &str) {
    fs::write(path, text(word)).unwrap();
}

#[tokio::test]
async fn bad_sectors_in_free_space_do_not_stop_a_move_and_under_a_file_they_do_until_it_is_deleted()
{
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    stops_for_a_file_alone("ext4").await;
}

#[tokio::test]
async fn bad_sectors_in_free_space_of_an_xfs_do_not_stop_a_move() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_logprint", fs "xfs");
    stops_for_a_file_alone("xfs").await;
}

#[tokio::test]
async fn bad_sectors_in_free_space_of_a_btrfs_do_not_stop_a_move() {
    need!(root, loop, tool "mkfs.btrfs", fs "btrfs");
    stops_for_a_file_alone("btrfs").await;
}

async fn stops_for_a_file_alone(fs_type: &str) {
    let it = kept(fs_type, "").await;
    let target = &it.volume.target;
    write_file(&target.join("affected"), "affected");
    write_file(&target.join("deleted"), "deleted");
    let sync = || tools::must("sync", &["-f", target.to_str().unwrap()]);
    sync();
    let (file, free) = (it.place_of("affected", 33), it.place_of("deleted", 33));
    fs::remove_file(target.join("deleted")).unwrap();
    sync();
    it.rig.leave_volume(&it.volume).await;
    it.from.spoil(file..file + SECTOR);
    it.from.spoil_also(free..free + SECTOR);

    it.move_away().await;
    it.stops(&["4 KiB of drive", "in 1 range", "unreadable"])
        .await;
    // It is used in place, and unreadable blocks return errors.
    use_volume(&it.rig, &it.volume).await;
    assert_eq!(fs::read(target.join("letter")).unwrap(), b"kept");
    assert!(fs::read(target.join("affected")).is_err());
    fs::remove_file(target.join("affected")).unwrap();
    sync();
    it.rig.leave_volume(&it.volume).await;

    // Requested again, it continues: no further data is lost.
    it.cancel().await;
    it.move_away().await;
    lives_on(&it.rig, &it.volume.id, &id(&it.to)).await;
    read_letter(&it.rig, &it.volume, "kept").await;
}

#[tokio::test]
async fn a_target_that_refuses_writes_leaves_the_volume_where_it_is() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let it = kept("ext4", "").await;
    it.rig.leave_volume(&it.volume).await;
    // In the middle of the copy: neither the label nor the ends of a place.
    it.to.refuse_writes(30 * MIB..31 * MIB);
    it.move_away().await;
    it.stops(&["writing a copy"]).await;
    read_letter(&it.rig, &it.volume, "kept").await;
    it.to.refuse_writes(0..0);
    it.cancel().await;
    read_letter(&it.rig, &it.volume, "kept").await;
}

#[tokio::test]
async fn a_target_that_does_not_answer_keeps_no_pod_from_its_volume() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let it = kept("ext4", "[moves]\nmax-bytes-per-second = '8MiB'\n").await;
    it.rig.leave_volume(&it.volume).await;
    it.move_away().await;
    wait::until_async(LIMIT, "it is copied", async || {
        (moves(&it.rig).await.first()?.done_bytes > 0).then_some(())
    })
    .await;
    it.to.hang();
    wait::until_async(LIMIT, "a request hangs", async || {
        (it.to.hanging() > 0).then_some(())
    })
    .await;
    let began = std::time::Instant::now();
    read_letter(&it.rig, &it.volume, "kept").await;
    assert!(began.elapsed() < Duration::from_secs(20));
    it.to.resume();
    it.cancel().await;
    read_letter(&it.rig, &it.volume, "kept").await;
}

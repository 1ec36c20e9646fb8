//! Contents of a snapshot: its volume at that time, while a writer continues, for each kind of volume.

use drivebay_hwtests::{MIB, csi, lab::Writer, long};

use super::{
    helpers::{
        copy, delete, delete_snapshot, fs_uuid, lab, lines, nothing_is_left, snapshot, synced,
        total, volume,
    },
    relay::{Relay, held},
};

/// A snapshot of a filesystem is restored to a volume of twice the size, which is mounted beside the first one.
async fn of_a_filesystem(fs_type: &str, bytes: u64) {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::mount(fs_type);
    let first = volume(lab, &format!("{fs_type}-first"), bytes, &how).await;
    lab.serve(&first).await;
    let before = lab.put_letter(&first, 512);
    let writer = Writer::start(lab.guest(), &format!("writer-{fs_type}"), &first.target);
    let synced = synced(&writer);
    let name = format!("{fs_type}-snapshot");
    // The writer continues meanwhile.
    let taken = snapshot(lab, &name, &first, &[("reserve", "50%")]).await;
    let later = lab.put_letter(&first, 512);
    assert_ne!(later, before);
    writer.advances();
    let again = snapshot(lab, &name, &first, &[]).await;
    assert_eq!(again.snapshot_id, taken.snapshot_id, "the same again");
    let listed = lab.csi.list_snapshots(&first.id).await.unwrap();
    let ids: Vec<&str> = listed.iter().map(|one| one.snapshot_id.as_str()).collect();
    assert_eq!(ids, [taken.snapshot_id.as_str()]);

    let source = csi::from_snapshot(&taken.snapshot_id);
    let second = copy(lab, &format!("{fs_type}-second"), 2 * bytes, &how, &source).await;
    lab.serve(&second).await;
    assert_eq!(lab.letter(&second), before);
    assert_eq!(lab.letter(&first), later);
    lines(lab, &second.target, synced);
    assert_ne!(fs_uuid(lab, &first).await, fs_uuid(lab, &second).await);
    let (small, large) = (total(lab, &first).await, total(lab, &second).await);
    assert!(large > small, "{large} of a larger volume, and {small}");
    // The copy and the source are independent.
    let own = lab.put_letter(&second, 64);
    lab.leave_volume(&second).await;
    lab.serve(&second).await;
    assert_eq!(lab.letter(&second), own);
    assert_eq!(lab.letter(&first), later);
    writer.finish();
    delete(lab, &second).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_ext4_holds_it_while_a_writer_goes_on_and_is_mounted_beside_it() {
    of_a_filesystem("ext4", 64 * MIB).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_xfs_holds_it_while_a_writer_goes_on_and_is_mounted_beside_it() {
    long!();
    of_a_filesystem("xfs", 320 * MIB).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_btrfs_holds_it_while_a_writer_goes_on_and_is_mounted_beside_it() {
    long!();
    of_a_filesystem("btrfs", 320 * MIB).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_of_a_raw_volume_has_every_record_that_was_synced_before_it() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let guest = lab.guest();
    let how = csi::block();
    let first = volume(lab, "raw-first", 64 * MIB, &how).await;
    lab.serve(&first).await;
    let relay = Relay::start(guest, "records", &[&first]);
    let before = relay.synced();
    let taken = snapshot(lab, "raw-snapshot", &first, &[("reserve", "100%")]).await;
    let after = relay.synced();
    relay.advances();
    let source = csi::from_snapshot(&taken.snapshot_id);
    let second = copy(lab, "raw-second", 64 * MIB, &how, &source).await;
    lab.serve(&second).await;
    let held = held(guest, &second);
    // One more may have been written, and not recorded yet.
    assert!(
        (before..=after + 1).contains(&held),
        "the last record is {held}; {before} before and {after} after"
    );
    relay.finish();
    delete(lab, &second).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}

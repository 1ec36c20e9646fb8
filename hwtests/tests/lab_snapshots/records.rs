//! Many snapshots under load: each has all records that were synced before it.

use drivebay_hwtests::{
    MIB, csi,
    lab::{Writer, progress::print_progress},
};

use super::helpers::{
    copy, delete, delete_snapshot, lab, lines, nothing_is_left, snapshot, synced, volume,
};

fn count() -> usize {
    match std::env::var_os("DRIVEBAY_LAB_LONG") {
        Some(_) => 200,
        None => 2,
    }
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn every_line_that_was_synced_before_a_snapshot_is_in_the_volume_made_of_it() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::mount("ext4");
    let first = volume(lab, "written", 32 * MIB, &how).await;
    lab.serve(&first).await;
    let writer = Writer::start(lab.guest(), "writer-of-lines", &first.target);
    for number in 0..count() {
        let before = synced(&writer);
        let name = format!("written-{number}");
        let taken = snapshot(lab, &name, &first, &[("reserve", "100%")]).await;
        let after = writer.lines();
        let source = csi::from_snapshot(&taken.snapshot_id);
        let second = copy(lab, &name, first.bytes, &how, &source).await;
        lab.serve(&second).await;
        let held = lines(lab, &second.target, before);
        assert!(
            held <= after,
            "{held} lines, and {after} were there after it"
        );
        delete(lab, &second).await;
        delete_snapshot(lab, &taken.snapshot_id).await;
        if number % 20 == 19 {
            print_progress(format!("{} snapshots under load", number + 1));
        }
    }
    let written = writer.finish();
    print_progress(format!(
        "{} snapshots while {written} lines were synced",
        count()
    ));
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}

//! A drive that hangs while a snapshot on it is created, restored or deleted: calls for other drives do not wait, and the same call,
//! repeated when the drive responds again, succeeds.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    MIB, csi,
    lab::{LabRig, NbdDrive, Writer, letters::persistently, progress::print_progress},
    long,
    node::Placed,
};
use drivebay_proto::csi::VolumeContentSource;
use tonic::Status;

use super::{
    helpers::{
        delete, delete_snapshot, digest, nothing_is_left, nothing_is_suspended, snapshot, synced,
    },
    stand::{stand, try_copy},
};

/// Time limit of a call for another drive: a few seconds in an emulated machine, ten times that in a busy one.
const LIMIT: Duration = Duration::from_secs(60);
/// Number of equally spaced moments of a call at which the drive hangs.
const MOMENTS: u32 = 6;
const BYTES: u64 = 64 * MIB;

/// Makes a call, hangs the drive `after` its start, and runs `beside` meanwhile. False if the call did not wait for the hung drive.
async fn hung<T: Send + 'static>(
    nbd: &NbdDrive,
    after: Duration,
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
    beside: &impl AsyncFn(),
) -> bool {
    let call = tokio::spawn(call);
    tokio::time::sleep(after).await;
    nbd.hang();
    let met = !call.is_finished() && nbd.wait_pending(1, LIMIT);
    if met {
        beside().await;
    }
    nbd.resume();
    let answer = call.await.unwrap().map(drop);
    print_progress(format!("after {after:?}: hung: {met}, {answer:?}"));
    met
}

/// Creates and deletes a snapshot of a volume on another drive, and checks that its volume is still written to.
async fn life_beside(lab: &LabRig, well: &Placed, writer: &Writer) {
    let begun = Instant::now();
    let taken = snapshot(lab, "beside", well, &[]).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    writer.advances();
    let took = begun.elapsed();
    assert!(took < LIMIT, "beside a drive that hangs it took {took:?}");
}

async fn made(lab: &LabRig, class: &str, name: &str, source: &VolumeContentSource) -> Placed {
    let made = persistently(async || try_copy(&lab.csi, class, name, BYTES, source).await).await;
    lab.place(&made, name, &csi::block())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_hangs_in_a_call_for_a_snapshot_delays_no_other_and_the_repeated_call_ends_well()
 {
    long!();
    let lab = stand(false).await;
    let how = csi::mount("ext4");
    let well = lab.volume_in("well", "well", BYTES, &how).await;
    let hangs = lab.volume_in("hang", "hangs", BYTES, &how).await;
    lab.serve(&well).await;
    lab.serve(&hangs).await;
    let beside = Writer::start(lab.guest(), "beside", &well.target);
    let writer = Writer::start(lab.guest(), "writer", &hangs.target);
    let nbd = lab.machine.drive("hang-drive").nbd();
    let begun = Instant::now();
    let taken = snapshot(&lab, "measured", &hangs, &[]).await;
    let create = begun.elapsed();
    let begun = Instant::now();
    delete_snapshot(&lab, &taken.snapshot_id).await;
    let removal = begun.elapsed();
    let mut met = [0; 2];
    for moment in 1..=MOMENTS {
        let part = |of: Duration| of * moment / (MOMENTS + 1);
        let name = format!("hung-{moment}");
        let (client, id, called) = (lab.csi.clone(), hangs.id.clone(), name.clone());
        let call = async move { client.create_snapshot(&called, &id, &[]).await };
        let life = async || life_beside(&lab, &well, &beside).await;
        met[0] += usize::from(hung(nbd, part(create), call, &life).await);
        writer.advances();
        let before = synced(&writer);
        // The interrupted call may have been rolled back: this is the same snapshot, or a new one.
        let taken = snapshot(&lab, &name, &hangs, &[]).await;
        let listed = lab.csi.list_snapshots(&hangs.id).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        writer.advances();

        let (client, id) = (lab.csi.clone(), taken.snapshot_id.clone());
        let call = async move { client.delete_snapshot(&id).await };
        met[1] += usize::from(hung(nbd, part(removal), call, &life).await);
        delete_snapshot(&lab, &taken.snapshot_id).await;
        let listed = lab.csi.list_snapshots(&hangs.id).await.unwrap();
        assert!(listed.is_empty(), "{listed:?}");
        assert!(writer.advances() > before);
        nothing_is_left(&lab).await;
        nothing_is_suspended(lab.guest());
    }
    assert!(met.iter().all(|met| *met > 0), "never hung: {met:?}");
    for (writer, of) in [(beside, &well), (writer, &hangs)] {
        writer.finish();
        delete(&lab, of).await;
    }
    nothing_is_left(&lab).await;
}

/// The drive that hangs is the source or the target of the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_hangs_in_a_restore_delays_no_other_and_the_volume_is_whole_when_it_answers() {
    long!();
    let lab = stand(false).await;
    let well = lab
        .volume_in("well", "well", BYTES, &csi::mount("ext4"))
        .await;
    lab.serve(&well).await;
    let beside = Writer::start(lab.guest(), "beside", &well.target);
    let nbd = lab.machine.drive("hang-drive").nbd();
    let life = async || life_beside(&lab, &well, &beside).await;
    for (from, to) in [("hang", "well"), ("well", "hang")] {
        let name = format!("of-{from}");
        let first = lab.volume_in(from, &name, BYTES, &csi::block()).await;
        lab.serve(&first).await;
        let target = first.target.display();
        let random = format!(
            "dd if=/dev/urandom of={target} bs=1M count={} oflag=direct conv=notrunc,fsync status=none",
            BYTES / MIB
        );
        lab.guest().run(&random);
        let written = digest(&lab, &first, BYTES);
        let taken = snapshot(&lab, &name, &first, &[("reserve", "100%")]).await;
        // All of it is read from what the snapshot stores.
        lab.guest().run(&random);
        let source = csi::from_snapshot(&taken.snapshot_id);
        let begun = Instant::now();
        let second = made(&lab, to, &format!("to-{to}"), &source).await;
        let whole = begun.elapsed();
        delete(&lab, &second).await;
        let mut met = 0;
        for moment in 1..=MOMENTS {
            let after = whole * moment / (MOMENTS + 1);
            let name = format!("to-{to}-{moment}");
            let (client, called, of_it) = (lab.csi.clone(), name.clone(), source.clone());
            let call = async move { try_copy(&client, to, &called, BYTES, &of_it).await };
            met += usize::from(hung(nbd, after, call, &life).await);
            let second = made(&lab, to, &name, &source).await;
            lab.serve(&second).await;
            assert_eq!(digest(&lab, &second, BYTES), written, "{name}");
            delete(&lab, &second).await;
        }
        assert!(met > 0, "the drive never hung in a restore to {to}");
        delete_snapshot(&lab, &taken.snapshot_id).await;
        delete(&lab, &first).await;
        nothing_is_left(&lab).await;
        nothing_is_suspended(lab.guest());
    }
    beside.finish();
    delete(&lab, &well).await;
}

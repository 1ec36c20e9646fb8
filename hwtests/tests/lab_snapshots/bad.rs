//! Bad sectors under a volume with a snapshot, or under the snapshot's reserve: a copy is complete or is not created, and the volume
//! never gets an I/O error because of the snapshot.

use std::ops::Range;

use drivebay_hwtests::{
    MIB, csi,
    lab::{
        Guest, LabRig,
        letters::{LAB_LIMIT, persistently},
        nbd::BadSectors,
    },
    long,
    node::Placed,
    wait,
};
use drivebay_proto::csi::Snapshot;
use tonic::Code;

use super::{
    ends::free_space_is_zero,
    helpers::{
        delete, delete_snapshot, digest, nothing_is_left, nothing_is_suspended, snapshot,
        snapshot_device,
    },
    stand::{stand, try_copy},
};

const BYTES: u64 = 64 * MIB;

/// Returns the runs of the drive, in sectors of 512 bytes, to which a device-mapper device of linear targets maps.
fn runs(guest: &Guest, name: &str) -> Vec<Range<u64>> {
    let output = guest.run(&format!(
        "dmsetup table {name} | awk '$3 == \"linear\" {{ print $5, $2 }}'"
    ));
    let runs = output.lines().map(|line| {
        let (start, len) = line.split_once(' ').unwrap();
        let [start, len]: [u64; 2] = [start, len].map(|word| word.parse().unwrap());
        start..start + len
    });
    let runs: Vec<_> = runs.collect();
    assert!(!runs.is_empty(), "{name} is nowhere: {output}");
    runs
}

/// Returns the runs of a volume's data on the drive (suffix `-real`), or of a snapshot's reserve (`-cow`), in sectors.
fn below(guest: &Guest, device: &str, suffix: &str) -> Vec<Range<u64>> {
    let name = guest.run(&format!(
        "cat /sys/block/{}/dm/name",
        device.trim_start_matches("/dev/")
    ));
    runs(guest, &format!("{}{suffix}", name.trim()))
}

/// Returns a raw volume of random bytes on the drive that is going to fail, a snapshot of it, and the digest of both.
async fn taken(lab: &LabRig) -> (Placed, Snapshot, String) {
    let first = lab.volume_in("hang", "first", BYTES, &csi::block()).await;
    lab.serve(&first).await;
    overwrite(lab.guest(), &first, "/dev/urandom");
    let written = digest(lab, &first, BYTES);
    let taken = snapshot(lab, "bad", &first, &[("reserve", "100%")]).await;
    (first, taken, written)
}

fn overwrite(guest: &Guest, of: &Placed, source: &str) {
    guest.run(&format!(
        "dd if={source} of={} bs=1M count={} oflag=direct conv=notrunc,fsync status=none",
        of.target.display(),
        BYTES / MIB
    ));
}

/// Checks that the copy is refused with FAILED_PRECONDITION and a message that contains `why`, and that nothing of it is left.
async fn is_not_made(lab: &LabRig, name: &str, of: &Snapshot, why: &str) {
    let source = csi::from_snapshot(&of.snapshot_id);
    let refused = try_copy(&lab.csi, "well", name, BYTES, &source).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(why), "{refused}");
    lab.all_erased().await;
    let volumes = lab.inventory().await.volumes;
    assert!(volumes.iter().all(|one| one.name != name), "{volumes:#?}");
}

/// Checks that the copy is created with the contents of this digest, and deletes it.
async fn is_made(lab: &LabRig, name: &str, of: &Snapshot, written: &str) {
    let source = csi::from_snapshot(&of.snapshot_id);
    let made = persistently(async || try_copy(&lab.csi, "well", name, BYTES, &source).await);
    let made = lab.place(&made.await, name, &csi::block());
    lab.serve(&made).await;
    assert_eq!(digest(lab, &made, BYTES), written, "{name}");
    delete(lab, &made).await;
}

async fn state(lab: &LabRig, of: &Placed) -> String {
    let listed = lab.volume_of(&of.id).await.unwrap();
    listed.snapshots[0].state.clone()
}

/// Deletes everything, and checks that no byte of the copies is left, not even of those that were not completed.
async fn ends(lab: &LabRig, first: &Placed, taken: &Snapshot) {
    delete_snapshot(lab, &taken.snapshot_id).await;
    nothing_is_left(lab).await;
    nothing_is_suspended(lab.guest());
    delete(lab, first).await;
    nothing_is_left(lab).await;
    let probe = lab
        .volume_in("well", "probe", 16 * MIB, &csi::block())
        .await;
    free_space_is_zero(lab, &probe).await;
    delete(lab, &probe).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_bad_sector_of_the_volume_fails_a_restore_which_succeeds_when_it_reads_again() {
    long!();
    let lab = stand(false).await;
    let (first, taken, written) = taken(&lab).await;
    let device = lab.device(&first).await.display().to_string();
    // Nothing was written since the snapshot: all of it is read from the volume's own place.
    let run = below(lab.guest(), &device, "-real")[0].clone();
    let middle = run.start + (run.end - run.start) / 2;
    let nbd = lab.machine.drive("hang-drive").nbd();
    for (at, sector) in [run.start, middle, run.end - 8].into_iter().enumerate() {
        nbd.fail(BadSectors {
            sectors: sector..sector + 8,
            reads: true,
            writes: false,
        });
        is_not_made(&lab, &format!("bad-{at}"), &taken, "unreadable").await;
        assert_eq!(state(&lab, &first).await, "ready", "a bad sector lost it");
        nbd.heal();
        is_made(&lab, &format!("well-{at}"), &taken, &written).await;
    }
    ends(&lab, &first, &taken).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn what_a_snapshot_stored_and_cannot_be_read_fails_a_restore_and_not_the_volume() {
    long!();
    let lab = stand(false).await;
    let (first, taken, written) = taken(&lab).await;
    let guest = lab.guest();
    overwrite(guest, &first, "/dev/zero");
    let zeros = digest(&lab, &first, BYTES);
    let device = snapshot_device(guest, &taken.snapshot_id);
    let run = below(guest, &device, "-cow")[0].clone();
    let middle = run.start + (run.end - run.start) / 2;
    let nbd = lab.machine.drive("hang-drive").nbd();
    nbd.fail(BadSectors {
        sectors: middle..middle + 8,
        reads: true,
        writes: false,
    });
    is_not_made(&lab, "bad", &taken, "unreadable").await;
    assert_eq!(digest(&lab, &first, BYTES), zeros);
    assert_eq!(state(&lab, &first).await, "ready", "a bad sector lost it");
    nbd.heal();
    is_made(&lab, "well", &taken, &written).await;
    ends(&lab, &first, &taken).await;
}

/// The kernel cannot save the old data, and invalidates the snapshot: writes to the volume have priority.
#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_whose_store_cannot_be_written_is_lost_and_the_volume_is_written_to() {
    long!();
    let lab = stand(false).await;
    let (first, taken, _) = taken(&lab).await;
    let guest = lab.guest();
    let device = snapshot_device(guest, &taken.snapshot_id);
    let nbd = lab.machine.drive("hang-drive").nbd();
    for sectors in below(guest, &device, "-cow") {
        nbd.fail(BadSectors {
            sectors,
            reads: false,
            writes: true,
        });
    }
    overwrite(guest, &first, "/dev/zero");
    let zeros = guest.run(&format!("head -c {BYTES} /dev/zero | sha256sum"));
    assert_eq!(digest(&lab, &first, BYTES), zeros.trim());
    wait::until_async(LAB_LIMIT, "the snapshot is lost", async || {
        lab.rescan().await;
        (state(&lab, &first).await == "overflowed").then_some(())
    })
    .await;
    is_not_made(&lab, "of-nothing", &taken, "could not be written").await;
    // The reserve cannot be erased, and does not count as free space, until the drive accepts writes again.
    delete_snapshot(&lab, &taken.snapshot_id).await;
    let rests = guest.run("lvs --noheadings -o lv_name");
    let is_left = ["drivebay-check-", "drivebay-erasing-snap-"].map(|name| rests.contains(name));
    assert!(is_left.contains(&true), "{rests}");
    nbd.heal();
    nothing_is_left(&lab).await;
    let last = lab.volume_of(&first.id).await.unwrap();
    assert!(last.snapshots.is_empty(), "{last:?}");
    delete(&lab, &first).await;
    nothing_is_left(&lab).await;
    nothing_is_suspended(guest);
}

//! Snapshots of several volumes at one moment: for each record in one, the record that it depends on is in the other.

use drivebay_hwtests::{
    MIB, csi,
    lab::{LabRig, progress::print_progress},
    long,
    node::Placed,
};
use drivebay_proto::csi::{Snapshot, VolumeCapability, VolumeGroupSnapshot};
use tonic::Code;

use super::{
    ends::free_space_is_zero,
    helpers::{
        copy, delete, delete_group, delete_snapshot, find_group, group, lab, member,
        nothing_is_left, snapshot, snapshot_device, try_group, volume,
    },
    relay::{self, Relay},
};

const WHOLE: (&str, &str) = ("reserve", "100%");
/// Every tenth group is restored; the others are read from the devices of their snapshots.
const RESTORED: usize = 10;

/// Number of groups that are taken of each pair of volumes.
fn count() -> usize {
    match std::env::var_os("DRIVEBAY_LAB_LONG") {
        Some(_) => 50,
        None => 2,
    }
}

/// Returns two published volumes on different drives.
async fn pair(lab: &LabRig, name: &str, other: (u64, &VolumeCapability)) -> [Placed; 2] {
    let (first, second) = (format!("{name}-cause"), format!("{name}-effect"));
    let volumes = [
        volume(lab, &first, 32 * MIB, &csi::mount("ext4")).await,
        volume(lab, &second, other.0, other.1).await,
    ];
    let mut drives = Vec::new();
    for of in &volumes {
        lab.serve(of).await;
        drives.push(lab.volume_of(&of.id).await.unwrap().drive);
    }
    assert_ne!(drives[0], drives[1], "both are on one drive");
    volumes
}

/// Returns the last record in the snapshot of each volume, read from its device.
fn on_devices(lab: &LabRig, volumes: &[Placed; 2], snapshots: [&Snapshot; 2]) -> [u64; 2] {
    let guest = lab.guest();
    [0, 1].map(|at| {
        let device = snapshot_device(guest, &snapshots[at].snapshot_id);
        relay::held_by_device(guest, &device, &volumes[at])
    })
}

/// Returns the last record in the snapshot of each volume, read from volumes restored from the snapshots.
async fn restored(lab: &LabRig, volumes: &[Placed; 2], of: &VolumeGroupSnapshot) -> [u64; 2] {
    let mut last = [0, 0];
    for (at, volume) in volumes.iter().enumerate() {
        let source = csi::from_snapshot(&member(of, volume).snapshot_id);
        let name = format!("restored-{at}");
        let made = copy(lab, &name, volume.bytes, &volume.capability, &source).await;
        lab.serve(&made).await;
        last[at] = relay::held(lab.guest(), &made);
        delete(lab, &made).await;
    }
    last
}

/// True if both last records are of one moment: each record is written to `cause` first, so that it is at most one ahead of `effect`.
fn is_one_moment([cause, effect]: [u64; 2]) -> bool {
    effect <= cause && cause <= effect + 1
}

/// Takes groups of two volumes under load, and checks that each is of one moment.
async fn of_a_pair(lab: &LabRig, name: &str, other: (u64, &VolumeCapability)) {
    let volumes = pair(lab, name, other).await;
    let [first, second] = &volumes;
    let relay = Relay::start(lab.guest(), "relay", &[first, second]);
    for number in 0..count() {
        let before = relay.synced();
        let name = format!("{name}-{number}");
        let taken = group(lab, &name, &[first, second], &[WHOLE]).await;
        let after = relay.synced();
        let last = match (number + 1) % RESTORED {
            0 => restored(lab, &volumes, &taken).await,
            _ => on_devices(
                lab,
                &volumes,
                [member(&taken, first), member(&taken, second)],
            ),
        };
        assert!(is_one_moment(last), "{name}: {last:?} are the last records");
        assert!(
            (before..=after + 1).contains(&last[1]),
            "{name}: {last:?}; {before} were synced before and {after} after"
        );
        if number == 0 {
            is_one_of_its_name(lab, &volumes, &taken, &name).await;
        }
        delete_group(lab, &taken).await;
        assert_eq!(find_group(lab, &taken).await, None);
        if (number + 1) % RESTORED == 0 {
            print_progress(format!("{} groups under load", number + 1));
        }
    }
    relay.advances();
    let pause = relay.longest();
    print_progress(format!("{name}: longest pause of the volumes {pause:?}"));
    relay.finish();
    for of in &volumes {
        delete(lab, of).await;
    }
    nothing_is_left(lab).await;
}

/// Checks that a repeat returns the group, that its name is refused for other volumes, and that no snapshot is deleted without it.
async fn is_one_of_its_name(
    lab: &LabRig,
    [first, second]: &[Placed; 2],
    taken: &VolumeGroupSnapshot,
    name: &str,
) {
    let again = group(lab, name, &[second, first], &[]).await;
    assert_eq!(again.group_snapshot_id, taken.group_snapshot_id);
    let other = try_group(&lab.csi, name, &[first], &[]).await;
    assert_eq!(other.unwrap_err().code(), Code::AlreadyExists);
    let current = find_group(lab, taken).await.unwrap();
    assert!(
        current.ready_to_use && current.snapshots.len() == 2,
        "{current:?}"
    );
    for of in [first, second] {
        let one = member(taken, of);
        let listed = lab.csi.list_snapshots(&of.id).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].snapshot_id, one.snapshot_id);
        assert_eq!(listed[0].group_snapshot_id, taken.group_snapshot_id);
        let refused = lab.csi.delete_snapshot(&one.snapshot_id).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        let uuid = taken.group_snapshot_id.split('@').next().unwrap();
        let is_named = refused.message().contains(name) || refused.message().contains(uuid);
        assert!(is_named, "the group is not named: {refused}");
    }
    let current = find_group(lab, taken).await.unwrap();
    assert!(
        current.ready_to_use,
        "a refused deletion changed {current:?}"
    );
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_group_has_no_record_without_its_cause() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    of_a_pair(lab, "raw", (32 * MIB, &csi::block())).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_group_of_ext4_and_xfs_has_no_record_without_its_cause() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    of_a_pair(lab, "xfs", (320 * MIB, &csi::mount("xfs"))).await;
}

/// Control: the property that the tests above check does not hold without a group.
#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn snapshots_that_are_taken_one_after_another_are_not_of_one_moment() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let volumes = pair(lab, "apart", (32 * MIB, &csi::block())).await;
    let [first, second] = &volumes;
    let relay = Relay::start(lab.guest(), "relay", &[first, second]);
    let cause = snapshot(lab, "apart-cause", first, &[WHOLE]).await;
    relay.advances();
    let effect = snapshot(lab, "apart-effect", second, &[WHOLE]).await;
    let last = on_devices(lab, &volumes, [&cause, &effect]);
    assert!(!is_one_moment(last), "{last:?}");
    assert!(last[0] < last[1], "effects without their cause: {last:?}");
    relay.finish();
    for (taken, of) in [(cause, first), (effect, second)] {
        delete_snapshot(lab, &taken.snapshot_id).await;
        delete(lab, of).await;
    }
    nothing_is_left(lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn nothing_of_what_a_deleted_group_stored_is_on_the_drives() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::block();
    let volumes = [
        volume(lab, "secret-first", 64 * MIB, &how).await,
        volume(lab, "secret-second", 64 * MIB, &how).await,
    ];
    let guest = lab.guest();
    for of in &volumes {
        lab.serve(of).await;
        guest.run(&format!(
            "head -c 16M /dev/zero | tr '\\0' S | dd of={} bs=1M iflag=fullblock oflag=direct conv=fsync status=none",
            of.target.display()
        ));
    }
    let [first, second] = &volumes;
    let taken = group(lab, "secret", &[first, second], &[WHOLE]).await;
    for of in &volumes {
        // The snapshots store the data that is overwritten here.
        guest.run(&format!(
            "dd if=/dev/zero of={} bs=1M count=16 oflag=direct conv=notrunc,fsync status=none",
            of.target.display()
        ));
        let device = snapshot_device(guest, &member(&taken, of).snapshot_id);
        let script = format!(
            "dd if=/dev/mapper/$(cat /sys/block/{}/dm/name)-cow bs=1M iflag=direct status=none | tr -dc S | wc -c",
            device.trim_start_matches("/dev/")
        );
        let stored: u64 = guest.run(&script).trim().parse().unwrap();
        assert!(
            stored >= 16 * MIB,
            "{stored} bytes of the secret are stored"
        );
    }
    delete_group(lab, &taken).await;
    nothing_is_left(lab).await;
    for of in &volumes {
        free_space_is_zero(lab, of).await;
    }
    for of in &volumes {
        delete(lab, of).await;
    }
    nothing_is_left(lab).await;
}

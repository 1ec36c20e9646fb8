//! Snapshots that are deleted at their age limit.

use std::{cell::Cell, time::Duration};

use drivebay_hwtests::{
    MIB, csi,
    lab::{LabRig, letters::LAB_LIMIT},
    long,
    node::Placed,
    wait,
};
use drivebay_proto::{agent::VolumeSnapshot, names::DEFAULT_SNAPSHOT_MAX_AGE};

use super::{
    ends::free_space_is_zero,
    helpers::{
        configured, copies, copy, delete, delete_snapshot, digest, find_group, group, lab,
        nothing_is_left, snapshot, volume,
    },
};

/// Size of a volume. Copying it at 1 MiB/s, the lowest rate that the agent accepts, takes a minute and a half.
const BYTES: u64 = 96 * MIB;
const WHOLE: (&str, &str) = ("reserve", "100%");
/// Longest time between two listings of snapshots in a busy emulated machine, seconds.
const BETWEEN: u64 = 15;
/// Time after which the agent has deleted an expired snapshot: it checks every ten seconds.
const DUE: Duration = Duration::from_secs(12);

/// Returns the snapshots that the agent reports of a volume, ordered by name.
async fn snapshots(lab: &LabRig, of: &Placed) -> Vec<VolumeSnapshot> {
    let mut all = lab.volume_of(&of.id).await.unwrap().snapshots;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// The guest's Unix time, by which snapshots expire.
fn now(lab: &LabRig) -> u64 {
    let output = lab.guest().run("date +%s");
    output.trim().parse().unwrap()
}

/// Waits until a volume no longer has a snapshot of this name, its own or its group's. Checks that it was listed until it expired.
async fn expires(lab: &LabRig, of: &Placed, name: &str) {
    // The last time at which it was listed, and its `expires_at`.
    let listed = Cell::new((0, 0));
    let gone_at = wait::until_async(LAB_LIMIT, "the snapshot has expired", async || {
        let before = now(lab);
        let all = snapshots(lab, of).await;
        let is_it = |one: &&VolumeSnapshot| match &one.group {
            Some(group) => group.name == name,
            None => one.name == name,
        };
        match all.iter().find(is_it) {
            Some(one) => listed.set((before, one.expires_at)),
            None => return Some(now(lab)),
        }
        None
    })
    .await;
    let (listed_at, expires_at) = listed.get();
    let what = format!("{name}: listed at {listed_at} and gone at {gone_at}, not {expires_at}");
    assert!(expires_at > 0, "{name} was not there");
    assert!(listed_at + BETWEEN >= expires_at, "{what}");
    assert!(gone_at >= expires_at, "{what}");
}

/// Returns a raw volume of random bytes, in use.
async fn filled(lab: &LabRig, name: &str) -> Placed {
    let made = volume(lab, name, BYTES, &csi::block()).await;
    lab.serve(&made).await;
    write(lab, &made, "/dev/urandom", BYTES);
    made
}

/// Overwrites the first 16 MiB, so that the volume's snapshots store them. Not more, since the snapshots age meanwhile.
fn overwrite(lab: &LabRig, of: &Placed) {
    write(lab, of, "/dev/zero", 16 * MIB);
}

fn write(lab: &LabRig, of: &Placed, source: &str, bytes: u64) {
    lab.guest().run(&format!(
        "dd if={source} of={} bs=1M count={} oflag=direct conv=notrunc,fsync status=none",
        of.target.display(),
        bytes / MIB
    ));
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_or_group_that_is_older_than_its_limit_goes_and_what_it_stored_is_erased() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let volumes = [filled(lab, "aged").await, filled(lab, "aged-too").await];
    let [first, second] = &volumes;
    for (name, age) in [("days", None), ("never", Some("none"))] {
        let age = age.map(|age| ("maxAge", age));
        let parameters: Vec<_> = age.into_iter().collect();
        snapshot(lab, name, first, &parameters).await;
    }
    snapshot(lab, "minute", first, &[WHOLE, ("maxAge", "1m")]).await;
    let both = [first, second];
    let together = group(lab, "together", &both, &[WHOLE, ("maxAge", "90s")]).await;
    let listed = snapshots(lab, first).await;
    let names: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(listed.len(), 4, "{names:?}");
    for one in &listed {
        let left = one.expires_at.checked_sub(one.created_at);
        let expected = match one.name.as_str() {
            "days" => Some(DEFAULT_SNAPSHOT_MAX_AGE),
            "minute" => Some(60),
            "never" => None,
            _ => Some(90),
        };
        assert_eq!(left, expected, "{one:?}");
        let is_member = one.group.as_ref().is_some_and(|of| of.name == "together");
        assert_eq!(is_member, left == Some(90), "{one:?}");
    }
    let ends: Vec<u64> = {
        let other = snapshots(lab, second).await;
        let members = listed.iter().chain(&other);
        let members = members.filter(|one| one.group.is_some());
        members.map(|one| one.expires_at).collect()
    };
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert_eq!(ends[0], ends[1], "members expire together");
    for of in both {
        overwrite(lab, of);
    }

    expires(lab, first, "minute").await;
    expires(lab, first, "together").await;
    wait::until_async(LAB_LIMIT, "the other member has expired", async || {
        let left = snapshots(lab, second).await;
        left.is_empty().then_some(())
    })
    .await;
    assert_eq!(find_group(lab, &together).await, None);
    let left = snapshots(lab, first).await;
    let left: Vec<&str> = left.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(left, ["days", "never"]);
    for one in snapshots(lab, first).await {
        delete_snapshot(lab, &one.id).await;
    }
    nothing_is_left(lab).await;
    for of in both {
        free_space_is_zero(lab, of).await;
        delete(lab, of).await;
    }
    nothing_is_left(lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_that_expires_while_it_is_restored_goes_when_the_volume_is_made() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    lab.agent.stop();
    // The copy takes longer than the snapshot's age limit.
    configured(lab, "[moves]\nmax-bytes-per-second = \"1MiB\"\n").await;
    let first = filled(lab, "expiring").await;
    let written = digest(lab, &first, BYTES);
    let taken = snapshot(lab, "expiring", &first, &[WHOLE, ("maxAge", "1m")]).await;
    let expires_at = snapshots(lab, &first).await[0].expires_at;
    overwrite(lab, &first);
    let source = csi::from_snapshot(&taken.snapshot_id);
    let how = csi::block();
    let kept = async {
        wait::until_async(LAB_LIMIT, "its age has passed", async || {
            (now(lab) > expires_at).then_some(())
        })
        .await;
        tokio::time::sleep(DUE).await;
        let left = snapshots(lab, &first).await;
        let copying = copies(lab).await;
        assert_eq!(copying.len(), 1, "it was copied before its age had passed");
        assert_eq!(left.len(), 1, "it went while it was copied");
    };
    let (second, ()) = tokio::join!(copy(lab, "of-expired", BYTES, &how, &source), kept);
    assert!(copies(lab).await.is_empty());
    lab.serve(&second).await;
    assert_eq!(digest(lab, &second, BYTES), written);
    wait::until_async(LAB_LIMIT, "the snapshot has expired", async || {
        snapshots(lab, &first).await.is_empty().then_some(())
    })
    .await;
    delete(lab, &second).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
    lab.agent.stop();
    configured(lab, "").await;
}

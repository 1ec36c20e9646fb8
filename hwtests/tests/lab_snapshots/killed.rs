//! The agent is killed, with its child processes, right before, during or right after each `lvm` command for a snapshot, a group and a
//! restore. The volume is written to all the time, and the repeated call succeeds.

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec, LabRig, Writer,
        killer::{self, Killer},
        letters::{LAB_LIMIT, persistently, snapshots_listed},
        progress::print_progress,
    },
    long,
};
use drivebay_proto::csi::Snapshot;
use tonic::Status;

use super::helpers::{
    delete, delete_group, delete_snapshot, group, lines, nothing_is_left, nothing_is_suspended,
    snapshot, synced, try_group,
};

const WHOLE: (&str, &str) = ("reserve", "100%");

/// Makes a call during which the agent is killed at this command, and checks that the volumes accept writes afterwards.
async fn at<T>(
    killer: &mut Killer<'_>,
    writer: &Writer,
    command: &str,
    call: &impl AsyncFn(&LabRig) -> Result<T, Status>,
) {
    killer.interrupted(command, call).await;
    nothing_is_suspended(killer.lab.guest());
    writer.advances();
}

/// Does the same as `at` for each of these commands in turn; then repeats the call until it succeeds.
async fn at_each<T>(
    killer: &mut Killer<'_>,
    writer: &Writer,
    commands: &[&str],
    call: &impl AsyncFn(&LabRig) -> Result<T, Status>,
) -> T {
    for command in commands {
        at(killer, writer, command, call).await;
    }
    let lab = &*killer.lab;
    persistently(async || call(lab).await).await
}

/// Checks that this is the only snapshot of its volume.
async fn has_only(lab: &LabRig, taken: &Snapshot) {
    let listed = lab.csi.list_snapshots(&taken.source_volume_id).await;
    let listed = listed.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].snapshot_id, taken.snapshot_id);
}

/// Returns the ids of the volumes of this name that are not being erased.
async fn ids(lab: &LabRig, name: &str) -> Vec<String> {
    let all = lab.inventory().await.volumes.into_iter();
    let live = all.filter(|of| of.name == name && of.state != "erasing");
    live.map(|of| of.id).collect()
}

/// Deletes a snapshot, and kills the agent while it erases the reserve, which it continues without a call.
async fn erased(killer: &mut Killer<'_>, taken: &Snapshot) {
    killer.aim("lvremove");
    let deleted = killer.lab.csi.delete_snapshot(&taken.snapshot_id).await;
    let guest = killer.lab.guest().clone();
    let struck = guest.wait_until(LAB_LIMIT, "what it stored is erased", |guest| {
        if killer.has_struck() {
            return Some(true);
        }
        // A strike during a command can come too late.
        let is_erased = || snapshots_listed(guest) == Ok(vec![]);
        (killer.is_during() && is_erased()).then(|| {
            killer.disarm();
            killer.has_struck()
        })
    });
    killer.disarm();
    if struck {
        killer.restart().await;
    }
    if deleted.is_err() {
        delete_snapshot(killer.lab, &taken.snapshot_id).await;
    }
    nothing_is_left(killer.lab).await;
}

/// Creates, restores and deletes a snapshot and a group. Returns how often the agent was killed.
async fn life(when: &str) -> usize {
    let mut lab = LabRig::with(vec![DriveSpec::scsi("only", 2 * GIB)], "lvm").await;
    let how = csi::mount("ext4");
    let volume = lab.volume("written", 64 * MIB, &how).await;
    let other = lab.volume("other", 32 * MIB, &csi::block()).await;
    lab.serve(&volume).await;
    let letter = lab.put_letter(&volume, 512);
    let writer = Writer::start(lab.guest(), "writer", &volume.target);
    killer::install(lab.guest());
    let killer = &mut Killer::new(&mut lab, when);

    let before = synced(&writer);
    let take = async |lab: &LabRig| lab.csi.create_snapshot("one", &volume.id, &[WHOLE]).await;
    let commands = ["lvcreate", "lvconvert", "lvchange"];
    let taken = at_each(killer, &writer, &commands, &take).await;
    assert!(taken.ready_to_use, "{taken:?}");
    has_only(killer.lab, &taken).await;

    let source = csi::from_snapshot(&taken.snapshot_id);
    let restore = async |lab: &LabRig| {
        lab.csi
            .create_from("copy", volume.bytes, &how, &source)
            .await
    };
    // The repeated call completes the volume that the first one began, and begins no other.
    let mut begun = Vec::new();
    at(killer, &writer, "lvcreate", &restore).await;
    begun.extend(ids(killer.lab, "copy").await);
    // The restarted agent continues the copy without a call, and may have completed it by then.
    let struck = killer.perhaps_interrupted("lvchange", &restore).await;
    print_progress(format!("{when} a restore's lvchange: died: {struck}"));
    begun.extend(ids(killer.lab, "copy").await);
    let made = at_each(killer, &writer, &[], &restore).await;
    assert!(killer.is_during() || !begun.is_empty(), "nothing was begun");
    let is_it = |id: &String| *id == made.volume_id;
    assert!(
        begun.iter().all(is_it),
        "{begun:?} begun, and {made:?} made"
    );
    let copy = killer.lab.place(&made, "copy", &how);
    killer.lab.serve(&copy).await;
    assert_eq!(killer.lab.letter(&copy), letter);
    lines(killer.lab, &copy.target, before);
    delete(killer.lab, &copy).await;

    let remove = async |lab: &LabRig| lab.csi.delete_snapshot(&taken.snapshot_id).await;
    at_each(killer, &writer, &["lvrename"], &remove).await;
    nothing_is_left(killer.lab).await;
    // The snapshot is renamed before it is split from its volume, by the call or by the restarted agent.
    let taken = snapshot(killer.lab, "two", &volume, &[WHOLE]).await;
    let remove = async |lab: &LabRig| lab.csi.delete_snapshot(&taken.snapshot_id).await;
    at_each(killer, &writer, &["lvconvert"], &remove).await;
    nothing_is_left(killer.lab).await;
    let taken = snapshot(killer.lab, "three", &volume, &[WHOLE]).await;
    erased(killer, &taken).await;

    let both = [&volume, &other];
    let take = async |lab: &LabRig| try_group(&lab.csi, "group", &both, &[WHOLE]).await;
    let taken = at_each(killer, &writer, &commands, &take).await;
    let again = group(killer.lab, "group", &both, &[WHOLE]).await;
    assert_eq!(again.group_snapshot_id, taken.group_snapshot_id);
    for one in &taken.snapshots {
        has_only(killer.lab, one).await;
    }
    delete_group(killer.lab, &taken).await;
    nothing_is_left(killer.lab).await;

    writer.finish();
    let strikes = killer.strikes();
    let lab = &*killer.lab;
    assert_eq!(lab.letter(&volume), letter);
    for of in both {
        delete(lab, of).await;
    }
    nothing_is_left(lab).await;
    let left = lab.guest().run("lvs --noheadings -o lv_name");
    assert_eq!(left.trim(), "", "LVs are left");
    strikes
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshots_life_whose_agent_is_killed_before_a_command_goes_on_when_the_call_is_repeated()
{
    long!();
    life("before").await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshots_life_whose_agent_is_killed_after_a_command_goes_on_when_the_call_is_repeated()
{
    long!();
    life("after").await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshots_life_whose_agent_is_killed_while_a_command_runs_goes_on_when_the_call_is_repeated()
 {
    long!();
    let mut strikes = 0;
    for pause in ["0.01", "0.05", "0.1", "0.15", "0.25", "0.4"] {
        strikes += life(&format!("during {pause}")).await;
    }
    assert!(strikes > 0, "the agent was never killed");
}

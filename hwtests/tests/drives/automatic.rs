//! A drive with verdict BAD by its own SMART values is evacuated without a request if its class allows that, within the daily budget and
//! while the targets are GOOD.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{DriveSpec, MIB, Rig, need, replay, rig::Placed, wait};

use super::{
    helpers::{drive_command, letter},
    moves::{id_of, lives_on, moves, read_letter},
};

/// Time limit for polls, the configured delay, and the pause between two decisions.
const DECIDED: Duration = Duration::from_secs(90);
/// A verdict, and the number of pending sectors that causes it.
const SUSPECT: (&str, u64) = ("SUSPECT", 5);
const BAD: (&str, u64) = ("BAD", 48);

/// Returns drives of a class that evacuates BAD drives, all of them GOOD, and a volume with a file on one.
async fn rig(drives: &[(&str, u64)], moves: &str) -> (Rig, Placed, PathBuf) {
    let mut place = PathBuf::new();
    let drives = drives
        .iter()
        .map(|(name, size)| DriveSpec::blank(name, *size));
    let rig = Rig::tuned(drives.collect(), |settings| {
        place = settings.dir.join("bin");
        settings.class = "evacuate = \"bad\"\n".to_owned();
        settings.more = format!(
            "{}[moves]\nautomatic-delay = \"3s\"\n{moves}\n",
            replay::smartctl(&place, 0)
        );
    })
    .await;
    let volume = letter(&rig, "kept").await;
    (rig, volume, place)
}

async fn shelf_name(rig: &Rig, id: &str, names: &[&'static str]) -> &'static str {
    for name in names {
        if id_of(rig, name).await == id {
            return name;
        }
    }
    panic!("no drive {id}")
}

/// Sets the drives' SMART values, restarts the agent, and waits until the drives have this verdict.
async fn fail(rig: &mut Rig, place: &Path, names: &[&str], (verdict, pending): (&str, u64)) {
    for name in names {
        let kernel_name = rig.drive(name).await.unwrap().kernel_name;
        replay::pending_sectors_of(place, &kernel_name, pending);
    }
    rig.agent.stop().unwrap();
    rig.start_again().await;
    for name in names {
        wait::until_async(DECIDED, &format!("{name} is {verdict}"), async || {
            rig.agent.run_command(&["rescan"]).unwrap();
            let drive = rig.drive(name).await?;
            (drive.verdict == verdict).then_some(())
        })
        .await;
    }
}

/// Waits until there is exactly one move, requested by the agent.
async fn is_evacuated(rig: &Rig) {
    wait::until_async(DECIDED, "the drive is being evacuated", async || {
        let all = moves(rig).await;
        (all.len() == 1 && all[0].by == "evacuate = bad").then_some(())
    })
    .await;
}

/// Waits until the agent's log has a line with all of these words.
async fn logged(rig: &Rig, words: &[&str]) {
    wait::until_async(DECIDED, &format!("{words:?} is logged"), async || {
        let log = rig.agent.log();
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        log.lines().any(has).then_some(())
    })
    .await;
}

const NOT_EVACUATED: &str = "drive is not evacuated automatically";

#[tokio::test]
async fn a_drive_that_becomes_bad_is_evacuated_with_its_data_and_the_budget_outlives_the_agent() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let drives = [("a", 256 * MIB), ("b", 256 * MIB)];
    let (mut rig, volume, place) = rig(&drives, "").await;
    let from = rig.volume_of(&volume.id).await.unwrap().drive;
    let failing = shelf_name(&rig, &from, &["a", "b"]).await;
    let other = if failing == "a" { "b" } else { "a" };
    let to = id_of(&rig, other).await;
    fail(&mut rig, &place, &[failing], BAD).await;
    lives_on(&rig, &volume.id, &to).await;
    let done = moves(&rig).await;
    assert_eq!((done.len(), done[0].by.as_str()), (1, "evacuate = bad"));
    let drive = rig.drive(failing).await.unwrap();
    assert_eq!(drive.cordon.unwrap().by, "evacuate = bad");
    read_letter(&rig, &volume, "kept").await;

    // The target drive fails on the same day.
    rig.shelf.add(DriveSpec::blank("c", 256 * MIB)).unwrap();
    rig.drive_is("c", "available").await;
    fail(&mut rig, &place, &[other], BAD).await;
    logged(&rig, &[NOT_EVACUATED, &to, "1 of 1 automatic evacuations"]).await;
    assert_eq!(rig.volume_of(&volume.id).await.unwrap().drive, to);
}

#[tokio::test]
async fn two_bad_drives_move_nothing_and_what_an_operator_cancelled_is_not_begun_again() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let names = ["a", "b", "c"];
    let drives = names.map(|name| (name, 256 * MIB));
    let (mut rig, volume, place) = rig(&drives, "automatic-drives-per-day = 5").await;
    let from = rig.volume_of(&volume.id).await.unwrap().drive;
    let failing = shelf_name(&rig, &from, &names).await;
    let second = if failing == "a" { "b" } else { "a" };
    fail(&mut rig, &place, &[failing, second], BAD).await;
    logged(&rig, &[NOT_EVACUATED, &from, "more than one drive"]).await;
    assert!(moves(&rig).await.is_empty());
    let listed = rig.agent.run_command(&["moves"]).unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("is not evacuated automatically: more than one drive of the node is BAD"),
        "{listed}"
    );

    // An operator overrules the verdict of the second drive.
    let good = format!(
        "[[health.override]]\ndrive = \"{}\"\nverdict = \"good\"\nreason = \"for a test\"\n",
        id_of(&rig, second).await
    );
    rig.agent.stop().unwrap();
    rig.agent.retune(|settings| settings.more += &good).unwrap();
    rig.start_again().await;
    // In use, so that the move waits.
    rig.use_volume(&volume).await;
    is_evacuated(&rig).await;
    let (code, output) = drive_command(&rig, "evacuate", &[&from, "--cancel", "--by", "ann"]);
    assert_eq!(code, Some(0), "{output}");
    rig.leave_volume(&volume).await;
    logged(&rig, &[NOT_EVACUATED, &from, "operator cancelled"]).await;
    assert!(moves(&rig).await.is_empty());
    assert_eq!(rig.volume_of(&volume.id).await.unwrap().drive, from);
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn an_evacuation_whose_target_becomes_suspect_is_stopped_and_the_volume_stays() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let names = ["a", "b"];
    let drives = names.map(|name| (name, 256 * MIB));
    let (mut rig, volume, place) = rig(&drives, "automatic-drives-per-day = 5").await;
    let from = rig.volume_of(&volume.id).await.unwrap().drive;
    let failing = shelf_name(&rig, &from, &names).await;
    let target = if failing == "a" { "b" } else { "a" };
    rig.use_volume(&volume).await;
    fail(&mut rig, &place, &[failing], BAD).await;
    is_evacuated(&rig).await;
    fail(&mut rig, &place, &[target], SUSPECT).await;
    logged(&rig, &["automatic evacuation stopped", &from, "is SUSPECT"]).await;
    assert!(moves(&rig).await.is_empty());
    // With another GOOD drive, no evacuation begins again on the same day.
    rig.shelf.add(DriveSpec::blank("c", 256 * MIB)).unwrap();
    rig.drive_is("c", "available").await;
    logged(&rig, &[NOT_EVACUATED, &from, "begun within the last day"]).await;
    rig.leave_volume(&volume).await;
    assert_eq!(rig.volume_of(&volume.id).await.unwrap().drive, from);
    read_letter(&rig, &volume, "kept").await;
}

//! A volume leaves its drive: copied while it is unused, served from the new drive under the same id, and never from two places or the
//! wrong one, whatever is killed, unplugged or lost in between.

use std::{fs, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, Shelf, csi, digest, long_on_drives, need,
    pair::{Link, NODE, Pair},
    rig::Placed,
    wait,
};
use drivebay_proto::agent::{
    CancelMovesRequest, ListMovesRequest, Move, MoveVolumesRequest, PreferPlaceRequest,
    RetireDriveRequest, RetireDriveResponse, agent_client::AgentClient,
};
use tonic::{Code, Status, transport::Channel};

use super::helpers::{drive_command, letter};

pub(crate) async fn client(rig: &Rig) -> AgentClient<Channel> {
    AgentClient::new(csi::channel(&rig.agent_socket).await.unwrap())
}

pub(crate) async fn move_to(rig: &Rig, id: &str, to: &str) -> Result<(), Status> {
    move_unless_unreadable(rig, id, to, false).await
}

/// `abort_on_error`: unreadable sectors with data stop the move.
pub(crate) async fn move_unless_unreadable(
    rig: &Rig,
    id: &str,
    to: &str,
    abort_on_error: bool,
) -> Result<(), Status> {
    let request = MoveVolumesRequest {
        volume_id: id.to_owned(),
        to: vec![to.to_owned()],
        by: "ann".into(),
        abort_on_error,
        ..Default::default()
    };
    let response = client(rig).await.move_volumes(request).await;
    response.map(drop)
}

pub(crate) async fn moves(rig: &Rig) -> Vec<Move> {
    let response = client(rig).await.list_moves(ListMovesRequest {}).await;
    response.unwrap().into_inner().moves
}

async fn retire(rig: &Rig, drive: &str) -> RetireDriveResponse {
    let request = RetireDriveRequest {
        drive: drive.to_owned(),
        plan: false,
        by: "ann".into(),
    };
    let response = client(rig).await.retire_drive(request).await;
    response.unwrap().into_inner()
}

/// Waits until the volume's drive is this one and its state is ready.
pub(crate) async fn lives_on(rig: &Rig, id: &str, drive: &str) {
    let limit = Duration::from_secs(60);
    let what = format!("{id} lives on {drive}");
    wait::until_async(limit, &what, async || {
        let volume = rig.volume_of(id).await?;
        (volume.drive == drive && volume.state == "ready").then_some(())
    })
    .await;
}

/// Uses a volume as an orchestrator does: a stage that returns ABORTED, as at the end of a move, is repeated.
pub(crate) async fn use_volume(rig: &Rig, volume: &Placed) {
    wait::until_async(Duration::from_secs(20), "it is staged", async || {
        let staged = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        match staged {
            Err(status) if status.code() == Code::Aborted => None,
            staged => {
                staged.unwrap();
                Some(())
            }
        }
    })
    .await;
    rig.use_volume(volume).await;
}

pub(crate) async fn read_letter(rig: &Rig, volume: &Placed, text: &str) {
    use_volume(rig, volume).await;
    let letter = fs::read_to_string(volume.target.join("letter")).unwrap();
    assert_eq!(letter, text);
    rig.leave_volume(volume).await;
}

pub(crate) async fn id_of(rig: &Rig, name: &str) -> String {
    rig.drive(name).await.unwrap().id
}

/// Returns two drives, and a volume with a file `letter` on the first.
pub(crate) async fn with_letter(more: &str) -> (Rig, Placed, String, String) {
    let more = more.to_owned();
    let drives = vec![
        DriveSpec::blank("a", 256 * MIB),
        DriveSpec::blank("b", 512 * MIB),
    ];
    let rig = Rig::tuned(drives, |settings| settings.more = more).await;
    let volume = letter(&rig, "kept").await;
    let (a, b) = (id_of(&rig, "a").await, id_of(&rig, "b").await);
    let on = rig.volume_of(&volume.id).await.unwrap().drive;
    let other = if on == a { b.clone() } else { a.clone() };
    (rig, volume, on, other)
}

pub(crate) fn shelf_name(drive: &str) -> &str {
    if drive.starts_with("loop-a.img") {
        "a"
    } else {
        "b"
    }
}

#[tokio::test]
async fn a_volume_moves_keeps_its_id_and_its_data_and_its_old_place_is_erased_after_it_was_used() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, volume, from, to) = with_letter("[moves]\nold-place-delay = '1s'\n").await;
    // The plan is shown before the move.
    let plan = MoveVolumesRequest {
        volume_id: volume.id.clone(),
        plan: true,
        ..Default::default()
    };
    let planned = client(&rig)
        .await
        .move_volumes(plan)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(planned.moves.len(), 1, "{planned:?}");
    assert_eq!((&planned.moves[0].from, &planned.moves[0].to), (&from, &to));
    assert!(moves(&rig).await.is_empty());
    move_to(&rig, &volume.id, &to).await.unwrap();
    lives_on(&rig, &volume.id, &to).await;
    let now = rig.volume_of(&volume.id).await.unwrap();
    assert_eq!(now.generation, 2);
    let old = &now.places[0];
    assert_eq!((old.drive.as_str(), old.generation), (from.as_str(), 2));
    // The old place is kept until the volume is used, whatever the delay.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(moves(&rig).await[0].phase, "moved");
    read_letter(&rig, &volume, "kept").await;
    use_volume(&rig, &volume).await;
    wait::until_async(
        Duration::from_secs(60),
        "the old place is erased",
        async || {
            let now = rig.volume_of(&volume.id).await?;
            (now.places.is_empty() && moves(&rig).await.is_empty()).then_some(())
        },
    )
    .await;
    rig.leave_volume(&volume).await;
    read_letter(&rig, &volume, "kept").await;
    rig.is_well(&volume).await;
    // Moves back: the generation increases further.
    move_to(&rig, &volume.id, &from).await.unwrap();
    lives_on(&rig, &volume.id, &from).await;
    assert_eq!(rig.volume_of(&volume.id).await.unwrap().generation, 3);
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_drive_of_many_volumes_is_evacuated_onto_three_others_and_may_leave_the_building() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let count = if need::is_long() { 20 } else { 9 };
    let drives = vec![DriveSpec::blank("a", 512 * MIB)];
    let mut rig = Rig::tuned(drives, |settings| {
        "spread".clone_into(&mut settings.placement)
    })
    .await;
    let mut volumes = Vec::new();
    for n in 0..count {
        let volume = rig
            .volume(&format!("v{n}"), 16 * MIB, &csi::mount("ext4"))
            .await;
        rig.use_volume(&volume).await;
        fs::write(volume.target.join("n"), n.to_string()).unwrap();
        volumes.push(volume);
    }
    for name in ["b", "c", "d"] {
        rig.shelf.add(DriveSpec::blank(name, 256 * MIB)).unwrap();
        rig.drive_is(name, "available").await;
    }
    let from = id_of(&rig, "a").await;
    let request = MoveVolumesRequest {
        drive: from.clone(),
        by: "ann".into(),
        ..Default::default()
    };
    let planned = client(&rig)
        .await
        .move_volumes(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(planned.moves.len(), count);
    let to: std::collections::BTreeSet<&str> =
        planned.moves.iter().map(|one| one.to.as_str()).collect();
    assert_eq!(to.len(), 3, "{planned:?}");
    assert!(planned.moves.iter().all(|one| one.in_use));
    // A repeated request changes nothing.
    let again = client(&rig)
        .await
        .move_volumes(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(again.moves.len(), 0);
    assert!(rig.drive("a").await.unwrap().cordon.is_some());
    let stays = retire(&rig, &from).await;
    assert_eq!(stays.keeps.len(), count, "{stays:?}");
    for volume in &volumes {
        rig.leave_volume(volume).await;
    }
    wait::until_async(
        Duration::from_secs(300),
        "everything has moved",
        async || {
            let volumes = rig.inventory().await.volumes;
            volumes
                .iter()
                .all(|volume| volume.drive != from)
                .then_some(())
        },
    )
    .await;
    let on = |drive: &str, all: &[drivebay_proto::agent::Volume]| {
        all.iter()
            .filter(|volume| volume.drive.starts_with(drive))
            .count()
    };
    let all = rig.inventory().await.volumes;
    for drive in ["loop-b.img-", "loop-c.img-", "loop-d.img-"] {
        let here = on(drive, &all);
        assert!(here + 2 >= count / 3, "{drive}: {here}");
    }
    for (n, volume) in volumes.iter().enumerate() {
        use_volume(&rig, volume).await;
        assert_eq!(
            fs::read_to_string(volume.target.join("n")).unwrap(),
            n.to_string()
        );
        rig.leave_volume(volume).await;
    }
    let limit = Duration::from_secs(120);
    // Waits for erasing to finish.
    let (code, text) = drive_command(&rig, "retire", &[&from, "--by", "ann"]);
    assert!(
        code == Some(0) && text.contains("may leave the building"),
        "{code:?} {text}"
    );
    let done = retire(&rig, &from).await;
    assert_eq!(done.erasing_bytes, 0);
    assert!(
        done.keeps.is_empty() && done.not_erased.is_empty(),
        "{done:?}"
    );
    rig.shelf.pull("a");
    wait::until_async(limit, "nothing is missed", async || {
        let inventory = rig.inventory().await;
        let gone = inventory.drives.iter().all(|drive| drive.id != from);
        (gone
            && inventory
                .volumes
                .iter()
                .all(|volume| volume.conditions.is_empty()))
        .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_drive_is_replaced_by_a_blank_one_of_another_size() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let one = letter(&rig, "one").await;
    let two = letter(&rig, "two").await;
    let small = rig.shelf.add(DriveSpec::blank("b", 96 * MIB));
    small.unwrap();
    rig.drive_is("b", "available").await;
    rig.shelf.add(DriveSpec::blank("c", 320 * MIB)).unwrap();
    rig.drive_is("c", "available").await;
    let (old, too_small, new) = (
        id_of(&rig, "a").await,
        id_of(&rig, "b").await,
        id_of(&rig, "c").await,
    );
    let (code, text) = drive_command(&rig, "replace", &[&old, &too_small, "--by", "ann"]);
    assert!(code != Some(0) && text.contains("room"), "{code:?} {text}");
    assert!(
        rig.drive("a").await.unwrap().cordon.is_none(),
        "nothing is done when it is refused"
    );
    let (code, text) = drive_command(&rig, "replace", &[&old, &new, "--by", "ann"]);
    assert_eq!(code, Some(0), "{text}");
    for volume in [&one, &two] {
        lives_on(&rig, &volume.id, &new).await;
    }
    read_letter(&rig, &one, "one").await;
    read_letter(&rig, &two, "two").await;
}

#[tokio::test]
async fn a_stage_wins_over_a_copy_which_goes_on_when_the_volume_is_unstaged() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    // 64 MiB take half a minute.
    let (rig, volume, _, to) = with_letter("[moves]\nmax-bytes-per-second = '8MiB'\n").await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    wait::until_async(Duration::from_secs(20), "it is copied", async || {
        (moves(&rig).await[0].done_bytes > 0).then_some(())
    })
    .await;
    let began = std::time::Instant::now();
    rig.use_volume(&volume).await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    fs::write(volume.target.join("letter"), "written since").unwrap();
    wait::until_async(Duration::from_secs(10), "it waits", async || {
        let one = moves(&rig).await.remove(0);
        (one.phase == "waiting" && one.waits_for.contains("in use")).then_some(())
    })
    .await;
    rig.leave_volume(&volume).await;
    lives_on(&rig, &volume.id, &to).await;
    read_letter(&rig, &volume, "written since").await;
}

#[tokio::test]
async fn a_volume_in_use_that_is_to_move_reports_it_and_has_nothing_wrong_until_it_has_moved() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, volume, from, to) = with_letter("").await;
    rig.use_volume(&volume).await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    let moving = rig.has_condition(&volume, "VolumeMoving").await;
    assert!(!moving.abnormal && moving.status.is_empty(), "{moving:?}");
    assert!(moving.since > 0, "{moving:?}");
    for part in [&from, &to, "in use: waits for the volume to be unstaged"] {
        assert!(moving.message.contains(part), "{moving:?}");
    }
    // It appears neither in CSI nor in `health` or `--abnormal`.
    let entries = rig.csi.list().await.unwrap();
    let condition = entries[0].status.as_ref().unwrap().volume_condition.clone();
    assert!(!condition.unwrap().abnormal);
    let wrong = rig
        .agent
        .run_command(&["volumes", "--abnormal", "-o", "name"]);
    assert_eq!(String::from_utf8(wrong.unwrap().stdout).unwrap(), "");
    let health = rig.agent.run_command(&["health"]).unwrap().stdout;
    let health = String::from_utf8(health).unwrap();
    assert!(!health.contains("VolumeMoving"), "{health}");
    let shown = rig
        .agent
        .run_command(&["volume", "show", &volume.id])
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("VolumeMoving"), "{shown}");
    rig.leave_volume(&volume).await;
    lives_on(&rig, &volume.id, &to).await;
    rig.is_well(&volume).await;
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_move_that_is_cancelled_leaves_the_volume_where_it_was_and_nothing_on_the_target() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, volume, from, to) = with_letter("[moves]\nmax-bytes-per-second = '8MiB'\n").await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    wait::until_async(Duration::from_secs(20), "it is copied", async || {
        (moves(&rig).await[0].done_bytes > 0).then_some(())
    })
    .await;
    let request = CancelMovesRequest {
        volume_id: volume.id.clone(),
        drive: String::new(),
        by: "ann".into(),
    };
    let cancelled = client(&rig)
        .await
        .cancel_moves(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(cancelled.cancelled, [volume.id.as_str()]);
    wait::until_async(Duration::from_secs(60), "the copy is erased", async || {
        let now = rig.volume_of(&volume.id).await?;
        let target = rig.drive(shelf_name(&to)).await?;
        (now.places.is_empty() && target.free_bytes == target.usable_bytes).then_some(())
    })
    .await;
    assert_eq!(rig.volume_of(&volume.id).await.unwrap().drive, from);
    assert!(moves(&rig).await.is_empty());
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn an_agent_or_a_worker_that_is_killed_at_any_moment_of_a_move_loses_nothing() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, volume, mut from, mut to) =
        with_letter("[moves]\nold-place-delay = '1s'\nmax-bytes-per-second = '100MiB'\n").await;
    let mut in_doubt = 0;
    let rounds: &[u64] = match need::is_long() {
        true => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        false => &[0, 2, 4, 5, 7],
    };
    for round in rounds {
        move_to(&rig, &volume.id, &to).await.unwrap();
        tokio::time::sleep(Duration::from_millis(40 + round * 110)).await;
        if round % 3 == 2 {
            for pid in drivebay_hwtests::agent::descendants(rig.agent.pid()) {
                drivebay_hwtests::agent::kill_at_once(pid);
            }
        } else {
            rig.agent.kill9();
            rig.start_again().await;
        }
        let limit = Duration::from_secs(90);
        let now = wait::until_async(limit, "the move ends", async || {
            let now = rig.volume_of(&volume.id).await?;
            let done = now.drive == to && now.state == "ready";
            (done || now.state == "ambiguous").then_some(now)
        })
        .await;
        if now.state == "ambiguous" {
            // Only between the note and the commit; an operator decides, and the copy is complete.
            in_doubt += 1;
            let request = PreferPlaceRequest {
                volume_id: volume.id.clone(),
                drive: to.clone(),
                by: "ann".into(),
            };
            client(&rig).await.prefer_place(request).await.unwrap();
            lives_on(&rig, &volume.id, &to).await;
        }
        read_letter(&rig, &volume, "kept").await;
        use_volume(&rig, &volume).await;
        wait::until_async(limit, "the old place is erased", async || {
            let now = rig.volume_of(&volume.id).await?;
            (now.places.is_empty() && moves(&rig).await.is_empty()).then_some(())
        })
        .await;
        rig.leave_volume(&volume).await;
        std::mem::swap(&mut from, &mut to);
    }
    assert!(in_doubt <= 2, "{in_doubt}");
}

#[tokio::test]
async fn an_old_place_is_served_by_nobody_before_and_after_its_volume_was_deleted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, volume, from, to) = with_letter("").await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    lives_on(&rig, &volume.id, &to).await;
    // The target is unplugged: the old place is not served instead.
    rig.shelf.pull(shelf_name(&to));
    rig.drive_is(shelf_name(&to), "missing").await;
    let staged = rig
        .csi
        .stage(&volume.id, &volume.staging, &volume.capability)
        .await;
    assert_eq!(staged.unwrap_err().code(), Code::FailedPrecondition);
    let condition = rig.has_condition(&volume, "MoveInDoubt").await;
    assert!(condition.message.contains(&to), "{condition:?}");
    // Neither after a restart, nor after the persisted state was lost.
    for lost in [false, true] {
        rig.agent.stop().unwrap();
        if lost {
            fs::remove_dir_all(rig.dir().join("state")).unwrap();
        }
        rig.start_again().await;
        let staged = rig
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        let code = staged.unwrap_err().code();
        assert!(
            matches!(code, Code::FailedPrecondition | Code::Unavailable),
            "{code:?}"
        );
    }
    rig.shelf.plug(shelf_name(&to)).unwrap();
    lives_on(&rig, &volume.id, &to).await;
    read_letter(&rig, &volume, "kept").await;
    // Deleted while the old drive is missing: the returning copy is deleted, too.
    rig.shelf.pull(shelf_name(&from));
    wait::until_async(Duration::from_secs(30), "its drive has gone", async || {
        let now = rig.volume_of(&volume.id).await?;
        now.places.is_empty().then_some(())
    })
    .await;
    rig.csi.delete(&volume.id).await.unwrap();
    rig.shelf.plug(shelf_name(&from)).unwrap();
    rig.drive_is(shelf_name(&from), "claimed").await;
    rig.volume_is(&volume.id, "quarantined").await;
    let staged = rig
        .csi
        .stage(&volume.id, &volume.staging, &volume.capability)
        .await;
    assert!(staged.is_err());
    assert_eq!(rig.csi.ids().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn the_place_that_an_operator_prefers_is_served_also_when_the_other_one_comes_back() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, volume, first, second) = with_letter("").await;
    move_to(&rig, &volume.id, &second).await.unwrap();
    lives_on(&rig, &volume.id, &second).await;
    let prefer = async |rig: &Rig, drive: &str| {
        let request = PreferPlaceRequest {
            volume_id: volume.id.clone(),
            drive: drive.to_owned(),
            by: "ann".into(),
        };
        let response = client(rig).await.prefer_place(request).await;
        response.unwrap().into_inner().generation
    };
    // The new drive is missing; then it is present again, and the old one is missing, whose place was preferred meanwhile.
    for (away, here, generation) in [(&second, &first, 3), (&first, &second, 4)] {
        rig.shelf.pull(shelf_name(away));
        rig.has_condition(&volume, "MoveInDoubt").await;
        assert_eq!(prefer(&rig, here).await, generation);
        lives_on(&rig, &volume.id, here).await;
        read_letter(&rig, &volume, "kept").await;
        rig.shelf.plug(shelf_name(away)).unwrap();
        rig.drive_is(shelf_name(away), "claimed").await;
        lives_on(&rig, &volume.id, here).await;
        assert_eq!(
            prefer(&rig, here).await,
            generation,
            "a repeat changes nothing"
        );
    }
}

#[tokio::test]
async fn a_deleted_volume_goes_with_its_old_place() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (rig, volume, from, to) = with_letter("").await;
    // No other bytes on the drives match these.
    let secret = b"only in this volume";
    rig.use_volume(&volume).await;
    fs::write(volume.target.join("secret"), secret).unwrap();
    rig.leave_volume(&volume).await;
    rig.shelf.flush().unwrap();
    let holds = |name: &str| {
        let offsets = digest::find(&rig.shelf.file(name), secret).unwrap();
        !offsets.is_empty()
    };
    assert!(holds(shelf_name(&from)));
    move_to(&rig, &volume.id, &to).await.unwrap();
    lives_on(&rig, &volume.id, &to).await;
    wait::until_async(Duration::from_secs(20), "it is deleted", async || match rig
        .csi
        .delete(&volume.id)
        .await
    {
        Err(status) if status.code() == Code::Aborted => None,
        deleted => {
            deleted.unwrap();
            Some(())
        }
    })
    .await;
    wait::until_async(Duration::from_secs(60), "both are free", async || {
        let mut free = Vec::new();
        for drive in [&from, &to] {
            let drive = rig.drive(shelf_name(drive)).await?;
            free.push(drive.free_bytes == drive.usable_bytes);
        }
        (free == [true, true]).then_some(())
    })
    .await;
    rig.shelf.flush().unwrap();
    assert!(!holds("a") && !holds("b"));
}

#[tokio::test]
async fn a_source_or_target_that_is_pulled_while_it_is_copied_and_comes_back_ends_in_one_place() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    // In the short run `moves_beside` unplugs both at several moments.
    long_on_drives!();
    for pulled_source in [true, false] {
        let (mut rig, volume, from, to) =
            with_letter("[moves]\nmax-bytes-per-second = '8MiB'\n").await;
        move_to(&rig, &volume.id, &to).await.unwrap();
        wait::until_async(Duration::from_secs(20), "it is copied", async || {
            (moves(&rig).await[0].done_bytes > 0).then_some(())
        })
        .await;
        let name = shelf_name(if pulled_source { &from } else { &to }).to_owned();
        rig.shelf.pull(&name);
        if pulled_source {
            rig.drive_is(&name, "missing").await;
            rig.volume_is(&volume.id, "missing").await;
        } else {
            // It held only a copy: it is not reported as missing.
            wait::until_async(Duration::from_secs(30), "it is gone", async || {
                rig.drive(&name).await.is_none().then_some(())
            })
            .await;
            read_letter(&rig, &volume, "kept").await;
        }
        rig.shelf.plug(&name).unwrap();
        lives_on(&rig, &volume.id, &to).await;
        read_letter(&rig, &volume, "kept").await;
    }
}

#[tokio::test]
async fn what_cannot_be_moved_is_refused_with_every_reason_and_nothing_is_changed() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let drives = vec![DriveSpec::blank("a", GIB), DriveSpec::blank("b", 96 * MIB)];
    let rig = Rig::with(drives).await;
    let large = rig.volume("large", 200 * MIB, &csi::block()).await;
    let from = id_of(&rig, "a").await;
    let (code, text) = drive_command(&rig, "evacuate", &[&from, "--by", "ann"]);
    assert!(code != Some(0), "{text}");
    for word in ["large", "room"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let request = MoveVolumesRequest {
        drive: from.clone(),
        to: vec!["nowhere".into()],
        by: "ann".into(),
        ..Default::default()
    };
    let refused = client(&rig).await.move_volumes(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for word in ["no drive \"nowhere\"", "large", "room"] {
        assert!(refused.message().contains(word), "{word} in {refused:?}");
    }
    assert!(rig.drive("a").await.unwrap().cordon.is_none());
    assert!(moves(&rig).await.is_empty());
    assert_eq!(rig.volume_of(&large.id).await.unwrap().drive, from);
}

#[tokio::test]
async fn a_controller_has_volumes_moved_where_the_nodes_configuration_lets_it() {
    need!(root, loop);
    for (keys, may) in [("", true), ("drive-verbs = [\"cordon\"]\n", false)] {
        let mut shelf = Shelf::new().unwrap();
        shelf.add(DriveSpec::blank("a", 256 * MIB)).unwrap();
        shelf.add(DriveSpec::blank("b", 256 * MIB)).unwrap();
        let pair = Pair::start(Link::Socket, shelf, |settings| {
            settings.controller_keys = keys.to_owned();
        })
        .await;
        let volume = pair.csi.create("v", 64 * MIB, &csi::block()).await.unwrap();
        let from = pair.node.volume_of(&volume.volume_id).await.unwrap().drive;
        let run_cli = |words: &[&str]| {
            let output = pair.controller.run_command(words).unwrap();
            let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
            (output.status.code(), String::from_utf8(printed).unwrap())
        };
        let (code, text) = run_cli(&["drive", "evacuate", &from, "--by", "ann"]);
        let now = pair.node.volume_of(&volume.volume_id).await.unwrap();
        if may {
            assert_eq!(code, Some(0), "{text}");
            assert_ne!(now.drive, from);
            let (code, text) = run_cli(&["moves", "--node", NODE]);
            assert!(code == Some(0) && text.contains("moved"), "{text}");
        } else {
            assert!(code != Some(0) && text.contains("drive-verbs"), "{text}");
            assert_eq!(now.drive, from);
        }
    }
}

//! Events beside a move: drives unplugged at any moment, checks, and other nodes.

use std::{fs, process::Command, time::Duration};

use drivebay_hwtests::{Agent, Rig, need, rig::Placed, tools, wait};
use drivebay_proto::agent::PreferPlaceRequest;

use super::{
    helpers::drive_command,
    moves::{client, lives_on, move_to, moves, read_letter, shelf_name, use_volume, with_letter},
};

const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_drive_that_is_pulled_at_any_moment_of_a_move_and_comes_back_leaves_one_place() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut in_doubt = 0;
    // Each drive twice: one that disappears three times a day is SUSPECT. In the short run the source at once, and the target when most is
    // copied.
    let rounds: &[(u64, bool)] = match need::is_long() {
        true => &[(0, true), (1, false), (2, false), (3, true)],
        false => &[(0, true), (2, false)],
    };
    for half in 0..if need::is_long() { 2 } else { 1 } {
        let more = "[moves]\nold-place-delay = '1s'\nmax-bytes-per-second = '100MiB'\n";
        let (mut rig, volume, mut from, mut to) = with_letter(more).await;
        for &(round, is_source) in rounds {
            let after = Duration::from_millis(60 + (round * 2 + half) * 150);
            let pulled = if is_source { &from } else { &to };
            let moved = Pulled {
                volume: &volume,
                to: &to,
                name: shelf_name(pulled),
                after,
            };
            in_doubt += moved.ends_in_one_place(&mut rig).await;
            std::mem::swap(&mut from, &mut to);
        }
    }
    assert!(in_doubt <= 2, "{in_doubt}");
}

/// A move during which a drive is unplugged and plugged in again.
struct Pulled<'a> {
    volume: &'a Placed,
    to: &'a str,
    name: &'a str,
    after: Duration,
}

impl Pulled<'_> {
    /// Returns 1 if an operator had to decide, else 0.
    async fn ends_in_one_place(&self, rig: &mut Rig) -> u32 {
        let Self { volume, to, .. } = *self;
        let text = format!("written before {:?}", self.after);
        use_volume(rig, volume).await;
        fs::write(volume.target.join("letter"), &text).unwrap();
        rig.leave_volume(volume).await;
        move_to(rig, &volume.id, to).await.unwrap();
        tokio::time::sleep(self.after).await;
        rig.shelf.pull(self.name);
        tokio::time::sleep(Duration::from_millis(500)).await;
        rig.shelf.plug(self.name).unwrap();
        let now = wait::until_async(LIMIT, "the move ends", async || {
            let now = rig.volume_of(&volume.id).await?;
            let drive = rig.drive(self.name).await?;
            let is_in_doubt = now.state == "ambiguous" && drive.state == "claimed";
            (now.drive == to && now.state == "ready" || is_in_doubt).then_some(now)
        })
        .await;
        let is_in_doubt = now.state == "ambiguous";
        if is_in_doubt {
            // Only between the note and the commit; the copy is complete.
            let request = PreferPlaceRequest {
                volume_id: volume.id.clone(),
                drive: to.to_owned(),
                by: "ann".into(),
            };
            client(rig).await.prefer_place(request).await.unwrap();
            lives_on(rig, &volume.id, to).await;
        }
        read_letter(rig, volume, &text).await;
        use_volume(rig, volume).await;
        wait::until_async(LIMIT, "the old place is erased", async || {
            let now = rig.volume_of(&volume.id).await?;
            (now.places.is_empty() && moves(rig).await.is_empty()).then_some(())
        })
        .await;
        rig.leave_volume(volume).await;
        u32::from(is_in_doubt)
    }
}

#[tokio::test]
async fn a_check_goes_on_beside_a_copy_and_the_move_completes() {
    need!(root, loop, tool "mkfs.ext4", tool "e2fsck", fs "ext4");
    let more = "[moves]\nmax-bytes-per-second = '8MiB'\n[checks]\ninterval = '0s'\n";
    let (rig, volume, _, to) = with_letter(more).await;
    read_letter(&rig, &volume, "kept").await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    let uuid = volume.id.split('@').next().unwrap();
    let result = rig.dir().join(format!("state/checks/{uuid}.json"));
    wait::until_async(LIMIT, "it is checked while it is copied", async || {
        let is_copied = moves(&rig).await.first()?.phase == "copying";
        let checked = fs::read_to_string(&result).ok()?;
        (is_copied && checked.contains("clean")).then_some(())
    })
    .await;
    lives_on(&rig, &volume.id, &to).await;
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_volume_that_is_mounted_in_another_namespace_is_copied_when_it_is_released_with_what_was_written_last()
 {
    need!(root, loop, tool "mkfs.ext4", tool "unshare", fs "ext4");
    let (rig, volume, _, to) = with_letter("").await;
    use_volume(&rig, &volume).await;
    let mut holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sleep", "600"])
        .spawn()
        .unwrap();
    let pid = holder.id().to_string();
    // The unpublished path is removed, and with it the mount there, in every namespace.
    let letter = volume.staging.join("letter").display().to_string();
    wait::until(LIMIT, "it has a namespace of its own", || {
        let own = fs::read_link("/proc/self/ns/mnt").ok()?;
        (fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()? != own).then_some(())
    });
    rig.leave_volume(&volume).await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    // Longer than the interval of the attempts.
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let moves = moves(&rig).await;
        assert_eq!(moves.first().unwrap().phase, "waiting", "{moves:#?}");
    }
    let script = format!("printf 'written last' >{letter} && sync {letter}");
    let inside = ["--target", &pid, "--mount", "sh", "-c", &script];
    tools::must("nsenter", &inside);
    holder.kill().unwrap();
    holder.wait().unwrap();
    lives_on(&rig, &volume.id, &to).await;
    read_letter(&rig, &volume, "written last").await;
}

#[tokio::test]
async fn another_node_that_adopts_an_old_place_alone_does_not_serve_it_and_with_the_other_drive_the_newer_one()
 {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let (mut rig, mut volume, from, to) = with_letter("").await;
    move_to(&rig, &volume.id, &to).await.unwrap();
    lives_on(&rig, &volume.id, &to).await;
    use_volume(&rig, &volume).await;
    fs::write(volume.target.join("letter"), "written since").unwrap();
    rig.leave_volume(&volume).await;
    rig.agent.stop().unwrap();
    rig.shelf.pull(shelf_name(&to));
    // The first node's state stays there.
    fs::remove_dir_all(rig.dir().join("state")).unwrap();
    let mut settings = rig.agent.settings().clone();
    settings.node = "node2".to_owned();
    rig.agent = Agent::start(settings).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    let adopt = |drive: &str| {
        let (code, output) = drive_command(&rig, "adopt", &[drive, "--confirm", drive]);
        assert_eq!(code, Some(0), "{output}");
    };
    rig.drive_is(shelf_name(&from), "rejected").await;
    adopt(&from);
    volume.id = volume.id.replace("@node1", "@node2");
    let condition = rig.has_condition(&volume, "MoveInDoubt").await;
    assert!(condition.message.contains(&to), "{condition:?}");
    let (id, staging) = (&volume.id, &volume.staging);
    let staged = rig.csi.stage(id, staging, &volume.capability).await;
    assert!(staged.is_err());
    rig.shelf.plug(shelf_name(&to)).unwrap();
    rig.drive_is(shelf_name(&to), "rejected").await;
    let (code, output) = drive_command(&rig, "adopt", &[&to, "--confirm", &to]);
    assert_eq!(code, Some(0), "{output}");
    lives_on(&rig, &volume.id, &to).await;
    read_letter(&rig, &volume, "written since").await;
}

//! Volumes leave drives that fail: places that do not read, targets that refuse writes or do not answer.

use std::{collections::HashMap, fs, path::Path, time::Duration};

use drivebay_hwtests::{MIB, Rig, csi, hang::HungDrive, need, rig::Placed, tools, wait};
use drivebay_proto::{agent::CancelMovesRequest, csi::CreateVolumeRequest};

use super::moves::{client, lives_on, move_to, moves, read_letter, use_volume};

/// More than two attempts need, and what an agent asks a filesystem meanwhile.
const LIMIT: Duration = Duration::from_secs(150);
const BLOCK: usize = 4096;
const SECTOR: u64 = 512;

/// A volume with a letter on the first of two drives that can fail.
struct Failing {
    // Before the drives.
    rig: Rig,
    volume: Placed,
    from: HungDrive,
    to: HungDrive,
}

impl Failing {
    async fn new(moves: &str) -> Self {
        let mut drives = [
            HungDrive::new(256 * MIB).unwrap(),
            HungDrive::new(256 * MIB).unwrap(),
        ];
        let paths: Vec<String> = drives
            .iter()
            .map(|drive| drive.file().display().to_string())
            .collect();
        let class = format!(
            "[[class]]\nname = \"failing\"\nlayout = \"partition\"\n[class.select]\npath = {paths:?}\n"
        );
        let rig = Rig::tuned(Vec::new(), |settings| {
            settings.more = format!("{moves}{class}");
        })
        .await;
        for drive in &drives {
            rig.is_available(drive).await;
        }
        let how = csi::mount("ext4");
        let made = rig.csi.create_with(CreateVolumeRequest {
            name: "kept".to_owned(),
            capacity_range: Some(csi::bytes(64 * MIB)),
            volume_capabilities: vec![how.clone()],
            // So that a file's blocks are found on the drive.
            parameters: HashMap::from([
                ("class".to_owned(), "failing".to_owned()),
                ("mkfsOptions".to_owned(), "-b 4096".to_owned()),
            ]),
            ..Default::default()
        });
        let volume = rig.place(&made.await.unwrap(), "kept", &how);
        let on = rig.volume_of(&volume.id).await.unwrap().drive;
        if id(&drives[1]) == on {
            drives.swap(0, 1);
        }
        let [from, to] = drives;
        use_volume(&rig, &volume).await;
        fs::write(volume.target.join("letter"), "kept").unwrap();
        Self {
            rig,
            volume,
            from,
            to,
        }
    }

    async fn move_away(&self) {
        move_to(&self.rig, &self.volume.id, &id(&self.to))
            .await
            .unwrap();
    }

    /// Waits until the move says that it does not go on, with these words.
    async fn stops(&self, words: &[&str]) {
        let stopped = wait::poll_async(LIMIT, async || {
            let said = moves(&self.rig).await.into_iter().next()?.waits_for;
            words.iter().all(|word| said.contains(word)).then_some(())
        })
        .await;
        let now = moves(&self.rig).await;
        assert!(stopped.is_some(), "not {words:?}: {now:?}");
        let now = self.rig.volume_of(&self.volume.id).await.unwrap();
        assert_eq!((&now.drive, now.state.as_str()), (&id(&self.from), "ready"));
    }

    /// Ends the move, and waits until nothing of it is left.
    async fn cancel(&self) {
        let request = CancelMovesRequest {
            volume_id: self.volume.id.clone(),
            by: "ann".into(),
            ..Default::default()
        };
        let asked = client(&self.rig).await.cancel_moves(request).await;
        asked.unwrap();
        wait::until_async(LIMIT, "its copy is erased", async || {
            let now = self.rig.volume_of(&self.volume.id).await?;
            (now.places.is_empty() && moves(&self.rig).await.is_empty()).then_some(())
        })
        .await;
    }
}

fn id(drive: &HungDrive) -> String {
    drive.drive_ref().unwrap().id.0
}

/// A block that is nowhere else.
fn block(word: &str, number: usize) -> Vec<u8> {
    let mut block = format!("{word} {number:05}\n").into_bytes();
    block.resize(BLOCK, b'.');
    block
}

fn write_file(path: &Path, word: &str) {
    let blocks: Vec<u8> = (0..64).flat_map(|number| block(word, number)).collect();
    fs::write(path, blocks).unwrap();
}

#[tokio::test]
async fn bad_sectors_in_free_space_do_not_stop_a_move_and_under_a_file_they_do_until_it_is_deleted()
{
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    let it = Failing::new("").await;
    let target = &it.volume.target;
    write_file(&target.join("affected"), "affected");
    write_file(&target.join("deleted"), "deleted");
    let sync = || tools::must("sync", &["-f", target.to_str().unwrap()]);
    sync();
    let place = |word| it.from.find(&block(word, 33)[..16]).unwrap().unwrap();
    let (file, free) = (place("affected"), place("deleted"));
    fs::remove_file(target.join("deleted")).unwrap();
    sync();
    it.rig.leave_volume(&it.volume).await;
    it.from.spoil(file..file + SECTOR);
    it.from.spoil_also(free..free + SECTOR);

    it.move_away().await;
    it.stops(&["4 KiB of drive", "in 1 range", "unreadable"])
        .await;
    // It is used where it is, and what does not read is an error there.
    use_volume(&it.rig, &it.volume).await;
    assert_eq!(fs::read(target.join("letter")).unwrap(), b"kept");
    assert!(fs::read(target.join("affected")).is_err());
    fs::remove_file(target.join("affected")).unwrap();
    sync();
    it.rig.leave_volume(&it.volume).await;

    // Requested again, it goes on: nothing is lost any more.
    it.cancel().await;
    it.move_away().await;
    lives_on(&it.rig, &it.volume.id, &id(&it.to)).await;
    read_letter(&it.rig, &it.volume, "kept").await;
}

#[tokio::test]
async fn a_target_that_refuses_writes_leaves_the_volume_where_it_is() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let it = Failing::new("").await;
    it.rig.leave_volume(&it.volume).await;
    // In the middle of the copy: neither label nor the ends of a place.
    it.to.refuse_writes(30 * MIB..31 * MIB);
    it.move_away().await;
    it.stops(&["writing a copy"]).await;
    read_letter(&it.rig, &it.volume, "kept").await;
    it.to.refuse_writes(0..0);
    it.cancel().await;
    read_letter(&it.rig, &it.volume, "kept").await;
}

#[tokio::test]
async fn a_target_that_does_not_answer_keeps_no_pod_from_its_volume() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let it = Failing::new("[moves]\nmax-bytes-per-second = '8MiB'\n").await;
    it.rig.leave_volume(&it.volume).await;
    it.move_away().await;
    wait::until_async(LIMIT, "it is copied", async || {
        (moves(&it.rig).await.first()?.done_bytes > 0).then_some(())
    })
    .await;
    it.to.hang();
    wait::until_async(LIMIT, "a request hangs", async || {
        (it.to.hanging() > 0).then_some(())
    })
    .await;
    let began = std::time::Instant::now();
    read_letter(&it.rig, &it.volume, "kept").await;
    assert!(began.elapsed() < Duration::from_secs(20));
    it.to.resume();
    it.cancel().await;
    read_letter(&it.rig, &it.volume, "kept").await;
}

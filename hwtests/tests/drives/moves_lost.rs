//! Unreadable sectors with data do not stop a move: they read as errors on the new drive, too, until they are written, whatever restarts.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use drivebay_hwtests::{need, settings, tools, wait};
use drivebay_proto::agent::Volume;

use super::{
    failing::{BLOCK, Failing, SECTOR, id, text},
    moves::{lives_on, move_to, use_volume},
};

/// Reads of two attempts, and queries of the filesystem between them; in a guest each process takes a second.
const LIMIT: Duration = Duration::from_secs(240);
const REASON: &str = "SectorsLost";

/// Reads a block of a file past the page cache.
fn block(file: &Path, number: usize) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(file)?;
    let mut bytes = vec![0; 2 * BLOCK];
    let aligned = bytes.as_ptr().align_offset(BLOCK);
    let room = &mut bytes[aligned..aligned + BLOCK];
    file.read_exact_at(room, (number * BLOCK) as u64)?;
    Ok(room.to_vec())
}

/// Returns the blocks of a file with [`text`] of this word that do not read. Panics if another one has other contents.
fn unreadable(dir: &Path, word: &str) -> Vec<usize> {
    let expected = text(word);
    let blocks = expected.chunks(BLOCK).enumerate();
    let bad = blocks.filter(|(number, expected)| match block(&dir.join(word), *number) {
        Ok(read) => {
            assert!(
                read == *expected,
                "block {number} of {word} has other contents"
            );
            false
        }
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
            true
        }
    });
    bad.map(|(number, _)| number).collect()
}

impl Failing {
    fn dir(&self) -> &Path {
        &self.volume.target
    }

    fn write(&self, word: &str) {
        fs::write(self.dir().join(word), text(word)).unwrap();
    }

    fn sync(&self) {
        tools::must("sync", &["-f", self.dir().to_str().unwrap()]);
    }

    async fn listed(&self) -> Volume {
        self.rig.volume_of(&self.volume.id).await.unwrap()
    }

    /// Moves the volume, which is not in use, and uses it on the new drive.
    async fn moves_to(&self, to: &str) {
        wait::until_async(LIMIT, "a move is accepted", async || {
            let requested = move_to(&self.rig, &self.volume.id, to).await;
            requested.is_ok().then_some(())
        })
        .await;
        let there = wait::poll_async(LIMIT, async || {
            let now = self.listed().await;
            (now.drive == to && now.state == "ready").then_some(())
        });
        let there = there.await;
        assert!(there.is_some(), "{:#?}", self.listed().await);
        lives_on(&self.rig, &self.volume.id, to).await;
        use_volume(&self.rig, &self.volume).await;
    }

    /// Waits until the condition names these files and no other, and returns it.
    async fn lost(&self, files: &[&str]) -> String {
        let named = wait::poll_async(LIMIT, async || {
            let now = self.listed().await;
            let ranges = now.unreadable.iter();
            let mut of: Vec<&str> = ranges
                .flat_map(|range| range.files.iter().map(|file| file.trim_start_matches('/')))
                .collect();
            of.sort_unstable();
            of.dedup();
            let condition = now.conditions.iter().find(|one| one.reason == REASON)?;
            (of == files).then(|| condition.clone())
        });
        let condition = named.await;
        let Some(condition) = condition else {
            panic!("not {files:?}: {:#?}", self.listed().await);
        };
        assert_eq!(condition.status, "DATA_LOSS");
        condition.message
    }

    async fn has_none_lost(&self) {
        let none = wait::poll_async(LIMIT, async || {
            let now = self.listed().await;
            let has = now.conditions.iter().any(|one| one.reason == REASON);
            (!has && now.unreadable.is_empty()).then_some(())
        });
        let none = none.await;
        assert!(none.is_some(), "{:#?}", self.listed().await);
    }
}

#[tokio::test]
async fn lost_sectors_of_an_ext4_are_errors_on_the_new_drive_until_they_are_written() {
    need!(root, loop, crypt, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    of_filesystem("ext4").await;
}

#[tokio::test]
async fn lost_sectors_of_an_xfs_are_errors_on_the_new_drive_until_they_are_written() {
    need!(root, loop, crypt, tool "mkfs.xfs", fs "xfs");
    of_filesystem("xfs").await;
}

async fn of_filesystem(fs_type: &str) {
    let layout = settings::layout();
    let short = "[moves]\nold-place-delay = '1s'\n";
    let mut it = Failing::on((&layout, 3), fs_type, "kept", short).await;
    for word in ["whole", "affected", "second"] {
        it.write(word);
    }
    it.sync();
    let places = [it.place_of("affected", 33), it.place_of("second", 7)];
    it.rig.leave_volume(&it.volume).await;
    it.from.spoil(places[0]..places[0] + SECTOR);
    it.from.spoil_also(places[1]..places[1] + SECTOR);

    let (second, third) = (id(&it.to), id(it.further.as_ref().unwrap()));
    it.moves_to(&second).await;
    let all = |it: &Failing| ["whole", "affected", "second"].map(|word| unreadable(it.dir(), word));
    assert_eq!(all(&it), [vec![], vec![33], vec![7]]);
    let message = it.lost(&["affected", "second"]).await;
    assert!(message.contains("8 KiB of this volume"), "{message}");
    // Errors of the volume are none of its drive.
    let drive = it
        .rig
        .drive_where(|drive| drive.id == second)
        .await
        .unwrap();
    assert!(
        !["BAD", "SUSPECT"].contains(&drive.verdict.as_str()),
        "{drive:#?}"
    );
    it.rig.agent.kill9();
    it.rig.start_again().await;
    assert_eq!(all(&it), [vec![], vec![33], vec![7]]);

    // One that is written is not found on the third drive either, and one in free space is not lost any more.
    let affected = OpenOptions::new()
        .write(true)
        .open(it.dir().join("affected"))
        .unwrap();
    let content = text("affected");
    affected
        .write_all_at(&content[33 * BLOCK..34 * BLOCK], 33 * BLOCK as u64)
        .unwrap();
    affected.sync_all().unwrap();
    drop(affected);
    it.rig.leave_volume(&it.volume).await;
    it.moves_to(&third).await;
    assert_eq!(all(&it), [vec![], vec![], vec![7]]);
    it.lost(&["second"]).await;
    fs::remove_file(it.dir().join("second")).unwrap();
    it.sync();
    it.rig.leave_volume(&it.volume).await;
    it.moves_to(&second).await;
    it.has_none_lost().await;
    let whole = ["whole", "affected"].map(|word| unreadable(it.dir(), word));
    assert_eq!(whole, [vec![], vec![]] as [Vec<usize>; 2]);
    it.rig.leave_volume(&it.volume).await;
    it.rig.csi.delete(&it.volume.id).await.unwrap();
    let left = tools::must("dmsetup", &["ls"]);
    assert!(!left.contains("drivebay-lost"), "{left}");
}

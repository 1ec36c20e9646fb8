//! Drives below encrypted volumes: one is adopted by another node, hangs, or has unreadable sectors.

use std::{
    fs::{self, File},
    io::Write,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    Agent, DriveSpec, GIB, MIB, Rig, csi, hang::HungDrive, need, node::Placed, settings::layout,
    tools, wait,
};
use drivebay_layout::lvm::plan::FIRST_PE;
use tonic::Code;

use crate::{
    HEADER, KEY, SECRET, WRONG, encrypted, encrypted_in, holds, keys::done, put, stage, use_it,
};

/// Limit of the additional time that the use of a volume takes while another drive hangs: less than the shortest deadline of a step on a
/// drive (10 s), so that none was waited for.
const DELAY: Duration = Duration::from_secs(8);
/// Longest time until the kernel's report of an unreadable sector is followed by the name of the file.
const REPORTED: Duration = Duration::from_secs(180);

#[tokio::test]
async fn an_adopted_drive_brings_its_encrypted_volumes_and_they_need_their_secret() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let mut volume = encrypted(&rig, "files", 64 * MIB, &csi::mount("ext4")).await;
    use_it(&rig, &volume).await;
    put(&volume);
    rig.leave_volume(&volume).await;

    rig.agent.stop().unwrap();
    let mut settings = rig.agent.settings().clone();
    settings.node = "node2".to_owned();
    rig.agent = Agent::start(settings).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    let drive = rig.drive_is("a", "rejected").await;
    done(&rig, &format!("drive adopt {0} --confirm {0}", drive.id));
    rig.drive_is("a", "claimed").await;
    volume.id = volume.id.replace("@node1", "@node2");
    let refused = stage(&rig, &volume, &[(KEY, WRONG)]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    use_it(&rig, &volume).await;
    assert!(holds(&volume));
    rig.leave_volume(&volume).await;
}

/// A rig with a drive "a", and a drive of class "failing" whose requests the test controls.
async fn with_a_failing_drive() -> (Rig, HungDrive) {
    let drive = HungDrive::new(GIB).unwrap();
    let more = drive.class("failing", &layout());
    let rig = Rig::tuned(vec![DriveSpec::blank("a", GIB)], |settings| {
        settings.more = more;
    })
    .await;
    rig.is_available(&drive).await;
    (rig, drive)
}

async fn on_failing(rig: &Rig) -> Placed {
    let volume = encrypted_in(rig, "failing", "troubled", 256 * MIB, &csi::mount("ext4")).await;
    use_it(rig, &volume).await;
    put(&volume);
    volume
}

/// Uses a volume, and returns how long that took.
async fn life(rig: &Rig, volume: &Placed) -> Duration {
    let begun = Instant::now();
    use_it(rig, volume).await;
    put(volume);
    rig.csi.stats(&volume.id, &volume.target).await.unwrap();
    assert!(holds(volume));
    rig.leave_volume(volume).await;
    begun.elapsed()
}

#[tokio::test]
async fn a_drive_that_hangs_below_an_encrypted_volume_delays_no_other_and_loses_nothing() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let (mut rig, drive) = with_a_failing_drive().await;
    let volume = on_failing(&rig).await;
    let other = encrypted_in(&rig, "demo", "other", 64 * MIB, &csi::mount("ext4")).await;
    use_it(&rig, &other).await;
    rig.leave_volume(&other).await;
    let undisturbed = life(&rig, &other).await;
    fs::write(volume.target.join("dirty"), vec![7; 1 << 18]).unwrap();
    drive.hang();

    let disturbed = life(&rig, &other).await;
    assert!(disturbed < undisturbed + DELAY, "{disturbed:?}");
    let refused = stage(&rig, &volume, &[(KEY, SECRET)]).await;
    if let Err(status) = &refused {
        let is_retryable = matches!(
            status.code(),
            Code::Unavailable | Code::Aborted | Code::DeadlineExceeded
        );
        assert!(is_retryable, "{status:?}");
    }
    // Also an agent that starts meanwhile serves the other drive.
    rig.agent.kill9();
    rig.start_again().await;
    let disturbed = life(&rig, &other).await;
    assert!(disturbed < undisturbed + DELAY, "{disturbed:?}");

    drive.resume();
    let limit = Duration::from_secs(60);
    wait::until_async(limit, "the volume can be staged again", async || {
        stage(&rig, &volume, &[(KEY, SECRET)]).await.ok()
    })
    .await;
    assert!(holds(&volume));
    assert_eq!(
        fs::read(volume.target.join("dirty")).unwrap().len(),
        1 << 18
    );
    rig.leave_volume(&volume).await;
    use_it(&rig, &volume).await;
    assert!(holds(&volume));
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn the_file_in_an_unreadable_sector_of_an_encrypted_volume_is_named() {
    need!(root, loop, crypt, tool "cryptsetup", tool "filefrag", tool "debugfs", fs "ext4");
    let (rig, drive) = with_a_failing_drive().await;
    let volume = on_failing(&rig).await;
    let path = volume.target.join("db/table");
    fs::create_dir(volume.target.join("db")).unwrap();
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![0xA7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    // On the drive are the volume's start, the header, and the block of the decrypted device.
    let start = rig.start_of(&volume, FIRST_PE).await;
    let at = start + HEADER + block_of(&volume, "db/table", 77) * 4096;
    drive.spoil(at..at + 512);
    tools::must("sh", &["-c", "sync; echo 3 >/proc/sys/vm/drop_caches"]);

    let id = drive.drive_ref().unwrap().id.0;
    let ranges = wait::until_async(REPORTED, "the file is named", async || {
        let _ = fs::read(&path);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let found = rig.drive_where(|of| of.id == id).await?;
        let ranges = found.health?.unreadable;
        ranges
            .iter()
            .any(|range| !range.files.is_empty())
            .then_some(ranges)
    })
    .await;
    let range = ranges.iter().find(|range| range.start == at).unwrap();
    assert_eq!(range.files, ["/db/table"], "{range:?}");
    assert_eq!(range.volume, volume.id, "{range:?}");
    rig.leave_volume(&volume).await;
}

/// The block of the decrypted device, of 4 KiB, that has this block of a file.
fn block_of(volume: &Placed, file: &str, block: u64) -> u64 {
    let path = volume.target.join(file);
    let map = tools::must("filefrag", &["-v", "-b4096", path.to_str().unwrap()]);
    let extents = map.lines().filter_map(|line| {
        // Number, first and last block of the file, and of the device.
        let row: Vec<u64> = line
            .split([':', '.', ' '])
            .filter_map(|word| word.parse().ok())
            .collect();
        matches!(row.as_slice(), [_, _, _, _, _, ..]).then_some(row)
    });
    let found = extents
        .map(|row| (row[1]..=row[2], row[3]))
        .find(|(blocks, _)| blocks.contains(&block));
    let (blocks, first) = found.unwrap_or_else(|| panic!("{map}"));
    first + block - blocks.start()
}

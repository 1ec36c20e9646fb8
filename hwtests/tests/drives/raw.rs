//! A raw volume's published device node is that of the volume and of no other, even if it is not opened for long.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::Duration,
};

use drivebay_hwtests::{DriveSpec, MIB, Rig, csi, need, rig::Placed, tools, wait};

const SECTOR: u64 = 512;

/// A partition in the kernel: its drive's node, number, first sector and number of sectors.
type Partition = [String; 4];

fn partition(device: &Path) -> Partition {
    let name = device.file_name().unwrap().to_str().unwrap();
    let sys = std::fs::canonicalize(Path::new("/sys/class/block").join(name)).unwrap();
    let read = |what: &str| {
        let text = std::fs::read_to_string(sys.join(what)).unwrap();
        text.trim().to_owned()
    };
    let drive = sys.parent().unwrap().file_name().unwrap().to_str().unwrap();
    [
        format!("/dev/{drive}"),
        read("partition"),
        read("start"),
        read("size"),
    ]
}

/// Has the kernel remove partitions and add them again in the other order, until each has the number of the other or none was removed.
/// udevd triggers a reread of a drive's table when a writer closes the drive, and all drives share the numbers.
fn swap_numbers(devices: [&Path; 2]) {
    let all = devices.map(partition);
    let before = devices.map(number);
    wait::until(Duration::from_secs(10), "numbers are swapped", || {
        let gone: Vec<&Partition> = all
            .iter()
            .filter(|[drive, number, ..]| tools::run("delpart", &[drive, number]).is_ok())
            .collect();
        for [drive, number, start, size] in gone.iter().rev() {
            tools::run("addpart", &[drive, number, start, size]).unwrap();
        }
        let [one, other] = devices.map(number);
        (gone.is_empty() || [other, one] == before).then_some(())
    });
}

fn number(device: &Path) -> u64 {
    std::fs::metadata(device).unwrap().rdev()
}

fn write(volume: &Placed, byte: u8) {
    let node = File::options().write(true).open(&volume.target).unwrap();
    node.write_all_at(&[byte; SECTOR as usize], 0).unwrap();
    node.sync_all().unwrap();
}

fn first(volume: &Placed) -> u8 {
    let mut sector = [0; SECTOR as usize];
    let node = File::open(&volume.target).unwrap();
    node.read_exact_at(&mut sector, 0).unwrap();
    sector[0]
}

#[tokio::test]
async fn a_published_node_that_nobody_has_open_stays_the_volumes_own() {
    need!(root, loop, layout "partition", tool "delpart", tool "addpart", tool "pgrep");
    let drives = ["a", "b"].map(|name| DriveSpec::blank(name, 256 * MIB));
    let mut rig = Rig::with(drives.into()).await;
    let mut volumes = Vec::new();
    for (name, byte) in [("one", 0x11), ("two", 0x22)] {
        let volume = rig.volume(name, 160 * MIB, &csi::block()).await;
        rig.use_volume(&volume).await;
        write(&volume, byte);
        volumes.push(volume);
    }
    let [one, two] = &volumes[..] else {
        unreachable!("two were made")
    };
    for is_restarted in [false, true] {
        if is_restarted {
            rig.agent.kill9();
            rig.start_again().await;
            for volume in [one, two] {
                let uuid = volume.id.split('@').next().unwrap();
                let worker = format!("worker hold .*@{uuid}");
                let device = rig.device(volume).await;
                wait::until(Duration::from_secs(10), "the device is open", || {
                    let pid = tools::run("pgrep", &["--full", &worker]).ok()?;
                    let open = std::fs::read_dir(format!("/proc/{}/fd", pid.trim())).ok()?;
                    let mut open = open.flatten();
                    open.find(|one| std::fs::read_link(one.path()).is_ok_and(|to| to == device))
                });
            }
        }
        let (here, there) = (rig.device(one).await, rig.device(two).await);
        swap_numbers([&here, &there]);
        assert_eq!([one, two].map(first), [0x11, 0x22], "{is_restarted}");
    }
    // It does not affect what follows.
    for volume in [one, two] {
        rig.leave_volume(volume).await;
        wait::until_async(
            Duration::from_secs(10),
            "the volume is deleted",
            async || rig.csi.delete(&volume.id).await.ok(),
        )
        .await;
    }
}

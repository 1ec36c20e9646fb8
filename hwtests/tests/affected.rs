//! Which data unreadable sectors hold: on a drive that returns real read errors, with each filesystem, mounted and unmounted, and outside
//! of filesystems. Needs root, FUSE and loop devices; layout by DRIVEBAY_TEST_LAYOUT.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs::{self, File},
    io::Write,
    ops::Range,
    path::Path,
    process::Command,
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi,
    faults::{About, Case},
    hang::HungDrive,
    need, program,
    rig::Placed,
    settings::layout,
    wait,
};
use drivebay_layout::{
    gpt::LABEL_EXTENT,
    lvm::plan::{COPIES, FIRST_PE},
};
use drivebay_proto::{agent as wire, csi::CreateVolumeRequest};

const SECTOR: u64 = 512;
const BLOCK: usize = 4096;
/// Time limit for the kernel's report, a read and a query of the filesystem: seconds each; more on an emulated machine.
const REPORT_LIMIT: Duration = Duration::from_secs(180);
/// Known ranges are read again every minute.
const CLEARED: Duration = Duration::from_secs(240);

/// Fields are dropped in this order: the agent and the mounts before the drives.
struct Stand {
    rig: Rig,
    volume: Placed,
    quiet: Placed,
    drive: HungDrive,
}

impl Stand {
    async fn new(fs_type: &str, mkfs_options: &str) -> Self {
        let drive = HungDrive::new(GIB).unwrap();
        let more = drive.class("failing", &layout());
        let rig = Rig::tuned(vec![DriveSpec::blank("other", GIB)], |settings| {
            settings.more = more;
        })
        .await;
        rig.is_available(&drive).await;
        let made = async |name: &str, class: &str, mkfs_options: &str| {
            let how = csi::mount(fs_type);
            let mut parameters = vec![("class".to_owned(), class.to_owned())];
            if !mkfs_options.is_empty() {
                parameters.push(("mkfsOptions".to_owned(), mkfs_options.to_owned()));
            }
            let volume = rig.csi.create_with(CreateVolumeRequest {
                name: name.to_owned(),
                capacity_range: Some(csi::bytes(512 * MIB)),
                volume_capabilities: vec![how.clone()],
                parameters: parameters.into_iter().collect(),
                ..Default::default()
            });
            let placed = rig.place(&volume.await.unwrap(), name, &how);
            rig.use_volume(&placed).await;
            placed
        };
        let volume = made("troubled", "failing", mkfs_options).await;
        let quiet = made("quiet", "demo", "").await;
        Self {
            rig,
            volume,
            quiet,
            drive,
        }
    }

    /// Returns the offset on the drive of data that was written to the volume.
    fn place_of(&self, mark: &[u8]) -> u64 {
        let offset = self.drive.find(mark).unwrap();
        offset.expect("what was written is on the drive")
    }

    async fn reported_volume(&self) -> wire::Volume {
        self.rig.volume_of(&self.volume.id).await.unwrap()
    }

    /// Returns the unreadable ranges that the agent reports for the drive.
    async fn unreadable(&self) -> Vec<wire::UnreadableRange> {
        let id = self.drive.drive_ref().unwrap().id.0;
        let drive = self.rig.drive_where(|of| of.id == id).await;
        let health = drive.and_then(|drive| drive.health);
        health.unwrap_or_default().unreadable
    }

    /// Waits until the agent reports this range of the drive, and `fits` is true for it.
    async fn is_reported(
        &self,
        bytes: &Range<u64>,
        what: &str,
        fits: impl Fn(&wire::UnreadableRange) -> bool,
    ) -> wire::UnreadableRange {
        let reported = wait::poll_async(REPORT_LIMIT, async || {
            let mut ranges = self.unreadable().await.into_iter();
            ranges.find(|range| range.start == bytes.start && fits(range))
        });
        match reported.await {
            Some(range) => {
                assert_eq!(range.len, bytes.end - bytes.start, "{range:?}");
                range
            }
            None => {
                let ranges = self.unreadable().await;
                panic!("{bytes:?} is not told to be {what}: {ranges:#?}")
            }
        }
    }

    fn shown(&self, what: &str, id: &str) -> String {
        let output = Command::new(program::agent().unwrap())
            .args([what, "show", id, "--socket"])
            .arg(&self.rig.agent_socket)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn leave(&self) {
        self.rig.leave_volume(&self.volume).await;
        self.rig.leave_volume(&self.quiet).await;
    }
}

/// Writes a file of blocks, each of which begins with the file's name and its number.
fn write_file(path: &Path, name: &str, blocks: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = File::create(path).unwrap();
    for number in 0..blocks {
        let mut block = mark(name, number);
        // Incompressible, and without holes.
        block.extend((block.len()..BLOCK).map(|_| fastrand::u8(1..)));
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}

fn mark(name: &str, number: usize) -> Vec<u8> {
    format!("drivebay test {name} block {number:8}\n").into_bytes()
}

fn sh(script: &str) -> bool {
    let status = Command::new("sh").args(["-c", script]).status();
    status.unwrap().success()
}

/// Reads part of a device with O_DIRECT in a separate process; false if the read fails.
fn read_device(node: &Path, bytes: &Range<u64>) -> bool {
    let block = bytes.start / 4096;
    let node = node.display();
    sh(&format!(
        "dd if={node} of=/dev/null bs=4096 skip={block} count=1 iflag=direct status=none 2>/dev/null"
    ))
}

/// Copy of the superblock in the second of four allocation groups. A filesystem cannot resolve blocks of a group whose header is
/// unreadable.
const XFS_COPY: Range<u64> = 128 * MIB..128 * MIB + SECTOR;

/// Capabilities of a filesystem that the test expects.
struct Expected {
    fs_type: &'static str,
    mkfs_options: &'static str,
    /// Bytes of the volume that hold the filesystem's own structures.
    metadata: Range<u64>,
    /// True if the filesystem resolves a block to a file's name.
    names: bool,
    /// True if the file's directory is a subvolume with a snapshot.
    subvolumes: bool,
    /// Part of what is reported of the file while it is unmounted; None: its name, too.
    unmounted: Option<&'static str>,
}

async fn the_right_file_is_named(expected: Expected) {
    let Expected {
        fs_type,
        mkfs_options,
        ..
    } = expected;
    let mut stand = Stand::new(fs_type, mkfs_options).await;
    let target = stand.volume.target.clone();
    // Many directories, and files before and after the one.
    for number in 0..40 {
        let dir = target.join(format!("dir{number}/sub"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("small"), "small").unwrap();
    }
    let path = "db/base/16384/2619";
    let mut paths = vec![format!("/{path}")];
    let db = target.join("db");
    if expected.subvolumes {
        assert!(sh(&format!("btrfs -q subvolume create {}", db.display())));
    }
    write_file(&target.join("before"), "before", 64);
    write_file(&target.join(path), "affected", 256);
    write_file(&target.join("behind"), "behind", 64);
    write_file(&target.join("deleted"), "deleted", 64);
    assert!(sh(&format!("sync -f {}", target.display())));
    if expected.subvolumes {
        let snapshot = target.join("kept/yesterday");
        fs::create_dir(target.join("kept")).unwrap();
        let (db, to) = (db.display(), snapshot.display());
        assert!(sh(&format!("btrfs -q subvolume snapshot -r {db} {to}")));
        paths.push("/kept/yesterday/base/16384/2619".to_owned());
    }
    let (affected, deleted) = (mark("affected", 77), mark("deleted", 33));
    let file = stand.place_of(&affected);
    let free = stand.place_of(&deleted);
    fs::remove_file(target.join("deleted")).unwrap();
    assert!(sh(&format!("sync -f {}", target.display())));
    // btrfs frees deleted extents in a later transaction.
    fs::write(target.join("later"), "later").unwrap();
    assert!(sh(&format!(
        "sync -f {}; sync; echo 3 >/proc/sys/vm/drop_caches",
        target.display()
    )));
    let file = file + SECTOR..file + 4 * SECTOR;
    let free = free..free + SECTOR;
    // Offset of the partition or logical volume.
    let begin = stand.rig.start_of(&stand.volume, FIRST_PE).await;
    let metadata = begin + expected.metadata.start..begin + expected.metadata.end;
    let own = match layout().as_str() {
        "lvm" => COPIES.start + MIB,
        _ => LABEL_EXTENT.start + MIB,
    };
    let own = own..own + SECTOR;

    let mut case = Case::new(
        &format!("unreadable sectors under a file ({})", name_of(&expected)),
        "reads answered with EIO by a FUSE server, loop drive",
    );
    stand.drive.spoil(file.clone());
    for range in [&free, &metadata, &own] {
        stand.drive.spoil_also(range.clone());
    }
    case.strikes();
    let node = stand.drive.drive_ref().unwrap().node();
    // The kernel rate-limits its log at ten lines, also across tests: ranges that log one line each come first, and are read until all are
    // found. The filesystem is queried for all of them at once.
    for range in [&free, &metadata, &own] {
        assert!(!read_device(&node, range), "{range:?} reads");
    }
    assert!(fs::read(target.join(path)).is_err(), "the file reads");
    wait::until_async(REPORT_LIMIT, "every range is found", async || {
        for range in [&free, &metadata, &own] {
            let _ = read_device(&node, range);
        }
        let _ = fs::read(target.join(path));
        tokio::time::sleep(Duration::from_secs(2)).await;
        (stand.unreadable().await.len() >= 4).then_some(())
    })
    .await;
    let id = stand.drive.drive_ref().unwrap().id.0;
    let about = About {
        drives: &[&id],
        volumes: &[&stand.volume],
    };
    case.of_volume(&stand.rig, &stand.volume, "ReadFailed", about)
        .await;

    let of_file = |range: &wire::UnreadableRange| {
        if expected.names {
            range.files == paths
        } else {
            range.holds == "unknown" && range.detail.contains("rmapbt")
        }
    };
    let reported = stand.is_reported(&file, "the file's", of_file).await;
    assert_eq!(reported.volume, stand.volume.id);
    let holds = |word: &'static str| move |range: &wire::UnreadableRange| range.holds == word;
    stand
        .is_reported(&free, "free", holds("filesystem-free"))
        .await;
    let of_metadata = if expected.names {
        "filesystem-metadata"
    } else {
        "unknown"
    };
    stand
        .is_reported(&metadata, "metadata", holds(of_metadata))
        .await;
    let reported = stand
        .is_reported(&own, "Drivebay's", holds("drivebay-metadata"))
        .await;
    assert_eq!(reported.volume, "");

    // The condition has the number of files, and the command line their names.
    let condition = stand.rig.has_condition(&stand.volume, "ReadFailed").await;
    assert!(!condition.message.contains("2619"), "{condition:?}");
    let shown = stand.shown("volume", &stand.volume.id);
    let of_drive = stand.shown("drive", &id);
    if expected.names {
        assert!(
            condition.message.contains(match paths.len() {
                1 => "1 file is affected",
                _ => "2 files are affected",
            }),
            "{condition:?}"
        );
        let files = paths.join(" and ");
        let line = format!("  3 sectors unreadable, in {files}\n");
        assert!(shown.contains(&line), "{shown}");
        let first = file.start / SECTOR;
        let line = format!("  3 sectors from {first}: volume troubled, in {files}\n");
        assert!(of_drive.contains(&line), "{of_drive}");
        assert!(
            shown.contains("  1 sector unreadable, in filesystem metadata\n"),
            "{shown}"
        );
    } else {
        assert!(shown.contains("cannot tell in which file"), "{shown}");
    }
    assert!(
        shown.contains("  1 sector unreadable, in free space of the filesystem\n"),
        "{shown}"
    );
    assert!(
        of_drive.contains(": in Drivebay's own metadata: "),
        "{of_drive}"
    );
    let json = Command::new(program::agent().unwrap())
        .args(["volume", "show", &stand.volume.id, "-o", "json", "--socket"])
        .arg(&stand.rig.agent_socket)
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["unreadable"].as_array().unwrap().len(), 3, "{json}");
    assert_eq!(stand.rig.reasons(&stand.quiet).await, Vec::<String>::new());

    // The volume can be unpublished, and the next agent knows the unreadable ranges.
    stand.rig.leave_volume(&stand.volume).await;
    if expected.unmounted.is_some() && !need::is_long() {
        case.stays("it was not mended");
        stand.rig.leave_volume(&stand.quiet).await;
        return;
    }
    stand.rig.agent.stop().unwrap();
    stand.rig.start_again().await;
    match expected.unmounted {
        None => {
            let reported = stand.is_reported(&file, "the file's", of_file).await;
            assert_eq!(reported.volume, stand.volume.id);
            stand
                .is_reported(&metadata, "metadata", holds("filesystem-metadata"))
                .await;
            stand
                .is_reported(&free, "free", holds("filesystem-free"))
                .await;
        }
        Some(why) => {
            let unmounted = |range: &wire::UnreadableRange| range.detail.contains(why);
            stand.is_reported(&file, "unknown", unmounted).await;
        }
    }

    // A range that is readable again is no finding: it was rewritten, as a drive with spare sectors does. This needs no query of a
    // filesystem and takes a minute, so it is tested once, and only in the long run.
    stand.drive.spoil(0..0);
    if expected.unmounted.is_none() && expected.fs_type == "ext4" && need::is_long() {
        wait::until_async(CLEARED, "everything reads again", async || {
            let volume = stand.reported_volume().await;
            let well = |one: &wire::Condition| one.reason != "ReadFailed";
            (volume.unreadable.is_empty() && volume.conditions.iter().all(well)).then_some(())
        })
        .await;
    }
    case.stays("ReadFailed clears when it reads; the drive's SUSPECT for 24 h");
    stand.rig.use_volume(&stand.volume).await;
    stand.leave().await;
}

fn name_of(expected: &Expected) -> String {
    match (expected.fs_type, expected.names) {
        ("xfs", true) => "XFS with rmapbt".to_owned(),
        ("xfs", false) => "XFS without rmapbt".to_owned(),
        (other, _) => other.to_owned(),
    }
}

#[tokio::test]
async fn an_ext4_names_the_file_mounted_and_not() {
    need!(root, loop, tool "mkfs.ext4", tool "debugfs", fs "ext4");
    the_right_file_is_named(Expected {
        fs_type: "ext4",
        mkfs_options: "",
        // The first copy of the superblock.
        metadata: 128 * MIB..128 * MIB + SECTOR,
        names: true,
        subvolumes: false,
        unmounted: None,
    })
    .await;
}

#[tokio::test]
async fn an_xfs_with_reverse_mapping_names_the_file_mounted_and_not() {
    need!(root, loop, tool "mkfs.xfs", tool "xfs_logprint", fs "xfs");
    the_right_file_is_named(Expected {
        fs_type: "xfs",
        mkfs_options: "-m rmapbt=1",
        metadata: XFS_COPY,
        names: true,
        subvolumes: false,
        unmounted: None,
    })
    .await;
}

#[tokio::test]
async fn an_xfs_without_reverse_mapping_names_no_file_and_reports_why() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    the_right_file_is_named(Expected {
        fs_type: "xfs",
        mkfs_options: "-m rmapbt=0",
        metadata: XFS_COPY,
        names: false,
        subvolumes: false,
        unmounted: Some("reverse mapping"),
    })
    .await;
}

#[tokio::test]
async fn a_btrfs_names_the_file() {
    need!(root, loop, tool "mkfs.btrfs", tool "btrfs", fs "btrfs");
    the_right_file_is_named(Expected {
        fs_type: "btrfs",
        mkfs_options: "",
        // The superblock.
        metadata: (64 << 10)..(64 << 10) + SECTOR,
        names: true,
        subvolumes: true,
        unmounted: Some("superblock"),
    })
    .await;
}

/// True if a worker of the agent has a file open below this path.
fn is_held(agent: u32, below: &Path) -> bool {
    let of = |pid: &str, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    let workers = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().into_string().ok()?;
            let stat = of(&pid, "stat").ok()?;
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
            (parent.parse() == Ok(agent)).then_some(pid)
        });
    workers.into_iter().any(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(below)))
    })
}

#[tokio::test]
async fn a_query_of_a_filesystem_gives_way_to_unmounting() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    let stand = Stand::new("xfs", "-m rmapbt=1").await;
    let target = stand.volume.target.clone();
    for number in 0..40_000 {
        let dir = target.join(format!("{}/{number}", number % 40));
        fs::create_dir_all(dir).unwrap();
    }
    // No early match for the inode's path: all directories are read.
    let path = target.join("deleted");
    write_file(&path, "open", 64);
    assert!(sh(&format!("sync -f {}", target.display())));
    let file = stand.place_of(&mark("open", 7));
    let open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(sh("sync; echo 3 >/proc/sys/vm/drop_caches"));
    stand.drive.spoil(file..file + SECTOR);
    let node = stand.drive.drive_ref().unwrap().node();
    assert!(!read_device(&node, &(file..file + SECTOR)));
    let agent = stand.rig.agent.pid();
    let mut reads = 0u32;
    let held = wait::poll(REPORT_LIMIT, || {
        reads += 1;
        // Repeated until the kernel logs a line about it, and the agent reads that.
        if reads.is_multiple_of(200) {
            read_device(&node, &(file..file + SECTOR));
        }
        let held = [&stand.volume.staging, &target]
            .iter()
            .any(|path| is_held(agent, path));
        held.then_some(())
    });
    held.expect("a worker walks the filesystem");
    drop(open);
    // The first call of each succeeds.
    stand.rig.leave_volume(&stand.volume).await;
    assert!(!is_held(agent, &stand.volume.staging));
    // Queried again when it is mounted again: the file is deleted by then.
    stand.rig.use_volume(&stand.volume).await;
    let free = |range: &wire::UnreadableRange| range.holds == "filesystem-free";
    stand
        .is_reported(&(file..file + SECTOR), "free", free)
        .await;
    stand.leave().await;
}

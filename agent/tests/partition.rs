//! Layout partition on real block devices: loop devices of both sector sizes, the kernel's own partitions,
//! real filesystems, and the partitioning tools with which an operator would inspect the result.
//! Needs root. Every device and file made here is removed, also when a test fails.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use drivebay_layout::jobs::{
    Advance, Changed, Claim, Create, Delete, EraseProgress, EraseStep, Expand, LayoutError,
    ReadDrive, WipeProgress, WipeStep, ZeroStep,
};
use drivebay_model::{
    ClaimPolicy, Contents, DriveId, DriveRef, ErasePolicy, Extent, FsType, Label, MIB, Mode,
    Record, RecordState,
};
use drivebay_sys::sysfs;
use drivebay_worker::{Context, Job};
use uuid::Uuid;

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn must(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{program} {args:?}: {text}");
    text
}

/// A loop device over a sparse file; partitions, device and file go with it.
struct Drive {
    _dir: tempfile::TempDir,
    image: PathBuf,
    node: String,
    sector: u32,
}

impl Drive {
    fn new(mib: u64, sector: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        let node = attach(&image, sector);
        Self {
            _dir: dir,
            image,
            node,
            sector,
        }
    }

    fn kernel_name(&self) -> &str {
        self.node.trim_start_matches("/dev/")
    }

    fn drive(&self) -> DriveRef {
        DriveRef::from(&sysfs::read(Path::new("/sys"), self.kernel_name()).unwrap())
    }

    fn detach(&self) {
        for entry in fs::read_dir(format!("/sys/class/block/{}", self.kernel_name()))
            .into_iter()
            .flatten()
        {
            if let Ok(number) = fs::read_to_string(entry.unwrap().path().join("partition")) {
                run("delpart", &[&self.node, number.trim()]);
            }
        }
        run("losetup", &["-d", &self.node]);
    }

    fn reattach(&mut self) {
        self.detach();
        self.node = attach(&self.image, self.sector);
    }

    /// All bytes, as they are on the medium.
    fn bytes(&self) -> Vec<u8> {
        must("blockdev", &["--flushbufs", &self.node]);
        let mut all = Vec::new();
        File::open(&self.node)
            .unwrap()
            .read_to_end(&mut all)
            .unwrap();
        all
    }

    /// Past everything that would notice: into the file behind the device.
    fn damage(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.image).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        file.sync_all().unwrap();
        must("blockdev", &["--flushbufs", &self.node]);
    }

    fn claim(&self, policy: ClaimPolicy) -> Option<Claim> {
        let label = Label {
            drive_uuid: Uuid::new_v4(),
            cluster: "test".into(),
            node: "n1".into(),
            class: "fast".into(),
            drive_id: self.drive().id,
            cordon: None,
        };
        Some(Claim {
            layout: drivebay_model::Layout::Partition,
            label,
            policy,
        })
    }

    fn create(&self, name: &str, mib: u64) -> Result<Changed, LayoutError> {
        self.create_as(spec(name, mib), ClaimPolicy::Blank)
    }

    fn create_as(&self, record: Record, policy: ClaimPolicy) -> Result<Changed, LayoutError> {
        Create {
            drive: self.drive(),
            claim: self.claim(policy),
            record,
            raw_space: Default::default(),
            placement: drivebay_model::Placement::Pack,
            deleted: Vec::new(),
        }
        .run(&mut Context::silent())
    }

    /// The identity and the partition's node of a new volume.
    fn create_volume(&self, name: &str, mib: u64) -> (Uuid, String) {
        let changed = self.create(name, mib).unwrap();
        assert!(changed.changed);
        let placed = changed
            .contents
            .volumes
            .iter()
            .find(|placed| placed.record.name == name)
            .unwrap()
            .clone();
        assert_eq!(
            (placed.record.state, placed.ambiguous),
            (RecordState::New, None)
        );
        (
            placed.record.uuid,
            format!("/dev/{}", placed.device.unwrap()),
        )
    }

    fn read(&self, repair: bool) -> Result<Contents, LayoutError> {
        ReadDrive {
            drive: self.drive(),
            repair,
        }
        .run(&mut Context::silent())
    }

    fn expand(&self, uuid: Uuid, mib: u64) -> Result<Changed, LayoutError> {
        Expand {
            drive: self.drive(),
            uuid,
            size_bytes: mib * MIB,
            raw_space: Default::default(),
        }
        .run(&mut Context::silent())
    }

    fn delete(&self, uuid: Uuid) -> Result<Changed, LayoutError> {
        Delete {
            drive: self.drive(),
            uuid,
            only_unused: false,
        }
        .run(&mut Context::silent())
    }

    fn erase_step(
        &self,
        uuid: Uuid,
        from_bytes: u64,
        budget_ms: u64,
    ) -> Result<EraseProgress, LayoutError> {
        EraseStep {
            drive: self.drive(),
            uuid,
            from_bytes: Some(from_bytes),
            budget_ms,
        }
        .run(&mut Context::silent())
    }

    fn erase(&self, uuid: Uuid) -> Contents {
        let mut done = 0;
        for _ in 0..1000 {
            let progress = self.erase_step(uuid, done, 50).unwrap();
            if let Some(contents) = progress.finished {
                return contents;
            }
            assert!(progress.done_bytes > done);
            done = progress.done_bytes;
        }
        panic!("erasing does not end");
    }

    fn wipe_step(&self, from_bytes: u64) -> Result<WipeProgress, LayoutError> {
        let volumes = self.read(false).map(|contents| contents.volumes);
        let volumes = volumes.into_iter().flatten();
        self.wipe_going(
            from_bytes,
            volumes.map(|placed| placed.record.uuid).collect(),
        )
    }

    fn wipe_going(&self, from_bytes: u64, going: Vec<Uuid>) -> Result<WipeProgress, LayoutError> {
        WipeStep {
            drive: self.drive(),
            from_bytes,
            going,
            written: false,
            budget_ms: 20,
        }
        .run(&mut Context::silent())
    }

    fn wipe(&self) {
        let mut done = 0;
        loop {
            let progress = self.wipe_step(done).unwrap();
            done = progress.done_bytes;
            if done == progress.total_bytes {
                return;
            }
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.detach();
    }
}

fn attach(image: &Path, sector: u32) -> String {
    let image = image.to_str().unwrap();
    must(
        "losetup",
        &["-f", "--show", "-b", &sector.to_string(), image],
    )
    .trim()
    .to_owned()
}

/// An ext4 filesystem, mounted; unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(device: &str) -> Self {
        must("mkfs.ext4", &["-q", "-F", device]);
        let dir = tempfile::tempdir().unwrap();
        must("mount", &[device, dir.path().to_str().unwrap()]);
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[self.0.path().to_str().unwrap()]);
    }
}

fn spec(name: &str, mib: u64) -> Record {
    Record {
        uuid: Uuid::new_v4(),
        name: name.into(),
        class: "fast".into(),
        mode: Mode::Mount,
        // Planned by a test that needs it.
        fs_type: None,
        mkfs_options: vec![],
        mount_options: vec![],
        requested_bytes: mib * MIB,
        parameters: Default::default(),
        erase: ErasePolicy::Zero,
        extent: Extent {
            start: 0,
            len: mib * MIB,
        },
        growing_to: None,
        place: Default::default(),
        state: RecordState::Creating,
    }
}

/// Fills a device with a pattern that no tool writes.
fn write_pattern(device: &str, pattern: &[u8]) {
    let mut file = File::options().write(true).open(device).unwrap();
    let size = file.seek(SeekFrom::End(0)).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let block: Vec<u8> = pattern.iter().copied().cycle().take(MIB as usize).collect();
    let mut left = size;
    while left > 0 {
        let n = left.min(MIB) as usize;
        file.write_all(&block[..n]).unwrap();
        left -= n as u64;
    }
    file.sync_all().unwrap();
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    // A whole piece of zeros is compared at once: byte by byte takes seconds for a drive where tests are built for debugging.
    const PIECE: usize = 64 * 1024;
    static ZEROS: [u8; PIECE] = [0; PIECE];
    assert!(needle.iter().any(|byte| *byte != 0));
    (0..haystack.len()).step_by(PIECE).any(|at| {
        // What begins in a piece may end in the next.
        let end = haystack.len().min(at + PIECE + needle.len() - 1);
        let piece = &haystack[at..end];
        let is_zeros = piece.chunks(PIECE).all(|run| run == &ZEROS[..run.len()]);
        // Blocks are written from their beginning: the pattern is there at any alignment it may have.
        !is_zeros && piece.windows(needle.len()).any(|window| window == needle)
    })
}

/// The table as other programs read it is sound and says what we say.
fn tools_agree(drive: &Drive) {
    must("blockdev", &["--flushbufs", &drive.node]);
    let verdict = must("sgdisk", &["-v", &drive.node]);
    assert!(verdict.contains("No problems found"), "{verdict}");
    let verdict = must("sfdisk", &["--verify", &drive.node]);
    assert!(verdict.contains("No errors detected"), "{verdict}");
    let table: serde_json::Value =
        serde_json::from_str(&must("sfdisk", &["-J", &drive.node])).unwrap();
    let table = &table["partitiontable"];
    let contents = drive.read(false).unwrap();
    let upper = |uuid: Uuid| uuid.to_string().to_uppercase();
    assert_eq!(table["id"], upper(contents.label.drive_uuid));
    let sector = table["sectorsize"].as_u64().unwrap();
    assert_eq!(sector, u64::from(drive.sector));
    let entries = table["partitions"].as_array().unwrap();
    assert_eq!(entries.len(), contents.volumes.len() + 1);
    assert_eq!(entries[0]["type"], "6D4E5C1A-B0C8-4F5E-9D1B-1F2E44524956");
    for placed in &contents.volumes {
        let (guid, kind) = match placed.record.state {
            RecordState::Erasing { erase_guid, .. } => {
                (erase_guid, "6D4E5C1A-B0C8-4F5E-9D1B-1F2E45524153")
            }
            _ => (placed.record.uuid, "6D4E5C1A-B0C8-4F5E-9D1B-1F2E564F4C31"),
        };
        let entry = entries
            .iter()
            .find(|entry| entry["uuid"] == upper(guid))
            .expect("an entry");
        assert_eq!(entry["type"], kind);
        assert_eq!(entry["name"], "drivebay");
        assert_eq!(
            entry["start"].as_u64().unwrap() * sector,
            placed.record.extent.start
        );
        assert_eq!(
            entry["size"].as_u64().unwrap() * sector,
            placed.record.extent.len
        );
    }
}

const SECTORS: [u32; 2] = [512, 4096];

#[test]
fn a_drive_is_claimed_and_a_volume_created_grown_erased_and_created_again() {
    for sector in SECTORS {
        let drive = Drive::new(128, sector);
        let before = drive.bytes();
        assert!(matches!(
            drive.read(true),
            Err(LayoutError::NotClaimable { .. })
        ));
        assert!(
            drive.bytes() == before,
            "a look at a drive that is not ours wrote to it"
        );

        let (a, node) = drive.create_volume("a", 16);
        let (b, _) = drive.create_volume("b", 8);
        tools_agree(&drive);
        assert!(!drive.create("a", 16).unwrap().changed);
        let contents = drive.read(false).unwrap();
        assert_eq!(contents.usable_bytes, 122 * MIB);
        assert_eq!(contents.free_bytes(), 98 * MIB);
        assert_eq!((contents.strangers.len(), contents.notes.len()), (0, 0));

        let fs_uuid = Uuid::new_v4();
        for mounted in [false, true] {
            let to = RecordState::Fs {
                fs_type: FsType::Ext4,
                fs_uuid,
                mounted,
            };
            assert!(
                Advance {
                    drive: drive.drive(),
                    uuid: a,
                    to
                }
                .run(&mut Context::silent())
                .unwrap()
                .changed
            );
        }

        // `b` is in the way; then it is not.
        assert!(
            matches!(drive.expand(a, 24), Err(LayoutError::CannotGrow { possible, .. }) if possible == 16 * MIB)
        );
        let pattern = b"drivebay-test: nobody else may read this.";
        write_pattern(
            &format!(
                "/dev/{}",
                contents.volume(b).unwrap().device.clone().unwrap()
            ),
            pattern,
        );
        assert!(contains(&drive.bytes(), pattern));
        assert!(drive.delete(b).unwrap().changed);
        assert!(!drive.delete(b).unwrap().changed);
        tools_agree(&drive);
        assert!(matches!(
            drive.expand(a, 24),
            Err(LayoutError::CannotGrow { .. })
        ));
        let contents = drive.erase(b);
        assert!(contents.volume(b).is_none());
        assert!(
            !contains(&drive.bytes(), pattern),
            "deleted bytes are still there"
        );
        assert_eq!(
            drive.erase_step(b, 0, 10).unwrap().finished.unwrap(),
            contents
        );
        tools_agree(&drive);

        let grown = drive.expand(a, 24).unwrap();
        assert!(grown.changed);
        assert_eq!(
            must("blockdev", &["--getsize64", &node]).trim(),
            (24 * MIB).to_string()
        );
        let (_, node) = drive.create_volume("b", 40);
        assert!(fs::metadata(node).is_ok());
        tools_agree(&drive);
    }
}

#[test]
fn a_mounted_sibling_is_written_to_all_the_while_and_notices_nothing() {
    for sector in SECTORS {
        let drive = Drive::new(160, sector);
        let (_, node) = drive.create_volume("busy", 32);
        let mounted = Mounted::new(&node);
        let path = mounted.0.path().join("data");
        let (stop, rounds) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let writer = thread::spawn({
            let (stop, rounds) = (stop.clone(), rounds.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let round = rounds.fetch_add(1, Ordering::Relaxed);
                    let mut file = File::create(&path).unwrap();
                    file.write_all(&round.to_le_bytes().repeat(64 * 1024))
                        .unwrap();
                    file.sync_all().unwrap();
                    let back = fs::read(&path).unwrap();
                    assert_eq!(back, round.to_le_bytes().repeat(64 * 1024));
                }
            }
        });
        for _ in 0..3 {
            let (other, _) = drive.create_volume("other", 8);
            drive.expand(other, 16).unwrap();
            drive.delete(other).unwrap();
            drive.erase(other);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(rounds.load(Ordering::Relaxed) > 0);
        tools_agree(&drive);
        drop(mounted);
        must("e2fsck", &["-fn", &node]);
    }
}

#[test]
fn a_mounted_volume_is_not_deleted_and_grows() {
    let drive = Drive::new(96, 512);
    let (uuid, node) = drive.create_volume("a", 16);
    let mounted = Mounted::new(&node);
    let before = drive.read(false).unwrap();
    assert!(matches!(drive.delete(uuid), Err(LayoutError::InUse { .. })));
    assert_eq!(drive.read(false).unwrap(), before);
    fs::write(mounted.0.path().join("file"), vec![1; 4 << 20]).unwrap();
    drive.expand(uuid, 40).unwrap();
    assert_eq!(
        must("blockdev", &["--getsize64", &node]).trim(),
        (40 * MIB).to_string()
    );
    fs::write(mounted.0.path().join("more"), vec![2; 4 << 20]).unwrap();
    drop(mounted);
    must("e2fsck", &["-fp", &node]);
    must("resize2fs", &[&node]);
    must("e2fsck", &["-fn", &node]);
    // Held without a mount: O_EXCL is not needed to be in use.
    let held = File::open(&node).unwrap();
    assert!(matches!(drive.delete(uuid), Err(LayoutError::InUse { .. })));
    drop(held);
    assert!(drive.delete(uuid).unwrap().changed);
    assert!(
        !Path::new(&format!(
            "/sys/class/block/{}",
            node.trim_start_matches("/dev/")
        ))
        .exists()
    );
}

#[test]
fn a_volume_that_is_opened_for_a_moment_is_deleted() {
    let drive = Drive::new(64, 512);
    let (uuid, node) = drive.create_volume("a", 8);
    // As udevd does with a device for which it has just received a uevent.
    let open = File::open(&node).unwrap();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(open);
    });
    assert!(drive.delete(uuid).unwrap().changed);
    closing.join().unwrap();
}

#[test]
fn one_damaged_copy_is_repaired_loudly_and_two_are_left_alone() {
    for sector in SECTORS {
        let size = 64 * MIB;
        let drive = Drive::new(64, sector);
        drive.create_volume("a", 8);
        let whole = drive.read(false).unwrap();
        let sector = u64::from(sector);
        let junk = vec![0xa5; sector as usize];
        let places = [
            ("primary partition table", sector),
            ("primary partition table", 2 * sector),
            ("backup partition table", size - sector),
            ("backup partition table", size - sector - 16384),
            ("label slot 0", MIB),
            ("label slot 1", 3 * MIB + 4096),
        ];
        for (what, offset) in places {
            drive.damage(offset, &junk);
            let contents = drive.read(false).unwrap();
            assert!(
                contents.notes[0].contains(what) && contents.notes[0].contains("damaged"),
                "{:?}",
                contents.notes
            );
            assert_eq!(
                drive.read(false).unwrap().notes.len(),
                1,
                "a look without repair repaired"
            );
            let repaired = drive.read(true).unwrap();
            assert!(
                repaired.notes[0].contains("written again"),
                "{:?}",
                repaired.notes
            );
            assert_eq!(drive.read(true).unwrap(), whole);
            tools_agree(&drive);
        }
        for pair in [[sector, size - sector], [MIB, 3 * MIB]] {
            let good: Vec<Vec<u8>> = pair
                .iter()
                .map(|&at| drive.bytes()[at as usize..(at + sector) as usize].to_vec())
                .collect();
            pair.iter().for_each(|&at| drive.damage(at, &junk));
            let before = drive.bytes();
            for repair in [false, true] {
                assert!(matches!(
                    drive.read(repair),
                    Err(LayoutError::Damaged { .. })
                ));
            }
            assert!(drive.create("b", 1).is_err());
            assert!(drive.bytes() == before, "a damaged drive was written to");
            for (at, bytes) in pair.iter().zip(good) {
                drive.damage(*at, &bytes);
            }
            assert_eq!(drive.read(true).unwrap(), whole);
        }
    }
}

#[test]
fn a_drive_that_was_away_comes_back_with_its_volumes() {
    let mut drive = Drive::new(64, 4096);
    let (a, _) = drive.create_volume("a", 8);
    let (b, _) = drive.create_volume("b", 8);
    drive.delete(b).unwrap();
    let old = drive.drive();
    drive.reattach();
    // The drive that was asked for by its old appearance is not this one.
    if old.diskseq != 0 {
        let error = ReadDrive {
            drive: DriveRef {
                kernel_name: drive.drive().kernel_name,
                ..old
            },
            repair: true,
        }
        .run(&mut Context::silent())
        .unwrap_err();
        assert!(
            matches!(error, LayoutError::NotThisDrive { .. }),
            "{error:?}"
        );
    }
    let contents = drive.read(false).unwrap();
    assert!(contents.volume(a).unwrap().device.is_none());
    let contents = drive.read(true).unwrap();
    assert!(
        Path::new(&format!(
            "/dev/{}",
            contents.volume(a).unwrap().device.as_ref().unwrap()
        ))
        .exists()
    );
    assert!(
        contents.volume(b).unwrap().device.is_none(),
        "what is being erased was given to the kernel"
    );
    assert!(drive.erase(b).volume(b).is_none());
}

#[test]
fn a_drive_with_data_or_another_identity_is_not_claimed() {
    for (offset, bytes) in [
        (40 * MIB, vec![1; 512]),
        (0, vec![7; 512]),
        (1080, vec![0x53, 0xef]),
        (48 * MIB - 1, vec![1]),
    ] {
        let drive = Drive::new(48, 512);
        drive.damage(offset, &bytes);
        let before = drive.bytes();
        match drive.create("a", 8) {
            Err(LayoutError::NotClaimable { .. }) => {}
            other => panic!("data at {offset}: {other:?}"),
        }
        assert!(
            drive.bytes() == before,
            "a drive that was refused was written to"
        );
    }
    let drive = Drive::new(48, 512);
    must("mkfs.ext4", &["-q", "-F", &drive.node]);
    for policy in [ClaimPolicy::Blank, ClaimPolicy::SignatureFree] {
        assert!(matches!(
            drive.create_as(spec("a", 8), policy),
            Err(LayoutError::NotClaimable { .. })
        ));
    }
    let mounted = {
        let dir = tempfile::tempdir().unwrap();
        must("mount", &[&drive.node, dir.path().to_str().unwrap()]);
        Mounted(dir)
    };
    assert!(matches!(
        drive.create("a", 8),
        Err(LayoutError::Busy { .. })
    ));
    assert!(matches!(drive.wipe_step(0), Err(LayoutError::Busy { .. })));
    drop(mounted);

    let wrong = DriveRef {
        id: DriveId("wwn-0x1".into()),
        ..drive.drive()
    };
    let error = ReadDrive {
        drive: wrong,
        repair: true,
    }
    .run(&mut Context::silent())
    .unwrap_err();
    assert!(matches!(error, LayoutError::NotThisDrive { .. }));

    // Too large: refused before anything is written.
    drive.wipe();
    let blank = drive.bytes();
    assert!(
        matches!(drive.create("a", 44), Err(LayoutError::NoSpace { largest, .. }) if largest == 42 * MIB)
    );
    assert!(drive.bytes() == blank);
    assert!(drive.create("a", 42).unwrap().changed);
}

#[test]
fn a_signature_free_drive_is_claimed_by_choice() {
    let drive = Drive::new(48, 512);
    drive.damage(0, &vec![7; (48 * MIB) as usize]);
    assert!(matches!(
        drive.create("a", 8),
        Err(LayoutError::NotClaimable { .. })
    ));
    let changed = drive
        .create_as(spec("a", 8), ClaimPolicy::SignatureFree)
        .unwrap();
    let placed = changed.contents.volumes[0].clone();
    let device = fs::read(format!("/dev/{}", placed.device.unwrap())).unwrap();
    assert!(device[..MIB as usize].iter().all(|&byte| byte == 0));
    assert!(device[(7 * MIB) as usize..].iter().all(|&byte| byte == 0));
    tools_agree(&drive);
}

#[test]
fn a_drive_fills_to_its_last_extent_and_reports_what_is_left() {
    for sector in SECTORS {
        let drive = Drive::new(48, sector);
        drive.create_volume("a", 20);
        drive.create_volume("b", 15);
        match drive.create("c", 8) {
            Err(LayoutError::NoSpace {
                needed, largest, ..
            }) => assert_eq!((needed, largest), (8 * MIB, 7 * MIB)),
            other => panic!("{other:?}"),
        }
        let (_, node) = drive.create_volume("c", 7);
        assert_eq!(drive.read(false).unwrap().free, []);
        write_pattern(&node, b"to the very end");
        assert_eq!(
            drive.read(true).unwrap().notes,
            Vec::<String>::new(),
            "the last volume reached the backup table"
        );
        tools_agree(&drive);
    }
}

#[test]
fn erasing_resumes_where_the_record_or_the_agent_left_it() {
    let drive = Drive::new(96, 512);
    let (uuid, node) = drive.create_volume("a", 64);
    write_pattern(&node, b"half erased");
    drive.delete(uuid).unwrap();
    let first = drive.erase_step(uuid, 0, 0).unwrap();
    assert!(
        first.finished.is_none() && first.done_bytes > 0 && first.done_bytes < 64 * MIB,
        "{first:?}"
    );
    // A live volume is not erased, whoever asks.
    let (live, _) = drive.create_volume("b", 4);
    assert!(matches!(
        drive.erase_step(live, 0, 50),
        Err(LayoutError::BadTransition { .. })
    ));
    // An agent that believes in more than is done is found out before the space is free.
    assert!(matches!(
        drive.erase_step(uuid, 64 * MIB, 50),
        Err(LayoutError::NotErased { .. })
    ));
    let contents = drive.erase(uuid);
    assert!(contents.volume(uuid).is_none());
    assert!(!contains(&drive.bytes(), b"half erased"));
}

#[test]
fn erasing_in_one_step_changes_no_byte_outside_the_volume() {
    for sector in SECTORS {
        let drive = Drive::new(128, sector);
        let mut extent = None;
        // Longer than the first piece, and shorter than the first two: the last piece has to stop at its end.
        for (name, mib) in [("before", 4), ("erased", 24), ("after", 60)] {
            let (uuid, node) = drive.create_volume(name, mib);
            write_pattern(&node, name.as_bytes());
            if name == "erased" {
                extent = Some((
                    uuid,
                    drive
                        .read(false)
                        .unwrap()
                        .volume(uuid)
                        .unwrap()
                        .record
                        .extent,
                ));
            }
        }
        let (uuid, extent) = extent.unwrap();
        drive.delete(uuid).unwrap();
        let before = drive.bytes();
        // A budget that is not used up ends with the volume, not with a piece.
        let progress = drive.erase_step(uuid, 0, 60_000).unwrap();
        assert_eq!(progress.done_bytes, extent.len);
        assert!(progress.finished.is_some(), "{progress:?}");
        let after = drive.bytes();
        let run = |all: &[u8], from: u64, to: u64| all[from as usize..to as usize].to_vec();
        for (from, to) in [(5 * MIB, extent.start), (extent.end(), 127 * MIB)] {
            assert!(
                run(&before, from, to) == run(&after, from, to),
                "bytes {from} to {to} changed"
            );
        }
        let erased = run(&after, extent.start, extent.end());
        assert!(erased.iter().all(|&byte| byte == 0));
    }
}

/// Each note is two flushed writes to the same few sectors; what is not noted is erased again after a crash.
#[test]
fn erasing_notes_its_progress_every_gib_and_not_more_often() {
    let drive = Drive::new(2600, 512);
    let (uuid, _) = drive.create_volume("a", 2560);
    drive.delete(uuid).unwrap();
    let noted = || match drive
        .read(false)
        .unwrap()
        .volume(uuid)
        .unwrap()
        .record
        .state
    {
        RecordState::Erasing { done_bytes, .. } => done_bytes,
        ref other => panic!("{other:?}"),
    };
    // Without a budget a step is one piece of 16 MiB.
    let piece = 16 * MIB;
    for (from, expected) in [
        (0, 0),
        (512 * MIB, 0),
        (1024 * MIB - piece, 1024 * MIB),
        (1024 * MIB, 1024 * MIB),
        (2048 * MIB - 2 * piece, 1024 * MIB),
        (2048 * MIB - piece, 2048 * MIB),
    ] {
        let progress = drive.erase_step(uuid, from, 0).unwrap();
        assert_eq!(progress.done_bytes, from + piece);
        assert!(progress.finished.is_none());
        assert_eq!(noted(), expected, "after {} bytes", from + piece);
    }
    // An agent that knows nothing of it goes on at the note.
    let progress = drive.erase_step(uuid, 0, 0).unwrap();
    assert_eq!(progress.done_bytes, 2048 * MIB + piece);
}

#[test]
fn somebody_elses_partition_is_shown_and_kept() {
    let drive = Drive::new(64, 512);
    drive.create_volume("a", 8);
    let rest = drive.read(false).unwrap().free_bytes();
    must(
        "sgdisk",
        &[
            "-n",
            "0:30M:+4M",
            "-c",
            "0:theirs",
            "-t",
            "0:8300",
            "-A",
            "3:set:60",
            &drive.node,
        ],
    );
    let contents = drive.read(true).unwrap();
    assert_eq!(contents.strangers.len(), 1);
    assert_eq!(contents.strangers[0].0, "theirs");
    assert_eq!(contents.free_bytes(), rest - 4 * MIB);
    let theirs = |drive: &Drive| must("sgdisk", &["-i", "3", &drive.node]);
    let before = theirs(&drive);
    let (b, _) = drive.create_volume("b", 4);
    drive.delete(b).unwrap();
    drive.erase(b);
    assert_eq!(theirs(&drive), before);
}

#[test]
fn a_volume_that_sgdisk_took_away_is_ambiguous_and_its_space_stays() {
    let drive = Drive::new(64, 512);
    let (a, _) = drive.create_volume("a", 8);
    must("sgdisk", &["-d", "2", &drive.node]);
    let contents = drive.read(true).unwrap();
    assert!(contents.volume(a).unwrap().ambiguous.is_some());
    assert_eq!(contents.free_bytes(), contents.usable_bytes - 8 * MIB);
    assert!(matches!(
        drive.delete(a),
        Err(LayoutError::Ambiguous { .. })
    ));
    assert!(matches!(
        drive.expand(a, 16),
        Err(LayoutError::Ambiguous { .. })
    ));
    assert!(matches!(
        drive.create("a", 8),
        Err(LayoutError::Ambiguous { .. })
    ));
    assert!(drive.create("b", 8).unwrap().changed);
}

#[test]
fn a_wiped_drive_is_blank_and_can_be_claimed_again() {
    for sector in SECTORS {
        let drive = Drive::new(100, sector);
        let (_, node) = drive.create_volume("a", 90);
        write_pattern(&node, b"wipe me");
        let held = File::open(&node).unwrap();
        assert!(matches!(drive.wipe_step(0), Err(LayoutError::Busy { .. })));
        assert!(drive.read(false).is_ok());
        drop(held);
        drive.wipe();
        assert!(drive.bytes().iter().all(|&byte| byte == 0));
        assert!(drive.create("a", 90).unwrap().changed);
    }
}

#[test]
fn a_wipe_does_not_take_a_volume_that_was_made_meanwhile() {
    let drive = Drive::new(96, 512);
    drive.wipe_step(0).unwrap();
    let (uuid, _) = drive.create_volume("meanwhile", 16);
    let before = drive.bytes();
    // Between two steps, and between the operator's look and the first one.
    for (from_bytes, going) in [(32 * MIB, vec![uuid]), (0, vec![])] {
        let refused = drive.wipe_going(from_bytes, going);
        assert!(matches!(refused, Err(LayoutError::Busy { .. })));
        assert!(drive.bytes() == before, "something was wiped");
    }
    assert!(drive.read(false).unwrap().volume(uuid).is_some());
}

const PATTERN: &[u8] = b"somebody else's customer record";

/// The volume of this name, raw, created as a sidecar does it: again and again, with the background's steps between.
fn raw(drive: &Drive, name: &str, mib: u64, policy: ClaimPolicy) -> (Uuid, String) {
    let spec = Record {
        mode: Mode::Block,
        fs_type: None,
        ..spec(name, mib)
    };
    let contents = drive.create_as(spec, policy).unwrap().contents;
    let placed = contents.volumes.iter().find(|one| one.record.name == name);
    let placed = placed.unwrap();
    let device = format!("/dev/{}", placed.device.as_ref().unwrap());
    (placed.record.uuid, device)
}

#[test]
fn no_raw_volume_shows_what_was_on_the_drive_when_it_is_made_and_when_it_grows() {
    for policy in [ClaimPolicy::Blank, ClaimPolicy::SignatureFree] {
        let drive = Drive::new(128, 512);
        // Half way between two samples of a blank drive.
        for at in (9..53).map(|n| 128 * MIB * n / 63 / 512 * 512 + MIB + 8192) {
            drive.damage(at, PATTERN);
        }
        assert!(contains(&drive.bytes(), PATTERN));
        let (a, device) = raw(&drive, "a", 24, policy);
        let read = |device: &str| {
            must("blockdev", &["--flushbufs", device]);
            fs::read(device).unwrap()
        };
        assert!(!contains(&read(&device), PATTERN), "{policy:?}");
        drive.expand(a, 36).unwrap();
        let grown = read(&device);
        assert_eq!(grown.len() as u64, 36 * MIB);
        assert!(!contains(&grown, PATTERN), "{policy:?}");
        let (_, other) = raw(&drive, "b", 16, policy);
        assert!(!contains(&read(&other), PATTERN), "{policy:?}");
        // In the background all that is left becomes zeros.
        let zero = || {
            let job = ZeroStep {
                drive: drive.drive(),
                first: Vec::new(),
                may_write: false,
                budget_ms: 50,
            };
            job.run(&mut Context::silent()).unwrap()
        };
        assert!((0..100).any(|_| zero().ended.is_some()));
        assert!(!contains(&drive.bytes(), PATTERN), "{policy:?}");
    }
}

/// A process that erases a volume and is held within its first PUNCH_HOLE, as by a drive that does not answer. It ends with this.
struct HeldEraser {
    strace: std::process::Child,
    log: PathBuf,
}

impl HeldEraser {
    fn start(drive: &Drive, uuid: Uuid) -> Self {
        let log = drive._dir.path().join("strace.log");
        let strace = Command::new("strace")
            .args(["-f", "-e", "trace=fallocate", "-o"])
            .arg(&log)
            .args(["-e", "inject=fallocate:delay_enter=600000000"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "erases_for_another_test", "--ignored"])
            .env("DRIVEBAY_TEST_NODE", drive.kernel_name())
            .env("DRIVEBAY_TEST_VOLUME", uuid.to_string())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let held = Self { strace, log };
        let begun = || fs::read_to_string(&held.log).unwrap_or_default();
        for _ in 0..1000 {
            if begun().contains("fallocate(") {
                return held;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the erasing process did not get to its first PUNCH_HOLE");
    }

    /// Kills it. Its thread is held within the system call, and it ends when this is dropped.
    fn kill(&self) {
        let pid = self.strace.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            run("kill", &["-KILL", child]);
        }
    }
}

impl Drop for HeldEraser {
    fn drop(&mut self) {
        // The traced process first: without its tracer it would go on.
        self.kill();
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

#[test]
#[ignore = "the process that another test holds"]
fn erases_for_another_test() {
    let kernel_name = std::env::var("DRIVEBAY_TEST_NODE").unwrap();
    let drive = DriveRef::from(&sysfs::read(Path::new("/sys"), &kernel_name).unwrap());
    let uuid = std::env::var("DRIVEBAY_TEST_VOLUME").unwrap();
    let job = EraseStep {
        drive,
        uuid: uuid.parse().unwrap(),
        from_bytes: Some(0),
        budget_ms: 60_000,
    };
    let _ = job.run(&mut Context::silent());
}

#[test]
fn a_drive_of_which_a_process_may_still_zero_bytes_is_not_wiped_nor_claimed_before_it_has_ended() {
    let drive = Drive::new(192, 512);
    let (uuid, _) = drive.create_volume("pvc-a", 64);
    drive.delete(uuid).unwrap();
    let held = HeldEraser::start(&drive, uuid);
    let refused = |error: LayoutError| {
        let text = error.to_string();
        assert!(text.contains("may still be zeroed"), "{text}");
    };
    // A second one of the same bytes is refused as well, and the rest of the drive is used.
    refused(drive.erase_step(uuid, 0, 1000).unwrap_err());
    drive.create_volume("pvc-b", 16);
    refused(drive.wipe_step(0).unwrap_err());
    // The drive was made blank by another program: it is refused all the same while the process that zeroes it may run.
    drive.damage(0, &vec![0; 192 << 20]);
    for part in ["1", "2", "3"] {
        run("delpart", &[&drive.node, part]);
    }
    let claimed = drive.create("pvc-c", 16);
    refused(claimed.unwrap_err());
    held.kill();
    refused(drive.create("pvc-c", 16).unwrap_err());
    drop(held);
    // It ends a moment after its tracer.
    for _ in 0..100 {
        if let Ok(done) = drive.create("pvc-c", 16) {
            assert!(done.changed);
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{:?}", drive.create("pvc-c", 16));
}

#[test]
fn a_locked_drive_is_waited_for_and_a_claimed_one_is_not_taken_by_another_node() {
    let drive = Drive::new(48, 512);
    drive.create_volume("a", 8);
    let mut claim = drive.claim(ClaimPolicy::Blank).unwrap();
    claim.label.node = "n2".into();
    let create = Create {
        drive: drive.drive(),
        claim: Some(claim),
        record: spec("b", 8),
        raw_space: Default::default(),
        placement: drivebay_model::Placement::Pack,
        deleted: Vec::new(),
    };
    assert!(matches!(
        create.run(&mut Context::silent()),
        Err(LayoutError::NotClaimable { .. })
    ));

    let mut holder = Command::new("flock")
        .args(["-x", &drive.node, "sleep", "0.3"])
        .spawn()
        .unwrap();
    while run("flock", &["-n", &drive.node, "true"]).status.success() {}
    drive.create_volume("b", 8);
    holder.wait().unwrap();
}

#[test]
fn nothing_is_changed_while_another_program_holds_the_lock_of_the_drive() {
    let drive = Drive::new(48, 512);
    let (uuid, _) = drive.create_volume("a", 8);
    let before = drive.bytes();
    let holder = File::open(&drive.node).unwrap();
    holder.lock().unwrap();
    let released = AtomicBool::new(false);
    thread::scope(|scope| {
        let change = scope.spawn(|| {
            drive.expand(uuid, 16).unwrap();
            assert!(released.load(Ordering::SeqCst), "it did not wait");
        });
        // Without the lock it would be done many times over.
        thread::sleep(std::time::Duration::from_millis(300));
        assert!(!change.is_finished());
        let meanwhile = drive.bytes();
        assert!(meanwhile == before, "the drive was written to");
        released.store(true, Ordering::SeqCst);
        holder.unlock().unwrap();
    });
    assert_eq!(
        drive
            .read(false)
            .unwrap()
            .volume(uuid)
            .unwrap()
            .record
            .extent
            .len,
        16 * MIB
    );
}

#[test]
fn a_read_beside_a_change_never_sees_half_of_it() {
    let drive = Drive::new(64, 512);
    drive.create_volume("a", 8);
    let (stop, target) = (AtomicBool::new(false), drive.drive());
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut reads = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let read = ReadDrive {
                    drive: target.clone(),
                    repair: false,
                };
                let contents = read.run(&mut Context::silent()).unwrap();
                assert_eq!(contents.notes, Vec::<String>::new());
                assert!(
                    contents
                        .volumes
                        .iter()
                        .all(|placed| placed.ambiguous.is_none())
                );
                reads += 1;
                // Whoever looks without a break keeps the lock from everybody who wants it alone.
                if reads.is_multiple_of(8) {
                    thread::sleep(Duration::from_millis(60));
                }
            }
            reads
        });
        let changes = || {
            for _ in 0..10 {
                let (uuid, _) = drive.create_volume("b", 4);
                drive.expand(uuid, 8).unwrap();
                drive.delete(uuid).unwrap();
                drive.erase(uuid);
            }
        };
        let changed = catch_unwind(AssertUnwindSafe(changes));
        stop.store(true, Ordering::Relaxed);
        assert!(reads.join().unwrap() > 0);
        changed.unwrap();
    });
}

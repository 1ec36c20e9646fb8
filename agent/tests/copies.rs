//! Copying a volume between real block devices: two loop devices with sectors of different sizes, and the locks of both.
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
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use drivebay_layout::jobs::{
    Claim, CopyError, CopyOf, CopyStep, Create, DropPlace, EraseStep, LayoutError, ReadDrive,
};
use drivebay_model::{
    ClaimPolicy, DriveRef, ErasePolicy, Extent, Label, Layout, MIB, Mode, Peer, PlaceState,
    Placement, Record, RecordState,
};
use drivebay_sys::sysfs;
use drivebay_worker::{Context, Job};
use uuid::Uuid;

const VOLUME: u64 = 24 * MIB;

fn must(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A loop device over a sparse file of 64 MiB.
struct Drive {
    _dir: tempfile::TempDir,
    node: String,
    label: Uuid,
}

impl Drive {
    fn new(sector: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        let image = image.to_str().unwrap();
        let node = must("losetup", &["-f", "--show", "-b", sector, image]);
        Self {
            _dir: dir,
            node: node.trim().to_owned(),
            label: Uuid::new_v4(),
        }
    }

    fn drive(&self) -> DriveRef {
        let name = self.node.trim_start_matches("/dev/");
        DriveRef::from(&sysfs::read(Path::new("/sys"), name).unwrap())
    }

    fn peer(&self) -> Peer {
        Peer {
            label: self.label,
            drive: self.drive().id,
        }
    }

    /// Creates a volume of this uuid on a drive that is claimed for it, and returns its extent.
    fn create(&self, uuid: Uuid, place: PlaceState) -> Extent {
        let label = Label {
            drive_uuid: self.label,
            cluster: "test".into(),
            node: "n1".into(),
            class: "fast".into(),
            drive_id: self.drive().id,
            cordon: None,
        };
        let record = Record {
            uuid,
            name: "v".into(),
            class: "fast".into(),
            mode: Mode::Mount,
            fs_type: None,
            mkfs_options: vec![],
            mount_options: vec![],
            requested_bytes: VOLUME,
            parameters: Default::default(),
            erase: ErasePolicy::Zero,
            extent: Extent {
                start: 0,
                len: VOLUME,
            },
            growing_to: None,
            place,
            state: RecordState::New,
        };
        let job = Create {
            drive: self.drive(),
            claim: Some(Claim {
                layout: Layout::Partition,
                label,
                policy: ClaimPolicy::Blank,
            }),
            record,
            raw_space: Default::default(),
            placement: Placement::Pack,
            deleted: Vec::new(),
        };
        let contents = job.run(&mut Context::silent()).unwrap().contents;
        contents.volume(uuid).unwrap().record.extent
    }

    fn bytes(&self, extent: Extent) -> Vec<u8> {
        must("blockdev", &["--flushbufs", &self.node]);
        let mut bytes = vec![0; extent.len as usize];
        let file = File::open(&self.node).unwrap();
        file.read_exact_at(&mut bytes, extent.start).unwrap();
        bytes
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let name = self.node.trim_start_matches("/dev/");
        for number in 1..8 {
            if fs::exists(format!("/sys/class/block/{name}/{name}p{number}")).unwrap_or(false) {
                must("delpart", &[&self.node, &number.to_string()]);
            }
        }
        must("losetup", &["-d", &self.node]);
    }
}

/// A volume with data on one drive, and the place for its copy on another.
struct Move {
    source: Drive,
    from: Extent,
    target: Drive,
    to: Extent,
    uuid: Uuid,
}

impl Move {
    fn new() -> Self {
        let (source, target) = (Drive::new("512"), Drive::new("4096"));
        let uuid = Uuid::new_v4();
        let from = source.create(uuid, PlaceState::default());
        let incoming = PlaceState::Incoming {
            generation: 2,
            from: source.peer(),
        };
        let to = target.create(uuid, incoming);
        let data: Vec<u8> = (0..VOLUME / 8)
            .flat_map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
            .collect();
        let file = File::options().write(true).open(&source.node).unwrap();
        file.write_all_at(&data, from.start).unwrap();
        file.sync_all().unwrap();
        Self {
            source,
            from,
            target,
            to,
            uuid,
        }
    }

    fn step(&self, from_bytes: u64, bytes_per_second: Option<u64>, budget_ms: u64) -> CopyStep {
        CopyStep {
            of: CopyOf::Itself,
            source: self.source.drive(),
            target: self.target.drive(),
            uuid: self.uuid,
            generation: 2,
            from_bytes,
            source_writes: None,
            may_match: false,
            holds_nothing: Vec::new(),
            lost: Vec::new(),
            bytes_per_second,
            budget_ms,
        }
    }

    fn is_copied(&self) -> bool {
        self.source.bytes(self.from) == self.target.bytes(self.to)
    }
}

#[test]
fn a_volume_is_copied_in_steps_and_compared() {
    let it = Move::new();
    assert!(!it.is_copied());
    let first = it.step(0, None, 0).run(&mut Context::silent()).unwrap();
    assert_eq!((first.done_bytes, first.total_bytes), (4 * MIB, VOLUME));
    let rest = it.step(first.done_bytes, None, 60_000);
    let rest = rest.run(&mut Context::silent()).unwrap();
    assert_eq!(rest.done_bytes, VOLUME);
    assert_eq!(rest.written_bytes, VOLUME - 4 * MIB);
    assert!(it.is_copied());
    let again = CopyStep {
        may_match: true,
        ..it.step(0, None, 60_000)
    };
    let again = again.run(&mut Context::silent()).unwrap();
    assert_eq!((again.done_bytes, again.written_bytes), (VOLUME, 0));
    // The way back is no copy that was asked for.
    let back = CopyStep {
        source: it.target.drive(),
        target: it.source.drive(),
        ..it.step(0, None, 0)
    };
    let error = back.run(&mut Context::silent()).unwrap_err();
    assert!(
        matches!(error, CopyError::Source(LayoutError::NotThere { .. })),
        "{error:?}"
    );
    let other = CopyStep {
        generation: 3,
        ..it.step(0, None, 0)
    };
    let error = other.run(&mut Context::silent()).unwrap_err();
    assert!(
        matches!(error, CopyError::Source(LayoutError::NotThere { .. })),
        "{error:?}"
    );
}

#[test]
fn while_a_volume_is_copied_both_drives_can_be_changed_and_the_bytes_of_the_copy_are_nobodys() {
    let it = Move::new();
    thread::scope(|scope| {
        // Three seconds.
        let slow = it.step(0, Some(8 * MIB), 60_000);
        let copying = scope.spawn(|| slow.run(&mut Context::silent()));
        thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        for drive in [&it.source, &it.target] {
            let read = ReadDrive {
                drive: drive.drive(),
                repair: true,
            };
            read.run(&mut Context::silent()).unwrap();
        }
        // A second copier.
        let error = it.step(0, None, 0).run(&mut Context::silent()).unwrap_err();
        assert!(
            matches!(error, CopyError::Target(LayoutError::StillZeroed { .. })),
            "{error:?}"
        );
        // Its place is dropped: what is written is erased after the copier has ended, not before.
        let place = PlaceState::Incoming {
            generation: 2,
            from: it.source.peer(),
        };
        let dropped = DropPlace {
            drive: it.target.drive(),
            uuid: it.uuid,
            place,
        };
        dropped.run(&mut Context::silent()).unwrap();
        let erase = || EraseStep {
            drive: it.target.drive(),
            uuid: it.uuid,
            from_bytes: Some(0),
            budget_ms: 60_000,
        };
        let error = erase().run(&mut Context::silent()).unwrap_err();
        assert!(
            matches!(error, LayoutError::StillZeroed { .. }),
            "{error:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(2));
        assert!(!copying.is_finished());
        let progress = copying.join().unwrap().unwrap();
        assert_eq!(progress.done_bytes, VOLUME);
        let error = it.step(0, None, 0).run(&mut Context::silent()).unwrap_err();
        assert!(
            matches!(error, CopyError::Target(LayoutError::NotThere { .. })),
            "{error:?}"
        );
        let erased = erase().run(&mut Context::silent()).unwrap();
        assert!(erased.finished.is_some());
        assert!(it.target.bytes(it.to).iter().all(|byte| *byte == 0));
    });
}

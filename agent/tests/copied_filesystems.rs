//! Copies of filesystems beside their originals, with real tools, real filesystems and real loop devices. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

#[allow(dead_code)]
mod mounts_support;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Mutex,
};

use drivebay_fs::{
    backend::StageBackend,
    copied::give_uuid,
    device,
    jobs::{FsError, Growth, Stage},
    kind::UuidChange,
    staging,
};
use drivebay_layout::jobs::{Changed, LayoutError};
use drivebay_model::{Cause, Contents, DriveRef, FsType, RecordState, Signatures};
use drivebay_proto::names;
use drivebay_sys::{
    cmd::{CmdError, Output, Tool},
    mount,
};
use drivebay_worker::Context;
use mounts_support::{Bench, may_grow_ext4, sh, skipped};
use uuid::Uuid;

/// MiB of the original; its copy has 32 more.
const SIZES: [(FsType, u64); 3] = [(FsType::Ext4, 64), (FsType::Xfs, 320), (FsType::Btrfs, 256)];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn uuid(bench: &Bench) -> Uuid {
    match bench.signatures() {
        Signatures::Found(signatures) if signatures.len() == 1 => {
            signatures[0].uuid.parse().unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn read(bench: &Bench, name: &str) -> String {
    fs::read_to_string(bench.path("staging").join(name)).unwrap()
}

/// The bytes of a volume's device as a power cut would leave them now: what its loop device has passed on.
fn crash_image(of: &Bench, mib: u64) -> PathBuf {
    let image = of.path("crashed.img");
    let drive = of.path("drive.img");
    let (from, to) = (
        format!("if={}", text(&drive)),
        format!("of={}", text(&image)),
    );
    let count = format!("count={mib}");
    let rest = ["bs=1M", "skip=1", &count, "conv=sparse"];
    sh("dd", &[&[from.as_str(), &to][..], &rest].concat());
    fs::File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(mib << 20)
        .unwrap();
    image
}

/// True if the log of a filesystem in a file has to be replayed.
fn is_dirty(fs_type: FsType, image: &Path) -> bool {
    let image = text(image);
    match fs_type {
        FsType::Ext4 => sh("dumpe2fs", &["-h", image]).contains("needs_recovery"),
        // xfs_logprint takes a log that the kernel has just begun for none. A replay is seen in the kernel log.
        FsType::Xfs => true,
        FsType::Btrfs => {
            let dump = sh("btrfs", &["inspect-internal", "dump-super", image]);
            let words: Vec<&str> = dump.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "log_root").unwrap();
            words[at + 1] != "0"
        }
    }
}

/// A mounted volume with a file that was written to the drive, and its bytes with a log that is not replayed.
fn original(fs_type: FsType, mib: u64) -> (Bench, PathBuf) {
    let original = Bench::new(mib, Some(fs_type));
    original.stage().unwrap();
    sh("sync", &["-f", text(&original.path("staging"))]);
    let mut file = fs::File::create(original.path("staging/synced")).unwrap();
    file.write_all(b"precious").unwrap();
    file.sync_all().unwrap();
    let image = crash_image(&original, mib);
    assert!(is_dirty(fs_type, &image), "{fs_type}");
    (original, image)
}

/// Makes a volume the copy of these bytes, of a filesystem with this UUID. The answer is the UUID that it is to have.
fn become_copy(copy: &Bench, image: &Path, of: Uuid) -> Uuid {
    let node = copy.node();
    sh("blkdiscard", &["-f", "-z", &node]);
    let (from, to) = (format!("if={}", text(image)), format!("of={node}"));
    let how = ["bs=1M", "conv=sparse,fsync,notrunc"];
    sh("dd", &[&[from.as_str(), &to][..], &how].concat());
    let new = Uuid::new_v4();
    copy.edit(|record| {
        record.state = RecordState::Fs {
            fs_type: record.fs_type.unwrap(),
            fs_uuid: new,
            mounted: true,
        };
        let kept = (names::KEPT_COPIED_FS.to_owned(), of.to_string());
        record.parameters.extend([kept]);
    });
    new
}

/// Checks the filesystem with its own tools, read-only. Panics if they report an error.
fn is_well(fs_type: FsType, bench: &Bench) {
    let node = bench.node();
    match fs_type {
        FsType::Ext4 => sh("e2fsck", &["-f", "-n", &node]),
        FsType::Xfs => sh("xfs_repair", &["-n", &node]),
        FsType::Btrfs => sh("btrfs", &["check", "--readonly", &node]),
    };
}

#[test]
fn copies_get_a_uuid_of_their_own_and_are_mounted_beside_their_originals() {
    for (fs_type, mib) in SIZES {
        if skipped() {
            return;
        }
        let (original, image) = original(fs_type, mib);
        let old = uuid(&original);
        let may_grow = fs_type != FsType::Ext4 || may_grow_ext4();
        let copy = Bench::new(mib + 32, Some(fs_type));
        let new = become_copy(&copy, &image, old);
        let staged = copy.stage().unwrap();
        assert!(!staged.formatted && !staged.already, "{fs_type}");
        assert_eq!(staged.growth == Growth::Grown, may_grow, "{fs_type}");
        // Nothing that takes longer the larger it is; the last one grew it.
        let tools: &[&str] = match fs_type {
            FsType::Ext4 => &["tune2fs", "resize2fs"],
            FsType::Xfs => &["xfs_db", "xfs_growfs"],
            FsType::Btrfs => &["btrfs"],
        };
        assert_eq!(*copy.ran.lock().unwrap(), tools, "{fs_type}");
        assert_eq!((uuid(&original), uuid(&copy)), (old, new), "{fs_type}");
        assert_eq!(read(&copy, "synced"), "precious", "{fs_type}");
        // Each is its own.
        fs::write(copy.path("staging/data"), "copy").unwrap();
        fs::write(original.path("staging/data"), "original").unwrap();
        for bench in [&copy, &original] {
            bench.unmount("staging").unwrap();
        }
        is_well(fs_type, &copy);
        is_well(fs_type, &original);
        copy.ran.lock().unwrap().clear();
        for bench in [&copy, &original] {
            bench.stage().unwrap();
        }
        assert!(
            !may_grow || copy.ran.lock().unwrap().is_empty(),
            "{fs_type}: it has its UUID"
        );
        assert_eq!(read(&copy, "data"), "copy", "{fs_type}");
        assert_eq!(read(&original, "data"), "original", "{fs_type}");
        // A copy of the copy, with all of them mounted.
        sh("sync", &["-f", text(&copy.path("staging"))]);
        let image = crash_image(&copy, mib + 32);
        let second = Bench::new(mib + 64, Some(fs_type));
        let newer = become_copy(&second, &image, new);
        second.stage().unwrap();
        let uuids = [&original, &copy, &second].map(uuid);
        assert_eq!(uuids, [old, new, newer], "{fs_type}");
        assert_eq!(read(&second, "data"), "copy", "{fs_type}");
        second.unmount("staging").unwrap();
        is_well(fs_type, &second);
    }
}

#[test]
fn a_copy_is_mounted_for_reading_alone_beside_its_original() {
    for (fs_type, mib) in SIZES {
        if skipped() {
            return;
        }
        let (original, image) = original(fs_type, mib);
        let copy = Bench::new(mib, Some(fs_type));
        let new = become_copy(&copy, &image, uuid(&original));
        copy.run_stage(&copy.stage_job(&[], true)).unwrap();
        assert_eq!(uuid(&copy), new, "{fs_type}");
        assert_eq!(read(&copy, "synced"), "precious", "{fs_type}");
        assert!(fs::write(copy.path("staging/x"), "").is_err(), "{fs_type}");
    }
}

/// A bench that is cut off: after so many tools and probes, at the end of the next tool or before the next probe.
struct Cut<'a> {
    bench: &'a Bench,
    left: Mutex<u32>,
}

impl Cut<'_> {
    fn is_now(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => return true,
        }
        false
    }
}

impl StageBackend for Cut<'_> {
    fn read_contents(&self, drive: &DriveRef, repair: bool) -> Result<Contents, LayoutError> {
        self.bench.read_contents(drive, repair)
    }

    fn advance(
        &self,
        drive: &DriveRef,
        uuid: Uuid,
        to: RecordState,
    ) -> Result<Changed, LayoutError> {
        self.bench.advance(drive, uuid, to)
    }

    fn probe(&self, node: &Path) -> Result<Signatures, Cause> {
        match self.is_now() {
            true => Err(Cause::text("cut off")),
            false => self.bench.probe(node),
        }
    }

    fn run(&self, tool: &Tool) -> Result<Output, CmdError> {
        let output = self.bench.run(tool)?;
        match self.is_now() {
            true => Err(CmdError::Deadline {
                program: tool.program,
                limit_ms: 0,
            }),
            false => Ok(output),
        }
    }
}

#[test]
fn a_copy_whose_first_stage_was_cut_off_is_staged_by_the_next_one() {
    for (fs_type, mib) in SIZES {
        if skipped() {
            return;
        }
        let (original, image) = original(fs_type, mib);
        let copy = Bench::new(mib + 32, Some(fs_type));
        let mut cuts = 0;
        loop {
            let new = become_copy(&copy, &image, uuid(&original));
            let cut = Cut {
                bench: &copy,
                left: Mutex::new(cuts),
            };
            let job = copy.stage_job(&[], false);
            let first = staging::stage(&cut, &job, &mut Context::silent());
            if first.is_err() {
                assert_eq!(copy.mounts("staging"), 0, "{fs_type} {cuts}");
                copy.stage().unwrap();
            }
            assert_eq!(uuid(&copy), new, "{fs_type} {cuts}");
            assert_eq!(read(&copy, "synced"), "precious", "{fs_type} {cuts}");
            copy.unmount("staging").unwrap();
            is_well(fs_type, &copy);
            if first.is_ok() {
                break;
            }
            cuts += 1;
        }
        // Both probes at least.
        assert!(cuts >= 2, "{fs_type} {cuts}");
    }
}

/// Returns the offset and the length of the log of an XFS, in KiB.
fn log_of(node: &str) -> (u64, u64) {
    let field = |name: &str| {
        let print = format!("print {name}");
        let output = sh("xfs_db", &["-r", "-c", "sb 0", "-c", &print, node]);
        output.rsplit_once(" = ").unwrap().1.parse::<u64>().unwrap()
    };
    let convert = format!("convert fsblock {} byte", field("logstart"));
    let output = sh("xfs_db", &["-r", "-c", &convert, node]);
    let byte = output.split(['(', ')']).nth(1).unwrap().parse::<u64>();
    let bytes = field("logblocks") * field("blocksize");
    (byte.unwrap() >> 10, bytes >> 10)
}

#[test]
fn an_xfs_whose_log_was_being_made_anew_is_repaired_by_who_has_the_time() {
    if skipped() {
        return;
    }
    let (original, image) = original(FsType::Xfs, 320);
    let copy = Bench::new(320, Some(FsType::Xfs));
    let node = copy.node();
    let replayed = || {
        let new = become_copy(&copy, &image, uuid(&original));
        mount::replay(Path::new(&node), "xfs", &["nouuid"]).unwrap();
        sh("blockdev", &["--flushbufs", &node]);
        new
    };
    replayed();
    let (at, len) = log_of(&node);
    let to_node = format!("of={node}");
    let seek = format!("seek={at}");
    let spoil = |from: &str, count: u64| {
        let count = format!("count={count}");
        let rest = ["bs=1K", &seek, &count, "conv=fsync,notrunc"];
        sh("dd", &[&[from, &to_node][..], &rest].concat());
    };
    for (state, spoiled) in [("zeroed", len), ("half zeroed", len / 2)] {
        let new = replayed();
        spoil("if=/dev/zero", spoiled);
        let at_once = Stage {
            may_repair: false,
            secrets: None,
            ..copy.stage_job(&[], false)
        };
        copy.ran.lock().unwrap().clear();
        let refused = copy.run_stage(&at_once);
        assert!(
            matches!(refused, Err(FsError::NeedsRepair { .. })),
            "{state}: {refused:?}"
        );
        assert_eq!(*copy.ran.lock().unwrap(), [""; 0], "{state}");
        copy.stage()
            .unwrap_or_else(|error| panic!("{state}: {error:?}"));
        assert!(copy.ran.lock().unwrap().contains(&"xfs_repair"), "{state}");
        assert_eq!(uuid(&copy), new, "{state}");
        assert_eq!(read(&copy, "synced"), "precious", "{state}");
        copy.unmount("staging").unwrap();
        is_well(FsType::Xfs, &copy);
    }
}

#[test]
fn a_btrfs_of_every_checksum_gets_its_uuid() {
    if skipped() {
        return;
    }
    for checksum in ["crc32c", "xxhash", "sha256", "blake2"] {
        let bench = Bench::new(128, Some(FsType::Btrfs));
        let (from, to, node) = (Uuid::new_v4(), Uuid::new_v4(), bench.node());
        let made = ["-q", "--csum", checksum, "-U", &from.to_string(), &node];
        sh("mkfs.btrfs", &made);
        let contents = bench.read_contents(&bench.drive, false).unwrap();
        let change = UuidChange {
            backend: &bench,
            partition: &device::open(&bench.drive, &contents.volumes[0]).unwrap(),
            fs_type: FsType::Btrfs,
            volume: bench.uuid,
            from,
            to,
            options: &[],
            may_repair: false,
        };
        for _ in 0..2 {
            give_uuid(&change, &mut Context::silent()).unwrap();
            assert_eq!(uuid(&bench), to, "{checksum}");
        }
        // btrfs-progs compares the checksum, too, and the copy of the superblock is found.
        is_well(FsType::Btrfs, &bench);
        let second = ["inspect-internal", "dump-super", "-s", "1", &node];
        let dump = sh("btrfs", &second);
        assert!(dump.contains("[match]"), "{checksum}: {dump}");
        assert!(dump.contains(&to.to_string()), "{checksum}: {dump}");
        assert!(bench.ran.lock().unwrap().is_empty());
    }
}

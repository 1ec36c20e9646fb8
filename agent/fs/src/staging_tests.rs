//! Decisions of staging without a device: raw volumes, mounted volumes, and records that differ from what was written to
//! them. With devices: `tests/mounts.rs`.

use std::{path::PathBuf, sync::Mutex};

use super::*;
use drivebay_layout::jobs::Changed;
use drivebay_model::{DriveRef, DriveState, Signatures, samples};
use drivebay_sys::cmd::{CmdError, Output, Tool};

/// Label in memory. `look` with repair gives a volume its device back.
struct Label {
    contents: Mutex<Contents>,
    repairs: Mutex<Vec<bool>>,
    /// Writing reports success, and the record stays as it was.
    forgets: bool,
}

impl Label {
    fn new(placed: Placed) -> Self {
        Self {
            contents: Mutex::new(samples::contents(9, 1, vec![placed], 0)),
            repairs: Mutex::default(),
            forgets: false,
        }
    }

    fn placed(&self) -> Placed {
        self.contents.lock().unwrap().volumes[0].clone()
    }
}

impl StageBackend for Label {
    fn read_contents(&self, _drive: &DriveRef, repair: bool) -> Result<Contents, LayoutError> {
        self.repairs.lock().unwrap().push(repair);
        let mut contents = self.contents.lock().unwrap();
        if repair {
            contents.volumes[0].device = Some("sda2".into());
        }
        Ok(contents.clone())
    }

    fn advance(
        &self,
        _drive: &DriveRef,
        _uuid: Uuid,
        to: RecordState,
    ) -> Result<Changed, LayoutError> {
        let mut contents = self.contents.lock().unwrap();
        if !self.forgets {
            contents.volumes[0].record.state = to;
        }
        Ok(Changed {
            contents: contents.clone(),
            changed: true,
        })
    }

    fn probe(&self, _node: &Path) -> Result<Signatures, Cause> {
        Err(Cause::text("nothing is probed here"))
    }

    fn run(&self, tool: &Tool) -> Result<Output, CmdError> {
        panic!("{} was run", tool.program);
    }
}

fn job(mount: Option<StageMount>) -> Stage {
    let drive = samples::drive("sda", DriveState::Claimed, None);
    Stage {
        drive: DriveRef::from(&drive.facts),
        uuid: Uuid::from_u128(1),
        mount,
        may_repair: true,
        secrets: None,
    }
}

fn at_path(fs_type: Option<FsType>) -> StageMount {
    StageMount {
        path: PathBuf::from("/nowhere/staging"),
        fs_type,
        flags: Vec::new(),
        read_only: false,
        mounted_with: None,
        xfs_retry_forever: false,
    }
}

fn raw(state: RecordState) -> Placed {
    let mut placed = samples::placed(1, state);
    placed.record.mode = Mode::Block;
    placed.record.fs_type = None;
    placed
}

fn ext4(mounted: bool) -> RecordState {
    RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(5),
        mounted,
    }
}

fn xfs(mounted: bool) -> RecordState {
    RecordState::Fs {
        fs_type: FsType::Xfs,
        fs_uuid: Uuid::from_u128(5),
        mounted,
    }
}

fn run(label: &Label, mount: Option<StageMount>) -> Result<Staged, FsError> {
    stage(label, &job(mount), &mut Context::silent())
}

/// Stages as if the mount existed.
fn already(placed: Placed) -> Result<Staged, FsError> {
    let label = Label::new(placed.clone());
    let (job, mount) = (job(None), at_path(None));
    let read = label.contents.lock().unwrap().clone();
    let staging = Staging::new(&label, &job, &mount, &read, &placed)?;
    staging.already(&placed, &mut Context::silent())
}

#[test]
fn a_raw_volume_is_recorded_once_and_read_without_repair() {
    let label = Label::new(raw(RecordState::New));
    let first = run(&label, None).unwrap();
    assert_eq!((first.already, first.formatted), (false, false));
    assert_eq!(label.placed().record.state, RecordState::Block);
    let again = run(&label, None).unwrap();
    assert!(again.already);
    assert_eq!(*label.repairs.lock().unwrap(), [false, false]);
}

#[test]
fn a_raw_volume_without_its_device_gets_it_back() {
    let mut placed = raw(RecordState::Block);
    placed.device = None;
    let label = Label::new(placed);
    let staged = run(&label, None).unwrap();
    let device = staged.contents.volumes[0].device.clone();
    assert_eq!(device.as_deref(), Some("sda2"));
    assert_eq!(*label.repairs.lock().unwrap(), [false, true]);
}

#[test]
fn the_drive_is_read_once_before_a_volume_is_mounted() {
    let label = Label::new(samples::placed(1, RecordState::New));
    // The directory does not exist, which is detected after the drive was read.
    let refused = run(&label, Some(at_path(None)));
    assert!(matches!(refused, Err(FsError::Path { .. })), "{refused:?}");
    assert_eq!(*label.repairs.lock().unwrap(), [false]);
}

#[test]
fn a_drive_is_repaired_before_a_volume_of_it_is_mounted_and_not_under_one_that_is() {
    let noted = |label: &Label| {
        let note = "a lost slot".to_owned();
        label.contents.lock().unwrap().notes.push(note);
    };
    let without_device = |label: &Label| {
        label.contents.lock().unwrap().volumes[0].device = None;
    };
    let ambiguous = |label: &Label| {
        label.contents.lock().unwrap().volumes[0].ambiguous = Some("it has two".into());
    };
    for spoil in [noted, without_device, ambiguous] {
        let label = Label::new(samples::placed(1, RecordState::New));
        spoil(&label);
        let _ = run(&label, Some(at_path(None)));
        assert_eq!(*label.repairs.lock().unwrap(), [false, true]);
        // Something is mounted there.
        let label = Label::new(samples::placed(1, RecordState::New));
        spoil(&label);
        let root = StageMount {
            path: "/".into(),
            ..at_path(None)
        };
        let _ = run(&label, Some(root));
        assert_eq!(*label.repairs.lock().unwrap(), [false]);
    }
}

#[test]
fn a_volume_is_staged_only_as_what_it_was_created_as() {
    let mut other = raw(RecordState::New);
    other.record.fs_type = Some(FsType::Ext4);
    for (placed, mount) in [
        (samples::placed(1, RecordState::New), None),
        (samples::placed(1, ext4(true)), None),
        (raw(ext4(true)), None),
        (raw(RecordState::New), Some(at_path(None))),
        (other, Some(at_path(None))),
        (
            samples::placed(1, RecordState::New),
            Some(at_path(Some(FsType::Xfs))),
        ),
    ] {
        let label = Label::new(placed.clone());
        let refused = run(&label, mount);
        assert!(
            matches!(refused, Err(FsError::Incompatible { .. })),
            "{placed:?}: {refused:?}"
        );
        assert_eq!(label.placed(), placed, "it was written to");
    }
}

#[test]
fn a_volume_that_is_not_whole_and_alive_is_not_staged() {
    let erasing = RecordState::Erasing {
        erase_guid: Uuid::from_u128(6),
        done_bytes: 0,
    };
    for state in [RecordState::Creating, erasing] {
        let refused = run(&Label::new(raw(state)), None);
        assert!(
            matches!(
                refused,
                Err(FsError::Layout(LayoutError::NoSuchVolume { .. }))
            ),
            "{refused:?}"
        );
    }
    let mut ambiguous = raw(RecordState::Block);
    ambiguous.ambiguous = Some("two entries".into());
    let refused = run(&Label::new(ambiguous), None);
    assert!(
        matches!(refused, Err(FsError::Layout(LayoutError::Ambiguous { .. }))),
        "{refused:?}"
    );
}

#[test]
fn what_is_mounted_must_match_the_record() {
    let staged = already(samples::placed(1, ext4(true))).unwrap();
    assert_eq!((staged.already, staged.growth), (true, Growth::NotTried));
    // Mounted, and its device is unknown now: nothing is written that would need it.
    let mut gone = samples::placed(1, ext4(true));
    (gone.device, gone.dev) = (None, None);
    assert!(already(gone).unwrap().already);
    for state in [
        RecordState::New,
        RecordState::Block,
        xfs(true),
        // The record of another filesystem is not changed either.
        xfs(false),
    ] {
        let refused = already(samples::placed(1, state.clone()));
        assert!(
            matches!(refused, Err(FsError::Unexpected { .. })),
            "{state:?}: {refused:?}"
        );
    }
    // Its record lags behind; changing it needs the device, and there is none of this name.
    let mut lagging = samples::placed(1, ext4(false));
    lagging.device = Some("no-such-device".into());
    let lagging = already(lagging);
    assert!(
        !matches!(lagging, Ok(_) | Err(FsError::Unexpected { .. })),
        "{lagging:?}"
    );
    let mut gone = samples::placed(1, ext4(false));
    (gone.device, gone.dev) = (None, None);
    assert!(matches!(already(gone), Err(FsError::Unexpected { .. })));
}

#[test]
fn what_was_read_back_decides_whether_the_record_moved_on() {
    for forgets in [false, true] {
        let placed = samples::placed(1, RecordState::New);
        let label = Label {
            forgets,
            ..Label::new(placed.clone())
        };
        let (job, mount) = (job(None), at_path(None));
        let read = label.contents.lock().unwrap().clone();
        let mut staging = Staging::new(&label, &job, &mount, &read, &placed).unwrap();
        let moved = staging.advance(Uuid::from_u128(5), false, &mut Context::silent());
        if forgets {
            assert!(
                matches!(
                    moved,
                    Err(FsError::Layout(LayoutError::BadTransition { .. }))
                ),
                "{moved:?}"
            );
            assert_eq!(staging.contents, read);
        } else {
            moved.unwrap();
            assert_eq!(label.placed().record.state, ext4(false));
            assert_eq!(staging.contents, *label.contents.lock().unwrap());
            assert_ne!(staging.contents, read);
        }
    }
}

#[test]
fn a_failed_mount_names_device_and_path() {
    let placed = samples::placed(1, RecordState::New);
    let label = Label::new(placed.clone());
    let (job, mount) = (job(None), at_path(None));
    let read = label.contents.lock().unwrap().clone();
    let staging = Staging::new(&label, &job, &mount, &read, &placed).unwrap();
    let failed = staging.mount_syscall("no-such-device", 0, &mut Context::silent());
    match failed {
        Err(FsError::Mount { device, path, .. }) => {
            assert_eq!(
                (&*device, path.as_str()),
                ("no-such-device", "/nowhere/staging")
            );
        }
        other => panic!("{other:?}"),
    }
}

//! Which drives are tried, and when an existing volume is the one asked for.

use super::*;
use crate::model::{
    ClaimPolicy, Drive, ErasePolicy, FsType, GIB, Layout, RecordState, Selector,
    samples::{contents, drive, placed, volume},
};

fn snapshot(drives: Vec<Drive>) -> Snapshot {
    Snapshot {
        drives: drives
            .into_iter()
            .map(|drive| (drive.id.clone(), drive))
            .collect(),
        ready: true,
        ..Snapshot::default()
    }
}

fn claimed(name: &str, free: u64) -> Drive {
    let contents = contents(9, 1, Vec::new(), free);
    drive(name, DriveState::Claimed, Some(contents))
}

fn blank(name: &str, bytes: u64) -> Drive {
    let mut drive = drive(name, DriveState::Available, None);
    drive.claimable_bytes = bytes;
    drive
}

fn tried(drives: Vec<Drive>) -> Vec<(String, bool)> {
    candidates(&snapshot(drives), "bulk", GIB)
        .into_iter()
        .map(|candidate| (candidate.drive.0, candidate.claim))
        .collect()
}

#[test]
fn claimed_drives_come_before_blank_ones_and_the_tightest_piece_first() {
    let drives = vec![
        blank("a", 8 * GIB),
        blank("b", 4 * GIB),
        claimed("c", 9 * GIB),
        claimed("d", GIB),
        claimed("e", GIB - 1),
    ];
    let expected = [("d", false), ("c", false), ("b", true), ("a", true)]
        .map(|(name, claim)| (format!("wwn-{name}"), claim));
    assert_eq!(tried(drives), expected);
}

#[test]
fn no_drive_that_may_not_be_used_is_tried() {
    let mut troubled = claimed("a", 9 * GIB);
    troubled.trouble = Some("stuck".into());
    let mut other = claimed("b", 9 * GIB);
    other.class = Some("other".into());
    let mut none = blank("c", 9 * GIB);
    none.class = None;
    let mut drives = vec![troubled, other, none];
    for (name, state) in [
        ("d", DriveState::Rejected),
        ("e", DriveState::Missing),
        ("f", DriveState::Unprobed),
    ] {
        let mut drive = claimed(name, 9 * GIB);
        drive.state = state;
        drive.claimable_bytes = 9 * GIB;
        drives.push(drive);
    }
    assert_eq!(tried(drives), []);
}

#[test]
fn the_same_request_finds_its_volume_and_another_one_does_not() {
    let class = ClassConfig {
        name: "bulk".into(),
        select: Selector::default(),
        layout: Layout::Partition,
        priority: 0,
        claim: ClaimPolicy::Blank,
        erase: ErasePolicy::Zero,
        fs_type: FsType::Ext4,
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        allow_removable: false,
        xfs_retry_forever: false,
        check_reserve_bytes: 0,
    };
    let placed = placed(1, RecordState::New);
    let volume = Volume {
        state: VolumeState::New,
        ..volume(&drive("sda", DriveState::Claimed, None), placed)
    };
    let same = Request {
        name: "pvc-1".into(),
        class: "bulk".into(),
        size_bytes: GIB,
        limit_bytes: 0,
        mode: Mode::Mount,
        fs_type: None,
        mkfs_options: None,
        mount_options: Vec::new(),
        parameters: BTreeMap::new(),
    };
    type Change = fn(&mut Request);
    let cases: [(&str, bool, Change); 10] = [
        ("nothing", true, |_| {}),
        ("its filesystem by name", true, |it| {
            it.fs_type = Some(FsType::Ext4)
        }),
        ("less", true, |it| it.size_bytes = GIB / 2),
        ("a limit it keeps", true, |it| it.limit_bytes = GIB),
        ("more", false, |it| it.size_bytes = GIB + 1),
        ("a limit below it", false, |it| {
            (it.size_bytes, it.limit_bytes) = (GIB / 2, GIB - 1);
        }),
        ("another filesystem", false, |it| {
            it.fs_type = Some(FsType::Xfs)
        }),
        ("block", false, |it| it.mode = Mode::Block),
        ("another class", false, |it| it.class = "other".into()),
        ("another parameter", false, |it| {
            it.parameters.insert("a".into(), "b".into());
        }),
    ];
    for (what, fits, change) in cases {
        let mut request = same.clone();
        change(&mut request);
        let compared = compare(&volume, &request, &class);
        assert_eq!(compared.is_ok(), fits, "{what}");
        if let Err(error) = compared {
            assert!(matches!(error, VolumeError::Exists { .. }), "{error}");
        }
    }
}

#[test]
fn drives_that_do_not_answer_are_named_when_there_is_no_room() {
    let mut stuck = claimed("a", 9 * GIB);
    stuck.trouble = Some("hangs in probe".into());
    let mut missing = claimed("b", 9 * GIB);
    missing.state = DriveState::Missing;
    missing.trouble = Some("not found on this node".into());
    let all = snapshot(vec![stuck, missing, blank("c", GIB)]);
    assert_eq!(
        silent(&all, "bulk"),
        "; not counted: wwn-a (it does not answer: hangs in probe)"
    );
    assert_eq!(silent(&all, "other"), "");
}

#[test]
fn a_drive_with_a_full_table_takes_no_volume_whatever_is_free_and_says_so() {
    let full = |name: &str| {
        let mut drive = claimed(name, 9 * GIB);
        drive.contents.as_mut().unwrap().table_full = true;
        drive
    };
    let mut small = claimed("b", GIB);
    small.contents.as_mut().unwrap().free.clear();
    assert_eq!(tried(vec![full("a"), small]), []);
    let all = snapshot(vec![full("a")]);
    assert_eq!(largest(&all, "bulk"), (0, String::new()));
    let told = silent(&all, "bulk");
    assert!(
        told.starts_with("; not counted: wwn-a (its partition table is full: it has 128 entries"),
        "{told}"
    );
}

#[test]
fn only_a_volume_recorded_as_being_created_on_a_drive_that_is_here_is_unfinished() {
    let found = |record: RecordState, state: VolumeState, same: bool| {
        let of = volume(&blank("a", GIB), placed(1, record));
        let name = of.placed.record.name.clone();
        let name = if same { name } else { format!("{name}x") };
        let mut snapshot = snapshot(Vec::new());
        snapshot.volumes.insert(of.uuid, Volume { state, ..of });
        unfinished(&snapshot, &name).is_some()
    };
    let creating = || RecordState::Creating;
    assert!(found(creating(), VolumeState::New, true));
    assert!(!found(creating(), VolumeState::New, false));
    assert!(!found(RecordState::New, VolumeState::New, true));
    assert!(!found(creating(), VolumeState::Missing, true));
    assert!(!found(creating(), VolumeState::Quarantined, true));
}

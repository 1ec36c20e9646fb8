//! When an existing volume is the one asked for.

use super::*;
use drivebay_model::{
    FsType, GIB,
    samples::{class, drive, placed, volume},
};

#[test]
fn the_same_request_finds_its_volume_and_another_one_does_not() {
    let class = class("bulk");
    let mut placed = placed(1, RecordState::New);
    let created_for = CreatedFor {
        claim: "data".into(),
        ..CreatedFor::default()
    };
    created_for.keep("pvc-1", &mut placed.record.parameters);
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
        mount_flags: Vec::new(),
        group: None,
        parameters: BTreeMap::new(),
        created_for: CreatedFor::default(),
        by_hand: false,
    };
    type Change = fn(&mut Request);
    let cases: [(&str, bool, Change); 12] = [
        ("nothing", true, |_| {}),
        ("another claim", true, |it| {
            it.created_for.claim = "other".into()
        }),
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
        ("by hand", false, |it| it.by_hand = true),
        ("another parameter", false, |it| {
            it.parameters.insert("a".into(), "b".into());
        }),
    ];
    for (what, fits, change) in cases {
        let mut request = same.clone();
        change(&mut request);
        let compared = compare((&volume.placed.record).into(), &request, &class);
        assert_eq!(compared.is_ok(), fits, "{what}");
        if let Err(error) = compared {
            assert!(matches!(error, VolumeError::Exists { .. }), "{error}");
        }
    }
}

//! Comparison of an existing volume with the request for one of its name.

use std::collections::BTreeMap;

use drivebay_csi::validate::SizeRange;

use super::*;
use drivebay_model::{
    CreatedFor, DriveId, DriveState, GIB, Peer, PlaceState, RecordState,
    samples::{class, drive, placed, volume},
};
use uuid::Uuid;

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
    let same = NewVolume {
        name: "pvc-1".into(),
        class: Some("bulk".into()),
        content: Content::mount(None),
        range: SizeRange {
            required: GIB,
            limit: None,
        },
        parameters: BTreeMap::new(),
        created_for: Default::default(),
        manual: false,
        source: None,
    };
    type Change = fn(&mut NewVolume);
    let cases: [(&str, bool, Change); 13] = [
        ("nothing", true, |_| {}),
        ("another claim", true, |it| {
            it.created_for.claim = "other".into()
        }),
        ("its filesystem by name", true, |it| {
            it.content = Content::mount(Some("ext4"))
        }),
        ("less", true, |it| it.range.required = GIB / 2),
        ("a limit it keeps", true, |it| it.range.limit = Some(GIB)),
        ("more", false, |it| it.range.required = GIB + 1),
        ("a limit below it", false, |it| {
            it.range = SizeRange {
                required: GIB / 2,
                limit: Some(GIB - 1),
            };
        }),
        ("another filesystem", false, |it| {
            it.content = Content::mount(Some("xfs"))
        }),
        ("block", false, |it| it.content = Content::Block),
        ("another class", false, |it| it.class = Some("other".into())),
        ("no class", false, |it| it.class = None),
        ("by hand", false, |it| it.manual = true),
        ("another parameter", false, |it| {
            it.parameters.insert("a".into(), "b".into());
        }),
    ];
    for (what, fits, change) in cases {
        let mut request = same.clone();
        change(&mut request);
        let compared = compare(&volume.placed.record, &request, &class, None);
        assert_eq!(compared.is_ok(), fits, "{what}");
        if let Err(error) = compared {
            assert!(matches!(error, VolumeError::Exists { .. }), "{error}");
        }
    }
}

#[test]
fn of_two_volumes_of_one_name_the_complete_one_is_found() {
    let drive = drive("sda", DriveState::Claimed, None);
    let mut snapshot = Snapshot::default();
    for uuid in [1, 2] {
        let mut placed = placed(uuid, RecordState::Block);
        placed.record.name = "one".into();
        if uuid == 1 {
            placed.record.place = PlaceState::Incoming {
                generation: 1,
                from: Peer {
                    label: Uuid::from_u128(9),
                    drive: DriveId("wwn-sdb".into()),
                },
            };
        }
        let volume = Volume {
            state: VolumeState::Ready,
            ..volume(&drive, placed)
        };
        snapshot.volumes.insert(volume.uuid, volume);
    }
    let number_of_named =
        |snapshot: &Snapshot| named(snapshot, "one").map(|volume| volume.uuid.as_u128());
    assert_eq!(number_of_named(&snapshot), Some(2));
    snapshot.volumes.remove(&Uuid::from_u128(2));
    assert_eq!(number_of_named(&snapshot), Some(1));
}

#[test]
fn options_are_checked_by_kind_of_filesystem_and_own_parameters_are_refused() {
    let good = NewVolume {
        name: "v".into(),
        class: Some("bulk".into()),
        content: Content::mount(Some("xfs")),
        range: SizeRange::default(),
        parameters: BTreeMap::from([("class".to_owned(), "bulk".to_owned())]),
        created_for: Default::default(),
        manual: false,
        source: None,
    };
    assert!(check(&good).is_ok());
    type Change = fn(&mut NewVolume);
    let rows: [(&str, Change); 3] = [
        (
            "mkfsOptions: option \"/dev/sdb\" is refused: it is a bare word where an option was expected",
            |it| {
                it.content = Content::Mount {
                    fs_type: Some("ext4"),
                    mkfs_options: vec!["/dev/sdb".into()],
                    mount_options: Vec::new(),
                    mount_flags: Vec::new(),
                }
            },
        ),
        ("fs_type: filesystem \"zfs\" is not known", |it| {
            it.content = Content::mount(Some("zfs"))
        }),
        (
            "parameters: \"byHand\" is what Drivebay itself keeps with a volume",
            |it| {
                it.parameters.insert("byHand".into(), "true".into());
            },
        ),
    ];
    for (text, change) in rows {
        let mut request = good.clone();
        change(&mut request);
        assert_eq!(check(&request).unwrap_err().to_string(), text);
    }
}

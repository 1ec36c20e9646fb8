//! Every combination of record and probe, and of the present and the requested mount.

use proptest::prelude::*;

use super::*;
use drivebay_sys::mountinfo;

const OURS: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);
/// UUID of the filesystem that a volume is a copy of.
const COPIED: Uuid = Uuid::from_u128(3);

fn signature(kind: &str, uuid: Uuid) -> Signature {
    Signature {
        kind: kind.to_owned(),
        usage: "filesystem".to_owned(),
        uuid: uuid.to_string().to_uppercase(),
        label: String::new(),
        offset: None,
    }
}

fn fs(mounted: bool) -> RecordState {
    RecordState::Fs {
        fs_type: FsType::Xfs,
        fs_uuid: OURS,
        mounted,
    }
}

fn states() -> Vec<RecordState> {
    vec![
        RecordState::Creating,
        RecordState::New,
        fs(false),
        fs(true),
        RecordState::Block,
        RecordState::Erasing {
            erase_guid: OTHER,
            done_bytes: 0,
        },
    ]
}

fn probes() -> Vec<Option<Signatures>> {
    vec![
        None,
        Some(Signatures::Empty),
        Some(Signatures::Found(vec![signature("xfs", OURS)])),
        Some(Signatures::Found(vec![signature("xfs", OTHER)])),
        Some(Signatures::Found(vec![signature("ext4", OURS)])),
        Some(Signatures::Found(vec![signature("xfs", COPIED)])),
        Some(Signatures::Found(vec![signature("ext4", COPIED)])),
        Some(Signatures::Found(vec![
            signature("xfs", OURS),
            signature("dos", OTHER),
        ])),
        Some(Signatures::Found(vec![
            signature("xfs", COPIED),
            signature("dos", OTHER),
        ])),
        Some(Signatures::Found(vec![])),
        Some(Signatures::Ambiguous(vec![
            signature("xfs", OURS),
            signature("btrfs", OTHER),
        ])),
        Some(Signatures::Ambiguous(vec![signature("xfs", OURS)])),
        Some(Signatures::Ambiguous(vec![signature("xfs", COPIED)])),
    ]
}

#[test]
fn the_table_of_record_and_probe_is_complete() {
    for state in states() {
        for probe in probes() {
            for (read_only, copied) in [
                (false, &[][..]),
                (true, &[]),
                (false, &[OTHER, COPIED]),
                (true, &[COPIED]),
                (false, &[COPIED, OURS]),
            ] {
                let answer = format_guard(&state, probe.as_ref(), FsType::Xfs, read_only, copied);
                let exactly = |uuid| matches!(&probe, Some(Signatures::Found(f)) if is_exactly(f, FsType::Xfs, uuid));
                let exactly_ours = exactly(OURS);
                let is_copied = copied.iter().any(|uuid| exactly(*uuid));
                let expected = match (&state, &probe) {
                    (
                        RecordState::Creating | RecordState::Block | RecordState::Erasing { .. },
                        _,
                    ) => "incompatible",
                    (_, None) => "probe failed",
                    (RecordState::Fs { mounted: true, .. }, Some(Signatures::Empty)) => "gone",
                    (_, Some(Signatures::Empty)) if read_only => "nothing to read",
                    (RecordState::New, Some(Signatures::Empty)) => "make fresh",
                    (_, Some(Signatures::Empty)) => "make recorded",
                    (RecordState::Fs { mounted: true, .. }, _) if exactly_ours => "mount",
                    (RecordState::Fs { .. }, _) if exactly_ours && read_only => "mount",
                    (RecordState::Fs { .. }, _) if exactly_ours => "mount, may restart",
                    (RecordState::Fs { mounted: true, .. }, _) if is_copied => "change its UUID",
                    _ => "unexpected",
                };
                let got = match answer {
                    Format::Make { plan: Plan::Fresh } => "make fresh",
                    Format::Make {
                        plan: Plan::Recorded(uuid),
                    } => {
                        assert_eq!(uuid, OURS);
                        "make recorded"
                    }
                    Format::Mount { may_restart: None } => "mount",
                    Format::Mount {
                        may_restart: Some(_),
                    } => "mount, may restart",
                    Format::ChangeUuid { from, to } => {
                        assert!(copied.contains(&from) && exactly(from) && to == OURS);
                        "change its UUID"
                    }
                    Format::Refuse(Refusal::ProbeFailed) => "probe failed",
                    Format::Refuse(Refusal::Gone) => "gone",
                    Format::Refuse(Refusal::Unexpected { .. }) => "unexpected",
                    Format::Refuse(Refusal::NothingToRead) => "nothing to read",
                    Format::Refuse(Refusal::Incompatible { .. }) => "incompatible",
                };
                assert_eq!(
                    got, expected,
                    "{state:?} {probe:?} ro={read_only} {copied:?}"
                );
            }
        }
    }
}

#[test]
fn another_filesystem_than_recorded_is_incompatible_whatever_is_on_the_device() {
    for probe in probes() {
        for state in [fs(false), fs(true)] {
            let answer = format_guard(&state, probe.as_ref(), FsType::Ext4, false, &[COPIED]);
            assert!(
                matches!(answer, Format::Refuse(Refusal::Incompatible { .. })),
                "{probe:?}"
            );
        }
    }
}

#[test]
fn a_refusal_names_what_was_found_and_what_was_expected() {
    let refused = |state: &RecordState, probe: Signatures| match format_guard(
        state,
        Some(&probe),
        FsType::Xfs,
        false,
        &[],
    ) {
        Format::Refuse(Refusal::Unexpected { actual, expected }) => (actual, expected),
        other => panic!("{other:?}"),
    };
    let mut bare = signature("swap", OTHER);
    bare.uuid = String::new();
    let two = vec![signature("ext4", OTHER), bare];
    let ext4 = format!("ext4 with UUID {OTHER}").to_uppercase();
    let (actual, expected) = refused(&fs(true), Signatures::Found(two.clone()));
    assert_eq!(actual.to_uppercase(), format!("{ext4} AND SWAP"));
    assert_eq!(expected, format!("xfs with UUID {OURS}"));
    let (actual, expected) = refused(&RecordState::New, Signatures::Ambiguous(two));
    assert!(actual.contains("contradicting"), "{actual}");
    assert!(actual.to_uppercase().ends_with(&format!("{ext4} AND SWAP")));
    assert!(expected.contains("never formatted"), "{expected}");
    let (actual, _) = refused(&RecordState::New, Signatures::Found(vec![]));
    assert!(actual.contains("could not be named"), "{actual}");
}

#[test]
fn only_one_signature_of_the_type_and_uuid_of_the_record_is_its_filesystem() {
    let ours = signature("xfs", OURS);
    for (signatures, expected) in [
        (vec![ours.clone()], true),
        (vec![signature("xfs", OTHER)], false),
        (vec![signature("ext4", OURS)], false),
        (vec![ours.clone(), ours], false),
        (vec![], false),
    ] {
        assert_eq!(
            is_exactly(&signatures, FsType::Xfs, OURS),
            expected,
            "{signatures:?}"
        );
    }
}

#[test]
fn read_only_is_wanted_by_the_request_or_by_the_volumes_own_flags() {
    for (request, flag, expected) in [
        (false, false, false),
        (true, false, true),
        (false, true, true),
        (true, true, true),
    ] {
        let flags = MountFlags {
            read_only: flag,
            ..MountFlags::default()
        };
        let wanted = Wanted::new(FsType::Xfs, &flags, request, None);
        assert_eq!(wanted.read_only, expected, "{request} {flag}");
    }
}

fn any_state() -> impl Strategy<Value = RecordState> {
    let types = proptest::sample::select(FsType::ALL.to_vec());
    prop_oneof![
        Just(RecordState::Creating),
        Just(RecordState::New),
        Just(RecordState::Block),
        Just(RecordState::Erasing {
            erase_guid: OTHER,
            done_bytes: 1
        }),
        (types, 0_u128..3, any::<bool>()).prop_map(|(fs_type, uuid, mounted)| RecordState::Fs {
            fs_type,
            fs_uuid: Uuid::from_u128(uuid),
            mounted
        }),
    ]
}

fn any_probe() -> impl Strategy<Value = Option<Signatures>> {
    let one = (
        proptest::sample::select(vec!["ext4", "xfs", "btrfs", "gpt", "swap"]),
        0_u128..3,
    )
        .prop_map(|(kind, uuid)| signature(kind, Uuid::from_u128(uuid)));
    let many = proptest::collection::vec(one, 0..3);
    proptest::option::of(prop_oneof![
        Just(Signatures::Empty),
        many.clone().prop_map(Signatures::Found),
        many.prop_map(Signatures::Ambiguous),
    ])
}

proptest! {
    #[test]
    fn making_is_only_ever_answered_for_an_empty_device_never_mounted(
        state in any_state(), probe in any_probe(), wanted in proptest::sample::select(FsType::ALL.to_vec()), read_only in any::<bool>(),
        copied in proptest::collection::vec((0_u128..3).prop_map(Uuid::from_u128), 0..3)
    ) {
        match format_guard(&state, probe.as_ref(), wanted, read_only, &copied) {
            Format::Make { plan } => {
                prop_assert_eq!(&probe, &Some(Signatures::Empty));
                prop_assert!(!read_only);
                match (state, plan) {
                    (RecordState::New, Plan::Fresh) => {}
                    (RecordState::Fs { fs_type, fs_uuid, mounted: false }, Plan::Recorded(uuid)) => {
                        prop_assert_eq!(uuid, fs_uuid);
                        prop_assert_eq!(fs_type, wanted);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            Format::Mount { may_restart } => {
                let RecordState::Fs { fs_type, fs_uuid, mounted } = state else {
                    return Err(TestCaseError::fail("mounted without a recorded filesystem"));
                };
                let Some(Signatures::Found(signatures)) = probe else {
                    return Err(TestCaseError::fail("mounted without a signature"));
                };
                prop_assert!(is_exactly(&signatures, fs_type, fs_uuid));
                prop_assert!(may_restart.is_none() || (!mounted && !read_only));
            }
            Format::ChangeUuid { from, to } => {
                prop_assert_eq!(state, RecordState::Fs { fs_type: wanted, fs_uuid: to, mounted: true });
                prop_assert!(from != to && copied.contains(&from));
                let Some(Signatures::Found(signatures)) = probe else {
                    return Err(TestCaseError::fail("a UUID is changed without a signature"));
                };
                prop_assert!(is_exactly(&signatures, wanted, from));
            }
            Format::Refuse(_) => {}
        }
    }
}

fn entry(row: &str) -> MountEntry {
    // The kernel shows this unless another atime option is set.
    let row = row.replacen(" rw - ", " rw,relatime - ", 1);
    let row = row.replacen(" ro - ", " ro,relatime - ", 1);
    mountinfo::parse(row.as_bytes()).unwrap().remove(0)
}

#[test]
fn mounts_are_compared_by_device_root_type_ro_and_context() {
    let conflict = || MountPlan::Conflict(String::new());
    let context = Some("u:r:t:s0:c1,c2".to_owned());
    for (row, read_only, context, expected) in [
        (
            "1 2 8:1 / /s rw - xfs /dev/sda1 rw,attr2",
            false,
            None,
            MountPlan::Nothing,
        ),
        (
            "1 2 8:1 / /s rw,relatime shared:3 - xfs /dev/renamed rw,x",
            false,
            None,
            MountPlan::Nothing,
        ),
        (
            "1 2 8:1 / /s ro - xfs /dev/sda1 ro",
            true,
            None,
            MountPlan::Nothing,
        ),
        (
            "1 2 8:1 / /s ro - xfs /dev/sda1 ro",
            false,
            None,
            MountPlan::Remount,
        ),
        (
            "1 2 8:1 / /s rw - xfs /dev/sda1 ro",
            false,
            None,
            MountPlan::Remount,
        ),
        ("1 2 8:1 / /s rw - xfs /dev/sda1 rw", true, None, conflict()),
        (
            "1 2 8:2 / /s rw - xfs /dev/sda1 rw",
            false,
            None,
            conflict(),
        ),
        (
            "1 2 8:1 /sub /s rw - xfs /dev/sda1 rw",
            false,
            None,
            conflict(),
        ),
        (
            "1 2 8:1 / /s rw - ext4 /dev/sda1 rw",
            false,
            None,
            conflict(),
        ),
        (
            "1 2 8:1 / /s rw - xfs /dev/sda1 rw,seclabel",
            false,
            context.clone(),
            conflict(),
        ),
        (
            "1 2 8:1 / /s rw - xfs /dev/sda1 rw,context=\"u:r:t:s0:c1,c2\"",
            false,
            context.clone(),
            MountPlan::Nothing,
        ),
        (
            "1 2 8:1 / /s rw - xfs /dev/sda1 rw,context=u:r:t:s0",
            false,
            context,
            conflict(),
        ),
        (
            "1 2 8:1 / /s rw - xfs /dev/sda1 rw,context=u:r:t:s0",
            false,
            None,
            MountPlan::Nothing,
        ),
    ] {
        let wanted = Wanted {
            fs_type: FsType::Xfs,
            read_only,
            context,
            ..plain()
        };
        let got = match plan_mount(&[&entry(row)], &wanted, |e| e.dev == (8, 1)) {
            MountPlan::Conflict(_) => conflict(),
            other => other,
        };
        assert_eq!(got, expected, "{row} {wanted:?}");
    }
}

#[test]
fn of_stacked_mounts_the_visible_one_counts() {
    let (ours, other) = (
        entry("1 9 8:1 / /s rw - xfs /dev/sda1 rw"),
        entry("2 1 8:2 / /s rw - xfs /dev/sdb rw"),
    );
    let wanted = Wanted {
        fs_type: FsType::Xfs,
        read_only: false,
        context: None,
        ..plain()
    };
    assert!(matches!(
        plan_mount(&[&ours, &other], &wanted, |e| e.dev == (8, 1)),
        MountPlan::Conflict(_)
    ));
    assert_eq!(
        plan_mount(&[&other, &ours], &wanted, |e| e.dev == (8, 1)),
        MountPlan::Nothing
    );
    assert_eq!(plan_mount(&[], &wanted, |_| true), MountPlan::Mount);
}

/// XFS, mounted without options.
fn plain() -> Wanted {
    Wanted::new(FsType::Xfs, &MountFlags::default(), false, None)
}

#[test]
fn a_repeat_with_other_mount_options_is_a_conflict_where_it_is_known_how_it_was_mounted() {
    let wanted = |flags: &[&str], before: Option<&[&str]>| {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let flags: Vec<String> = owned(flags);
        let flags = crate::parse_mount_flags(&flags).unwrap();
        Wanted::new(FsType::Xfs, &flags, false, before.map(owned))
    };
    for (row, flags, before, same) in [
        ("rw,relatime", &[][..], None, true),
        ("rw,relatime", &["relatime"], None, true),
        ("rw,noatime", &[], None, false),
        ("rw,relatime", &["noatime"], None, false),
        ("rw,noatime", &["noatime"], None, true),
        ("rw", &["strictatime"], None, true),
        ("rw,nosuid,nodev,relatime", &["nodev", "nosuid"], None, true),
        ("rw,nosuid,nodev,relatime", &["nosuid"], None, false),
        ("rw,nosuid,relatime", &["nosuid", "noexec"], None, false),
        // Options that the kernel adds are not compared.
        ("rw,relatime,idmapped", &[], None, true),
        ("rw,relatime", &["discard"], None, true),
        ("rw,relatime", &["discard"], Some(&["discard"][..]), true),
        ("rw,relatime", &["discard"], Some(&[]), false),
        ("rw,relatime", &[], Some(&["discard"]), false),
        (
            "rw,relatime",
            &["logbsize=32k"],
            Some(&["logbsize=64k"]),
            false,
        ),
    ] {
        let row = format!("1 9 8:1 / /s {row} - xfs /dev/sda1 rw");
        let present = mountinfo::parse(row.as_bytes()).unwrap().remove(0);
        let plan = plan_mount(&[&present], &wanted(flags, before), |_| true);
        let is_same = match &plan {
            MountPlan::Nothing => true,
            MountPlan::Conflict(how) => {
                assert!(how.contains("other mount options"), "{how}");
                false
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(is_same, same, "{row} {flags:?} {before:?}: {plan:?}");
    }
}

//! Each code has a row, and only positive proof makes a drive available.

use proptest::prelude::*;

use super::*;
use drivebay_layout::probe::{Blankness, GptState};
use drivebay_model::{
    Cause, ClaimPolicy, DriveId, ErasePolicy, FsType, Layout, Media, Selector, Signature,
    Signatures,
    drive::{Holder, PartitionFacts},
};

fn facts() -> DriveFacts {
    DriveFacts {
        id: DriveId("wwn-0x5000c500a1b2c3d4".into()),
        identity_is_stable: true,
        kernel_name: "sda".into(),
        major: 8,
        minor: 0,
        diskseq: 1,
        model: "M".into(),
        serial: "S".into(),
        wwn: "naa.5000c500a1b2c3d4".into(),
        firmware: String::new(),
        size_bytes: 1 << 40,
        logical_sector: 512,
        physical_sector: 4096,
        media: Media::Hdd,
        transport: Transport::Sata,
        read_only: false,
        removable: false,
        hidden: false,
        zoned: false,
        is_partition: false,
        virtual_kind: None,
        not_running: None,
        holders: vec![],
        partitions: vec![],
        sysfs_path: "/sys/devices/x/block/sda".into(),
        backing_file: None,
        bay: Default::default(),
    }
}

fn blank() -> Probed {
    Probed {
        size_bytes: 1 << 40,
        read_only: false,
        busy: false,
        signatures: Signatures::Empty,
        gpt: GptState::None,
        ours: None,
        written_sector: None,
        traces: None,
        gpt_types: vec![],
        blankness: Blankness::Blank,
    }
}

fn class(name: &str, priority: i32) -> ClassConfig {
    ClassConfig {
        name: name.into(),
        select: Selector {
            media: vec![Media::Hdd, Media::Ssd, Media::Nvme],
            ..Selector::default()
        },
        layout: Layout::Lvm,
        placement: drivebay_model::Placement::default(),
        priority,
        claim: ClaimPolicy::Blank,
        erase: ErasePolicy::Zero,
        raw_space: Default::default(),
        evacuate: Default::default(),
        fs_type: FsType::Xfs,
        mkfs_options: vec![],
        mount_options: vec![],
        allow_removable: false,
        xfs_retry_forever: false,
        check_reserve_bytes: 0,
    }
}

fn rules() -> Rules {
    Rules {
        cluster: "c".into(),
        node: "n".into(),
        allow_loop: false,
        classes: vec![class("hdd", 0)],
    }
}

fn label(cluster: &str, node: &str) -> Label {
    Label {
        drive_uuid: uuid::Uuid::from_u128(1),
        cluster: cluster.into(),
        node: node.into(),
        class: "hdd".into(),
        drive_id: facts().id,
        cordon: None,
    }
}

struct Case {
    facts: DriveFacts,
    others: Vec<DriveFacts>,
    host: HostUse,
    probed: Option<Result<Probed, ProbeError>>,
    label: Option<Label>,
    trouble: Option<&'static str>,
    rules: Rules,
}

fn case() -> Case {
    Case {
        facts: facts(),
        others: vec![],
        host: HostUse::default(),
        probed: Some(Ok(blank())),
        label: None,
        trouble: None,
        rules: rules(),
    }
}

impl Case {
    fn judge(&self) -> Judgement {
        let mut all = self.others.clone();
        all.push(self.facts.clone());
        judge(
            &Evidence {
                facts: &self.facts,
                all: &all,
                host: &self.host,
                probed: self.probed.as_ref(),
                label: self.label.as_ref(),
                label_trouble: self.trouble,
            },
            &self.rules,
        )
    }

    fn codes(&self) -> Vec<RejectCode> {
        match self.judge() {
            Judgement::Rejected { reasons, .. } => {
                assert!(
                    reasons.iter().all(|reason| reason.detail.len() > 10),
                    "{reasons:?}"
                );
                reasons.into_iter().map(|reason| reason.code).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn with(change: impl FnOnce(&mut Case)) -> Case {
    let mut case = case();
    change(&mut case);
    case
}

fn with_probe(change: impl FnOnce(&mut Probed)) -> Case {
    let mut probed = blank();
    change(&mut probed);
    with(|case| case.probed = Some(Ok(probed)))
}

fn signature(kind: &str, usage: &str) -> Signature {
    Signature {
        kind: kind.into(),
        usage: usage.into(),
        uuid: "u".into(),
        label: "l".into(),
        offset: Some(8),
    }
}

fn signed(kind: &str, usage: &str) -> Case {
    with_probe(|probed| {
        probed.signatures = Signatures::Found(vec![signature(kind, usage)]);
        probed.blankness = Blankness::NotSampled;
    })
}

#[test]
fn a_selected_blank_drive_is_available() {
    assert_eq!(
        case().judge(),
        Judgement::Available {
            class: "hdd".into()
        }
    );
    let free = with(|case| {
        case.rules.classes[0].claim = ClaimPolicy::SignatureFree;
        case.probed = Some(Ok(Probed {
            blankness: Blankness::NotSampled,
            ..blank()
        }));
    });
    assert_eq!(
        free.judge(),
        Judgement::Available {
            class: "hdd".into()
        },
        "signature-free is the operator's choice"
    );
}

#[test]
fn every_code_is_given_for_its_cause_and_alone() {
    use RejectCode as Code;
    let partition = PartitionFacts {
        kernel_name: "sda1".into(),
        number: 1,
        start_bytes: 0,
        size_bytes: 512,
        major: 8,
        minor: 1,
    };
    let holder = |uuid: Option<&str>| Holder {
        held: "sda".into(),
        name: "dm-0".into(),
        dm_uuid: uuid.map(Into::into),
    };
    let probe_error = |error: ProbeError| with(move |case| case.probed = Some(Err(error)));
    let mut rows: Vec<(Case, Vec<Code>)> = vec![
        (
            with(|c| {
                c.facts.virtual_kind = Some("zram".into());
                c.probed = None
            }),
            vec![Code::NotADisk],
        ),
        (
            with(|c| {
                c.facts.is_partition = true;
                c.probed = None
            }),
            vec![Code::Partition],
        ),
        (
            with(|c| c.facts.transport = Transport::Iscsi),
            vec![Code::Remote],
        ),
        (
            with(|c| c.facts.transport = Transport::Fc),
            vec![Code::Remote],
        ),
        (
            with(|c| c.facts.transport = Transport::NvmeOf),
            vec![Code::Remote],
        ),
        (with(|c| c.facts.removable = true), vec![Code::Removable]),
        (
            with(|c| c.facts.transport = Transport::Usb),
            vec![Code::Removable],
        ),
        (
            with(|c| {
                c.facts.hidden = true;
                c.probed = None
            }),
            vec![Code::HiddenPath],
        ),
        (
            with(|c| c.facts.holders = vec![holder(Some("mpath-3600"))]),
            vec![Code::MultipathMember, Code::Holders],
        ),
        (
            with(|c| c.facts.holders = vec![holder(Some("LVM-x"))]),
            vec![Code::Holders],
        ),
        (with(|c| c.facts.read_only = true), vec![Code::ReadOnly]),
        (with_probe(|p| p.read_only = true), vec![Code::ReadOnly]),
        (
            with(|c| {
                c.facts.size_bytes = 0;
                c.probed = None
            }),
            vec![Code::ZeroSize],
        ),
        (
            with(|c| {
                c.facts.size_bytes = 1 << 20;
                c.probed = Some(Ok(Probed {
                    size_bytes: 1 << 20,
                    ..blank()
                }))
            }),
            vec![Code::TooSmall],
        ),
        (with(|c| c.facts.zoned = true), vec![Code::Zoned]),
        (
            with(|c| c.facts.not_running = Some("offline".into())),
            vec![Code::NotRunning],
        ),
        (signed("dos", "partition-table"), vec![Code::PartitionTable]),
        (
            with_probe(|p| p.gpt = GptState::Whole),
            vec![Code::PartitionTable],
        ),
        (
            with_probe(|p| p.gpt = GptState::Damaged("x".into())),
            vec![Code::GptDamaged],
        ),
        (
            with(|c| c.facts.partitions = vec![partition.clone()]),
            vec![Code::HasPartitions, Code::PhantomTable],
        ),
        (
            with(|c| {
                c.facts.partitions = vec![partition.clone()];
                c.probed = signed("dos", "partition-table").probed
            }),
            vec![Code::PartitionTable, Code::HasPartitions],
        ),
        (
            with_probe(|p| {
                p.gpt = GptState::Whole;
                p.gpt_types = vec!["c12a7328-f81f-11d2-ba4b-00a0c93ec93b".into()]
            }),
            vec![Code::PartitionTable, Code::SystemDrive],
        ),
        (
            with(|c| {
                c.host.mounted.insert("sda".into(), vec!["/data".into()]);
            }),
            vec![Code::Mounted],
        ),
        (
            with(|c| {
                c.host.swap.insert("sda".into(), vec!["/dev/sda1".into()]);
            }),
            vec![Code::SwapInUse],
        ),
        (
            with(|c| {
                c.host.system.insert("sda".into(), vec!["/".into()]);
            }),
            vec![Code::SystemDrive],
        ),
        (
            with(|c| c.host.unknown = Some("pid 1 is this agent".into())),
            vec![Code::HostUnknown],
        ),
        (with_probe(|p| p.busy = true), vec![Code::Busy]),
        (
            with_probe(|p| {
                p.signatures = Signatures::Ambiguous(vec![
                    signature("xfs", "filesystem"),
                    signature("swap", "other"),
                ])
            }),
            vec![Code::Filesystem, Code::Swap, Code::Ambivalent],
        ),
        (
            with_probe(|p| p.signatures = Signatures::Ambiguous(vec![])),
            vec![Code::Ambivalent],
        ),
        (
            with_probe(|p| p.signatures = Signatures::Found(vec![])),
            vec![Code::OtherSignature],
        ),
        (
            with(|c| {
                c.others = vec![DriveFacts {
                    kernel_name: "sdb".into(),
                    ..facts()
                }]
            }),
            vec![Code::DuplicateIdentity],
        ),
        (
            with(|c| c.facts.identity_is_stable = false),
            vec![Code::NoStableIdentity],
        ),
        (
            probe_error(ProbeError::Read {
                kernel_name: "sda".into(),
                offset: 0,
                source: Cause::text("EIO"),
            }),
            vec![Code::Unreadable],
        ),
        (
            probe_error(ProbeError::Open {
                kernel_name: "sda".into(),
                source: Cause::text("x"),
            }),
            vec![Code::ProbeFailed],
        ),
        (
            probe_error(ProbeError::NotThisDrive {
                drive: "a".into(),
                kernel_name: "sda".into(),
                seen: "b".into(),
            }),
            vec![Code::ProbeFailed],
        ),
        (with(|c| c.probed = None), vec![Code::ProbeFailed]),
        (
            with_probe(|p| p.blankness = Blankness::NotSampled),
            vec![Code::ProbeFailed],
        ),
        (with_probe(|p| p.size_bytes = 5), vec![Code::ProbeFailed]),
        (
            with_probe(|p| p.blankness = Blankness::DataAt(7)),
            vec![Code::NotBlank],
        ),
        (with(|c| c.rules.classes.clear()), vec![Code::NotSelected]),
        (
            with(|c| c.rules.classes.push(class("other", 0))),
            vec![Code::AmbiguousClass],
        ),
    ];
    for (kind, usage, code) in [
        ("ext4", "filesystem", Code::Filesystem),
        ("LVM2_member", "raid", Code::LvmPv),
        ("linux_raid_member", "raid", Code::RaidMember),
        ("isw_raid_member", "raid", Code::RaidMember),
        ("crypto_LUKS", "crypto", Code::Luks),
        ("BitLocker", "crypto", Code::Bitlocker),
        ("zfs_member", "filesystem", Code::Zfs),
        ("ceph_bluestore", "other", Code::Bluestore),
        ("bcache", "other", Code::Bcache),
        ("swap", "other", Code::Swap),
        ("jbd", "other", Code::Jbd),
        ("vdo", "other", Code::Vdo),
        ("stratis", "other", Code::Stratis),
        ("drbd", "raid", Code::Drbd),
        ("cs_fvault2", "crypto", Code::OtherSignature),
    ] {
        rows.push((signed(kind, usage), vec![code]));
    }
    let ours = |label: Option<Label>, trouble| {
        with(move |case| {
            case.probed = Some(Ok(Probed {
                ours: Some(Layout::Partition),
                gpt: GptState::Whole,
                blankness: Blankness::NotSampled,
                ..blank()
            }));
            (case.label, case.trouble) = (label, trouble);
        })
    };
    rows.push((
        ours(Some(label("c", "other")), None),
        vec![Code::OursElsewhere],
    ));
    rows.push((
        ours(Some(label("other", "n")), None),
        vec![Code::OursElsewhere],
    ));
    rows.push((ours(None, Some("checksum")), vec![Code::OursDamaged]));
    rows.push((
        with_probe(|probed| {
            probed.written_sector = Some(4096);
            probed.blankness = Blankness::NotSampled;
        }),
        vec![Code::SectorSizeChanged],
    ));
    // The PV is Drivebay's; the apparent table is inside one of its volumes.
    for (label, trouble, code) in [
        (Some(label("c", "other")), None, Code::OursElsewhere),
        (None, Some("torn"), Code::OursDamaged),
        (None, None, Code::ProbeFailed),
    ] {
        let case = with(|case| {
            case.probed = Some(Ok(lvm_of_ours()));
            (case.label, case.trouble) = (label, trouble);
        });
        rows.push((case, vec![code]));
    }
    rows.push((ours(None, None), vec![Code::ProbeFailed]));

    for (case, expected) in &rows {
        assert_eq!(case.codes(), *expected);
    }
    let missing: Vec<_> = Code::ALL
        .iter()
        .filter(|code| !rows.iter().any(|(_, codes)| codes.contains(code)))
        .collect();
    // A drive's health verdict is no evidence of the claim check.
    assert_eq!(missing, [&Code::Unhealthy]);
}

#[test]
fn all_reasons_are_given_at_once_in_the_order_of_the_codes() {
    let codes = with(|case| {
        case.facts.zoned = true;
        case.facts.read_only = true;
        case.host.mounted.insert("sda".into(), vec!["/x".into()]);
        case.rules.classes.clear();
        case.probed = signed("xfs", "filesystem").probed;
    })
    .codes();
    use RejectCode as Code;
    assert_eq!(
        codes,
        [
            Code::ReadOnly,
            Code::Zoned,
            Code::Filesystem,
            Code::Mounted,
            Code::NotSelected
        ]
    );
    assert!(codes.is_sorted());
}

/// A claimed LVM drive, whose last volume holds a virtual machine's disk with a GPT.
fn lvm_of_ours() -> Probed {
    Probed {
        ours: Some(Layout::Lvm),
        gpt: GptState::Damaged("only its backup copy is there".into()),
        gpt_types: vec!["c12a7328-f81f-11d2-ba4b-00a0c93ec93b".into()],
        blankness: Blankness::NotSampled,
        signatures: Signatures::Found(vec![signature("LVM2_member", "raid")]),
        ..blank()
    }
}

#[test]
fn an_lvm_drive_of_ours_is_claimed_while_its_volumes_are_in_use() {
    let case = with(|case| {
        case.label = Some(label("c", "n"));
        case.probed = Some(Ok(Probed {
            busy: true,
            ..lvm_of_ours()
        }));
        case.facts.holders = vec![Holder {
            held: "sda".into(),
            name: "dm-3".into(),
            dm_uuid: Some("LVM-aabb".into()),
        }];
        case.host
            .mounted
            .insert("sda".into(), vec!["/var/lib/kubelet/x".into()]);
    });
    assert_eq!(case.judge(), Judgement::Claimed);
    let foreign = with(|case| {
        case.label = Some(label("c", "n"));
        case.probed = Some(Ok(Probed {
            ours: None,
            gpt: GptState::None,
            gpt_types: vec![],
            ..lvm_of_ours()
        }));
    });
    assert_eq!(foreign.codes(), [RejectCode::LvmPv]);
}

fn claimed() -> Case {
    with(|case| {
        case.label = Some(label("c", "n"));
        case.probed = Some(Ok(Probed {
            ours: Some(Layout::Partition),
            gpt: GptState::Whole,
            busy: true,
            blankness: Blankness::NotSampled,
            signatures: Signatures::Found(vec![signature("gpt", "partition-table")]),
            ..blank()
        }));
        case.facts.partitions = vec![PartitionFacts {
            kernel_name: "sda1".into(),
            number: 1,
            start_bytes: 0,
            size_bytes: 512,
            major: 8,
            minor: 1,
        }];
        case.facts.holders = vec![Holder {
            held: "sda2".into(),
            name: "dm-3".into(),
            dm_uuid: Some("CRYPT-x".into()),
        }];
        case.host
            .mounted
            .insert("sda".into(), vec!["/var/lib/kubelet/plugins/x".into()]);
    })
}

#[test]
fn our_own_drive_in_use_is_claimed() {
    assert_eq!(claimed().judge(), Judgement::Claimed);
    let mut unselected = claimed();
    unselected.rules.classes.clear();
    assert_eq!(
        unselected.judge(),
        Judgement::Claimed,
        "a config change does not take volumes away"
    );
    let mut damaged = claimed();
    if let Some(Ok(probed)) = &mut damaged.probed {
        probed.gpt = GptState::Damaged("its primary copy is damaged".into());
    }
    assert_eq!(
        damaged.judge(),
        Judgement::Claimed,
        "the first volume repairs its table"
    );
}

#[test]
fn a_labelled_drive_stays_claimed_beside_a_device_of_its_identity_which_is_refused() {
    let mut labelled = claimed();
    labelled.others = vec![DriveFacts {
        kernel_name: "sdb".into(),
        ..facts()
    }];
    assert_eq!(labelled.judge(), Judgement::Claimed);
    let twin = with(|case| {
        case.others = vec![DriveFacts {
            kernel_name: "sdb".into(),
            ..facts()
        }]
    });
    assert_eq!(twin.codes(), [RejectCode::DuplicateIdentity]);
}

#[test]
fn a_path_to_our_drive_is_not_claimed() {
    let mut path = claimed();
    path.facts.holders = vec![Holder {
        held: "sda".into(),
        name: "dm-0".into(),
        dm_uuid: Some("mpath-x".into()),
    }];
    assert_eq!(path.codes(), [RejectCode::MultipathMember]);
}

#[test]
fn a_hidden_path_of_an_nvme_head_is_no_duplicate_of_it() {
    let head = with(|case| {
        case.others = vec![DriveFacts {
            kernel_name: "nvme0c0n1".into(),
            hidden: true,
            ..facts()
        }]
    });
    assert!(matches!(head.judge(), Judgement::Available { .. }));
}

#[test]
fn loops_are_drives_only_where_they_are_allowed() {
    let mut case = with(|case| {
        case.facts.transport = Transport::Loop;
        case.facts.virtual_kind = Some("loop".into());
    });
    assert_eq!(case.codes(), [RejectCode::NotADisk]);
    assert!(skips_probe(&case.facts, &case.rules));
    case.rules.allow_loop = true;
    assert!(matches!(case.judge(), Judgement::Available { .. }));
    case.facts.transport = Transport::Unknown;
    case.facts.virtual_kind = Some("zram".into());
    assert_eq!(
        case.codes(),
        [RejectCode::NotADisk],
        "no other virtual device becomes a drive by it"
    );
}

#[test]
fn the_higher_priority_takes_a_drive_and_equals_take_none() {
    let mut rules = rules();
    rules.classes.push(class("first", 5));
    assert_eq!(class_of(&facts(), &rules).unwrap().unwrap().name, "first");
    rules.classes.push(class("second", 5));
    assert_eq!(class_of(&facts(), &rules).unwrap_err(), ["first", "second"]);
    rules.classes.clear();
    assert!(class_of(&facts(), &rules).unwrap().is_none());
}

#[test]
fn an_explicit_selector_and_an_opt_in_lift_their_reasons() {
    let explicit = with(|case| {
        case.facts.identity_is_stable = false;
        case.rules.classes[0].select.path = vec!["*/block/sda".into()];
    });
    assert!(matches!(explicit.judge(), Judgement::Available { .. }));
    let removable = with(|case| {
        case.facts.removable = true;
        case.rules.classes[0].allow_removable = true;
    });
    assert!(matches!(removable.judge(), Judgement::Available { .. }));
}

/// Returns the detail text of one code.
fn detail(case: &Case, code: RejectCode) -> String {
    let Judgement::Rejected { reasons, .. } = case.judge() else {
        panic!("{:?}", case.judge());
    };
    let rejection = reasons.into_iter().find(|reason| reason.code == code);
    rejection.map(|reason| reason.detail).unwrap_or_default()
}

fn of_size(size_bytes: u64) -> Case {
    with(|case| {
        case.facts.size_bytes = size_bytes;
        case.probed = Some(Ok(Probed {
            size_bytes,
            ..blank()
        }));
    })
}

#[test]
fn a_drive_of_64_mib_is_the_smallest_that_is_used() {
    let least = 64 << 20;
    assert!(matches!(
        of_size(least).judge(),
        Judgement::Available { .. }
    ));
    assert_eq!(of_size(least - 512).codes(), [RejectCode::TooSmall]);
    // A size of zero has its own code.
    assert_eq!(of_size(0).codes(), [RejectCode::ZeroSize]);
}

#[test]
fn signature_free_takes_a_drive_with_raw_data_and_no_class_takes_none() {
    let raw = |policy| {
        with(|case| {
            case.rules.classes[0].claim = policy;
            case.probed = Some(Ok(Probed {
                blankness: Blankness::DataAt(7),
                ..blank()
            }));
        })
    };
    assert!(matches!(
        raw(ClaimPolicy::SignatureFree).judge(),
        Judgement::Available { .. }
    ));
    let mut unselected = raw(ClaimPolicy::SignatureFree);
    unselected.rules.classes.clear();
    assert_eq!(
        unselected.codes(),
        [RejectCode::NotSelected, RejectCode::NotBlank]
    );
}

#[test]
fn a_table_that_is_known_explains_the_partitions_of_a_drive() {
    let partition = PartitionFacts {
        kernel_name: "sda1".into(),
        number: 1,
        start_bytes: 0,
        size_bytes: 512,
        major: 8,
        minor: 1,
    };
    for gpt in [GptState::Whole, GptState::Damaged("x".into())] {
        let mut case = with_probe(|probed| probed.gpt = gpt);
        case.facts.partitions = vec![partition.clone()];
        assert!(!case.codes().contains(&RejectCode::PhantomTable));
    }
    // A drive of another node has Drivebay's table, which is not searched for foreign signatures.
    let mut theirs = claimed();
    theirs.label = Some(label("c", "other"));
    if let Some(Ok(probed)) = &mut theirs.probed {
        probed.gpt = GptState::None;
    }
    assert!(!theirs.codes().contains(&RejectCode::PhantomTable));
}

#[test]
fn a_table_is_one_reason_and_on_a_drive_of_ours_none() {
    let case = with(|case| {
        case.probed = signed("gpt", "partition-table").probed;
        if let Some(Ok(probed)) = &mut case.probed {
            probed.gpt = GptState::Whole;
        }
    });
    assert_eq!(case.codes(), [RejectCode::PartitionTable]);
    let ours = |signatures: Vec<Signature>| {
        with(|case| {
            case.label = Some(label("c", "other"));
            case.probed = Some(Ok(Probed {
                ours: Some(Layout::Partition),
                gpt: GptState::Whole,
                blankness: Blankness::NotSampled,
                signatures: Signatures::Found(signatures),
                ..blank()
            }));
        })
    };
    let table = signature("gpt", "partition-table");
    assert_eq!(
        ours(vec![table.clone()]).codes(),
        [RejectCode::OursElsewhere]
    );
    let other = signature("xfs", "filesystem");
    assert_eq!(
        ours(vec![table, other]).codes(),
        [RejectCode::Filesystem, RejectCode::OursElsewhere]
    );
}

#[test]
fn the_label_of_this_node_is_no_reason_against_its_drive() {
    let case = claimed();
    let all = [case.facts.clone()];
    let evidence = Evidence {
        facts: &case.facts,
        all: &all,
        host: &case.host,
        probed: case.probed.as_ref(),
        label: case.label.as_ref(),
        label_trouble: None,
    };
    let rejections = reasons::of_probe(&evidence, &case.rules, case.rules.classes.first());
    let codes: Vec<RejectCode> = rejections.iter().map(|reason| reason.code).collect();
    assert_eq!(codes, [RejectCode::Busy]);
}

#[test]
fn a_signature_is_described_by_what_is_known_of_it() {
    let described = detail(&signed("xfs", "filesystem"), RejectCode::Filesystem);
    assert!(
        described == "it holds xfs, label l, uuid u, at byte 8",
        "{described}"
    );
    let bare = with_probe(|probed| {
        let one = Signature {
            uuid: String::new(),
            label: String::new(),
            offset: None,
            ..signature("xfs", "filesystem")
        };
        probed.signatures = Signatures::Found(vec![one]);
    });
    let described = detail(&bare, RejectCode::Filesystem);
    assert_eq!(described, "it holds xfs");
}

#[test]
fn only_a_loop_device_is_reported_as_a_matter_of_the_config() {
    let virtual_ = |transport, kind: &str| {
        with(|case| {
            case.facts.transport = transport;
            case.facts.virtual_kind = Some(kind.into());
        })
    };
    for (transport, kind, expected) in [
        (Transport::Loop, "loop", true),
        (Transport::Unknown, "zram", false),
    ] {
        let described = detail(&virtual_(transport, kind), RejectCode::NotADisk);
        assert!(described.contains(kind), "{described}");
        assert_eq!(described.contains("config"), expected, "{described}");
    }
    assert_eq!(
        virtual_(Transport::Unknown, "rbd").codes(),
        [RejectCode::NotADisk, RejectCode::Remote]
    );
}

#[test]
fn an_input_output_error_makes_a_drive_unreadable_wherever_it_is_met() {
    let open = |errno| {
        with(|case| {
            case.probed = Some(Err(ProbeError::Open {
                kernel_name: "sda".into(),
                source: Cause::from(std::io::Error::from_raw_os_error(errno)),
            }));
        })
    };
    assert_eq!(open(libc::EIO).codes(), [RejectCode::Unreadable]);
    assert_eq!(open(libc::ENXIO).codes(), [RejectCode::ProbeFailed]);
}

fn any_signatures() -> impl Strategy<Value = Signatures> {
    let list = || {
        proptest::collection::vec(
            (
                prop_oneof![
                    "[a-z]{1,9}",
                    Just("gpt".to_owned()),
                    Just("LVM2_member".to_owned())
                ],
                prop_oneof![Just("partition-table"), Just("raid"), Just("")],
            )
                .prop_map(|(kind, usage)| signature(&kind, usage)),
            0..3,
        )
    };
    prop_oneof![3 => Just(Signatures::Empty), 1 => list().prop_map(Signatures::Found), 1 => list().prop_map(Signatures::Ambiguous)]
}

prop_compose! {
    fn any_probed()(
        signatures in any_signatures(),
        gpt in prop_oneof![3 => Just(GptState::None), 1 => Just(GptState::Whole), 1 => Just(GptState::Damaged("x".into()))],
        blankness in prop_oneof![3 => Just(Blankness::Blank), 1 => Just(Blankness::NotSampled), 1 => Just(Blankness::DataAt(4))],
        (busy, ours, read_only) in (rare(), rare(), rare()),
        size_bytes in prop_oneof![9 => Just(1_u64 << 40), 1 => Just(7)],
    ) -> Probed {
        Probed { size_bytes, read_only, busy, signatures, gpt, ours: ours.then_some(Layout::Lvm), written_sector: None, traces: None, gpt_types: vec![], blankness }
    }
}

fn rare() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn only_positive_proof_makes_a_drive_available(
        probed in prop_oneof![8 => any_probed().prop_map(|probed| Some(Ok(probed))), 1 => Just(None), 1 => Just(Some(Err(ProbeError::Open { kernel_name: "sda".into(), source: Cause::text("x") })))],
        (mounted, swapped, system, held) in (rare(), rare(), rare(), rare()),
        (read_only, hidden, zoned, partition, partitions) in (rare(), rare(), rare(), rare(), rare()),
        (virtual_, stopped, twin, unselected, labelled) in (rare(), rare(), rare(), rare(), rare()),
    ) {
        let mut case = case();
        case.probed = probed.clone();
        for (is_so, map) in [(mounted, &mut case.host.mounted), (swapped, &mut case.host.swap), (system, &mut case.host.system)] {
            if is_so {
                map.insert("sda".into(), vec!["/x".into()]);
            }
        }
        if held { case.facts.holders.push(Holder { held: "sda".into(), name: "md0".into(), dm_uuid: None }) }
        if partitions { case.facts.partitions.push(PartitionFacts { kernel_name: "sda1".into(), number: 1, start_bytes: 0, size_bytes: 1, major: 8, minor: 1 }) }
        if virtual_ { case.facts.virtual_kind = Some("ram".into()) }
        if stopped { case.facts.not_running = Some("dead".into()) }
        if twin { case.others.push(DriveFacts { kernel_name: "sdz".into(), ..facts() }) }
        if unselected { case.rules.classes.clear() }
        if labelled { case.label = Some(label("c", "n")) }
        (case.facts.read_only, case.facts.hidden, case.facts.zoned, case.facts.is_partition) = (read_only, hidden, zoned, partition);
        let bad = mounted || swapped || system || held || read_only || hidden || zoned || partition || partitions || virtual_ || stopped || twin || unselected;
        let proven = matches!(&probed, Some(Ok(probed)) if *probed == blank());
        match case.judge() {
            Judgement::Available { .. } => prop_assert!(proven && !bad, "{probed:?}"),
            Judgement::Claimed => prop_assert!(labelled && matches!(&probed, Some(Ok(probed)) if probed.ours.is_some())),
            Judgement::Rejected { reasons, .. } => {
                prop_assert!(!reasons.is_empty(), "a rejection without a reason");
                prop_assert!(!proven || bad, "{reasons:?}");
                prop_assert!(reasons.is_sorted_by_key(|reason| reason.code));
            }
        }
    }
}

//! Every way a drive can be in use, on real loop devices, with the real probe: none is reported as available, each has its reason, and a
//! scan changes nothing. Needs root.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // helpers of tests

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use drivebay_discovery::{
    claim::{Evidence, Judgement, Rules, judge, skips_probe},
    system::{self, HostUse},
};
use drivebay_hwtests::{
    fixtures::{Bench, MIB},
    used_drives::{self, ROWS},
};
use drivebay_layout::probe::{Probe, ProbeError, Probed};
use drivebay_model::{
    ClaimPolicy, ClassConfig, DriveFacts, DriveId, DriveRef, ErasePolicy, FsType, Label, Layout,
    Reject, RejectCode as Code, Selector,
};
use drivebay_sys::sysfs;
use drivebay_worker::{Context, Job};

/// Serialises the tests: a child that another thread starts holds copies of all descriptors until it execs, a probe's O_EXCL one too, and
/// the next probe of that drive would find it busy.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn class(name: &str, select: Selector, claim: ClaimPolicy) -> ClassConfig {
    ClassConfig {
        name: name.into(),
        select,
        layout: Layout::Partition,
        placement: drivebay_model::Placement::default(),
        priority: 0,
        claim,
        erase: ErasePolicy::Zero,
        raw_space: Default::default(),
        evacuate: Default::default(),
        fs_type: FsType::Ext4,
        mkfs_options: vec![],
        mount_options: vec![],
        allow_removable: false,
        xfs_retry_forever: false,
        check_reserve_bytes: 0,
    }
}

/// Rules with one class that selects every device backed by this bench's file.
fn rules(bench: &Bench) -> Rules {
    let select = Selector {
        path: vec![bench.file().to_string_lossy().into_owned()],
        ..Selector::default()
    };
    Rules {
        cluster: "cluster".into(),
        node: "node".into(),
        allow_loop: true,
        classes: vec![class("loop", select, ClaimPolicy::Blank)],
    }
}

fn name(device: &Path) -> String {
    device.file_name().unwrap().to_string_lossy().into_owned()
}

fn host(kubelet: &Path) -> HostUse {
    system::host_use(Path::new("/sys"), Path::new("/proc"), kubelet, false).unwrap()
}

/// Returns the facts of one device and of all. Devices of other tests come and go, so an error is retried.
fn facts(kernel_name: &str) -> (DriveFacts, Vec<DriveFacts>) {
    let sys = Path::new("/sys");
    let all = (0..20).find_map(|_| sysfs::enumerate(sys).ok()).unwrap();
    (sysfs::read(sys, kernel_name).unwrap(), all)
}

fn probe(facts: &DriveFacts, rules: &Rules) -> Option<Result<Probed, ProbeError>> {
    if skips_probe(facts, rules) {
        return None;
    }
    let job = Probe {
        drive: DriveRef::from(facts),
        policy: rules.classes.first().map(|class| class.claim),
        past_own_table: false,
    };
    Some(job.run(&mut Context::silent()))
}

fn probe_and_judge(
    device: &Path,
    rules: &Rules,
    kubelet: &Path,
    label: Option<&Label>,
    label_trouble: Option<&str>,
) -> Judgement {
    let (facts, all) = facts(&name(device));
    let probed = probe(&facts, rules);
    judge(
        &Evidence {
            facts: &facts,
            all: &all,
            host: &host(kubelet),
            probed: probed.as_ref(),
            label,
            label_trouble,
        },
        rules,
    )
}

const NO_KUBELET: &str = "/nonexistent";

fn judged(bench: &mut Bench, rules: &Rules) -> Judgement {
    let device = bench.device().unwrap();
    probe_and_judge(&device, rules, Path::new(NO_KUBELET), None, None)
}

fn reasons(judgement: Judgement, what: &str) -> Vec<Reject> {
    match judgement {
        Judgement::Rejected { reasons, .. } => reasons,
        other => panic!("{what}: {other:?}"),
    }
}

fn codes(judgement: Judgement, what: &str) -> Vec<Code> {
    reasons(judgement, what)
        .into_iter()
        .map(|reason| reason.code)
        .collect()
}

#[test]
fn a_blank_selected_drive_is_available() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    let rules = rules(&bench);
    assert_eq!(
        judged(&mut bench, &rules),
        Judgement::Available {
            class: "loop".into()
        }
    );
}

#[test]
fn no_drive_in_use_is_available_and_probing_changes_nothing() {
    let _alone = alone();
    let mut wrong = Vec::new();
    for row in ROWS {
        let mut bench = Bench::new(row.bytes).unwrap();
        (row.make)(&mut bench).unwrap_or_else(|error| panic!("{}: {error}", row.name));
        let rules = rules(&bench);
        bench.device().unwrap();
        let before = bench.fingerprint().unwrap();
        match judged(&mut bench, &rules) {
            Judgement::Rejected { reasons, .. } => {
                let actual: BTreeSet<Code> = reasons.iter().map(|reason| reason.code).collect();
                let missing: Vec<_> = row
                    .codes
                    .iter()
                    .filter(|code| !actual.contains(code))
                    .collect();
                if !missing.is_empty() {
                    wrong.push(format!("{}: {missing:?} not among {reasons:#?}", row.name));
                }
            }
            other => wrong.push(format!("{}: {other:?}", row.name)),
        }
        if bench.fingerprint().unwrap() != before {
            wrong.push(format!("{}: looking changed bytes", row.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn raw_data_is_the_operators_to_lose_only_when_the_class_allows_it() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    bench.write(5 * MIB, b"rows of a database").unwrap();
    let mut rules = rules(&bench);
    rules.classes[0].claim = ClaimPolicy::SignatureFree;
    assert_eq!(
        judged(&mut bench, &rules),
        Judgement::Available {
            class: "loop".into()
        }
    );
}

#[test]
fn consent_is_one_class_that_selects_it() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    let mut rules = rules(&bench);
    rules.classes.push(ClassConfig {
        name: "second".into(),
        ..rules.classes[0].clone()
    });
    assert_eq!(
        codes(judged(&mut bench, &rules), "two classes"),
        [Code::AmbiguousClass]
    );
    rules.classes.clear();
    assert_eq!(
        codes(judged(&mut bench, &rules), "no class"),
        [Code::NotSelected]
    );
    rules.allow_loop = false;
    assert_eq!(
        codes(judged(&mut bench, &rules), "loops are no drives"),
        [Code::NotADisk, Code::NotSelected]
    );
}

#[test]
fn a_partition_is_not_a_drive() {
    let _alone = alone();
    let mut bench = Bench::new(160 * MIB).unwrap();
    bench.add_partition(1, 2048, 200_000).unwrap();
    let rules = rules(&bench);
    let partition = format!("{}p1", bench.device().unwrap().display());
    let codes = codes(
        probe_and_judge(
            Path::new(&partition),
            &rules,
            Path::new(NO_KUBELET),
            None,
            None,
        ),
        "partition",
    );
    assert!(codes.contains(&Code::Partition), "{codes:?}");
}

#[test]
fn the_drive_of_the_kubelets_directory_is_the_systems() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    bench.tool("mkfs.ext4", &["-Fq"]).unwrap();
    let (rules, point) = (rules(&bench), bench.mount().unwrap());
    let device = bench.device().unwrap();
    let codes = codes(
        probe_and_judge(&device, &rules, &point, None, None),
        "kubelet",
    );
    assert!(
        codes.contains(&Code::SystemDrive) && codes.contains(&Code::Mounted),
        "{codes:?}"
    );
}

#[test]
fn an_agent_whose_pod_does_not_see_the_hosts_mounts_claims_nothing_and_keeps_what_it_has() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    let rules = rules(&bench);
    // In a pod without hostPID, pid 1 has the same mounts as this process.
    let (sys, proc) = (Path::new("/sys"), Path::new("/proc"));
    let host = system::host_use(sys, proc, Path::new(NO_KUBELET), true).unwrap();
    let judged = |device: &Path, label: Option<&Label>| {
        let (facts, all) = facts(&name(device));
        let probed = probe(&facts, &rules);
        let evidence = Evidence {
            facts: &facts,
            all: &all,
            host: &host,
            probed: probed.as_ref(),
            label,
            label_trouble: None,
        };
        judge(&evidence, &rules)
    };
    let device = bench.device().unwrap();
    let codes = codes(judged(&device, None), "blank");
    assert_eq!(codes, [Code::HostUnknown]);
    used_drives::labelled(&mut bench, b"label").unwrap();
    let device = bench.device().unwrap();
    let label = Label {
        drive_uuid: uuid::Uuid::from_u128(1),
        cluster: "cluster".into(),
        node: "node".into(),
        class: "loop".into(),
        drive_id: facts(&name(&device)).0.id,
        cordon: None,
    };
    assert_eq!(judged(&device, Some(&label)), Judgement::Claimed);
}

#[test]
fn a_device_that_went_away_or_changed_is_a_failed_probe() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    let rules = rules(&bench);
    let device = bench.device().unwrap();
    let (facts, all) = facts(&name(&device));
    for change in [
        |facts: &mut DriveFacts| facts.diskseq += 1,
        |facts: &mut DriveFacts| facts.size_bytes += 512,
        |facts: &mut DriveFacts| facts.minor += 1,
        |facts: &mut DriveFacts| facts.id = DriveId("wwn-0x1234".into()),
    ] {
        let mut other = facts.clone();
        change(&mut other);
        let probed = probe(&other, &rules);
        assert!(
            matches!(probed, Some(Err(ProbeError::NotThisDrive { .. }))),
            "{probed:?}"
        );
        let evidence = Evidence {
            facts: &facts,
            all: &all,
            host: &host(Path::new(NO_KUBELET)),
            probed: probed.as_ref(),
            label: None,
            label_trouble: None,
        };
        assert_eq!(
            codes(judge(&evidence, &rules), "changed"),
            [Code::ProbeFailed]
        );
    }
    bench.detach().unwrap();
    assert!(matches!(probe(&facts, &rules), Some(Err(_))));
}

#[test]
fn our_label_decides_whose_drive_it_is() {
    let _alone = alone();
    let mut bench = Bench::new(80 * MIB).unwrap();
    used_drives::labelled(&mut bench, b"label").unwrap();
    let (rules, device) = (rules(&bench), bench.device().unwrap());
    let label = |cluster: &str| Label {
        drive_uuid: uuid::Uuid::from_u128(1),
        cluster: cluster.into(),
        node: "node".into(),
        class: "loop".into(),
        drive_id: facts(&name(&device)).0.id,
        cordon: None,
    };
    let judge_with = |label: Option<&Label>, trouble| {
        probe_and_judge(&device, &rules, Path::new(NO_KUBELET), label, trouble)
    };
    assert_eq!(
        judge_with(Some(&label("cluster")), None),
        Judgement::Claimed
    );
    assert_eq!(
        codes(judge_with(Some(&label("other")), None), "elsewhere"),
        [Code::OursElsewhere]
    );
    assert_eq!(
        codes(judge_with(None, Some("both slots are damaged")), "damaged"),
        [Code::OursDamaged]
    );
    // One copy of the table is missing: the drive is still Drivebay's, and its contents are read as damaged.
    bench.write(512, &[0; 512]).unwrap();
    bench.detach().unwrap();
    let device = bench.device().unwrap();
    let (facts, _) = facts(&name(&device));
    let probed = probe(&facts, &rules).unwrap().unwrap();
    assert_eq!(probed.ours, Some(Layout::Partition), "{probed:?}");
}

/// Returns the codes that no loop device here can have, with the reason. The lab has a drive for each but `Unhealthy`
/// (`lab_discovery::refused`); recorded sysfs trees have them in the agent's own tests (`discovery::sysfs`: their detection;
/// `discovery::claim`: that they reject).
fn not_on_a_loop() -> BTreeMap<Code, &'static str> {
    BTreeMap::from([
        (Code::Remote, "a loop device has no network transport"),
        (Code::Removable, "a loop device is never removable"),
        (Code::HiddenPath, "only NVMe paths are hidden"),
        (Code::MultipathMember, "needs device-mapper"),
        (Code::Zoned, "needs a zoned drive, or null_blk"),
        (
            Code::NotRunning,
            "only SCSI, NVMe and dm devices have a state",
        ),
        (
            Code::Holders,
            "needs dm, md or bcache; a loop device on a loop device is no holder",
        ),
        (
            Code::NoStableIdentity,
            "an attached loop device is known by its file",
        ),
        (
            Code::Unhealthy,
            "comes from the drive's health, not from looking at its bytes",
        ),
    ])
}

#[test]
fn every_code_has_a_row_or_a_reason_for_having_none() {
    let mut covered: BTreeSet<Code> = ROWS
        .iter()
        .flat_map(|row| row.codes.iter().copied())
        .collect();
    // The tests above that are not rows.
    covered.extend([
        Code::NotSelected,
        Code::AmbiguousClass,
        Code::NotADisk,
        Code::Partition,
        Code::SystemDrive,
        Code::ProbeFailed,
        Code::OursElsewhere,
        Code::OursDamaged,
        Code::HostUnknown,
    ]);
    // `drives::tables` attaches a drive with another sector size than it was claimed with.
    covered.insert(Code::SectorSizeChanged);
    let excused = not_on_a_loop();
    for code in Code::ALL {
        assert!(
            covered.contains(code) != excused.contains_key(code),
            "{code}: needs exactly one of a row and an excuse"
        );
    }
}

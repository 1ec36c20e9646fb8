use super::*;
use drivebay_evidence::registry::of_its_drive;
use drivebay_model::{condition::Reason, samples};

fn what(reason: Reason) -> Condition {
    Condition::new(reason, format!("what {reason} is"))
}

/// The proposal's checks in its order, each with its reasons here: independent of the table in the code.
#[test]
fn each_reason_belongs_to_the_check_of_the_proposal_that_finds_it() {
    let proposal = [
        "DriveSuspect DriveFailing DriveStalled MediumErrors IoErrors",
        "RecordMismatch MoveInDoubt VolumeOnTwoDrives",
        "DriveMissing DriveUnreadable DriveStuck DeviceLost DeviceGone DeviceChanged DeviceSuspended DeviceReadOnly NoAnswer VolumeNotFound",
        "StagingMountMissing",
        "TargetMountMissing WrongDevice",
        "Unreadable ReadFailed SectorsLost",
        "FilesystemNotFound FilesystemError FilesystemCorrupted FilesystemMendable FilesystemShutDown ReadOnly",
        "FilesystemNotGrown VolumeFull InodesExhausted",
    ];
    let mut all = Reason::ALL.to_vec();
    all.sort_by_key(|reason| reason.about());
    let checks: Vec<String> = all
        .chunk_by(|one, next| one.about() == next.about())
        .map(|chunk| {
            chunk
                .iter()
                .map(|reason| reason.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(checks, proposal);
}

#[test]
fn findings_of_an_earlier_check_of_the_proposal_come_before_those_of_a_later_one() {
    for earlier in Reason::ALL {
        for later in Reason::ALL {
            if earlier.about() >= later.about() {
                continue;
            }
            let mut given = [what(*later), what(*earlier)];
            for _ in 0..2 {
                given.reverse();
                let merged = condition(&given);
                assert!(merged.abnormal);
                assert_eq!(
                    merged.message,
                    format!("{earlier}: what {earlier} is; {later}: what {later} is")
                );
            }
        }
    }
    assert!(!condition(&[]).abnormal);
}

#[test]
fn however_much_is_wrong_a_condition_is_bounded_and_the_worst_is_in_the_new_api_first() {
    let long = |reason: &Reason| Condition::new(*reason, "x".repeat(4000));
    let mut many: Vec<Condition> = Reason::ALL.iter().map(long).collect();
    many.extend([what(Reason::FilesystemCorrupted)]);
    assert!(condition(&many).message.len() <= MAX_MESSAGE_BYTES);
    let entries = entries(&many);
    assert_eq!(entries.len(), health::MAX_CONDITIONS);
    let worst = |entry: &VolumeHealthEntry| entry.status == Kind::DataLoss as i32;
    let lost = Reason::ALL
        .iter()
        .filter(|reason| reason.status() == Status::DataLoss);
    let (first, rest) = entries.split_at(lost.count());
    assert!(
        first.iter().all(worst) && !rest.iter().any(worst),
        "each once"
    );
    assert!(
        entries
            .iter()
            .all(|entry| entry.message.len() <= MAX_MESSAGE_BYTES)
    );
}

fn drive(name: &str, state: DriveState) -> Drive {
    samples::drive(name, state, None)
}

fn finding(code: &str) -> Finding {
    Finding::new(code, "see to it")
}

fn entries_of(drives: impl IntoIterator<Item = Drive>) -> Vec<(String, String, String)> {
    let mut snapshot = Snapshot::default();
    for drive in drives {
        snapshot.drives.insert(drive.id.clone(), drive);
    }
    storage(&snapshot)
        .into_iter()
        .map(|entry| {
            (
                entry.status().as_str_name().to_owned(),
                entry.reason,
                entry.message,
            )
        })
        .collect()
}

#[test]
fn a_drive_that_is_good_or_not_ours_is_not_reported() {
    let mut foreign = drive("sdb", DriveState::Rejected);
    foreign.health.verdict = Verdict::Bad;
    let mut worn = drive("sdc", DriveState::Available);
    worn.health.conditions = vec![finding("Wear")];
    assert_eq!(
        entries_of([drive("sda", DriveState::Claimed), foreign, worn]),
        []
    );
}

#[test]
fn of_an_acknowledged_drive_only_what_is_not_acknowledged_is_reported() {
    let mut acknowledged = drive("sda", DriveState::Claimed);
    acknowledged.health.verdict = Verdict::Bad;
    acknowledged.health.findings = vec![Finding {
        acknowledged: true,
        ..finding("GrownDefectsMany")
    }];
    acknowledged.health.acknowledged = Some(Default::default());
    assert_eq!(entries_of([acknowledged.clone()]), []);
    assert_eq!(of_its_drive(&acknowledged), None);
    acknowledged.health.findings.push(finding("PendingSectors"));
    let entries = entries_of([acknowledged.clone()]);
    assert_eq!(entries[0].1, "DriveFailing");
    let of_volume = of_its_drive(&acknowledged).unwrap();
    for message in [&entries[0].2, &of_volume.message] {
        assert!(message.contains("PendingSectors"), "{message}");
        assert!(!message.contains("GrownDefectsMany"), "{message}");
    }
    // Stalled I/O is reported, also when acknowledged.
    acknowledged.health.findings = vec![Finding {
        acknowledged: true,
        ..finding("IoStalled")
    }];
    assert_eq!(entries_of([acknowledged])[0].1, "DriveStalled");
}

#[test]
fn each_trouble_of_drives_is_one_reason_and_the_unreachable_come_first() {
    let mut all = Vec::new();
    for (name, verdict) in [
        ("sda", Verdict::Suspect),
        ("sdb", Verdict::Bad),
        ("sdc", Verdict::Bad),
    ] {
        let mut one = drive(name, DriveState::Claimed);
        one.health.verdict = verdict;
        one.health.findings = vec![finding("PendingSectors")];
        all.push(one);
    }
    let mut hot = drive("sdd", DriveState::Available);
    hot.health.conditions = vec![finding("Overheating"), finding("Wear")];
    hot.health.worn_out = true;
    let mut stuck = drive("sde", DriveState::Claimed);
    stuck.trouble = Some("stuck".into());
    let mut stalled = drive("sdf", DriveState::Claimed);
    stalled.health.verdict = Verdict::Suspect;
    stalled.health.findings = vec![finding("IoStalled")];
    all.extend([hot, stuck, stalled]);
    let entries = entries_of(all);
    let kinds: Vec<(&str, &str)> = entries
        .iter()
        .map(|(status, reason, _)| (status.as_str(), reason.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("STORAGE_UNREACHABLE", "DriveStalled"),
            ("STORAGE_UNREACHABLE", "DriveUnreachable"),
            ("STORAGE_DEGRADED", "DriveFailing"),
            ("STORAGE_DEGRADED", "DriveOverheating"),
            ("STORAGE_DEGRADED", "DriveSuspect"),
            ("STORAGE_DEGRADED", "DriveWornOut"),
        ]
    );
    assert!(
        entries[2].2.starts_with("drive wwn-sdb (") && entries[2].2.contains("; drive wwn-sdc ("),
        "{entries:?}"
    );
    assert!(
        entries[2].2.contains("PendingSectors: see to it"),
        "{entries:?}"
    );
}

#[test]
fn of_a_shelf_full_of_failing_drives_the_number_of_further_ones_is_reported() {
    let shelf = (0..60).map(|number| {
        let mut one = drive(&format!("sd{number:03}"), DriveState::Claimed);
        one.health.verdict = Verdict::Bad;
        one
    });
    let entries = entries_of(shelf);
    assert_eq!(entries.len(), 1);
    let message = &entries[0].2;
    assert!(
        message.len() <= MAX_MESSAGE_BYTES && message.ends_with(" more"),
        "{message}"
    );
    let named = message.matches("wwn-sd").count();
    assert!(
        message.ends_with(&format!("; and {} more", 60 - named)),
        "{message}"
    );
}

//! Changes that a scan may make to what jobs left.

use super::*;
use drivebay_discovery::claim::Judgement;
use drivebay_discovery::scan::ProbeResults;
use drivebay_layout::probe::{Blankness, GptState, Probed};
use drivebay_model::{
    Drive, ReadAt, RecordState, Reject, RejectCode, Signatures,
    samples::{contents, drive, placed},
};

/// The drive as it is shown when it is the only one.
fn alone(observed: Observed) -> Drive {
    let inventory = InventoryState {
        drives: [(observed.facts.id.clone(), observed)].into(),
        ..InventoryState::default()
    };
    let drives = crate::inventory::present::derive(&inventory, &[]);
    drives.into_values().next().unwrap()
}

fn stamp(drive: &Drive) -> Option<Stamp> {
    drive.contents.as_ref().map(Contents::stamp)
}

fn with_reject(mut drive: Drive, code: RejectCode) -> Drive {
    drive.rejects.push(Reject {
        code,
        detail: String::new(),
    });
    drive
}

#[test]
fn an_answer_of_a_job_wins_over_a_scan_that_began_before_it() {
    use DriveState::{Available, Claimed, Rejected, Unprobed};
    let claimed = |sequence| {
        let new = placed(1, RecordState::New);
        drive("sda", Claimed, Some(contents(9, sequence, vec![new], 0)))
    };
    let mut blank = drive("sda", Available, None);
    // No class is configured here.
    blank.claimable_bytes = 0;
    let foreign = with_reject(drive("sda", Rejected, None), RejectCode::Mounted);
    let mut silent = drive("sda", Unprobed, None);
    silent.trouble = Some("no answer".into());
    let mut silent_and_answered = silent.clone();
    silent_and_answered.contents = claimed(1).contents;
    let read_at = |mut drive: Drive, nanoseconds, device: Option<&str>| {
        let contents = drive.contents.as_mut().unwrap();
        contents.read_at = ReadAt { nanoseconds };
        contents.volumes[0].device = device.map(str::to_owned);
        drive
    };
    let put_back = read_at(claimed(1), 5, None);
    let early = read_at(claimed(1), 3, None);
    let late = read_at(claimed(1), 5, None);
    let of_a_job = || read_at(claimed(1), 4, Some("dm-3"));
    for (what, result, before, begun, expected) in [
        ("claimed meanwhile", &blank, claimed(1), &blank, claimed(1)),
        (
            "claimed and mounted meanwhile",
            &foreign,
            claimed(1),
            &blank,
            claimed(1),
        ),
        (
            "changed meanwhile",
            &claimed(1),
            claimed(2),
            &claimed(1),
            claimed(2),
        ),
        ("wiped", &blank, claimed(1), &claimed(1), blank.clone()),
        (
            "a label of an older day put back",
            &put_back,
            claimed(2),
            &claimed(2),
            put_back.clone(),
        ),
        (
            "a device that the kernel has since the scan read the drive",
            &early,
            of_a_job(),
            &claimed(1),
            of_a_job(),
        ),
        (
            "a device that the kernel does not have any more",
            &late,
            of_a_job(),
            &claimed(1),
            late.clone(),
        ),
        (
            "claimed, then silent",
            &silent,
            claimed(1),
            &blank,
            silent_and_answered,
        ),
    ] {
        let settled = settle(result.clone().into(), Some(before.into()), stamp(begun));
        assert_eq!(alone(settled), expected, "{what}");
    }
    // Another device with the same identity has a history of its own.
    let mut again = blank.clone();
    again.facts.diskseq += 1;
    let settled = settle(again.clone().into(), Some(claimed(1).into()), stamp(&blank));
    assert_eq!(settled, again.into());
}

fn scanned(name: &str, contents: Option<Contents>, judgement: Judgement) -> Scanned {
    Scanned {
        facts: drivebay_model::samples::facts(name),
        seen: ProbeResults {
            probed: Some(Ok(Probed {
                size_bytes: 1 << 40,
                read_only: false,
                busy: false,
                signatures: Signatures::Empty,
                gpt: GptState::None,
                ours: contents.as_ref().map(|contents| contents.layout),
                written_sector: None,
                traces: None,
                gpt_types: Vec::new(),
                blankness: Blankness::Blank,
            })),
            contents,
            ..ProbeResults::default()
        },
        judgement,
    }
}

#[test]
fn a_drive_that_cannot_be_read_is_scanned_again_soon_and_not_for_ever() {
    let unread = |times| {
        let mut drive = scanned("sda", None, Judgement::Claimed);
        drive.seen.unread = times;
        drive
    };
    for (times, again) in [
        (0, false),
        (1, true),
        (UNREAD_MAX, true),
        (UNREAD_MAX + 1, false),
    ] {
        assert_eq!(is_scanned_again(&unread(times)), again, "{times}");
    }
}

#[test]
fn a_drive_whose_lv_has_another_device_is_scanned() {
    let snapshot_with = |device: Option<&str>, dev| {
        let mut placed = placed(1, RecordState::Block);
        placed.dm_uuid = Some("LVM-a".to_owned());
        (placed.device, placed.dev) = (device.map(str::to_owned), dev);
        let drive = drive("sda", DriveState::Claimed, None);
        let volume = drivebay_model::samples::volume(&drive, placed);
        Snapshot {
            volumes: [(volume.uuid, volume)].into(),
            drives: [(drive.id.clone(), drive)].into(),
            ..Snapshot::default()
        }
    };
    let is = |name: &str, now: Option<(u32, &str)>| {
        let now = now.map(|(minor, uuid)| (uuid.to_owned(), (253, minor)));
        (name.to_owned(), now)
    };
    let (here, there) = (
        snapshot_with(Some("dm-3"), Some((253, 3))),
        snapshot_with(None, None),
    );
    let (ours, another) = (|minor| Some((minor, "LVM-a")), Some((3, "LVM-b")));
    for (what, snapshot, changes, is_scanned) in [
        ("as it was", &here, vec![is("dm-3", ours(3))], false),
        ("deactivated", &here, vec![is("dm-3", None)], true),
        ("elsewhere", &here, vec![is("dm-4", ours(4))], true),
        ("another number", &here, vec![is("dm-3", ours(4))], true),
        (
            "another's under its name",
            &here,
            vec![is("dm-3", another)],
            true,
        ),
        ("another changed", &here, vec![is("dm-4", another)], false),
        ("another went", &here, vec![is("dm-4", None)], false),
        ("still inactive", &there, vec![is("dm-3", another)], false),
        ("activated", &there, vec![is("dm-3", ours(3))], true),
    ] {
        let changes = changes.into_iter().collect();
        let names = moved(snapshot, &changes);
        assert_eq!(names.contains("sda"), is_scanned, "{what}: {names:?}");
    }
}

#[test]
fn a_drive_that_a_job_claimed_is_probed_again() {
    let available = || {
        let class = "bulk".to_owned();
        scanned("sda", None, Judgement::Available { class })
    };
    let snapshot = |drive: Drive| Snapshot {
        drives: [(drive.id.clone(), drive)].into(),
        ..Snapshot::default()
    };
    let ours = contents(9, 1, Vec::new(), 0);
    let claimed = snapshot(drive("sda", DriveState::Claimed, Some(ours.clone())));
    let mut previous = [available()];
    refresh(&claimed, &mut previous);
    assert_eq!(previous[0].seen.contents, Some(ours.clone()));
    assert!(previous[0].seen.probed.is_none());

    // A change on a drive that was ours before is no evidence about the rest of it.
    let later = contents(9, 2, Vec::new(), 0);
    let changed = snapshot(drive("sda", DriveState::Claimed, Some(later.clone())));
    let mut previous = [scanned("sda", Some(ours), Judgement::Claimed)];
    refresh(&changed, &mut previous);
    assert_eq!(previous[0].seen.contents, Some(later));
    assert!(previous[0].seen.probed.is_some());
}

#[test]
fn devices_of_one_identity_get_keys_of_their_own() {
    let mut drives = ["sda", "sdb"].map(drivebay_model::samples::facts);
    assert_eq!(keys(&drives)[1].0, "wwn-sdb");
    drives[1].id = drives[0].id.clone();
    let both: Vec<String> = keys(&drives).into_iter().map(|key| key.0).collect();
    assert_eq!(both, ["wwn-sda.sda", "wwn-sda.sdb"]);
    // A path that the kernel hides has its drive's identity, and takes nothing from it.
    drives[1].hidden = true;
    let both: Vec<String> = keys(&drives).into_iter().map(|key| key.0).collect();
    assert_eq!(both, ["wwn-sda", "wwn-sda.sdb"]);
}

#[test]
fn only_what_is_open_or_noted_needs_a_repair() {
    let whole = || placed(1, RecordState::New);
    let of = |placed| contents(1, 1, vec![placed], 0);
    assert!(!of(whole()).needs_repair());
    let mut cases = vec![
        of(placed(1, RecordState::Creating)),
        of(whole()),
        of(whole()),
    ];
    cases[1].volumes[0].device = None;
    cases[2].notes.push("a lost slot".into());
    for case in cases {
        assert!(case.needs_repair(), "{case:?}");
    }
    let mut ambiguous = of(whole());
    ambiguous.volumes[0].device = None;
    ambiguous.volumes[0].ambiguous = Some("no entry".into());
    assert!(!ambiguous.needs_repair());
}

//! Drives that are tried, their order, and the error when none is left.

use super::*;
use drivebay_model::{
    GIB, RecordState, VolumeState,
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

/// The drives to try for a volume of 1 GiB, and whether others may do later.
fn order(
    drives: &[Drive],
    placement: Placement,
    in_flight: &[(&str, u64)],
) -> (Vec<(String, bool)>, bool) {
    let in_flight: Vec<InFlight> = in_flight
        .iter()
        .map(|(name, bytes)| InFlight {
            drive: DriveId(format!("wwn-{name}")),
            bytes: *bytes,
            group: None,
        })
        .collect();
    let need = Need {
        class: "bulk",
        bytes: GIB,
        placement,
        group: None,
    };
    let choice = choose(&snapshot(drives.to_vec()), need, &in_flight, |_| false);
    let short = |id: DriveId| id.0.trim_start_matches("wwn-").to_owned();
    let candidates = choice.candidates.into_iter();
    let named = candidates.map(|one| (short(one.drive), one.claim));
    (named.collect(), choice.others_later)
}

fn names(choice: (Vec<(String, bool)>, bool)) -> Vec<String> {
    choice.0.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn pack_tries_claimed_drives_before_blank_ones_and_the_tightest_piece_first() {
    let drives = [
        blank("a", 8 * GIB),
        blank("b", 4 * GIB),
        claimed("c", 9 * GIB),
        claimed("d", GIB),
        claimed("e", GIB - 1),
    ];
    let expected = [("d", false), ("c", false), ("b", true), ("a", true)]
        .map(|(name, claim)| (name.to_owned(), claim))
        .to_vec();
    assert_eq!(order(&drives, Placement::Pack, &[]), (expected, false));
}

#[test]
fn spread_tries_the_drive_first_that_stays_the_emptiest_for_its_size() {
    // Of 100 GiB: half, a third and all of it free; and a small one that is empty, of which 1 GiB is a quarter.
    let used = |name: &str, free: u64| {
        let mut drive = claimed(name, free * GIB);
        drive.contents.as_mut().unwrap().usable_bytes = 100 * GIB;
        drive
    };
    let drives = [
        used("a", 50),
        used("b", 33),
        used("c", 100),
        blank("d", 4 * GIB),
    ];
    let tried = names(order(&drives, Placement::Spread, &[]));
    assert_eq!(tried, ["c", "d", "a", "b"]);
}

#[test]
fn eight_creates_at_once_go_two_to_each_of_four_empty_drives() {
    let drives = ["a", "b", "c", "d"].map(|name| blank(name, 10 * GIB));
    let mut sent: Vec<String> = Vec::new();
    for _ in 0..8 {
        let in_flight: Vec<(&str, u64)> = sent.iter().map(|name| (name.as_str(), GIB)).collect();
        let first = names(order(&drives, Placement::Spread, &in_flight)).remove(0);
        sent.push(first);
    }
    assert_eq!(sent, ["a", "b", "c", "d", "a", "b", "c", "d"]);
}

#[test]
fn a_drive_that_creations_in_flight_fill_is_not_tried_and_may_do_later() {
    let drives = [claimed("a", 2 * GIB), claimed("b", 3 * GIB)];
    for placement in [Placement::Spread, Placement::Pack] {
        let one = names(order(&drives, placement, &[("a", 2 * GIB)]));
        assert_eq!(one, ["b"]);
        let none = order(&drives, placement, &[("a", 2 * GIB), ("b", 5 * GIB / 2)]);
        assert_eq!(none, (Vec::new(), true));
        // Nothing to wait for: without those in flight it would not fit either.
        let full = [claimed("a", GIB / 2)];
        let none = order(&full, placement, &[("a", GIB / 4)]);
        assert_eq!(none, (Vec::new(), false));
    }
}

/// The positions of the creations count, not the sum of their sizes.
#[test]
fn creations_in_flight_take_their_places_as_the_drive_will() {
    let half = Extent {
        start: 8 * GIB,
        len: 3 * GIB / 2,
    };
    let mut drive = claimed("a", 3 * GIB / 2);
    drive.contents.as_mut().unwrap().free.push(half);
    let drives = [drive];
    for placement in [Placement::Spread, Placement::Pack] {
        // The other half is whole; of two halves neither is, though 1 GiB is free in all.
        let (tried, later) = order(&drives, placement, &[("a", GIB)]);
        assert_eq!((tried.len(), later), (1, false));
        let (tried, later) = order(&drives, placement, &[("a", GIB), ("a", GIB)]);
        assert_eq!((tried.len(), later), (0, true));
    }
}

#[test]
fn no_more_creations_are_sent_to_a_drive_than_may_queue_there() {
    let drives = [claimed("a", 99 * GIB), claimed("b", 20 * GIB)];
    let sent = |name: &'static str| [(name, GIB); IN_FLIGHT_PER_DRIVE];
    assert_eq!(names(order(&drives, Placement::Spread, &sent("a"))), ["b"]);
    let all = [sent("a"), sent("b")].concat();
    assert_eq!(order(&drives, Placement::Spread, &all), (Vec::new(), true));
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
    for placement in [Placement::Spread, Placement::Pack] {
        assert_eq!(order(&drives, placement, &[]), (Vec::new(), false));
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
fn a_drive_with_a_full_table_takes_no_volume_whatever_is_free_and_reports_it() {
    let full = |name: &str| {
        let mut drive = claimed(name, 9 * GIB);
        drive.contents.as_mut().unwrap().table_full = true;
        drive
    };
    let mut small = claimed("b", GIB);
    small.contents.as_mut().unwrap().free.clear();
    let tried = order(&[full("a"), small], Placement::Spread, &[]);
    assert_eq!(tried, (Vec::new(), false));
    let all = snapshot(vec![full("a")]);
    assert_eq!(largest(&all, "bulk"), (0, String::new()));
    let text = silent(&all, "bulk");
    assert!(
        text.starts_with("; not counted: wwn-a (its partition table is full: it has 128 entries"),
        "{text}"
    );
}

const GROUP: &str = "prod/db-0";

/// Drives of equal room, some with a volume in this state of the group; which are tried for one more of it.
fn tried_beside(
    hard: bool,
    has: &[(&str, VolumeState)],
    in_flight: &[&str],
) -> (Vec<String>, bool, Option<String>) {
    let drives = ["a", "b", "c"].map(|name| claimed(name, 9 * GIB));
    let mut snapshot = snapshot(drives.to_vec());
    for (n, (name, state)) in (1..).zip(has) {
        let mut placed = placed(n, RecordState::Block);
        let key = names::KEPT_ANTI_AFFINITY_GROUP.to_owned();
        placed.record.parameters.insert(key, GROUP.to_owned());
        let on = &snapshot.drives[&DriveId(format!("wwn-{name}"))];
        let mut of = volume(on, placed);
        of.state = *state;
        snapshot.volumes.insert(of.uuid, of);
    }
    let group = Group {
        name: GROUP.into(),
        hard,
    };
    let need = Need {
        class: "bulk",
        bytes: GIB,
        placement: Placement::Spread,
        group: Some(&group),
    };
    let in_flight: Vec<InFlight> = in_flight
        .iter()
        .map(|name| InFlight {
            drive: DriveId(format!("wwn-{name}")),
            bytes: GIB,
            group: Some(GROUP.into()),
        })
        .collect();
    let choice = choose(&snapshot, need, &in_flight, |_| false);
    let names = choice
        .candidates
        .iter()
        .map(|one| one.drive.0.replace("wwn-", ""));
    let in_the_way = only_its_group(&snapshot, need, |_| false);
    (names.collect(), choice.others_later, in_the_way)
}

#[test]
fn drives_without_a_volume_of_the_group_come_first_or_alone() {
    use VolumeState::{Erasing, Missing, Quarantined, Ready};
    let tried = |hard, has: &[_], sent: &[_]| {
        let (names, later, _) = tried_beside(hard, has, sent);
        (names.concat(), later)
    };
    let ready = |name| (name, Ready);
    for (has, sent, soft, hard) in [
        (vec![], vec![], ("abc", false), ("abc", false)),
        (vec![ready("a")], vec![], ("bca", false), ("bc", false)),
        // A creation in flight counts like a volume, and may fail.
        (vec![], vec!["a"], ("bca", false), ("bc", true)),
        (vec![ready("b")], vec!["a", "c"], ("bac", false), ("", true)),
        (
            vec![ready("a"), ready("b"), ready("c")],
            vec![],
            ("abc", false),
            ("", false),
        ),
        (
            vec![ready("a"), ready("a"), ready("b")],
            vec![],
            ("cba", false),
            ("c", false),
        ),
        // A deleted volume is not in the way; one that cannot be read is.
        (
            vec![("a", Erasing), ("b", Quarantined), ("c", Missing)],
            vec![],
            ("abc", false),
            ("ab", false),
        ),
    ] {
        assert_eq!(
            tried(false, &has, &sent),
            (soft.0.to_owned(), soft.1),
            "soft {has:?} {sent:?}"
        );
        assert_eq!(
            tried(true, &has, &sent),
            (hard.0.to_owned(), hard.1),
            "hard {has:?} {sent:?}"
        );
    }
}

#[test]
fn the_drives_that_a_hard_group_is_in_the_way_on_are_named() {
    let all = ["a", "b", "c"].map(|name| (name, VolumeState::Ready));
    let (_, _, drives) = tried_beside(true, &all, &[]);
    assert_eq!(drives.as_deref(), Some("wwn-a, wwn-b, wwn-c"));
    assert_eq!(tried_beside(true, &all[..2], &[]).2, None);
    assert_eq!(tried_beside(false, &all, &[]).2, None);
}

#[test]
fn a_drive_that_awaits_its_first_poll_is_waited_for_when_no_other_has_room() {
    let mut awaited = claimed("a", 8 * GIB);
    awaited.health.poll = drivebay_model::PollState::Awaited;
    let need = Need {
        class: "bulk",
        bytes: GIB,
        placement: Placement::Spread,
        group: None,
    };
    let choose = |drives: Vec<Drive>| {
        let choice = choose(&snapshot(drives), need, &[], |_| false);
        (choice.candidates.len(), choice.awaits_poll)
    };
    assert_eq!(choose(vec![awaited.clone()]), (0, true));
    assert_eq!(
        choose(vec![awaited.clone(), claimed("b", 2 * GIB)]),
        (1, true)
    );
    // Full, or found to be bad meanwhile: there is nothing to wait for.
    let mut full = claimed("a", GIB - 1);
    full.health.poll = drivebay_model::PollState::Awaited;
    assert_eq!(choose(vec![full]), (0, false));
    let mut bad = awaited.clone();
    bad.health.verdict = drivebay_model::Verdict::Bad;
    assert_eq!(choose(vec![bad]), (0, false));
    let mut last_known = awaited.clone();
    last_known.health.poll = drivebay_model::PollState::LastKnown;
    assert_eq!(choose(vec![last_known]), (1, false));
    let text = silent(&snapshot(vec![awaited]), "bulk");
    assert!(text.contains("not polled"), "{text}");
}

#[test]
fn a_cordoned_drive_is_not_tried_and_reports_the_reason() {
    let mut cordoned = claimed("a", 9 * GIB);
    if let Some(contents) = &mut cordoned.contents {
        contents.label.cordon = Some(drivebay_model::Cordon {
            at: 1,
            by: "ann".into(),
            reason: "ticket 4711".into(),
        });
    }
    let drives = [cordoned, claimed("b", 2 * GIB)];
    assert_eq!(names(order(&drives, Placement::Spread, &[])), ["b"]);
    let now = snapshot(drives.to_vec());
    assert_eq!(largest(&now, "bulk"), (2 * GIB, " on drive wwn-b".into()));
    let why = silent(&now, "bulk");
    assert!(
        why.contains("wwn-a (cordoned by ann: ticket 4711)"),
        "{why}"
    );
}

//! Changes of the held verdict, which never improves before it may.

use proptest::prelude::*;
use serde_json::json;

use super::{Acknowledgement, History, HistoryError, VERSION};
use crate::golden;
use crate::{
    Assessment, Failure, FailureReason, Outcome, SmartCode, Thresholds, Verdict,
    fixtures::{ATA_HDD, ATA_SSD, NVME, changed},
    judge,
};

const START: u64 = 1_700_000_000;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

fn pending(sectors: u64) -> Outcome {
    Outcome::Answered(Box::new(changed(
        ATA_HDD,
        &[
            ("attr 197 raw", json!(sectors)),
            ("physical_block_size", json!(512)),
        ],
    )))
}

fn failure(reason: FailureReason) -> Outcome {
    Outcome::Failed(Failure {
        reason,
        detail: "as a test".to_owned(),
    })
}

fn ack() -> Acknowledgement {
    Acknowledgement {
        by: "operator".to_owned(),
        note: "known".to_owned(),
        ..Acknowledgement::default()
    }
}

/// Judges polls of one drive.
struct Bench {
    history: History,
    limits: Thresholds,
}

impl Bench {
    fn new() -> Self {
        Self {
            history: History::default(),
            limits: Thresholds::default(),
        }
    }

    fn at(&mut self, now: u64, outcome: &Outcome) -> Assessment {
        judge(outcome, &mut self.history, now, &self.limits, None)
    }

    fn acknowledged(&mut self, now: u64, outcome: &Outcome) -> Assessment {
        judge(outcome, &mut self.history, now, &self.limits, Some(&ack()))
    }
}

#[test]
fn suspect_is_left_after_three_clean_polls_and_a_day() {
    let mut bench = Bench::new();
    assert_eq!(bench.at(START, &pending(1)).verdict, Verdict::Suspect);
    bench.at(START + HOUR, &pending(0));
    // Many polls, not long enough.
    for minute in 1..20 {
        let assessment = bench.at(START + HOUR + minute * 60, &pending(0));
        assert_eq!(assessment.verdict, Verdict::Suspect);
        assert_eq!(assessment.observed, Verdict::Good);
        assert_eq!(assessment.reasons[0].code, SmartCode::PendingSectors);
    }
    let assessment = bench.at(START + HOUR + DAY - 1, &pending(0));
    assert_eq!(assessment.verdict, Verdict::Suspect);
    let assessment = bench.at(START + HOUR + DAY, &pending(0));
    assert_eq!(assessment.verdict, Verdict::Good);
    assert_eq!(assessment.reasons, []);

    // Long enough, not enough polls.
    let mut bench = Bench::new();
    bench.at(START, &pending(1));
    bench.at(START + DAY, &pending(0));
    assert_eq!(
        bench.at(START + 9 * DAY, &pending(0)).verdict,
        Verdict::Suspect
    );
    assert_eq!(
        bench.at(START + 9 * DAY, &pending(0)).verdict,
        Verdict::Good
    );
}

#[test]
fn a_dirty_poll_begins_the_wait_anew_and_a_silent_one_does_not_count() {
    let mut bench = Bench::new();
    bench.at(START, &pending(1));
    bench.at(START + HOUR, &pending(0));
    bench.at(START + 23 * HOUR, &pending(2));
    bench.at(START + 24 * HOUR, &pending(0));
    for outcome in [Outcome::Standby, failure(FailureReason::Garbage)] {
        bench.at(START + 47 * HOUR, &outcome);
        bench.at(START + 49 * HOUR, &outcome);
    }
    assert_eq!(
        bench.at(START + 50 * HOUR, &pending(0)).verdict,
        Verdict::Suspect
    );
    assert_eq!(
        bench.at(START + 51 * HOUR, &pending(0)).verdict,
        Verdict::Good
    );
}

/// True if all findings from which the verdict derives are acknowledged.
fn silent(bench: &Bench) -> bool {
    bench.history.standing().iter().all(|one| one.acknowledged)
}

#[test]
fn an_acknowledged_bad_is_left_only_after_clean_polls_and_a_day() {
    let mut bench = Bench::new();
    assert_eq!(bench.at(START, &pending(40)).verdict, Verdict::Bad);
    for day in 1..30 {
        let assessment = bench.at(START + day * DAY, &pending(0));
        assert_eq!(assessment.verdict, Verdict::Bad);
        assert_eq!(assessment.reasons[0].code, SmartCode::PendingSectorsMany);
        assert!(!silent(&bench));
    }
    let at = START + 31 * DAY;
    assert_eq!(bench.acknowledged(at, &pending(0)).verdict, Verdict::Bad);
    assert!(silent(&bench));
    assert_eq!(bench.history.acknowledgements()[0].given.by, "operator");
    // The days before it do not count.
    for hours in [1, 2, 23] {
        let assessment = bench.at(at + hours * HOUR, &pending(0));
        assert_eq!(assessment.verdict, Verdict::Bad, "{hours}");
    }
    assert_eq!(bench.at(at + 24 * HOUR, &pending(0)).verdict, Verdict::Good);
}

#[test]
fn an_acknowledged_bad_that_is_still_found_stays_bad_for_ever() {
    let mut bench = Bench::new();
    bench.at(START, &pending(48));
    for day in 0..30 {
        let at = START + HOUR + day * DAY;
        let assessment = match day {
            0 => bench.acknowledged(at, &pending(48)),
            _ => bench.at(at, &pending(48)),
        };
        assert_eq!(assessment.verdict, Verdict::Bad);
        assert_eq!(assessment.observed, Verdict::Bad);
        assert!(silent(&bench));
    }
    // If less evidence is left, the verdict that derives from it follows in the end.
    let at = START + 40 * DAY;
    for poll in 0..4 {
        bench.at(at + poll * 9 * HOUR, &pending(3));
    }
    assert_eq!(bench.history.verdict(), Verdict::Suspect);
    assert!(silent(&bench), "it was worse when it was acknowledged");
}

#[test]
fn a_finding_that_comes_after_the_acknowledgement_of_a_bad_drive_counts_though_it_is_no_worse() {
    let mut bench = Bench::new();
    bench.at(START, &pending(48));
    bench.acknowledged(START + HOUR, &pending(48));
    let more = changed(
        ATA_HDD,
        &[("attr 197 raw", json!(48)), ("attr 187 raw", json!(2))],
    );
    bench.at(START + 2 * HOUR, &Outcome::Answered(Box::new(more)));
    let counting = bench.history.standing().into_iter();
    let counting: Vec<SmartCode> = counting
        .filter(|one| !one.acknowledged)
        .map(|one| one.code)
        .collect();
    assert_eq!(bench.history.verdict(), Verdict::Bad);
    assert_eq!(counting[0], SmartCode::ReportedUncorrect);
}

#[test]
fn an_acknowledgement_ends_when_it_is_withdrawn_or_its_time_is_over() {
    let until = Acknowledgement {
        until: Some(START + DAY),
        ..ack()
    };
    let mut bench = Bench::new();
    bench.at(START, &pending(5));
    bench.history.acknowledge(&until, START + HOUR);
    assert!(silent(&bench));
    bench.at(START + DAY - 1, &pending(5));
    assert!(silent(&bench));
    bench.at(START + DAY, &pending(5));
    assert!(!silent(&bench), "also by a poll alone");
    assert!(!bench.history.expire(START + DAY), "it has ended");
    assert!(!bench.history.withdraw("bob", START + DAY));

    bench.history.acknowledge(&ack(), START + 2 * DAY);
    assert!(bench.history.withdraw("bob", START + 3 * DAY));
    assert!(!silent(&bench));
    bench.at(START + 3 * DAY, &pending(5));
    assert!(!silent(&bench));
    let last = bench.history.acknowledgements().last().unwrap();
    assert_eq!(last.withdrawn.as_ref().unwrap().by, "bob");
    assert!(!bench.history.withdraw("bob", START + 3 * DAY));
}

#[test]
fn an_acknowledged_level_counts_again_when_it_is_passed() {
    let mut bench = Bench::new();
    bench.at(START, &pending(5));
    let assessment = bench.acknowledged(START + 600, &pending(5));
    assert_eq!(assessment.verdict, Verdict::Suspect);
    assert!(assessment.findings[0].acknowledged && silent(&bench));
    assert_eq!(
        bench.history.acknowledgements()[0].findings,
        [(SmartCode::PendingSectors, "ata-197".to_owned(), 5)]
    );
    bench.at(START + 1200, &pending(6));
    assert!(!silent(&bench));
    // The worse rule on the same number is not covered by it.
    let mut bench = Bench::new();
    bench.at(START, &pending(5));
    assert_eq!(
        bench.acknowledged(START + 600, &pending(45)).verdict,
        Verdict::Bad
    );
    assert!(!silent(&bench));
}

#[test]
fn an_acknowledged_level_follows_the_number_down() {
    let mut bench = Bench::new();
    bench.at(START, &pending(8));
    bench.acknowledged(START + 600, &pending(8));
    bench.at(START + 1200, &pending(0));
    assert!(silent(&bench));
    bench.at(START + 1800, &pending(8));
    assert!(!silent(&bench));
}

#[test]
fn an_acknowledgement_is_of_what_was_shown_not_of_what_comes_with_it() {
    let mut bench = Bench::new();
    bench.at(START, &pending(5));
    bench.acknowledged(START + 600, &pending(6));
    assert!(!silent(&bench));
}

#[test]
fn the_drives_own_failed_status_cannot_be_acknowledged_away() {
    let mut bench = Bench::new();
    let failed = Outcome::Answered(Box::new(changed(
        ATA_HDD,
        &[("smart_status.passed", json!(false))],
    )));
    bench.at(START, &failed);
    let assessment = bench.acknowledged(START + 600, &failed);
    assert_eq!(assessment.verdict, Verdict::Bad);
    assert!(!silent(&bench));
    // This is also so if the poll gives no answer.
    let assessment = bench.acknowledged(START + 1200, &failure(FailureReason::Garbage));
    assert_eq!(assessment.verdict, Verdict::Bad);
    assert_eq!(assessment.reasons[0].code, SmartCode::StatusFailed);
    assert!(!silent(&bench));
    // When the drive does not report it any more, the held verdict can be acknowledged.
    bench.at(START + 1800, &pending(0));
    assert!(!silent(&bench));
    let assessment = bench.acknowledged(START + 2400, &pending(0));
    assert!(silent(&bench));
    assert_eq!(assessment.verdict, Verdict::Bad);
    // The drive reports it again.
    bench.at(START + 3000, &failed);
    assert!(!silent(&bench));
}

#[test]
fn no_state_of_a_drive_can_be_acknowledged_away() {
    use super::super::rules::Acknowledging;
    for code in [
        SmartCode::BackgroundScanHalted,
        SmartCode::SpareExhausted,
        SmartCode::SpareLow,
        SmartCode::MediumReadOnly,
        SmartCode::ReliabilityDegraded,
        SmartCode::BackupFailed,
        SmartCode::FailurePredicted,
        SmartCode::DriveWarning,
        SmartCode::PrefailNow,
        SmartCode::SelfTestFatal,
        SmartCode::NotRunning,
        SmartCode::ProbeHang,
    ] {
        assert_eq!(code.acknowledgement(), Acknowledging::Never, "{code}");
    }
}

#[test]
fn growth_counts_from_the_acknowledgement() {
    let grown = |sectors: u64| {
        Outcome::Answered(Box::new(changed(
            ATA_HDD,
            &[("attr 5 raw", json!(sectors))],
        )))
    };
    let mut bench = Bench::new();
    bench.at(START, &grown(1));
    assert_eq!(bench.at(START + 600, &grown(3)).verdict, Verdict::Suspect);
    bench.acknowledged(START + 1200, &grown(3));
    assert!(silent(&bench));
    bench.at(START + 1800, &grown(4));
    assert!(!silent(&bench));
}

#[test]
fn another_drive_begins_anew() {
    let mut bench = Bench::new();
    bench.at(START, &pending(40));
    let other = Outcome::Answered(Box::new(changed(
        ATA_HDD,
        &[("serial_number", json!("OTHER"))],
    )));
    let assessment = bench.at(START + 600, &other);
    assert_eq!(
        (assessment.verdict, assessment.another_drive),
        (Verdict::Good, true)
    );
    // A serial number that is missing once is no other drive.
    let mut bench = Bench::new();
    bench.at(START, &pending(40));
    let shy = Outcome::Answered(Box::new(changed(
        ATA_HDD,
        &[("serial_number", json!(null)), ("wwn", json!(null))],
    )));
    let assessment = bench.at(START + 600, &shy);
    assert_eq!(
        (assessment.verdict, assessment.another_drive),
        (Verdict::Bad, false)
    );
}

#[test]
fn not_knowing_keeps_the_last_verdict_and_marks_it_stale() {
    for (first, verdict) in [(pending(0), Verdict::Good), (pending(1), Verdict::Suspect)] {
        let mut bench = Bench::new();
        assert!(!bench.at(START, &first).stale);
        for outcome in [
            Outcome::Standby,
            failure(FailureReason::Missing),
            failure(FailureReason::Garbage),
        ] {
            let assessment = bench.at(START + DAY, &outcome);
            assert_eq!((assessment.verdict, assessment.stale), (verdict, true));
            assert_eq!(assessment.observed, Verdict::Unknown);
        }
        assert_eq!(bench.history.answered_at(), Some(START));
        assert_eq!(bench.history.failures()[&FailureReason::Missing], 1);
    }
    let mut bench = Bench::new();
    let assessment = bench.at(START, &failure(FailureReason::Missing));
    assert_eq!(
        (assessment.verdict, assessment.stale),
        (Verdict::Unknown, true)
    );
}

#[test]
fn timeouts_count_only_in_a_row() {
    let mut bench = Bench::new();
    bench.at(START, &pending(0));
    for outcome in [Outcome::Standby, pending(0)] {
        bench.at(START, &failure(FailureReason::Timeout));
        bench.at(START, &failure(FailureReason::Timeout));
        assert_eq!(bench.at(START, &outcome).verdict, Verdict::Good);
    }
    bench.at(START, &failure(FailureReason::Timeout));
    bench.at(START, &failure(FailureReason::Garbage));
    bench.at(START, &failure(FailureReason::Timeout));
    let assessment = bench.at(START, &failure(FailureReason::Timeout));
    assert_eq!(assessment.verdict, Verdict::Suspect);
    // The finding cannot be acknowledged while it lasts.
    let assessment = bench.acknowledged(START, &failure(FailureReason::Garbage));
    assert_eq!(assessment.verdict, Verdict::Suspect);
    assert_eq!(assessment.reasons[0].code, SmartCode::ProbeHang);
    assert!(!silent(&bench));
}

#[test]
fn what_only_a_deep_poll_sees_is_kept_for_the_light_ones() {
    let mut bench = Bench::new();
    let deep = changed(
        ATA_SSD,
        &[
            ("ata_pending_defects_log.count", json!(2)),
            ("ata_device_statistics.pages.2.table.0.value", json!(95)),
        ],
    );
    let light = changed(
        ATA_SSD,
        &[
            ("ata_pending_defects_log", json!(null)),
            ("ata_device_statistics", json!(null)),
        ],
    );
    for facts in [deep, light] {
        let assessment = bench.at(START, &Outcome::Answered(Box::new(facts)));
        assert_eq!(assessment.observed, Verdict::Suspect);
        assert_eq!(assessment.findings[0].code, SmartCode::PendingDefects);
        assert_eq!(assessment.conditions[0].value, 95);
    }
}

#[test]
fn the_type_is_found_out_anew_when_it_does_not_work_any_more() {
    let mut bench = Bench::new();
    bench.at(START, &pending(0));
    assert_eq!(bench.history.device_type(), Some("sat"));
    bench.at(START, &failure(FailureReason::Timeout));
    assert_eq!(bench.history.device_type(), Some("sat"));
    bench.at(START, &failure(FailureReason::OpenFailed));
    assert_eq!(bench.history.device_type(), None);
}

#[test]
fn the_form_on_disk_is_versioned() {
    let mut bench = Bench::new();
    bench.at(START, &pending(3));
    bench.acknowledged(START + 600, &pending(50));
    let written = bench.history.to_json().unwrap();
    assert_eq!(History::from_json(&written).unwrap(), bench.history);
    // Members that are missing have defaults.
    assert_eq!(
        History::from_json(br#"{"version": 1}"#).unwrap(),
        History::default()
    );
    assert!(matches!(
        History::from_json(br#"{"version": 2, "verdict": {"new": "form"}}"#),
        Err(HistoryError::Version { version: 2 })
    ));
    for broken in ["", "{}", "[]", r#"{"version": 1, "verdict": "FINE"}"#] {
        assert!(matches!(
            History::from_json(broken.as_bytes()),
            Err(HistoryError::Damaged(_))
        ));
    }
    let value: serde_json::Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(value["version"], VERSION);
    assert_eq!(value["verdict"], "BAD");
    assert_eq!(value["counters"]["PendingSectors"]["value"], 50);
}

/// Events of a drive.
#[derive(Debug, Clone)]
enum Event {
    Pending(u64),
    Standby,
    Silent(FailureReason),
    Acknowledge,
    Other,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Pending(0)),
        2 => (1..60_u64).prop_map(Event::Pending),
        1 => Just(Event::Standby),
        2 => proptest::sample::select(FailureReason::ALL).prop_map(Event::Silent),
        1 => Just(Event::Acknowledge),
        1 => Just(Event::Other),
    ]
}

/// A time step: minutes to a few days, sometimes back.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 60..7200_i64, 2 => 3600..400_000_i64, 1 => -200_000..0_i64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_worst_is_never_lost_before_it_may_be(
        events in proptest::collection::vec((event(), step()), 1..40),
    ) {
        let mut bench = Bench::new();
        let mut now = START;
        let mut serial = 0;
        // The rule again, in its simplest form: clean polls since the last dirty one, and their times.
        let mut clean: Vec<u64> = Vec::new();
        let mut acknowledged = false;
        for (event, step) in events {
            now = now.saturating_add_signed(step);
            let before = bench.history.verdict();
            let facts = |sectors: u64| {
                let changes = [("attr 197 raw", json!(sectors)), ("serial_number", json!(format!("S{serial}")))];
                Outcome::Answered(Box::new(changed(ATA_HDD, &changes)))
            };
            match &event {
                Event::Pending(sectors) => {
                    let assessment = bench.at(now, &facts(*sectors));
                    if assessment.observed.weight() < before.weight() || assessment.observed == Verdict::Good {
                        clean.push(now);
                    } else {
                        clean.clear();
                    }
                    prop_assert!(assessment.verdict.weight() >= assessment.observed.weight());
                }
                Event::Standby => {
                    bench.at(now, &Outcome::Standby);
                }
                Event::Silent(reason) => {
                    bench.at(now, &failure(*reason));
                }
                Event::Acknowledge => {
                    bench.history.acknowledge(&ack(), now);
                    prop_assert_eq!(bench.history.verdict(), before, "nothing is better by a word");
                    acknowledged = true;
                    clean.clear();
                    continue;
                }
                Event::Other => {
                    serial += 1;
                    bench.at(now, &Outcome::Answered(Box::new(changed(
                        ATA_HDD, &[("serial_number", json!(format!("S{serial}")))],
                    ))));
                    clean.clear();
                    clean.push(now);
                    continue;
                }
            }
            let after = bench.history.verdict();
            if after.weight() < before.weight() {
                prop_assert!(before == Verdict::Suspect || acknowledged, "{:?} left by {:?}", before, &event);
                prop_assert!(clean.len() >= 3);
                prop_assert!(clean.iter().any(|at| now >= at + DAY), "{clean:?} {now}");
            }
            if before != Verdict::Unknown {
                prop_assert_ne!(after, Verdict::Unknown);
            }
            let again = History::from_json(&bench.history.to_json().unwrap()).unwrap();
            prop_assert_eq!(&again, &bench.history);
        }
    }
}

#[test]
fn an_nvme_drive_has_a_history_too() {
    let mut bench = Bench::new();
    let errors = |count: u64| {
        let place = "nvme_smart_health_information_log.media_errors";
        Outcome::Answered(Box::new(changed(NVME, &[(place, json!(count))])))
    };
    assert_eq!(bench.at(START, &errors(7)).verdict, Verdict::Suspect);
    bench.acknowledged(START + 600, &errors(7));
    assert!(silent(&bench));
    bench.at(START + 1200, &errors(8));
    assert!(!silent(&bench));
    assert_eq!(bench.at(START + 1800, &errors(17)).verdict, Verdict::Bad);
}

#[test]
fn a_history_is_written_and_read_as_the_golden_one() {
    let mut bench = Bench::new();
    bench.at(START, &pending(48));
    bench.acknowledged(START + HOUR, &pending(48));
    bench.at(START + DAY, &pending(50));
    let golden = golden::compare("smart.json", &bench.history.to_json().unwrap());
    assert_eq!(History::from_json(&golden).unwrap(), bench.history);
}

#[test]
fn a_placeholder_does_not_make_another_drive_the_one_before_it() {
    let named = |serial: &str, wwn: [u64; 3]| {
        let names = json!({"naa": wwn[0], "oui": wwn[1], "id": wwn[2]});
        let changes = [("serial_number", json!(serial)), ("wwn", names)];
        Box::new(changed(ATA_SSD, &changes))
    };
    let is_known = |first: [u64; 3], serials: [&str; 2]| {
        let mut bench = Bench::new();
        bench.at(START, &Outcome::Answered(named(serials[0], first)));
        bench.history.is_of(&named(serials[1], first))
    };
    assert!(is_known([5, 0x2538, 0x1234], ["A1B2", "A1B2"]));
    assert!(is_known([5, 0x2538, 0x1234], ["", ""]));
    // A name that every drive has proves nothing, and neither does a missing one.
    for placeholder in [[5, 0, 1], [5, 0, 0], [5, 0x2538, 0]] {
        assert!(!is_known(placeholder, ["", ""]), "{placeholder:?}");
        assert!(!is_known(placeholder, ["A1B2", "C3D4"]), "{placeholder:?}");
        assert!(
            !is_known(placeholder, ["00000000", "00000000"]),
            "{placeholder:?}"
        );
        assert!(is_known(placeholder, ["A1B2", "A1B2"]), "{placeholder:?}");
    }
    // With a WWN that two drives have, the serial number identifies the drive.
    assert!(!is_known([5, 0x2538, 0x1234], ["A1B2", "C3D4"]));
}

#[test]
fn a_poll_without_an_answer_keeps_the_conditions_of_the_last_answer() {
    let mut bench = Bench::new();
    let worn = Outcome::Answered(Box::new(changed(
        NVME,
        &[(
            "nvme_smart_health_information_log.percentage_used",
            json!(120),
        )],
    )));
    bench.at(START, &worn);
    let conditions = bench.history.conditions().to_vec();
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    bench.at(START + HOUR, &failure(FailureReason::Timeout));
    bench.at(START + 2 * HOUR, &Outcome::Standby);
    assert_eq!(bench.history.conditions(), conditions);
    let bytes = bench.history.to_json().unwrap();
    assert_eq!(History::from_json(&bytes).unwrap().conditions(), conditions);
}

//! Artificial drives: which are found slow, and which are not.

use super::*;
use drivebay_model::{DriveId, Media};

/// Returns a slice of five seconds with this number of reads and writes of 16 KiB, and this latency of each, microseconds.
fn slice(reads: (u64, u64), writes: (u64, u64)) -> Slice {
    let flow = |(requests, micros): (u64, u64)| Flow {
        requests,
        bytes: requests * 16384,
        wait_ms: requests * micros / 1000,
    };
    let wait = |(requests, micros): (u64, u64)| requests * micros / 1000;
    Slice {
        millis: 5000,
        reads: flow(reads),
        writes: flow(writes),
        flushes: 0,
        busy_ms: (wait(reads) + wait(writes)).min(5000),
    }
}

fn minute(slices: [Slice; 12]) -> Option<Minute> {
    Some(Minute::new(&slices, false, false))
}

/// Two hundred reads and a hundred writes a second.
fn at(read_micros: u64, write_micros: u64) -> Option<Minute> {
    minute([slice((1000, read_micros), (500, write_micros)); 12])
}

struct Shelf {
    comparison: Comparison,
    minutes: u64,
}

impl Shelf {
    fn new() -> Self {
        Self {
            comparison: Comparison::default(),
            minutes: 0,
        }
    }

    fn feed(&mut self, minutes: &[Option<Minute>]) {
        let inputs = minutes.iter().enumerate().map(|(number, minute)| Input {
            drive: id(number),
            kind: Kind {
                model: "M".into(),
                media: Media::Ssd,
            },
            minute: *minute,
        });
        self.minutes += 1;
        self.comparison.feed(self.minutes * 60, inputs.collect());
    }

    /// Feeds this many minutes. Returns the number of those in which the first drive was slow; asserts that no other one ever was.
    fn run(&mut self, count: u64, minutes: &[Option<Minute>]) -> u64 {
        let mut slow = 0;
        for _ in 0..count {
            self.feed(minutes);
            slow += u64::from(!self.comparison.slow(&id(0)).is_empty());
            for number in 1..minutes.len() {
                assert_eq!(self.comparison.slow(&id(number)), []);
            }
        }
        slow
    }
}

fn id(number: usize) -> DriveId {
    DriveId(format!("d{number}"))
}

const WELL: (u64, u64) = (200, 100);

fn well() -> Option<Minute> {
    at(WELL.0, WELL.1)
}

#[test]
fn a_drive_that_takes_three_times_as_long_is_slow_within_five_minutes_with_its_numbers() {
    let mut shelf = Shelf::new();
    assert_eq!(shelf.run(30, &[well(); 4]), 0);
    let slow = at(600, 100);
    assert_eq!(shelf.run(3, &[slow, well(), well(), well()]), 0);
    assert_eq!(shelf.run(2, &[slow, well(), well(), well()]), 2);
    let slowdowns = shelf.comparison.slow(&id(0));
    let [
        Slowdown {
            direction, outcome, ..
        },
    ] = slowdowns.as_slice()
    else {
        panic!("{slowdowns:?}");
    };
    assert_eq!(*direction, Direction::Read);
    assert!((outcome.observed_ms - 0.6).abs() < 0.001, "{outcome:?}");
    assert!((outcome.expected_ms - 0.2).abs() < 0.02, "{outcome:?}");
    // The first of those minutes.
    assert_eq!(outcome.since, 31 * 60);
}

#[test]
fn a_drive_that_does_a_few_requests_a_minute_since_each_takes_seconds_is_slow() {
    let mut shelf = Shelf::new();
    assert_eq!(shelf.run(30, &[well(); 4]), 0);
    // One after the other, 7.8 seconds each.
    let mut slices = [slice((1, 7_800_000), (0, 0)); 12];
    for gap in [1, 3, 5, 7, 9] {
        slices[gap] = Slice {
            busy_ms: 5000,
            ..slice((0, 0), (0, 0))
        };
    }
    assert_eq!(shelf.run(5, &[minute(slices), well(), well(), well()]), 2);
    let slowdowns = shelf.comparison.slow(&id(0));
    assert!(
        (slowdowns[0].outcome.observed_ms - 7800.0).abs() < 1.0,
        "{slowdowns:?}"
    );
    // A few quick requests, or a single long wait, are not enough.
    let mut shelf = Shelf::new();
    assert_eq!(shelf.run(30, &[well(); 4]), 0);
    let mut few = [slice((0, 0), (0, 0)); 12];
    few[3] = slice((4, 900_000), (3, 900_000));
    assert_eq!(shelf.run(30, &[minute(few), well(), well(), well()]), 0);
}

#[test]
fn with_two_peers_nothing_is_found_and_its_own_past_is_shown() {
    let mut shelf = Shelf::new();
    assert_eq!(shelf.run(30, &[well(); 3]), 0);
    assert_eq!(shelf.run(30, &[at(10_000, 5_000), well(), well()]), 0);
    let speed = &shelf.comparison.speeds()[&id(0)];
    assert_eq!(speed.peers, Peers::TooFew);
    assert_eq!(speed.read.expected_ms, None);
    assert!(speed.read.own_ms.is_some());
    assert_eq!(speed.read.latency_ms, Some(10.0));
    assert_eq!(speed.read.history_ms.len(), 60);
}

#[test]
fn what_slows_all_of_them_and_what_has_no_peer_is_no_fault() {
    let mut shelf = Shelf::new();
    assert_eq!(shelf.run(30, &[well(); 5]), 0);
    assert_eq!(shelf.run(30, &[at(2000, 1000); 5]), 0, "all are slow");
    // Reads of 1 MiB, which no other drive ever had.
    let mut large = slice((100, 8000), (0, 0));
    large.reads.bytes = 100 << 20;
    let large = minute([large; 12]);
    assert_eq!(shelf.run(30, &[large, well(), well(), well(), well()]), 0);
}

#[test]
fn bursts_of_seconds_and_single_bad_minutes_are_no_fault() {
    let mut shelf = Shelf::new();
    assert_eq!(shelf.run(30, &[well(); 4]), 0);
    let calm = slice((1000, WELL.0), (500, WELL.1));
    let mut burst = [calm; 12];
    for slice in &mut burst[..3] {
        *slice = self::slice((9000, 30_000), (5000, 30_000));
    }
    let burst = minute(burst);
    assert_eq!(shelf.run(60, &[burst, well(), well(), well()]), 0);
    for _ in 0..6 {
        assert_eq!(
            shelf.run(2, &[at(20_000, 20_000), well(), well(), well()]),
            0
        );
        assert_eq!(shelf.run(10, &[well(); 4]), 0);
    }
}

#[test]
fn a_slow_drive_stays_so_while_nothing_can_be_measured_and_is_well_after_an_hour() {
    let mut shelf = Shelf::new();
    shelf.run(30, &[well(); 4]);
    let slow = at(1000, 500);
    shelf.run(10, &[slow, well(), well(), well()]);
    let slowdowns = shelf.comparison.slow(&id(0));
    assert_eq!(slowdowns.len(), 2, "reads and writes");
    // Idle, unknown, then healthy but not for long.
    let idle = minute([slice((1, 200), (1, 100)); 12]);
    assert_eq!(shelf.run(100, &[idle, well(), well(), well()]), 100);
    assert_eq!(shelf.run(100, &[None, well(), well(), well()]), 100);
    assert_eq!(shelf.run(59, &[well(); 4]), 59);
    assert_eq!(
        shelf.comparison.slow(&id(0)),
        slowdowns,
        "its numbers do not move"
    );
    assert_eq!(shelf.run(10, &[well(); 4]), 0);
}

#[test]
fn what_is_acknowledged_counts_again_when_it_is_twice_as_bad() {
    let mut shelf = Shelf::new();
    shelf.run(30, &[well(); 4]);
    assert!(!shelf.comparison.acknowledge(&id(0)), "there is nothing");
    shelf.run(10, &[at(1000, 500), well(), well(), well()]);
    assert!(shelf.comparison.acknowledge(&id(0)));
    assert_eq!(shelf.run(60, &[at(1000, 500), well(), well(), well()]), 0);
    let speed = &shelf.comparison.speeds()[&id(0)];
    assert!(speed.read.acknowledged && speed.read.slow.is_some());
    let slowdowns = shelf.comparison.slowdowns(&id(0));
    assert!(slowdowns.len() == 2 && slowdowns.iter().all(|slow| slow.acknowledged));
    let mut withdrawn = shelf.comparison.clone();
    withdrawn.withdraw(&id(0));
    assert_eq!(withdrawn.slow(&id(0)).len(), 2);
    assert!(shelf.run(120, &[at(20_000, 10_000), well(), well(), well()]) > 60);
}

#[test]
fn a_restart_changes_nothing() {
    let mut shelf = Shelf::new();
    shelf.run(30, &[well(); 4]);
    let minutes = [at(1000, 500), well(), well(), well()];
    // In the middle of what becomes a finding, and after it.
    for _ in 0..8 {
        let mut restarted = Shelf::new();
        restarted.minutes = shelf.minutes;
        for (id, kept) in shelf.comparison.clone().kept() {
            let text = serde_json::to_string(&kept).unwrap();
            let (kind, kept) = serde_json::from_str(&text).unwrap();
            restarted.comparison.restore(id, kind, kept);
        }
        shelf.feed(&minutes);
        restarted.feed(&minutes);
        for number in 0..4 {
            let of = |shelf: &Shelf| shelf.comparison.slow(&id(number)).len();
            assert_eq!(of(&shelf), of(&restarted));
        }
    }
    assert_eq!(shelf.comparison.slow(&id(0)).len(), 2);
}

#[test]
fn memory_is_bounded_and_a_minute_that_was_none_is_left_out() {
    let mut shelf = Shelf::new();
    shelf.run(600, &[well(); 4]);
    let bytes = serde_json::to_vec(&shelf.comparison.clone().kept()).unwrap();
    assert!(bytes.len() < 4 * 200_000, "{}", bytes.len());
    let before = shelf.comparison.speeds()[&id(0)].at;
    let mut long = well();
    if let Some(minute) = &mut long {
        minute.millis = 600_000;
    }
    shelf.run(1, &[long; 4]);
    assert_eq!(shelf.comparison.speeds()[&id(0)].at, before);
    // Counters that were reset give no minute.
    let counters = |requests| Counters {
        reads: Flow {
            requests,
            ..Flow::default()
        },
        ..Counters::default()
    };
    assert_eq!(counters(5).since(&counters(6), 5000), None);
    assert_eq!(
        counters(6)
            .since(&counters(5), 5000)
            .unwrap()
            .reads
            .requests,
        1
    );
}

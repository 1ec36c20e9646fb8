//! More evidence of failure never makes a verdict better.

use proptest::prelude::*;

use super::{ata::counts_physical, evaluate};
use crate::{
    Facts, Thresholds,
    facts::{
        Ata, Attribute, CriticalWarning, Detail, ExitStatus, Failed, SelfTest, SelfTestResult,
    },
    fixtures,
    history::{Counter, EarlierPolls, Trend, Trends},
    plausible::dropped,
};

/// Adds evidence of a failure; evidence that does not fit the protocol changes nothing.
fn worsen(facts: &mut Facts, trends: &mut Vec<(Counter, Trend)>, what: u8, how_much: u64) {
    match what {
        0 => facts.passed = Some(false),
        1 => facts.exit = ExitStatus::new(u64::from(facts.exit.bits()) | (how_much & 0xf8)),
        2 => facts.not_running = Some("dead".to_owned()),
        3 => facts.temperature.current = facts.temperature.current.max(Some(90)),
        4 => {
            for counter in Counter::ALL {
                trends.push((
                    *counter,
                    Trend {
                        value: how_much,
                        day: Some(how_much),
                        week: Some(how_much),
                        polls: (how_much % 8) as u32,
                    },
                ));
            }
        }
        _ => match &mut facts.detail {
            Detail::Ata(ata) => worsen_ata(ata, what, how_much),
            Detail::Scsi(scsi) => match what {
                5 => scsi.grown_defects = scsi.grown_defects.max(Some(how_much)),
                6 => scsi.pending_defects = scsi.pending_defects.max(Some(how_much)),
                7 => {
                    let write = scsi.write.get_or_insert_default();
                    write.uncorrected = write.uncorrected.max(Some(how_much));
                }
                8 => {
                    facts.passed = Some(false);
                    scsi.sense = Some((0x5d, 0));
                }
                9 => fail(&mut scsi.self_tests, 3 + how_much % 5),
                _ => {}
            },
            Detail::Nvme(nvme) => match what {
                5 => {
                    // Except heat, which is no failure, and may be the reason why the status is "failed".
                    let more = how_much as u8 & !CriticalWarning::TEMPERATURE;
                    let bits = nvme.critical_warning.unwrap_or_default().0;
                    nvme.critical_warning = Some(CriticalWarning(bits | more));
                }
                6 => {
                    let less = nvme.available_spare.unwrap_or(100).min(how_much);
                    nvme.available_spare = Some(less);
                }
                7 => nvme.media_errors = nvme.media_errors.max(Some(how_much)),
                8 => fail(&mut nvme.self_tests, 5 + how_much % 3),
                _ => {}
            },
            Detail::Mmc(_) | Detail::Unknown => {}
        },
    }
}

fn worsen_ata(ata: &mut Ata, what: u8, how_much: u64) {
    match what {
        5 => fail(&mut ata.self_tests, 3 + how_much % 6),
        6 => ata.pending_defects = ata.pending_defects.max(Some(how_much)),
        _ => {
            if ata.attributes.is_empty() {
                return;
            }
            let index = usize::from(what) % ata.attributes.len();
            let attribute = &mut ata.attributes[index];
            // In the low 16 bits, which every rule reads.
            attribute.raw = attribute.raw.max(attribute.raw16().max(how_much & 0xffff));
            match how_much % 3 {
                1 if attribute.failed == Failed::Never => attribute.failed = Failed::Past,
                // Wear explains a status that failed, and is no verdict of BAD.
                2 if !is_wear(attribute) => attribute.failed = Failed::Now,
                _ => {}
            }
        }
    }
}

fn is_wear(attribute: &Attribute) -> bool {
    let name = attribute.name.to_lowercase();
    name.contains("wear") || name.contains("exception_mode")
}

fn fail(tests: &mut Vec<SelfTest>, code: u64) {
    tests.insert(
        0,
        SelfTest {
            kind: SelfTest::SHORT,
            result: SelfTestResult::Failed(code as u8),
            hours: Some(5000),
            lba: None,
        },
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_bad_fact_never_improves_the_verdict(
        which in 0..fixtures::ALL.len(),
        before in proptest::collection::vec((0..24_u8, prop_oneof![0..50_u64, any::<u64>()]), 0..6),
        one_more in (0..24_u8, prop_oneof![0..50_u64, any::<u64>()]),
        acknowledged in proptest::collection::btree_map(
            prop_oneof![Just("ata-197"), Just("ata-187"), Just("nvme-media-errors"), Just("self-test")],
            0..60_u64,
            0..3,
        ),
    ) {
        let limits = Thresholds::default();
        let earlier = EarlierPolls {
            levels: acknowledged.into_iter().map(|(subject, level)| (subject.to_owned(), level)).collect(),
            overheating: false,
        };
        let mut facts = fixtures::facts(&fixtures::document(fixtures::ALL[which].1));
        let mut trends = Vec::new();
        let weigh = |facts: &Facts, trends: &[(Counter, Trend)]| {
            let trends: Trends = trends.iter().copied().collect();
            evaluate(facts, &trends, &earlier, &limits)
        };
        for (what, how_much) in before {
            worsen(&mut facts, &mut trends, what, how_much);
        }
        // The history does the same: what one answer proves holds for the next.
        facts.counts_physical = counts_physical(&facts);
        let old = weigh(&facts, &trends);
        let before_dropped = dropped(&facts);
        // Trends are replaced, not added: only ones that are at least as bad are "more".
        let mut more = trends.clone();
        worsen(&mut facts, &mut more, one_more.0, one_more.1);
        for (counter, trend) in &trends {
            if let Some((_, new)) = more.iter_mut().rev().find(|(other, _)| other == counter) {
                new.value = new.value.max(trend.value);
                new.day = new.day.max(trend.day);
                new.week = new.week.max(trend.week);
                new.polls = new.polls.max(trend.polls);
            }
        }
        // A value that cannot be true is no evidence.
        prop_assume!(dropped(&facts) == before_dropped);
        let new = weigh(&facts, &more);
        prop_assert!(
            new.verdict.weight() >= old.verdict.weight(),
            "{} -> {}: {:?} -> {:?}", old.verdict, new.verdict, old.findings, new.findings
        );
    }
}

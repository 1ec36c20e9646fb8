//! The rules for ATA drives.
//!
//! Attributes 1, 7 and 195 are vendor-packed and ignored, as is 196; 188 and 199 are conditions. Bit 6
//! of the exit status (error log) never counts.

use super::{Code, Found, MOVE, Severity, WATCH};
use crate::smart::{
    facts::{Ata, Attribute, Facts, Failed, SelfTestResult},
    history::{Counter, Trends},
    thresholds::Thresholds,
};

/// Attributes that tell temperatures: hot once is a condition, not a failure.
const TEMPERATURES: [u8; 2] = [190, 194];
/// Self-test results of the electronics and of the mechanics.
const FATAL: [u8; 2] = [5, 6];
/// Words in smartctl's name for an attribute that say that on this drive the number counts something
/// else than errors, as some solid state drives' do (198 as sectors read, 5 as life left, …).
const OTHER_MEANINGS: [&str; 12] = [
    "gib",
    "mib",
    "lba",
    "sectors_tot",
    "total_read",
    "total_write",
    "host_",
    "life",
    "temperature",
    "power",
    "wear",
    "spare",
];

/// Attribute `id`, when it counts what the standard meaning of its number says.
pub(in crate::smart) fn counting(ata: &Ata, id: u8) -> Option<&Attribute> {
    let attribute = ata.attribute(id)?;
    let name = attribute.name.to_lowercase();
    let other = OTHER_MEANINGS.iter().any(|word| name.contains(word));
    (!other).then_some(attribute)
}

pub(super) fn judge(
    facts: &Facts,
    ata: &Ata,
    trends: &Trends,
    limits: &Thresholds,
    found: &mut Found<'_>,
) {
    if facts.status() == Some(false) {
        found.push(
            Code::StatusFailed,
            Severity::Bad,
            "status",
            (1, 1),
            None,
            format!("the drive's own health status is \"failed\": it expects to fail soon; {MOVE}"),
        );
    }
    attributes(ata, found);
    self_tests(ata, found);
    levels(facts, ata, limits, found);
    growth(facts, trends, limits, found);
}

/// The newest results up to one that passed: a later failure of another kind does not clear a fatal one.
fn self_tests(ata: &Ata, found: &mut Found<'_>) {
    let since_passed = ata
        .self_tests
        .iter()
        .take_while(|test| test.result != SelfTestResult::Passed);
    let fatal = since_passed.into_iter().find_map(|test| match test.result {
        SelfTestResult::Failed(code) if FATAL.contains(&code) => Some((code, test.hours)),
        _ => None,
    });
    let Some((code, hours)) = fatal else { return };
    let part = if code == FATAL[0] {
        "electronics"
    } else {
        "mechanics"
    };
    found.add(
        Code::SelfTestFatal,
        "self-test",
        hours.unwrap_or(1),
        None,
        format!("the drive's last self-test failed in its {part}; {MOVE}"),
    );
}

fn attributes(ata: &Ata, found: &mut Found<'_>) {
    for attribute in &ata.attributes {
        let id = attribute.id;
        let (code, when) = match (attribute.prefail, attribute.failed) {
            (true, Failed::Now) => (Code::PrefailNow, "is"),
            (true, Failed::Past) => (Code::PrefailPast, "once was"),
            (false, Failed::Now) if !TEMPERATURES.contains(&id) => (Code::OldAgeNow, "is"),
            _ => continue,
        };
        let what = match code {
            Code::PrefailNow => format!("which predicts failure; {MOVE}"),
            Code::PrefailPast => format!("which predicted failure; {WATCH}"),
            _ => format!("a sign of age; {WATCH}"),
        };
        // The worst value only falls: it is worse the lower it is.
        let worst = attribute.worst.or(attribute.value).unwrap_or(0);
        found.push(
            code,
            code.severity(),
            &format!("attribute-{id}"),
            (worst, u64::from(u8::MAX).saturating_sub(worst)),
            attribute.thresh,
            format!(
                "SMART attribute {id} ({}) {when} at or under the vendor's threshold, {what}",
                attribute.name
            ),
        );
    }
}

/// One rule on an attribute's number.
struct Level {
    id: u8,
    code: Code,
    limit: u64,
    what: &'static str,
    advice: &'static str,
}

fn levels(facts: &Facts, ata: &Ata, limits: &Thresholds, found: &mut Found<'_>) {
    let level = |id, code, limit, what, advice| Level {
        id,
        code,
        limit,
        what,
        advice,
    };
    // Of two rules on one number, the first that holds speaks.
    let pending = [
        level(
            197,
            Code::PendingSectorsMany,
            limits.pending_bad,
            "sectors wait to be read or rewritten",
            MOVE,
        ),
        level(
            197,
            Code::PendingSectors,
            limits.pending_suspect,
            "sectors wait to be read or rewritten",
            WATCH,
        ),
    ];
    let uncorrectable = [
        level(
            198,
            Code::OfflineUncorrectableMany,
            limits.offline_uncorrectable_bad,
            "sectors cannot be read",
            MOVE,
        ),
        level(
            198,
            Code::OfflineUncorrectable,
            limits.offline_uncorrectable_suspect,
            "sectors cannot be read",
            WATCH,
        ),
    ];
    let reported = [level(
        187,
        Code::ReportedUncorrect,
        limits.reported_uncorrect,
        "errors that could not be corrected were reported",
        WATCH,
    )];
    for rules in [&pending[..], &uncorrectable[..], &reported[..]] {
        first_that_holds(ata, rules, found);
    }
    if let Some(end_to_end) = ata.attribute(184)
        && end_to_end
            .name
            .to_lowercase()
            .replace('_', "-")
            .contains("end-to-end")
    {
        let rule = level(
            184,
            Code::EndToEndErrors,
            limits.end_to_end,
            "times data was damaged inside the drive",
            WATCH,
        );
        first_that_holds(ata, &[rule], found);
    }
    // Solid state drives replace blocks as a matter of course, and have nothing that spins. A drive
    // that does not say what it is is taken for a turning one.
    if facts.rotational != Some(false) {
        let spin = level(
            10,
            Code::SpinRetries,
            limits.spin_retries,
            "retries to spin up",
            WATCH,
        );
        first_that_holds(ata, &[spin], found);
        let replaced = level(
            5,
            Code::ReallocatedSectors,
            limits.reallocated_suspect,
            "sectors were replaced",
            WATCH,
        );
        first_that_holds(ata, &[replaced], found);
    }
    if let Some(count) = ata
        .pending_defects
        .filter(|count| *count >= limits.pending_defects)
    {
        found.add(
            Code::PendingDefects,
            "pending-defects",
            count,
            Some(limits.pending_defects),
            format!("the drive's pending defects log has entries; {WATCH}"),
        );
    }
}

fn first_that_holds(ata: &Ata, rules: &[Level], found: &mut Found<'_>) {
    for rule in rules {
        let Some(attribute) = counting(ata, rule.id) else {
            return;
        };
        let value = Counter::number(attribute);
        if value < rule.limit {
            continue;
        }
        found.add(
            rule.code,
            &format!("ata-{}", rule.id),
            value,
            Some(rule.limit),
            format!(
                "SMART {}: {} or more {}; {}",
                rule.id, rule.limit, rule.what, rule.advice
            ),
        );
        return;
    }
}

fn growth(facts: &Facts, trends: &Trends, limits: &Thresholds, found: &mut Found<'_>) {
    for counter in [
        Counter::Reallocated,
        Counter::ReportedUncorrect,
        Counter::PendingSectors,
        Counter::OfflineUncorrectable,
    ] {
        let Some(trend) = trends.get(counter) else {
            continue;
        };
        if trend.polls >= limits.growing_polls {
            found.add(
                Code::ErrorsGrowing,
                counter.as_str(),
                u64::from(trend.polls),
                Some(u64::from(limits.growing_polls)),
                format!(
                    "SMART: the number of {} grew in {} polls or more in a row; {MOVE}",
                    counter.what(),
                    limits.growing_polls
                ),
            );
        }
    }
    let Some(trend) = trends.get(Counter::Reallocated) else {
        return;
    };
    let grown = trend.week.unwrap_or(0);
    if grown < limits.reallocated_growth.max(1) {
        return;
    }
    if trend.value >= limits.reallocated_bad {
        found.add(
            Code::ReallocatedManyGrowing,
            "ata-5-growing",
            trend.value,
            Some(limits.reallocated_bad),
            format!(
                "SMART 5: {} or more sectors were replaced, more of them within seven days; {MOVE}",
                limits.reallocated_bad
            ),
        );
    }
    if facts.rotational != Some(false) {
        found.add(
            Code::ReallocatedGrew,
            "ata-5-week",
            grown,
            Some(limits.reallocated_growth),
            format!(
                "SMART 5: {} or more sectors were replaced within seven days; {WATCH}",
                limits.reallocated_growth
            ),
        );
    }
}

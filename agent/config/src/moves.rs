//! `[moves]`: limits of evacuations that the agent starts automatically. Pure.

use std::time::Duration;

use super::{
    raw::{Class, Moves},
    report::{At, Report, value},
};
use drivebay_model::Evacuation;

/// Default of drives per day.
const DRIVES_PER_DAY: u32 = 1;
/// Largest number of drives per day: nodes have some dozens of drives, so more would be no limit.
const MOST_PER_DAY: i32 = 20;
/// Default delay: several polls of the kernel's counters and one SMART poll of a solid state drive. A reset of a controller or link is over
/// by then, and the other drives of a failing controller have become BAD too.
const DELAY: Duration = Duration::from_mins(10);

/// Limits of automatic evacuations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutomaticConfig {
    /// Drives whose evacuation the agent may start within a day; 0: none.
    pub drives_per_day: u32,
    /// Time for which a verdict must have held without interruption.
    pub delay: Duration,
}

/// Checks the section's limits. `classes`: to report a class whose `evacuate` has no effect.
pub(super) fn check(raw: &Moves, classes: &[At<Class>], report: &mut Report) -> AutomaticConfig {
    let given = &raw.automatic_drives_per_day;
    let wanted = value(given).copied();
    let in_range = wanted.filter(|count| (0..=MOST_PER_DAY).contains(count));
    if let (Some(at), Some(_), None) = (given, wanted, in_range) {
        report.error(at, format!("must be between 0 and {MOST_PER_DAY}"));
    }
    let drives_per_day = in_range.map_or(DRIVES_PER_DAY, i32::unsigned_abs);
    if drives_per_day == 0 {
        let of_classes = classes.iter().filter_map(|class| class.value.as_ref());
        for at in of_classes.filter_map(|class| class.evacuate.as_ref()) {
            if at.value.is_some_and(|it| it != Evacuation::Manual) {
                report.warn(
                    at,
                    "has no effect: [moves] automatic-drives-per-day is 0, so that the agent evacuates no drive",
                );
            }
        }
    }
    AutomaticConfig {
        drives_per_day,
        delay: value(&raw.automatic_delay).map_or(DELAY, |it| it.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, tests::bare};
    use drivebay_model::Verdict;

    fn text(moves: &str, evacuate: &str) -> String {
        let select = "select = { media = ['hdd'] }";
        format!("[moves]\n{moves}\n[[class]]\nname = 'a'\n{evacuate}\n{select}\n")
    }

    fn mistakes(moves: &str, evacuate: &str) -> String {
        let problems = parse(&text(moves, evacuate), &bare()).unwrap_err();
        let problems = problems.iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn no_class_is_evacuated_unless_the_configuration_enables_it() {
        let of = |moves: &str, evacuate: &str| parse(&text(moves, evacuate), &bare()).unwrap();
        let default = of("", "").config;
        assert_eq!(default.classes[0].evacuate, Evacuation::Manual);
        let (drives_per_day, delay) = (1, Duration::from_secs(600));
        let bounds = AutomaticConfig {
            drives_per_day,
            delay,
        };
        assert_eq!(default.automatic, bounds);
        for (word, evacuate, at_suspect, at_bad) in [
            ("manual", Evacuation::Manual, false, false),
            ("bad", Evacuation::Bad, false, true),
            ("suspect", Evacuation::Suspect, true, true),
        ] {
            let config = of("", &format!("evacuate = '{word}'")).config;
            assert_eq!(config.classes[0].evacuate, evacuate);
            assert_eq!(evacuate.as_str(), word);
            let covers = [Verdict::Suspect, Verdict::Bad].map(|it| evacuate.covers(it));
            assert_eq!(covers, [at_suspect, at_bad], "{word}");
            assert!(!evacuate.covers(Verdict::Unknown) && !evacuate.covers(Verdict::Good));
        }
        let set = of(
            "automatic-drives-per-day = 20\nautomatic-delay = '1h'",
            "evacuate = 'bad'",
        );
        let automatic = set.config.automatic;
        assert_eq!(
            (automatic.drives_per_day, automatic.delay.as_secs()),
            (20, 3600)
        );
        assert_eq!(set.warnings, []);
        let without_effect = of("automatic-drives-per-day = 0", "evacuate = 'bad'");
        assert_eq!(without_effect.config.automatic.drives_per_day, 0);
        let warned = without_effect.warnings[0].to_string();
        assert!(warned.contains("has no effect"), "{warned}");
        let manual = of("automatic-drives-per-day = 0", "evacuate = 'manual'");
        assert_eq!(manual.warnings, []);
    }

    #[test]
    fn unknown_verdicts_and_numbers_out_of_range_are_refused() {
        let wrong = mistakes("", "evacuate = 'bda'");
        assert!(
            wrong.contains("did you mean") && wrong.contains("bad"),
            "{wrong}"
        );
        for count in ["-1", "21"] {
            let wrong = mistakes(&format!("automatic-drives-per-day = {count}"), "");
            let expected = "automatic-drives-per-day: must be between 0 and 20";
            assert!(wrong.contains(expected), "{wrong}");
        }
        let wrong = mistakes("automatic-delay = '0s'", "");
        assert!(
            wrong.contains("automatic-delay: \"0s\" is too short"),
            "{wrong}"
        );
    }
}

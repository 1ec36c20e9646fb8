//! Texts of findings and conditions with the numbers of the last answer. Their messages stay the same as long as they hold, and so have the
//! limit instead. Pure.

use super::{ConditionKind, RuleFinding, SmartCondition};
use crate::history::{Counter, Trends};
use drivebay_model::smart_names::label;

impl RuleFinding {
    /// Returns the number that was read as text, with what it counts and its recent growth.
    pub fn reading(&self, trends: &Trends) -> String {
        let counter = |counter: &&Counter| {
            let rest = self.subject.strip_prefix(counter.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let value = self.value;
        let Some(counter) = Counter::ALL.iter().find(counter) else {
            let attribute = self.subject.strip_prefix("attribute-");
            return match (attribute, self.threshold) {
                (Some(id), Some(threshold)) => {
                    format!("attribute {id}: {value}, its threshold is {threshold}")
                }
                _ => format!("{}: {value}", label(&self.subject)),
            };
        };
        let what = label(counter.as_str());
        let trend = trends.get(*counter);
        // If the value is growth or a number of polls, the trend has the count.
        let is_level =
            self.subject == counter.as_str() && self.code != super::SmartCode::ErrorsGrowing;
        let count = match trend {
            Some(trend) if !is_level => trend.value,
            _ => value,
        };
        let of = |grown: Option<u64>| grown.filter(|grown| *grown > 0);
        let day = of(trend.and_then(|trend| trend.day));
        let week = of(trend.and_then(|trend| trend.week));
        let grown = match (day, week) {
            (Some(day), _) => format!(", +{day} since yesterday"),
            (None, Some(week)) => format!(", +{week} within seven days"),
            (None, None) => String::new(),
        };
        format!("{what}: {count}{grown}")
    }

    /// Returns the message with the value instead of the limit.
    pub fn message_with_value(&self) -> String {
        match self.threshold {
            Some(limit) => with_value(&self.message, &limit.to_string(), &self.value.to_string()),
            None => self.message.clone(),
        }
    }
}

impl SmartCondition {
    /// Returns the number that was read as text.
    pub fn reading(&self) -> String {
        let value = self.value;
        match self.kind {
            ConditionKind::Overheating => format!("{value} °C, its limit is {}", self.threshold),
            ConditionKind::Wear => format!("{value} % of its rated endurance used"),
            ConditionKind::CableErrors => {
                format!("checksum errors on the cable: +{value} within seven days")
            }
            ConditionKind::CommandTimeouts => {
                format!("command timeouts: +{value} within seven days")
            }
            // The message names each with its number.
            ConditionKind::ImplausibleValues => format!("values that are not used: {value}"),
        }
    }

    /// Returns the message with the value instead of the limit.
    pub fn message_with_value(&self) -> String {
        let (limit, value) = (self.threshold.to_string(), self.value.to_string());
        with_value(&self.message, &limit, &value)
    }
}

/// Replaces "LIMIT or more", also with a unit between, and "LIMIT …, or less" by the value without those words.
fn with_value(message: &str, limit: &str, value: &str) -> String {
    // "1 or more sectors" stays: "1 sectors" is wrong.
    if value == "1" {
        return message.to_owned();
    }
    let mut text = message.to_owned();
    for unit in ["", " %", " polls"] {
        text = text.replace(
            &format!(" {limit}{unit} or more"),
            &format!(" {value}{unit}"),
        );
        if let Some(rest) = text.strip_prefix(&format!("{limit}{unit} or more")) {
            text = format!("{value}{unit}{rest}");
        }
    }
    match text.split_once(", or less") {
        Some((before, after)) => {
            let before = before.replacen(&format!(" {limit} "), &format!(" {value} "), 1);
            before + after
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history::Trend,
        rules::{Severity, SmartCode},
    };

    fn finding(code: SmartCode, subject: &str, value: u64, threshold: Option<u64>) -> RuleFinding {
        RuleFinding {
            code,
            subject: subject.to_owned(),
            severity: Severity::Suspect,
            value,
            threshold,
            level: value,
            message: String::new(),
            acknowledged: false,
        }
    }

    #[test]
    fn a_finding_is_read_with_its_number_and_how_it_moved() {
        let pending = finding(SmartCode::PendingSectors, "ata-197", 3, Some(1));
        let moved = |value, day, week| -> Trends {
            let trend = Trend {
                value,
                day,
                week,
                polls: 0,
            };
            [
                (Counter::PendingSectors, trend),
                (Counter::GrownDefects, trend),
            ]
            .into_iter()
            .collect()
        };
        let of = |finding: &RuleFinding, trends| finding.reading(&trends);
        for (trends, text) in [
            (Trends::default(), "Current_Pending_Sector (197): 3"),
            (
                moved(3, Some(0), Some(0)),
                "Current_Pending_Sector (197): 3",
            ),
            (
                moved(3, Some(2), Some(3)),
                "Current_Pending_Sector (197): 3, +2 since yesterday",
            ),
            (
                moved(3, Some(0), Some(1)),
                "Current_Pending_Sector (197): 3, +1 within seven days",
            ),
        ] {
            assert_eq!(of(&pending, trends), text);
        }
        let fast = finding(
            SmartCode::GrownDefectsFast,
            "scsi-grown-defects-day",
            9,
            Some(5),
        );
        assert_eq!(
            of(&fast, moved(40, Some(9), Some(9))),
            "Elements in grown defect list: 40, +9 since yesterday"
        );
        let growing = finding(SmartCode::ErrorsGrowing, "ata-197", 3, Some(3));
        assert_eq!(
            of(&growing, moved(17, Some(5), Some(5))),
            "Current_Pending_Sector (197): 17, +5 since yesterday"
        );
        let attribute = finding(SmartCode::PrefailNow, "attribute-5", 3, Some(10));
        assert_eq!(
            of(&attribute, Trends::default()),
            "attribute 5: 3, its threshold is 10"
        );
        let other = finding(SmartCode::BackgroundScanHalted, "background-scan", 3, None);
        assert_eq!(of(&other, Trends::default()), "background-scan: 3");
    }

    #[test]
    fn a_message_has_the_value_where_it_had_the_limit() {
        for (message, limit, value, text) in [
            (
                "SMART 197: 40 or more sectors wait",
                "40",
                "48",
                "SMART 197: 48 sectors wait",
            ),
            (
                "10 or more new errors within 24 hours",
                "10",
                "12",
                "12 new errors within 24 hours",
            ),
            (
                "it has used 100 % or more of it",
                "100",
                "103",
                "it has used 103 % of it",
            ),
            (
                "grew in 3 polls or more in a row",
                "3",
                "5",
                "grew in 5 polls in a row",
            ),
            (
                "the drive has 5 % of its blocks left, or less; go",
                "5",
                "2",
                "the drive has 2 % of its blocks left; go",
            ),
            ("no number", "1", "2", "no number"),
            ("1 or more sectors", "1", "1", "1 or more sectors"),
        ] {
            assert_eq!(with_value(message, limit, value), text);
        }
        let hot = SmartCondition {
            kind: ConditionKind::Overheating,
            level: super::super::ConditionLevel::Warning,
            value: 64,
            threshold: 60,
            message: String::new(),
        };
        assert_eq!(hot.reading(), "64 °C, its limit is 60");
    }
}

//! The rules as a table for operators, made from the data that the judge executes. Pure.

use serde::Serialize;

use super::{Acknowledging, ConditionLevel, Severity, conditions, findings::RULES};
use crate::smart::thresholds::Thresholds;

/// One rule, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The code of its findings, or the kind of its condition.
    pub code: &'static str,
    /// The drives that it is for.
    pub drives: &'static str,
    /// What is read: an attribute, or a field of smartctl's output.
    pub field: &'static str,
    /// When it holds.
    pub condition: String,
    /// The key of its threshold in `[smart.thresholds]`.
    pub threshold: Option<&'static str>,
    /// SUSPECT, BAD, or what the condition does.
    pub verdict: &'static str,
    /// Whether `drive ack` covers it, and until when.
    pub acknowledge: &'static str,
    /// What it means.
    pub meaning: String,
    /// What to do.
    pub action: &'static str,
    /// Where the rule is from.
    pub source: &'static str,
}

/// Every rule, with these thresholds.
pub fn rows(limits: &Thresholds) -> Vec<Row> {
    let findings = RULES.iter().map(|rule| {
        let key = rule.key();
        let limit = key.and_then(|key| limits.value(key));
        let limit = limit.and_then(|limit| u64::try_from(limit).ok());
        Row {
            code: rule.code.as_str(),
            drives: rule.drives.as_str(),
            field: rule.field,
            condition: rule.condition(limits),
            threshold: key,
            verdict: match rule.severity {
                Severity::Suspect => "SUSPECT",
                Severity::Bad => "BAD",
            },
            acknowledge: match rule.code.acknowledgement() {
                Acknowledging::Level => "until it gets worse",
                Acknowledging::Growth => "until it grows again",
                Acknowledging::Never => "no",
            },
            meaning: rule.meaning(limit, "N"),
            action: rule.action,
            source: rule.source,
        }
    });
    let conditions = conditions::RULES.iter().map(|rule| {
        let limit = rule.key().and_then(|key| limits.value(key));
        let limit = limit.map_or_else(|| "N".to_owned(), |limit| limit.to_string());
        Row {
            code: rule.kind.as_str(),
            drives: rule.drives,
            field: rule.field,
            condition: rule.condition(limits),
            threshold: rule.key(),
            verdict: match rule.level {
                ConditionLevel::Info => "info",
                ConditionLevel::Warning => "warning",
                ConditionLevel::NoNewVolumes => "no new volumes",
            },
            acknowledge: "no",
            meaning: rule.meaning.replace("{limit}", &limit),
            action: rule.action,
            source: rule.source,
        }
    });
    findings.chain(conditions).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::smart::rules::{Code, ConditionKind};

    #[test]
    fn every_code_and_condition_has_a_row_that_says_all() {
        let rows = rows(&Thresholds::default());
        let codes: BTreeSet<&str> = rows.iter().map(|row| row.code).collect();
        for code in Code::ALL {
            assert!(codes.contains(code.as_str()), "{code}");
        }
        for kind in ConditionKind::ALL {
            assert!(codes.contains(kind.as_str()), "{}", kind.as_str());
        }
        for row in &rows {
            for text in [
                row.field,
                &row.condition,
                &row.meaning,
                row.action,
                row.source,
            ] {
                assert!(!text.is_empty() && !text.contains(['{', '}']), "{row:?}");
            }
        }
    }

    #[test]
    fn every_threshold_is_that_of_a_rule_or_of_the_judge_itself() {
        let rows = rows(&Thresholds::default());
        let used: BTreeSet<&str> = rows.iter().filter_map(|row| row.threshold).collect();
        for key in &used {
            assert!(Thresholds::KEYS.contains(key), "{key}");
        }
        let unused: Vec<&&str> = Thresholds::KEYS
            .iter()
            .filter(|key| !used.contains(**key))
            .collect();
        // Besides a rule's own, or of when a verdict is left.
        let elsewhere = [
            "reallocated-growth",
            "spare-divisor",
            "hot-hdd",
            "hot-ssd",
            "hot-nvme",
            "cool-by",
            "clean-polls",
            "clean-seconds",
        ];
        for key in unused {
            assert!(elsewhere.contains(key), "{key} is the threshold of nothing");
        }
    }

    #[test]
    fn a_row_shows_the_threshold_that_is_set() {
        let mut limits = Thresholds::default();
        assert!(limits.set("pending-bad", 77));
        let rows = rows(&limits);
        let row = rows.iter().find(|row| row.code == "PendingSectorsMany");
        let row = row.unwrap();
        assert_eq!(row.condition, "77 or more");
        assert!(
            row.meaning.contains("77 or more sectors"),
            "{}",
            row.meaning
        );
    }

    #[test]
    fn the_severity_of_a_rule_is_its_codes_but_for_the_status_of_ata() {
        for rule in RULES {
            let ata_status = rule.code == Code::StatusFailed && rule.drives.as_str() == "ATA";
            assert_eq!(
                rule.severity == rule.code.severity(),
                !ata_status,
                "{}",
                rule.code
            );
        }
    }
}

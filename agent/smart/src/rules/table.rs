//! The rules as a table for operators, from the data that the judge executes. Pure.

use serde::Serialize;

use super::{
    Acknowledging, ConditionLevel, RuleFinding, Severity, SmartCondition,
    conditions::{self, ConditionRule},
    findings::RULES,
    rule::Rule,
};
use crate::{facts::Facts, thresholds::Thresholds};
use drivebay_model::Verdict;

/// One rule, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Code of its findings, or kind of its condition.
    pub code: &'static str,
    /// Drives to which it applies.
    pub drives: &'static str,
    /// Attribute, or field of smartctl's output, that is read.
    pub field: &'static str,
    /// Condition under which the rule matches, as text with the current thresholds.
    pub condition: String,
    /// Key of its threshold in `[smart.thresholds]`, if it has one.
    pub threshold: Option<&'static str>,
    /// SUSPECT, BAD, or the effect of the condition.
    pub verdict: &'static str,
    /// Limit of an acknowledgement by `drive ack`, as text; `no` if it has no effect.
    pub acknowledge: &'static str,
    pub meaning: String,
    pub action: &'static str,
    /// Origin of the rule.
    pub source: &'static str,
}

/// Returns all rules, with these thresholds.
pub fn rows(limits: &Thresholds) -> Vec<Row> {
    let findings = RULES.iter().map(|rule| of_finding(rule, limits));
    let conditions = conditions::RULES
        .iter()
        .map(|rule| of_condition(rule, limits));
    findings.chain(conditions).collect()
}

/// Returns the rule from which a finding of these facts derives.
pub fn behind_finding(finding: &RuleFinding, facts: &Facts, limits: &Thresholds) -> Option<Row> {
    let rule = RULES.iter().find(|rule| {
        rule.code == finding.code
            && rule.drives.includes(facts)
            && (rule.subject.is_empty() || rule.subject == finding.subject)
    });
    rule.map(|rule| of_finding(rule, limits))
}

/// Returns the rule from which a condition derives.
pub fn behind_condition(condition: &SmartCondition, limits: &Thresholds) -> Option<Row> {
    let mut rules = conditions::RULES.iter();
    let rule = rules.find(|rule| (rule.kind, rule.level) == (condition.kind, condition.level));
    rule.map(|rule| of_condition(rule, limits))
}

fn of_finding(rule: &Rule, limits: &Thresholds) -> Row {
    let key = rule.key();
    let limit = key.and_then(|key| limits.value(key));
    let limit = limit.map_or_else(|| "N".to_owned(), |limit| limit.to_string());
    Row {
        code: rule.code.as_str(),
        drives: rule.drives.as_str(),
        field: rule.field,
        condition: rule.condition(limits),
        threshold: key,
        verdict: match rule.severity {
            Severity::Suspect => Verdict::Suspect.as_str(),
            Severity::Bad => Verdict::Bad.as_str(),
        },
        acknowledge: match rule.code.acknowledgement() {
            Acknowledging::Level => "until it gets worse",
            Acknowledging::Growth => "until it grows again",
            Acknowledging::Never => "no",
        },
        meaning: rule.meaning(&limit, "N"),
        action: rule.action,
        source: rule.source,
    }
}

fn of_condition(rule: &ConditionRule, limits: &Thresholds) -> Row {
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
        meaning: rule.meaning(&limit, "N"),
        action: rule.action,
        source: rule.source,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rules::{ConditionKind, SmartCode};

    #[test]
    fn every_code_and_condition_has_a_complete_row() {
        let rows = rows(&Thresholds::default());
        let codes: BTreeSet<&str> = rows.iter().map(|row| row.code).collect();
        for code in SmartCode::ALL {
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
        // Thresholds that refine a rule, or decide when a verdict is cleared.
        let elsewhere = [
            "reallocated-growth",
            "spare-divisor",
            "hot-hdd",
            "hot-ssd",
            "hot-nvme",
            "cool-by",
            "clean-polls",
            "clean-seconds",
            "uncorrectable-hours",
        ];
        for key in unused {
            assert!(elsewhere.contains(key), "{key} is the threshold of nothing");
        }
    }

    #[test]
    fn the_table_of_the_reference_is_this_one() {
        let reference = include_str!("../../../../deploy/docs/reference/smart.md");
        let cells = |line: &str| -> Vec<String> {
            let line = line.trim_matches('|');
            line.split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect()
        };
        let documented: Vec<Vec<String>> = reference
            .lines()
            .skip_while(|line| !line.starts_with("| verdict | drives |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(cells)
            .collect();
        let rows: Vec<Vec<String>> = rows(&Thresholds::default())
            .into_iter()
            .map(|row| {
                let cells = [row.verdict, row.drives, row.field, &row.condition, row.code];
                cells.map(str::to_owned).to_vec()
            })
            .collect();
        assert_eq!(documented, rows);
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
            row.meaning.contains("77 or more physical sectors"),
            "{}",
            row.meaning
        );
    }
}

//! Serializers that `build.rs` names for fields of messages whose JSON differs from the message.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::agent::{DirectionLatency, Finding, Reading};

/// Serializes a time or a limit; 0 as null.
pub(crate) fn or_null<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    (*number > 0).then_some(number).serialize(serializer)
}

/// Serializes readings as a map by name.
pub(crate) fn by_name<S: Serializer>(
    readings: &[Reading],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let by_name = readings.iter().map(|one| (one.name.as_str(), one.value));
    by_name.collect::<BTreeMap<_, _>>().serialize(serializer)
}

/// Serializes the latency of a direction; an unset one, without requests, as zeros.
pub(crate) fn or_zeros<S: Serializer>(
    direction: &Option<DirectionLatency>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match direction {
        Some(direction) => direction.serialize(serializer),
        None => DirectionLatency::default().serialize(serializer),
    }
}

/// Serializes a list in which negative numbers become null.
pub(crate) fn each_or_null<S: Serializer>(
    numbers: &[f64],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(numbers.iter().map(|it| (*it >= 0.0).then_some(it)))
}

/// Serializes findings of a host, which have no acknowledgement.
pub(crate) fn of_host<S: Serializer>(
    findings: &[Finding],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct OfHost<'a> {
        code: &'a str,
        message: &'a str,
        #[serde(serialize_with = "or_null")]
        since: u64,
    }
    serializer.collect_seq(findings.iter().map(|finding| OfHost {
        code: &finding.code,
        message: &finding.message,
        since: finding.since,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::{agent::SmartReport, controller::Node};

    #[test]
    fn numbers_are_a_map_by_name_and_a_moment_that_never_came_is_null() {
        let reading = |name: &str, value| Reading {
            name: name.into(),
            value,
        };
        let report = SmartReport {
            readings: vec![
                reading("wear-percent", 7),
                reading("temperature-celsius", 41),
            ],
            verdict_since: 5,
            ..SmartReport::default()
        };
        let json = to_value(&report).unwrap();
        let readings = json!({"temperature-celsius": 41, "wear-percent": 7});
        assert_eq!(json["readings"], readings);
        assert_eq!(json["answered_at"], json!(null));
        assert_eq!(json["verdict_since"], json!(5));
    }

    #[test]
    fn findings_of_a_host_are_not_acknowledged() {
        let node = Node {
            node_id: "n1".into(),
            findings: vec![Finding {
                code: "C".into(),
                message: "m".into(),
                ..Finding::default()
            }],
            ..Node::default()
        };
        let json = to_value(&node).unwrap();
        let finding = json!({"code": "C", "message": "m", "since": null});
        assert_eq!(json["findings"], json!([finding]));
        assert_eq!(json["node"], json!("n1"));
        assert!(json.get("history").is_none(), "node show has it");
    }
}

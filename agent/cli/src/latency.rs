//! Latencies of a drive in `drive show`: numbers, and a chart of one line. Pure.

use std::fmt::Write as _;

use drivebay_common::units::{count, human_seconds, human_size};
use drivebay_proto::agent::{DirectionLatency, DriveLatencyResponse};
use drivebay_proto::words::Peers;
use drivebay_smart::slow::rounded;

fn measured(history: f64) -> Option<f64> {
    (history >= 0.0).then_some(history)
}

/// Renders the latencies as text; empty before the first minute has passed. `now`: Unix time in seconds.
pub(super) fn text(response: &DriveLatencyResponse, now: u64) -> String {
    if response.at == 0 {
        return String::new();
    }
    let compared = match response.known_peers() {
        Some(Peers::Model) => format!(
            "compared with {} of its model",
            count(response.peers, "other drive")
        ),
        Some(Peers::Media) => format!(
            "compared with {} of its medium",
            count(response.peers, "other drive")
        ),
        Some(Peers::TooFew) | None => {
            "fewer than three others of its kind: not compared".to_owned()
        }
    };
    let mut text = format!("\nLatency, minute by minute ({compared}):\n");
    for (name, of) in [("reads", &response.read), ("writes", &response.write)] {
        let of = of.clone().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<11}{}", numbers(&of));
        if of.history_ms.iter().any(|it| measured(*it).is_some()) {
            let _ = writeln!(text, "  {:<11}{}", "", chart(&of.history_ms));
        }
        if let Some(slow) = &of.slow {
            let acknowledged = if slow.acknowledged {
                ", acknowledged"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "  {:<11}slow for {}{acknowledged}: {} ms instead of {} ms",
                "",
                human_seconds(now.saturating_sub(slow.since)),
                rounded(slow.observed_ms),
                rounded(slow.expected_ms),
            );
        }
    }
    text
}

fn numbers(of: &DirectionLatency) -> String {
    let rate = human_size(of.bytes_per_second.max(0.0) as u64);
    let Some(latency) = of.latency_ms else {
        let usual = of.usual_ms.map_or_else(String::new, |usual| {
            format!("; usually {} ms", rounded(usual))
        });
        return format!("too few to tell, {rate}/s{usual}");
    };
    let mut parts = vec![format!("{} ms at {rate}/s", rounded(latency))];
    if let Some(expected) = of.expected_ms {
        parts.push(format!("expected {} ms", rounded(expected)));
    }
    if let Some(usual) = of.usual_ms {
        parts.push(format!("usually {} ms", rounded(usual)));
    }
    parts.join(", ")
}

/// Returns one character for each minute, the latest last: the lowest latency at the bottom, the highest at the top, on a logarithmic
/// scale; a dot for a minute with too few requests.
fn chart(history: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let levels: Vec<f64> = history
        .iter()
        .filter_map(|it| measured(*it))
        .map(|it| it.max(1e-6).log2())
        .collect();
    let low = levels.iter().copied().fold(f64::INFINITY, f64::min);
    let high = levels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // A smaller variation is shown as level.
    let range = (high - low).max(2.0);
    history
        .iter()
        .map(|it| match measured(*it) {
            None => '·',
            Some(latency) => {
                let part = (latency.max(1e-6).log2() - low) / range;
                let bar = (part * (BARS.len() - 1) as f64).round() as usize;
                BARS.get(bar).copied().unwrap_or('█')
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::Slowdown;

    use super::*;

    fn sample() -> DriveLatencyResponse {
        DriveLatencyResponse {
            at: 1_000_000,
            compared_with: "model".into(),
            peers: 3,
            read: Some(DirectionLatency {
                bytes_per_second: 12_600_000.0,
                requests_per_second: 812.0,
                latency_ms: Some(0.3141),
                expected_ms: Some(0.0812),
                usual_ms: Some(0.08),
                history_ms: vec![-1.0, 0.08, 0.082, 0.16, 0.32, 0.64],
                slow: Some(Slowdown {
                    observed_ms: 0.3,
                    expected_ms: 0.08,
                    since: 999_400,
                    acknowledged: true,
                }),
            }),
            write: Some(DirectionLatency {
                history_ms: vec![-1.0; 6],
                ..DirectionLatency::default()
            }),
        }
    }

    #[test]
    fn latencies_are_shown_with_a_chart_in_eighty_columns() {
        let mut response = sample();
        let shown = text(&response, 1_000_000);
        assert_eq!(
            shown,
            "
Latency, minute by minute (compared with 3 other drives of its model):
  reads      0.31 ms at 12 MiB/s, expected 0.081 ms, usually 0.08 ms
             ·▁▁▃▆█
             slow for 10m, acknowledged: 0.3 ms instead of 0.08 ms
  writes     too few to tell, 0 B/s
"
        );
        response.compared_with = "nothing".into();
        assert!(text(&response, 0).contains("not compared"));
        response.read.as_mut().unwrap().history_ms = vec![0.1; 60];
        assert!(
            text(&response, 0)
                .lines()
                .all(|line| line.chars().count() <= 80)
        );
        response.at = 0;
        assert_eq!(text(&response, 0), "");
    }

    #[test]
    fn json_has_null_for_what_is_not_known() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["read"]["history_ms"][0], serde_json::Value::Null);
        assert_eq!(json["read"]["history_ms"][1], 0.08);
        assert_eq!(json["read"]["slow"]["acknowledged"], true);
        assert_eq!(json["write"]["latency_ms"], serde_json::Value::Null);
        assert_eq!(json["compared_with"], "model");
    }
}

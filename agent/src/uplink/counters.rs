//! Values of a drive's SMART counters in the agent's protocol. Pure.

use drivebay_proto::agent as wire;
use drivebay_smart::history::CounterPoints;

/// Converts the counters of one drive.
pub(super) fn response(counters: CounterPoints) -> wire::DriveHistoryResponse {
    let counters = counters
        .into_iter()
        .map(|(counter, points)| wire::CounterHistory {
            name: counter.as_str().to_owned(),
            points: points
                .into_iter()
                .map(|(at, value)| wire::CounterPoint { at, value })
                .collect(),
        });
    wire::DriveHistoryResponse {
        counters: counters.collect(),
    }
}

#[cfg(test)]
mod tests {
    use drivebay_smart::history::Counter;

    use super::*;

    #[test]
    fn a_counter_has_the_name_of_its_reading() {
        let points = vec![(3600, 3), (7260, 48)];
        let answer = response(vec![(Counter::PendingSectors, points)]);
        let expected = wire::CounterHistory {
            name: "ata-197".to_owned(),
            points: vec![
                wire::CounterPoint { at: 3600, value: 3 },
                wire::CounterPoint {
                    at: 7260,
                    value: 48,
                },
            ],
        };
        assert_eq!(answer.counters, [expected]);
    }
}

//! A drive's latencies in the agent's protocol. Pure.

use drivebay_proto::agent as wire;

use drivebay_smart::slow::{Side, Speed};

/// Converts the latencies of one drive.
pub(super) fn response(speed: &Speed) -> wire::DriveLatencyResponse {
    wire::DriveLatencyResponse {
        at: speed.at,
        compared_with: speed.peers.as_str().to_owned(),
        peers: u32::try_from(speed.peer_count).unwrap_or(u32::MAX),
        read: Some(direction(&speed.read)),
        write: Some(direction(&speed.write)),
    }
}

fn direction(side: &Side) -> wire::DirectionLatency {
    let history = side.history_ms.iter();
    wire::DirectionLatency {
        bytes_per_second: side.bytes_per_second,
        requests_per_second: side.requests_per_second,
        latency_ms: side.latency_ms,
        expected_ms: side.expected_ms,
        usual_ms: side.own_ms,
        history_ms: history.map(|latency| latency.unwrap_or(-1.0)).collect(),
        slow: side.slow.map(|slow| wire::Slowdown {
            observed_ms: slow.observed_ms,
            expected_ms: slow.expected_ms,
            since: slow.since,
            acknowledged: side.acknowledged,
        }),
    }
}

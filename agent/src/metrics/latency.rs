//! Series of drives' latencies: the last minute by the kernel's counters, and the expected values.

use drivebay_common::metrics::{
    Def, Families,
    families::{gauge, number},
};

use super::View;
use drivebay_smart::slow::Direction;

const BY_DIRECTION: &[&str] = &["drive", "direction"];

const LATENCY: Def = gauge(
    "drivebay_drive_io_latency_seconds",
    "Mean time of a request in the last minute in seconds, from the kernel's counters; direction=\"read\" or \"write\". No series with too few requests.",
    BY_DIRECTION,
);
const EXPECTED: Def = gauge(
    "drivebay_drive_io_expected_latency_seconds",
    "Seconds that a request should have taken in the last minute, by what other drives of the same kind on the node take at such a load. No series where none had such a load.",
    BY_DIRECTION,
);
const SLOWDOWN: Def = gauge(
    "drivebay_drive_io_slowdown_ratio",
    "Observed latency of the last minute as a ratio to the expected one; 1 is as expected. No series where nothing is expected.",
    BY_DIRECTION,
);
const THROUGHPUT: Def = gauge(
    "drivebay_drive_io_throughput_bytes_per_second",
    "Bytes per second in the last minute.",
    BY_DIRECTION,
);
const PEERS: Def = gauge(
    "drivebay_drive_io_peers",
    "Drives of the same kind on the node with which the drive is compared; 0 with fewer than three.",
    &["drive"],
);

pub(super) const DEFINITIONS: &[Def] = &[LATENCY, EXPECTED, SLOWDOWN, THROUGHPUT, PEERS];

pub(super) fn put(view: &View, into: &mut Families) {
    for (id, speed) in &view.speeds {
        let drive = view.snapshot.drives.get(id);
        if drive.is_none_or(|drive| drive.class.is_none()) || speed.at == 0 {
            continue;
        }
        into.put(&PEERS, &[&id.0], number(speed.peer_count as u64));
        for direction in Direction::ALL {
            let side = speed.side(direction);
            let labels = [id.0.as_str(), direction.as_str()];
            into.put(&THROUGHPUT, &labels, side.bytes_per_second);
            for (def, value) in [
                (&LATENCY, side.latency_ms.map(|ms| ms / 1000.0)),
                (&EXPECTED, side.expected_ms.map(|ms| ms / 1000.0)),
                (&SLOWDOWN, side.slowdown()),
            ] {
                into.put_known(def, &labels, value);
            }
        }
    }
}

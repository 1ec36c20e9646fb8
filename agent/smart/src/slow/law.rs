//! Cost of a request by the medium's physics. Used only to convert a latency that was measured at one load to another, and as the minimum
//! that is expected of any drive, because the counters do not show everything.

use super::minute::{Direction, Load};
use drivebay_model::Media;

/// Constants of a medium.
#[derive(Debug, Clone, Copy)]
struct Physics {
    /// Latency of a single request of no size, milliseconds.
    read_ms: f64,
    write_ms: f64,
    /// Bytes per millisecond, a low estimate.
    bandwidth: f64,
    /// Number of small requests that are served in parallel, a low estimate.
    parallel: f64,
}

/// Exponent of the queue's effect: a rotating drive sorts the waiting requests.
const HDD_QUEUE: f64 = 0.8;
/// Largest size of a small request, bytes.
const SMALL: f64 = 16384.0;
/// Exponent by which latency grows with the rate of requests, below saturation.
const MORE: f64 = 0.3;

fn physics(media: Media) -> Physics {
    match media {
        Media::Hdd => Physics {
            read_ms: 8.0,
            write_ms: 8.0,
            bandwidth: 120e3,
            parallel: 1.0,
        },
        Media::Ssd => Physics {
            read_ms: 0.12,
            write_ms: 0.05,
            bandwidth: 300e3,
            parallel: 8.0,
        },
        Media::Nvme => Physics {
            read_ms: 0.08,
            write_ms: 0.02,
            bandwidth: 1_500e3,
            parallel: 32.0,
        },
    }
}

/// Returns the cost of a request at this load, milliseconds.
fn cost(media: Media, direction: Direction, load: &Load) -> f64 {
    let of = physics(media);
    let base = match direction {
        Direction::Read => of.read_ms,
        Direction::Write => of.write_ms,
    };
    let alone = base + f64::from(load.size) / of.bandwidth;
    let depth = f64::from(load.depth);
    let mean_size = f64::from(load.mean_size);
    let queued = match media {
        Media::Hdd => alone * depth.powf(HDD_QUEUE),
        Media::Ssd | Media::Nvme => {
            // Large requests are served one after the other: they share the bandwidth.
            let parallel = (of.parallel * SMALL / mean_size).clamp(1.0, of.parallel);
            alone + (depth - 1.0) / parallel * (of.read_ms + mean_size / of.bandwidth)
        }
    };
    // Added cost of requests in the other direction, as a part of the cost, per doubling and for at most five of them: the most where it
    // means seeks.
    let disturbed = match media {
        Media::Hdd => 0.3,
        Media::Ssd => 0.1,
        Media::Nvme => 0.06,
    };
    queued * (1.0 + disturbed * f64::from(load.other.min(5.0)))
}

/// Converts the latency measured at `from` to `to`, milliseconds. A higher rate of requests allows a higher latency.
pub(super) fn carried_ms(media: Media, direction: Direction, from: &Load, to: &Load) -> f64 {
    let latency = f64::from(from.latency_ms);
    let (before, now) = (cost(media, direction, from), cost(media, direction, to));
    let more = f64::from(to.rate / from.rate.max(0.1)).clamp(1.0, 16.0);
    // The addition is the same for all drives of a medium, however fast they are without it.
    (latency * now / before).max(latency + now - before) * more.powf(MORE)
}

/// Returns the latency that any healthy drive may have, milliseconds, for reasons that the counters do not show: whether a rotating drive
/// has to seek, and whether the data that a flash drive reads was ever written or is read ahead.
pub(super) fn floor_ms(media: Media, direction: Direction, load: &Load) -> f64 {
    match (media, direction) {
        (Media::Hdd, _) => {
            (HDD_SEEK_MS + f64::from(load.size) / physics(media).bandwidth)
                * f64::from(load.depth).powf(0.75)
        }
        (Media::Ssd, Direction::Read) => 0.12,
        (Media::Nvme, Direction::Read) => 0.08,
        (Media::Ssd | Media::Nvme, Direction::Write) => 0.02,
    }
}

/// Time of a seek and half a rotation of a drive that is not among the fastest, milliseconds.
const HDD_SEEK_MS: f64 = 11.0;

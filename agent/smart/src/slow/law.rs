//! What a request costs by the medium's physics: only to carry over what was measured at one load to another, and as the least
//! that is expected of any drive, since the counters do not tell everything.

use super::minute::{Direction, Load};
use drivebay_model::Media;

/// A medium.
#[derive(Debug, Clone, Copy)]
struct Physics {
    /// Of a request of no size that is alone.
    read_ms: f64,
    write_ms: f64,
    /// Bytes a millisecond, rather few.
    bandwidth: f64,
    /// Small requests that are served at once, rather few.
    parallel: f64,
}

/// A turning drive sorts what waits.
const HDD_QUEUE: f64 = 0.8;
/// Requests up to this many bytes are small.
const SMALL: f64 = 16384.0;
/// How latency grows with the rate of requests, before a drive is full.
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

/// What a request of this load may cost, in milliseconds.
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
    // What the other direction takes away, at most half as much again, or as much where it means seeks.
    let disturbed = match media {
        Media::Hdd => 0.3,
        Media::Ssd => 0.1,
        Media::Nvme => 0.06,
    };
    queued * (1.0 + disturbed * f64::from(load.other.min(5.0)))
}

/// What `to` may take by what was measured at `from`. A drive that does more may take longer.
pub(super) fn carried_ms(media: Media, direction: Direction, from: &Load, to: &Load) -> f64 {
    let latency = f64::from(from.latency_ms);
    let (before, now) = (cost(media, direction, from), cost(media, direction, to));
    let more = f64::from(to.rate / from.rate.max(0.1)).clamp(1.0, 16.0);
    // What comes on top is the same for all drives of a medium, however fast they are without it.
    (latency * now / before).max(latency + now - before) * more.powf(MORE)
}

/// What any healthy drive may take, for reasons that the counters do not show: whether a turning drive has to seek, whether
/// what a flash drive reads was ever written or is read ahead.
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

/// A seek and half a turn, of a drive that is not the fastest.
const HDD_SEEK_MS: f64 = 11.0;

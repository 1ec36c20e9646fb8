//! What a drive's own past says of a load: how long a queue its requests need, and what they took.

use super::{
    law,
    minute::{Direction, Load},
    reference::{FULL_DEPTH, estimate, median},
};
use crate::model::Media;

/// Minutes from which it is known what a drive uses to do.
const USED_TO: usize = 10;

/// Whether the drive itself has done the same for long, and always took about as long: then it is known whether its requests
/// follow each other. Small requests do so one hour and not the next.
pub(super) fn is_stream(direction: Direction, load: &Load, own: &[&Load]) -> bool {
    // Checking seeks, erasing does not.
    if load.size < STREAM || (direction == Direction::Read && load.ours) {
        return false;
    }
    let near = if load.ours { 1.0 } else { 0.3 };
    let same = own.iter().filter(|of| {
        let size = (of.size / load.size).log2().abs();
        let depth = (of.depth / load.depth).log2().abs();
        size <= near && depth <= 1.5 && of.other - load.other <= 1.0
    });
    let mut latencies: Vec<f64> = same.map(|of| f64::from(of.latency_ms)).collect();
    latencies.sort_by(f64::total_cmp);
    match (at(&latencies, 0.5), at(&latencies, 0.8)) {
        (Some(middle), Some(most)) => latencies.len() >= STEADY && most <= 3.5 * middle,
        _ => false,
    }
}

const STREAM: f32 = 65536.0;
const STEADY: usize = 30;

/// Whether the drive itself has had as many requests with a queue a third as long: then a long queue is not the load.
pub(super) fn is_able(load: &Load, own: &[&Load]) -> bool {
    let same = own
        .iter()
        .filter(|of| of.rate * 1.2 >= load.rate && of.depth * FULL_DEPTH <= load.depth);
    same.take(3).count() == 3
}

/// Whether the drive has a longer queue than it uses to have, for more requests than it ever had with a short one. That is load.
pub(super) fn is_loaded(load: &Load, own: &[&Load]) -> bool {
    let mut depths: Vec<f64> = own.iter().map(|load| f64::from(load.depth)).collect();
    let usual = median(&mut depths);
    own.len() >= USED_TO
        && usual.is_some_and(|usual| load.depth > usual as f32 * FULL_DEPTH)
        && !is_able(load, own)
}

/// The load with the queue that so many requests need, by what the drive did when it had clearly more of them: a slow drive has
/// a long queue because it is slow. Requests that come all at once make a queue as well, so not much of it is taken away.
pub(super) fn needed(load: &Load, own: &[&Load]) -> Load {
    let busier = own.iter().filter(|of| {
        of.rate >= BUSIER * load.rate && (of.size / load.size).log2().abs() <= ALIKE_SIZE
    });
    let mut depths: Vec<f64> = busier.map(|of| f64::from(of.depth)).collect();
    match median(&mut depths).filter(|_| depths.len() >= 5) {
        Some(usual) => Load {
            depth: (usual as f32).clamp((load.depth / UNNEEDED).max(1.0), load.depth),
            ..*load
        },
        None => *load,
    }
}

const BUSIER: f32 = 1.15;
/// At most so many times the queue that is needed is explained away.
const UNNEEDED: f32 = 1.6;
const ALIKE_SIZE: f32 = 0.5;

/// Whether what was measured at `of` is what the drive itself takes for `load`. Where there was more beside it, it took rather
/// longer.
fn is_alike(load: &Load, of: &Load) -> bool {
    (of.size / load.size).log2().abs() <= ALIKE_SIZE
        && (of.depth / load.depth).log2().abs() <= 0.8
        && (-1.0..=3.0).contains(&(of.other - load.other))
        && (of.flushed - load.flushed).abs() <= 1.0
        && of.ours == load.ours
}

/// Minutes of such a load that are looked at, the latest.
const LATEST: usize = 60;
/// With so many minutes of such a load, what they say counts for half.
const HALF: f64 = 4.0;
/// The same where they say that the drive takes longer than its peers: the first minutes of a slow drive do so too.
const HALF_LONGER: f64 = 12.0;

/// How many times what its peers took (`expected`) the drive itself takes for the load (`needed`), as a logarithm. `well`: its
/// minutes in which it was not slow. With few minutes of such a load it is what it takes for other loads, carried over. None:
/// its past is too short.
pub(super) fn usual(
    media: Media,
    direction: Direction,
    load: &Load,
    able: bool,
    well: &[&Load],
    expected: f64,
) -> Option<f64> {
    if well.len() < USED_TO {
        return None;
    }
    let latest = || well.iter().rev().copied();
    let carried = estimate(media, direction, load, latest(), able);
    let carried = carried.map_or(0.0, |took| (took / expected).ln());
    let carried = carried.clamp(0.7f64.ln(), 1.4f64.ln());
    let alike = latest().filter(|of| is_alike(load, of)).take(LATEST);
    let took = alike.map(|of| law::carried_ms(media, direction, of, load));
    let mut took: Vec<f64> = took.collect();
    took.sort_by(f64::total_cmp);
    let (Some(middle), Some(most)) = (at(&took, 0.5), at(&took, 0.9)) else {
        return Some(carried);
    };
    // A drive that takes this long one hour and that long the next may do so again.
    let measured = (middle.max(most / 1.5) / expected).ln();
    let count = took.len() as f64;
    let half = if measured > carried {
        HALF_LONGER
    } else {
        HALF
    };
    let weight = count / (count + half);
    Some(weight * measured + (1.0 - weight) * carried)
}

/// How far the drive's own past may correct what its peers took, as logarithms.
pub(super) fn bounds(media: Media, usual: f64, one_model: bool) -> (f64, f64) {
    let (least, most) = match (one_model, media) {
        // Another model may be faster or slower by a lot: only its own past tells by how much.
        (false, _) => (0.3, 8.0),
        // A turning drive that is this much faster does not seek, but may have to in the next hour.
        (true, Media::Hdd) if usual < NO_SEEK.ln() => (0.85, 1.4),
        (true, Media::Hdd) => (0.7, 1.4),
        (true, Media::Ssd | Media::Nvme) => (0.35, 1.4),
    };
    (f64::ln(least), f64::ln(most))
}

const NO_SEEK: f64 = 0.45;

/// The value at this part of what is sorted.
fn at(sorted: &[f64], part: f64) -> Option<f64> {
    sorted.get((sorted.len() as f64 * part) as usize).copied()
}

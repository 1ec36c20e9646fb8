//! Expected latency at a load, by the latencies of the other drives at such a load.

use super::{
    law,
    minute::{Direction, Load},
};
use drivebay_model::Media;

/// Minimum of minutes of one drive for an estimate.
const ENOUGH: usize = 3;
/// Maximum of minutes for an estimate: the latest near ones, else the nearest.
const MOST: usize = 40;

/// Relation of two loads.
enum Relation {
    /// A latency that was measured at one holds for the other.
    Near,
    /// The latency can be converted by the medium's physics: the distance in doublings, and the factor by which the result is raised.
    Far(f64, f64),
}

/// Returns the relation of two loads, by their distance in doublings; None if they are too different to be compared.
fn relation(of: &Load, to: &Load, able: bool) -> Option<Relation> {
    let size = (of.size / to.size).log2().abs();
    let depth = (of.depth / to.depth).log2().abs();
    let other = (of.other - to.other).abs();
    let flushed = (of.flushed - to.flushed).abs();
    let distance = f64::from(size + depth + 0.5 * other + flushed);
    if size > FAR_SIZE || flushed > FLUSHED {
        return None;
    }
    let same = of.ours == to.ours;
    if same && size <= NEAR && depth <= NEAR && other <= 2.0 {
        return Some(Relation::Near);
    }
    // With a much longer queue and more requests a drive may be saturated, while the other one was not.
    let more = of.rate > to.rate * FULL_RATE || of.rate * of.size > to.rate * to.size * FULL_RATE;
    if of.depth > to.depth * FULL_DEPTH && more && !able {
        return None;
    }
    // The agent's own requests cannot be compared with others, unless the size is near: then with a margin.
    if same && !of.ours {
        Some(Relation::Far(distance, 1.0))
    } else if size <= NEAR {
        Some(Relation::Far(distance, UNLIKE))
    } else {
        None
    }
}

/// Factor by which the agent's own requests may slow the others.
const UNLIKE: f64 = 1.5;
const FULL_DEPTH: f32 = 3.0;
const FULL_RATE: f32 = 1.5;
const NEAR: f32 = 1.5;
const FAR_SIZE: f32 = 4.0;
const FLUSHED: f32 = 1.0;

/// Returns the latency that a drive with these minutes, the latest first, would have at the load, milliseconds; None if it never had a
/// comparable load. `able`: a long queue is no sign of load (`is_able`).
pub(super) fn estimate<'a>(
    media: Media,
    direction: Direction,
    load: &Load,
    minutes: impl Iterator<Item = &'a Load>,
    able: bool,
) -> Option<f64> {
    let mut near: Vec<f64> = Vec::new();
    let mut far: Vec<(f64, &Load, f64)> = Vec::new();
    for minute in minutes {
        match relation(load, minute, able) {
            Some(Relation::Near) => {
                let measured = f64::from(minute.latency_ms);
                let carried = law::carried_ms(media, direction, minute, load);
                near.push(carried.clamp(0.5 * measured, 4.0 * measured));
            }
            Some(Relation::Far(distance, margin)) => far.push((distance, minute, margin)),
            None => {}
        }
        if near.len() >= MOST {
            break;
        }
    }
    if near.len() >= ENOUGH {
        return median(&mut near);
    }
    if far.len() < ENOUGH {
        return None;
    }
    far.sort_by(|a, b| a.0.total_cmp(&b.0));
    far.truncate(MOST);
    let carried = far.into_iter().map(|(_, minute, margin)| {
        let carried = law::carried_ms(media, direction, minute, load);
        // No drive is expected to be faster than was measured.
        carried.max(f64::from(minute.latency_ms)) * margin
    });
    median(&mut carried.collect::<Vec<f64>>())
}

/// Returns the expected latency of a drive, milliseconds, by the estimates of its peers; None with fewer than two. A peer may be slow
/// itself: of two, the higher estimate is used. `models`: the peers are of several models.
pub(super) fn expected(
    media: Media,
    direction: Direction,
    load: &Load,
    mut estimates: Vec<f64>,
    own: &[&Load],
    models: bool,
) -> Option<f64> {
    let middle = match estimates.as_slice() {
        // It is unknown which of several models is like this one: the highest estimate is used.
        [_, _, ..] if models => estimates.iter().copied().fold(0.0, f64::max),
        [] | [_] => return None,
        [a, b] => a.max(*b),
        _ => median(&mut estimates)?,
    };
    if steady(load, own) {
        return Some(middle);
    }
    Some(middle.max(law::floor_ms(media, direction, load)))
}

/// True if the drive itself had the same load for long, with similar latencies: then it is known whether its requests are sequential. Small
/// requests may be sequential in one hour and not in the next.
fn steady(load: &Load, own: &[&Load]) -> bool {
    if load.size < STREAM {
        return false;
    }
    let same = own.iter().filter(|of| {
        let size = (of.size / load.size).log2().abs();
        let depth = (of.depth / load.depth).log2().abs();
        size <= 0.3 && depth <= 1.5 && (of.other - load.other).abs() <= 1.0
    });
    let mut latencies: Vec<f64> = same.map(|of| f64::from(of.latency_ms)).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |part: usize| latencies.get(latencies.len() * part / 10);
    match (at(5), at(8)) {
        (Some(middle), Some(most)) => latencies.len() >= STEADY && *most <= 3.5 * middle,
        _ => false,
    }
}

const STREAM: f32 = 65536.0;
const STEADY: usize = 30;

/// True if the drive itself served as many requests with a queue a third as long: then a long queue is no sign of load.
pub(super) fn is_able(load: &Load, own: &[&Load]) -> bool {
    let same = own
        .iter()
        .filter(|of| of.rate * 1.2 >= load.rate && of.depth * FULL_DEPTH <= load.depth);
    same.take(ENOUGH).count() == ENOUGH
}

/// True if the queue is much longer than usual, for more requests than the drive ever served with a short one. The cause is load then.
pub(super) fn is_loaded(load: &Load, own: &[&Load]) -> bool {
    let mut depths: Vec<f64> = own.iter().map(|load| f64::from(load.depth)).collect();
    let usual = median(&mut depths);
    own.len() >= USED_TO
        && usual.is_some_and(|usual| load.depth > usual as f32 * FULL_DEPTH)
        && !is_able(load, own)
}

/// Minimum of minutes from which a drive's usual queue is known.
const USED_TO: usize = 10;

/// Returns the median; None without values. Sorts the values.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(half).copied();
    }
    let (low, high) = (values.get(half.checked_sub(1)?)?, values.get(half)?);
    Some(f64::midpoint(*low, *high))
}

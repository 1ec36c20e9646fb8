//! What a load should cost, by what the other drives took for such a load.

use super::{
    law,
    minute::{Direction, Load},
};
use drivebay_model::Media;

/// Minutes of one drive from which its answer to a load is taken.
const ENOUGH: usize = 3;
/// So many minutes are enough: the latest that are near, or the nearest.
const MOST: usize = 40;

/// How a load is related to another.
enum Relation {
    /// What was measured at one holds for the other.
    Near,
    /// It can be carried over by the medium's physics, and so many times as much is possible.
    Far(f64, f64),
}

/// How far two loads are apart in what matters, in doublings; None: too far to be compared.
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
    // With a much longer queue and more requests a drive may be full, which the other was not.
    let more = of.rate > to.rate * FULL_RATE || of.rate * of.size > to.rate * to.size * FULL_RATE;
    if of.depth > to.depth * FULL_DEPTH && more && !able {
        return None;
    }
    // The agent's own work is like nothing else, unless it is a small part.
    if same && !of.ours {
        Some(Relation::Far(distance, 1.0))
    } else if size <= NEAR {
        Some(Relation::Far(distance, UNLIKE))
    } else {
        None
    }
}

/// By how much the agent's own work may slow the requests beside it.
const UNLIKE: f64 = 1.5;
const FULL_DEPTH: f32 = 3.0;
const FULL_RATE: f32 = 1.5;
const NEAR: f32 = 1.5;
const FAR_SIZE: f32 = 4.0;
const FLUSHED: f32 = 1.0;

/// What a drive with these minutes, the latest first, would take for the load, in milliseconds; None when it never had to do
/// anything like it. `able`: a long queue is not the load (`is_able`).
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
        // Nobody is expected to be faster than was seen.
        carried.max(f64::from(minute.latency_ms)) * margin
    });
    median(&mut carried.collect::<Vec<f64>>())
}

/// What is expected of a drive, by the estimates of its peers. One of them may be slow itself; of two nobody knows which.
/// `models`: the peers are of several models.
pub(super) fn expected(
    media: Media,
    direction: Direction,
    load: &Load,
    mut estimates: Vec<f64>,
    own: &[&Load],
    models: bool,
) -> Option<f64> {
    let middle = match estimates.as_slice() {
        // Which of several models is like this one is not known.
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

/// Whether the drive itself has done the same for long, and always took about as long: then it is known whether its requests
/// follow each other. Small requests do so one hour and not the next.
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

/// Whether the drive itself has had as many requests with a queue a third as long: then a long queue is not the load.
pub(super) fn is_able(load: &Load, own: &[&Load]) -> bool {
    let same = own
        .iter()
        .filter(|of| of.rate * 1.2 >= load.rate && of.depth * FULL_DEPTH <= load.depth);
    same.take(ENOUGH).count() == ENOUGH
}

/// Whether the drive has a longer queue than it uses to have, for more requests than it ever had with a short one. That is load.
pub(super) fn is_loaded(load: &Load, own: &[&Load]) -> bool {
    let mut depths: Vec<f64> = own.iter().map(|load| f64::from(load.depth)).collect();
    let usual = median(&mut depths);
    own.len() >= USED_TO
        && usual.is_some_and(|usual| load.depth > usual as f32 * FULL_DEPTH)
        && !is_able(load, own)
}

/// Minutes from which it is known what a drive uses to do.
const USED_TO: usize = 10;

/// The one in the middle.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(half).copied();
    }
    let (low, high) = (values.get(half.checked_sub(1)?)?, values.get(half)?);
    Some(f64::midpoint(*low, *high))
}

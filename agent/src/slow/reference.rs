//! What a load should cost, by what the other drives took for such a load.

use super::{
    law,
    minute::{Direction, Load},
};
use crate::model::Media;

/// Minutes of one drive from which its answer to a load is taken.
const ENOUGH: usize = 3;
/// Of the nearest minutes so many are enough.
const MOST: usize = 40;

/// How a load is related to another.
enum Relation {
    /// What was measured at one holds for the other.
    Near(f64),
    /// It can be carried over by the medium's physics.
    Far(f64),
}

/// How far two loads are apart in what matters, in doublings; None: too far to be compared.
fn relation(of: &Load, to: &Load) -> Option<Relation> {
    let size = (of.size / to.size).log2().abs();
    let depth = (of.depth / to.depth).log2().abs();
    let other = (of.other - to.other).abs();
    let flushed = (of.flushed - to.flushed).abs();
    let distance = f64::from(size + depth + 0.5 * other + flushed);
    if size > FAR_SIZE || flushed > FLUSHED {
        return None;
    }
    // The agent's own work is like nothing else, unless it is a small part.
    let same = of.ours == to.ours;
    if same && size <= NEAR && depth <= NEAR && other <= 2.0 {
        return Some(Relation::Near(distance));
    }
    // With a much longer queue and more requests a drive may be full, which the other was not.
    let more = of.rate > to.rate * FULL_RATE || of.rate * of.size > to.rate * to.size * FULL_RATE;
    let full = of.depth > to.depth * FULL_DEPTH && more;
    let carried = !full && ((same && !of.ours) || size <= NEAR);
    carried.then_some(Relation::Far(distance))
}

const FULL_DEPTH: f32 = 3.0;
const FULL_RATE: f32 = 1.5;
const NEAR: f32 = 1.5;
const FAR_SIZE: f32 = 4.0;
const FLUSHED: f32 = 1.0;

/// What a drive with these minutes would take for the load, in milliseconds; None when it never had to do anything like it.
pub(super) fn estimate<'a>(
    media: Media,
    direction: Direction,
    load: &Load,
    minutes: impl Iterator<Item = &'a Load>,
) -> Option<f64> {
    let mut near: Vec<(f64, f64)> = Vec::new();
    let mut far: Vec<(f64, f64)> = Vec::new();
    for minute in minutes {
        let measured = f64::from(minute.latency_ms);
        let carried = law::carried_ms(media, direction, minute, load);
        match relation(load, minute) {
            Some(Relation::Near(distance)) => {
                near.push((distance, carried.clamp(0.5 * measured, 4.0 * measured)))
            }
            // Nobody is expected to be faster than was seen.
            Some(Relation::Far(distance)) => far.push((distance, carried.max(measured))),
            None => {}
        }
    }
    let mut of = if near.len() >= ENOUGH { near } else { far };
    if of.len() < ENOUGH {
        return None;
    }
    of.sort_by(|a, b| a.0.total_cmp(&b.0));
    of.truncate(MOST);
    let mut latencies: Vec<f64> = of.into_iter().map(|(_, latency)| latency).collect();
    median(&mut latencies)
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
        size <= 0.3 && depth <= 1.0 && (of.other - load.other).abs() <= 1.0
    });
    let mut latencies: Vec<f64> = same.map(|of| f64::from(of.latency_ms)).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |part: usize| latencies.get(latencies.len() * part / 10);
    match (at(5), at(8)) {
        (Some(middle), Some(most)) => latencies.len() >= STEADY && *most <= 2.5 * middle,
        _ => false,
    }
}

const STREAM: f32 = 65536.0;
const STEADY: usize = 30;

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

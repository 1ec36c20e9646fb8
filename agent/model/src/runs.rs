//! Sets of bytes of a drive, as runs in order that neither touch nor overlap. Pure.

use super::Extent;

/// Returns the same bytes as the fewest runs, in order.
pub fn joined(mut runs: Vec<Extent>) -> Vec<Extent> {
    runs.retain(|run| run.len > 0);
    runs.sort_unstable();
    let mut all: Vec<Extent> = Vec::with_capacity(runs.len());
    for run in runs {
        match all.last_mut() {
            Some(last) if run.start <= last.end() => {
                last.len = last.end().max(run.end()) - last.start;
            }
            _ => all.push(run),
        }
    }
    all
}

/// Returns the bytes of `runs` that are in none of `others`, as the fewest runs, in order.
pub fn without(runs: &[Extent], others: &[Extent]) -> Vec<Extent> {
    let others = joined(others.to_vec());
    let mut left = Vec::new();
    for run in runs {
        let mut start = run.start;
        for other in others.iter().filter(|other| other.end() > run.start) {
            if other.start >= run.end() {
                break;
            }
            left.push(between(start, other.start));
            start = start.max(other.end());
        }
        left.push(between(start, run.end()));
    }
    joined(left)
}

/// Returns the bytes that are in both, as the fewest runs, in order.
pub fn within(runs: &[Extent], others: &[Extent]) -> Vec<Extent> {
    without(runs, &without(runs, others))
}

/// Returns the sum of the lengths, bytes.
pub fn bytes(runs: &[Extent]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

fn between(start: u64, end: u64) -> Extent {
    Extent {
        start,
        len: end.saturating_sub(start),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(runs: &[Extent]) -> Vec<bool> {
        (0..100)
            .map(|at| runs.iter().any(|run| (run.start..run.end()).contains(&at)))
            .collect()
    }

    fn runs() -> impl Strategy<Value = Vec<Extent>> {
        let run = (0_u64..90, 0_u64..10).prop_map(|(start, len)| Extent { start, len });
        prop::collection::vec(run, 0..8)
    }

    proptest! {
        #[test]
        fn runs_are_joined_subtracted_and_intersected_byte_by_byte(a in runs(), b in runs()) {
            let (a_set, b_set) = (set(&a), set(&b));
            prop_assert_eq!(set(&joined(a.clone())), a_set.clone());
            let both = |of: fn(bool, bool) -> bool| -> Vec<bool> {
                a_set.iter().zip(&b_set).map(|(a, b)| of(*a, *b)).collect()
            };
            prop_assert_eq!(set(&without(&a, &b)), both(|a, b| a && !b));
            prop_assert_eq!(set(&within(&a, &b)), both(|a, b| a && b));
            for all in [joined(a.clone()), without(&a, &b), within(&a, &b)] {
                prop_assert!(all.windows(2).all(|pair| pair[0].end() < pair[1].start));
            }
        }
    }
}

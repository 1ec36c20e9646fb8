//! Chooses the place of a new partition in the free space of a drive. Pure.

use super::EXTENT_BYTES;
use drivebay_model::{Extent, Placed, Placement, RecordState};

/// Returns the place of a new partition of this size; None if no free run is large enough.
///
/// `Spread`: a partition can grow into the free run behind it. The result is the run, and within it
/// the start, that leaves the new partition and the one before the run the most room in proportion
/// to their sizes: both could grow by the same factor. `growable` are the partitions that can grow.
/// `Pack`: the start of the smallest run.
pub fn place(
    free: &[Extent],
    growable: &[Extent],
    size: u64,
    placement: Placement,
) -> Option<Extent> {
    let fitting = free.iter().filter(|run| run.len >= size);
    let start = match placement {
        Placement::Pack => fitting.min_by_key(|run| run.len)?.start,
        Placement::Spread => {
            let before = |run: &Extent| {
                let neighbour = growable.iter().find(|of| of.end() == run.start);
                neighbour.map_or(0, |of| of.len)
            };
            // Room in proportion to size, compared as fractions without dividing.
            let (run, neighbour) =
                fitting
                    .map(|run| (run, before(run)))
                    .min_by(|(a, before_a), (b, before_b)| {
                        let room = |run: &Extent, other: u64| {
                            u128::from(run.len - size) * u128::from(other.saturating_add(size))
                        };
                        room(b, *before_a).cmp(&room(a, *before_b))
                    })?;
            run.start + share(run.len - size, neighbour, size)
        }
    };
    Some(Extent { start, len: size })
}

/// Returns the part of this room that a partition gets before a new one, in proportion to their
/// sizes; less if both parts together would otherwise hold fewer partitions of the new one's size
/// than the room does.
fn share(room: u64, neighbour: u64, size: u64) -> u64 {
    let all = u128::from(neighbour) + u128::from(size);
    let part = u128::from(room) * u128::from(neighbour) / all.max(1);
    // At most `room`, so that it fits.
    let part = u64::try_from(part).unwrap_or(room);
    let size = size.max(1);
    let part = part / size * size + (part % size).min(room % size);
    part / EXTENT_BYTES * EXTENT_BYTES
}

/// Returns the free runs that remain when a place in one of them is taken.
pub fn without(free: &[Extent], taken: Extent) -> Vec<Extent> {
    let pieces = |run: &Extent| {
        let start = run.end().min(taken.start).max(run.start);
        let end = run.start.max(taken.end()).min(run.end());
        [(run.start, start), (end, run.end())]
    };
    let beside = free.iter().flat_map(|run| {
        if super::overlap(*run, taken) {
            pieces(run)
        } else {
            [(run.start, run.end()), (run.end(), run.end())]
        }
    });
    beside
        .filter(|(start, end)| start < end)
        .map(|(start, end)| Extent {
            start,
            len: end - start,
        })
        .collect()
}

/// Returns the extents of the volumes that can grow: those that are neither ambiguous nor being
/// created or erased.
pub fn growable(volumes: &[Placed]) -> Vec<Extent> {
    volumes
        .iter()
        .filter(|placed| {
            placed.ambiguous.is_none()
                && !matches!(
                    placed.record.state,
                    RecordState::Creating | RecordState::Erasing { .. }
                )
        })
        .map(|placed| placed.record.extent)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{free_runs, growth_limit, overlap};
    use drivebay_model::{MIB, samples::placed};

    fn run(start: u64, len: u64) -> Extent {
        Extent {
            start: start * MIB,
            len: len * MIB,
        }
    }

    /// Returns the places of volumes of these sizes on a drive, one after another.
    fn lie(drive: Extent, sizes: &[u64], placement: Placement) -> Vec<Extent> {
        let mut placed = Vec::new();
        for size in sizes {
            let free = free_runs(drive, &placed);
            placed.extend(place(&free, &placed, size * MIB, placement));
        }
        placed
    }

    #[test]
    fn spread_leaves_equal_volumes_equal_room_behind_each() {
        let lies = lie(run(8, 80), &[10, 10, 10], Placement::Spread);
        // Each one halves the room behind another.
        assert_eq!(lies, [run(8, 10), run(48, 10), run(28, 10)]);
    }

    #[test]
    fn spread_leaves_room_in_proportion_to_size() {
        let lies = lie(run(0, 100), &[30, 10], Placement::Spread);
        // 60 are free: 45 for the one of 30 and 15 for the one of 10 would be room for five more of
        // 10, and not for six.
        assert_eq!(lies, [run(0, 30), run(70, 10)]);
    }

    #[test]
    fn spread_takes_the_start_of_a_run_behind_which_nothing_grows() {
        let free = [run(10, 20), run(50, 8)];
        let placed = place(&free, &[run(40, 10)], 4 * MIB, Placement::Spread);
        assert_eq!(placed, Some(run(10, 4)));
        // In the other run both would get less for their size, although it has no neighbour.
        let placed = place(&free, &[run(4, 6)], 4 * MIB, Placement::Spread);
        assert_eq!(placed, Some(run(10 + 16 * 6 / 10 / 4 * 4, 4)));
    }

    #[test]
    fn spread_takes_the_run_that_leaves_the_most_room_for_the_size_of_both() {
        // A free run and the partition before it, and another such pair; true if the first run is
        // chosen.
        for (size, first, second, takes_first) in [
            // 1 for 10, and 22 for 200.
            (8, (9, 2), (30, 192), false),
            // 100 for 300, and 20 for 50.
            (10, (110, 290), (30, 40), false),
            // 9 for 20, and 10 for 30.
            (10, (19, 10), (20, 20), true),
        ] {
            let of = |at: u64, (len, before): (u64, u64)| (run(at, before), run(at + before, len));
            let ((grows, free), (grows_too, free_too)) = (of(0, first), of(1000, second));
            for free in [[free, free_too], [free_too, free]] {
                let extent = place(&free, &[grows, grows_too], size * MIB, Placement::Spread);
                let is_first = extent.unwrap().start < 1000 * MIB;
                assert_eq!(is_first, takes_first, "{size}: {first:?}, {second:?}");
            }
        }
    }

    #[test]
    fn room_is_shared_by_size_unless_that_costs_a_place() {
        let share = |room, neighbour, size| share(room * MIB, neighbour * MIB, size * MIB) / MIB;
        assert_eq!(share(70, 30, 30), 35);
        // By size it would be 46, which leaves one place of 30 less than the two that 70 holds.
        assert_eq!(share(70, 60, 30), 40);
        assert_eq!(share(70, 0, 30), 0);
    }

    #[test]
    fn only_volumes_that_live_and_are_known_well_may_grow() {
        let at = |number: u64, state: RecordState| {
            let mut placed = placed(u128::from(number), state);
            placed.record.extent = run(100 * number, 10);
            placed
        };
        let unclear = Placed {
            ambiguous: Some("two records".into()),
            ..at(3, RecordState::New)
        };
        let volumes = [
            at(1, RecordState::Creating),
            at(2, RecordState::New),
            unclear,
            at(
                4,
                RecordState::Erasing {
                    erase_guid: uuid::Uuid::nil(),
                    done_bytes: 0,
                },
            ),
        ];
        assert_eq!(growable(&volumes), [run(200, 10)]);
    }

    #[test]
    fn pack_takes_the_smallest_run_that_fits_and_its_start() {
        let free = [run(10, 20), run(50, 8), run(70, 8), run(90, 3)];
        let pack = |size| place(&free, &[run(40, 10)], size * MIB, Placement::Pack);
        assert_eq!(pack(3), Some(run(90, 3)));
        assert_eq!(pack(4), Some(run(50, 4)));
        assert_eq!(pack(9), Some(run(10, 9)));
        assert_eq!(pack(21), None);
    }

    #[test]
    fn sizes_near_the_largest_number_do_not_overflow() {
        let all = Extent {
            start: 0,
            len: u64::MAX / EXTENT_BYTES * EXTENT_BYTES,
        };
        let grows = Extent { start: 0, len: 0 };
        for placement in [Placement::Spread, Placement::Pack] {
            assert_eq!(place(&[all], &[grows], all.len, placement), Some(all));
        }
    }

    #[test]
    fn what_is_taken_from_free_runs_is_no_longer_among_them() {
        let free = [run(0, 10), run(20, 10)];
        assert_eq!(without(&free, run(0, 10)), [run(20, 10)]);
        assert_eq!(
            without(&free, run(2, 3)),
            [run(0, 2), run(5, 5), run(20, 10)]
        );
        assert_eq!(without(&free, run(20, 4)), [run(0, 10), run(24, 6)]);
        assert_eq!(without(&free, run(26, 4)), [run(0, 10), run(20, 6)]);
    }

    proptest! {
        /// Equal volumes that fill at most a quarter of a drive can each be doubled, regardless of
        /// their number.
        #[test]
        fn equal_volumes_can_all_be_doubled_while_a_quarter_of_the_drive_is_used(
            count in 1_u64..20, size in 1_u64..50, more in 0_u64..100,
        ) {
            let drive = run(8, 4 * count * (size + 1) + more);
            let lies = lie(drive, &vec![size; usize::try_from(count).unwrap()], Placement::Spread);
            prop_assert_eq!(lies.len() as u64, count);
            let mut now = lies.clone();
            for at in 0..now.len() {
                let limit = growth_limit(&free_runs(drive, &now), now[at]);
                prop_assert!(limit >= 2 * size * MIB, "{:?}", lies);
                now[at].len = 2 * size * MIB;
            }
        }

        #[test]
        fn room_to_grow_costs_no_place_of_an_equal_volume(drive in 1_u64..400, size in 1_u64..60) {
            let many = vec![size; usize::try_from(drive / size + 2).unwrap()];
            let lies = lie(run(8, drive), &many, Placement::Spread);
            prop_assert_eq!(lies.len() as u64, drive / size, "{:?}", lies);
        }

        #[test]
        fn a_place_is_aligned_and_free_and_is_found_whenever_one_is_large_enough(
            sizes in prop::collection::vec((1_u64..40, any::<bool>()), 1..20),
        ) {
            let drive = run(8, 200);
            let mut placed: Vec<Extent> = Vec::new();
            for (size, spread) in sizes {
                let placement = if spread { Placement::Spread } else { Placement::Pack };
                let free = free_runs(drive, &placed);
                let extent = place(&free, &placed, size * MIB, placement);
                prop_assert_eq!(extent.is_some(), free.iter().any(|run| run.len >= size * MIB));
                let Some(extent) = extent else { continue };
                prop_assert!(extent.start % EXTENT_BYTES == 0 && extent.len == size * MIB);
                prop_assert!(free.iter().any(|run| run.start <= extent.start && extent.end() <= run.end()));
                prop_assert!(placed.iter().all(|other| !overlap(*other, extent)));
                placed.push(extent);
                prop_assert_eq!(without(&free, extent), free_runs(drive, &placed));
            }
        }
    }
}

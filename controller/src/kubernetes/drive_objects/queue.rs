//! The most urgent writes of a plan, bounded while they are planned.

use std::collections::BTreeMap;

use super::watched::WatchedObject;
use drivebay_objects::drive::DriveStatus;

/// Version of an object that a write replaces or deletes. The API server answers with a conflict if there is a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) uid: Box<str>,
    pub(super) version: Box<str>,
}

impl Version {
    pub(super) fn of(object: &WatchedObject) -> Self {
        Self {
            uid: object.uid.clone(),
            version: object.version.clone(),
        }
    }
}

/// Priority of a write, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// A drive that is missing or has a verdict other than GOOD and UNKNOWN.
    Trouble,
    /// Another drive that changed, or has no object.
    Change,
    /// Sizes, volumes, messages; deletions.
    Minor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    /// `replaces`: version that was compared; None: no object was watched. Then an object that another replica creates meanwhile is
    /// written again without a conflict.
    Apply {
        status: Box<DriveStatus>,
        replaces: Option<Version>,
    },
    /// Sets the condition AgentConnected to False, and nothing else.
    MarkDisconnected(Version),
    Delete(Version),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedWrite {
    pub(super) name: String,
    pub(super) urgency: Urgency,
    pub(super) operation: Operation,
}

/// Result of a plan.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// In the order in which they are to be sent.
    pub(super) writes: Vec<PlannedWrite>,
    /// Number of writes that were left out because of the limit. The next plan finds them again.
    pub(super) over: usize,
}

/// Keeps the `limit` most urgent writes that it is offered. A status may have up to 128 KiB, so one that is not kept is dropped at once,
/// or not built.
#[derive(Debug)]
pub(super) struct WriteQueue {
    limit: usize,
    seed: u64,
    // The seeded hash orders writes of one urgency.
    kept: BTreeMap<(Urgency, u64, String), Operation>,
    over: usize,
}

impl WriteQueue {
    /// `seed`: differs between replicas, so that they do not write the same objects at the same time.
    pub(super) fn new(limit: usize, seed: u64) -> Self {
        Self {
            limit,
            seed,
            kept: BTreeMap::new(),
            over: 0,
        }
    }

    /// Calls `operation` only if the write is kept, as far as writes that follow do not displace it.
    pub(super) fn offer(
        &mut self,
        name: &str,
        urgency: Urgency,
        operation: impl FnOnce() -> Operation,
    ) {
        let hash = seeded_hash(self.seed, name);
        if self.kept.len() >= self.limit {
            self.over = self.over.saturating_add(1);
            let is_last = self
                .kept
                .last_key_value()
                .is_none_or(|(last, _)| (urgency, hash, name) >= (last.0, last.1, last.2.as_str()));
            if is_last {
                return;
            }
            self.kept.pop_last();
        }
        let key = (urgency, hash, name.to_owned());
        self.kept.insert(key, operation());
    }

    pub(super) fn finish(self) -> Planned {
        let writes = self.kept.into_iter();
        let writes = writes.map(|((urgency, _, name), operation)| PlannedWrite {
            name,
            urgency,
            operation,
        });
        Planned {
            writes: writes.collect(),
            over: self.over,
        }
    }
}

/// FNV-1a, begun with a seed.
fn seeded_hash(seed: u64, name: &str) -> u64 {
    let begin = seed ^ 0xcbf2_9ce4_8422_2325;
    let hash = name.bytes().fold(begin, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // Only the upper half depends on all bytes.
    hash.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn delete() -> Operation {
        Operation::Delete(Version {
            uid: "u".into(),
            version: "1".into(),
        })
    }

    fn names(planned: &Planned) -> Vec<&str> {
        let writes = planned.writes.iter();
        writes.map(|write| write.name.as_str()).collect()
    }

    #[test]
    fn keeps_the_most_urgent_writes_and_counts_those_left_out() {
        let mut queue = WriteQueue::new(2, 1);
        for (name, urgency) in [
            ("minor", Urgency::Minor),
            ("change", Urgency::Change),
            ("other-minor", Urgency::Minor),
            ("trouble", Urgency::Trouble),
        ] {
            queue.offer(name, urgency, delete);
            assert!(queue.kept.len() <= 2, "{:?}", queue.kept);
        }
        let planned = queue.finish();
        assert_eq!(names(&planned), ["trouble", "change"]);
        assert_eq!(planned.over, 2);
    }

    #[test]
    fn a_write_that_is_left_out_is_not_built() {
        let built = Cell::new(0);
        let mut queue = WriteQueue::new(10, 1);
        for number in 0..10 {
            queue.offer(&format!("trouble-{number}"), Urgency::Trouble, delete);
        }
        for number in 0..1000 {
            queue.offer(&format!("change-{number}"), Urgency::Change, || {
                built.set(built.get() + 1);
                delete()
            });
        }
        assert_eq!((built.get(), queue.finish().over), (0, 1000));
    }

    #[test]
    fn nothing_is_left_out_of_a_queue_that_has_room() {
        let mut queue = WriteQueue::new(3, 1);
        for name in ["a", "b", "c"] {
            queue.offer(name, Urgency::Change, delete);
        }
        let planned = queue.finish();
        assert_eq!((planned.writes.len(), planned.over), (3, 0));
    }

    #[test]
    fn replicas_order_writes_of_one_urgency_differently() {
        let order = |seed| {
            let mut queue = WriteQueue::new(100, seed);
            for number in 0..100 {
                queue.offer(&format!("wwn-{number}"), Urgency::Change, delete);
            }
            let writes = queue.finish().writes.into_iter();
            writes.map(|write| write.name).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        let same = order(1).into_iter().zip(order(2));
        let same = same.filter(|(a, b)| a == b).count();
        assert!(same < 20, "{same}");
    }
}

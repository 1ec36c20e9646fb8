//! Counts of drive tasks.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// End of a task that this process wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskResult {
    Succeeded,
    Failed,
}

impl TaskResult {
    pub const ALL: &[Self] = &[Self::Succeeded, Self::Failed];

    /// Returns the value of the metric's label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }
}

/// Tasks that ended since the start of this process, and existing ones by phase.
#[derive(Debug, Default)]
pub struct DriveTaskCounts {
    results: [AtomicU64; TaskResult::ALL.len()],
    unfinished: Mutex<BTreeMap<&'static str, u64>>,
}

impl DriveTaskCounts {
    pub fn count(&self, result: TaskResult) {
        if let Some(count) = self.results.get(result as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of every result, zero counts included.
    pub fn results(&self) -> impl Iterator<Item = (TaskResult, u64)> {
        let counts = self.results.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        TaskResult::ALL.iter().copied().zip(counts)
    }

    /// Sets the numbers of unfinished tasks. `phases`: of each of them, in lower case.
    pub fn set_unfinished(&self, phases: impl Iterator<Item = &'static str>) {
        let mut counts = BTreeMap::from([("pending", 0), ("running", 0)]);
        for phase in phases {
            *counts.entry(phase).or_default() += 1;
        }
        *self
            .unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Returns the numbers of unfinished tasks by phase.
    pub fn unfinished(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.unfinished.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

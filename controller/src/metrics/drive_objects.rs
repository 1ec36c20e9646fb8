//! Counters of what was written to the API server about drives.

use std::sync::atomic::{AtomicU64, Ordering};

/// What came of a request that writes the object of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Updated,
    Deleted,
    /// Another controller, or a person, was first.
    Conflict,
    Failed,
}

impl Outcome {
    pub const ALL: &[Self] = &[
        Self::Created,
        Self::Updated,
        Self::Deleted,
        Self::Conflict,
        Self::Failed,
    ];

    /// Returns the value of the metric's label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// Counts since the start of this process.
#[derive(Debug, Default)]
pub struct DriveObjectWrites {
    counts: [AtomicU64; Outcome::ALL.len()],
}

impl DriveObjectWrites {
    pub fn count(&self, outcome: Outcome) {
        if let Some(count) = self.counts.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of every outcome, zero counts included.
    pub fn all(&self) -> impl Iterator<Item = (Outcome, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Outcome::ALL.iter().copied().zip(counts)
    }
}

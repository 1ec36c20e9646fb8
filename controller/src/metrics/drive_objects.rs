//! Counts of requests to the API server that write Drive objects.

use std::sync::atomic::{AtomicU64, Ordering};

/// Result of a request that writes a Drive object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    /// No object was watched before; another replica may have created it meanwhile.
    Created,
    Updated,
    Deleted,
    /// Another client had written the object.
    Conflict,
    Failed,
}

impl WriteResult {
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
    counts: [AtomicU64; WriteResult::ALL.len()],
}

impl DriveObjectWrites {
    pub fn count(&self, result: WriteResult) {
        if let Some(count) = self.counts.get(result as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of every result, zero counts included.
    pub fn all(&self) -> impl Iterator<Item = (WriteResult, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        WriteResult::ALL.iter().copied().zip(counts)
    }
}

//! Evidence that the tasks of this crate collect for one another, for metrics and for commands.

use std::sync::Arc;

use tokio::sync::Notify;

use drivebay_evidence::suspects::Suspects;
use drivebay_smart::{LatestCounters, LatestPolls, slow::LatestSpeeds};

/// Shared handle: clones refer to the same data, which is in memory only.
#[derive(Debug, Clone, Default)]
pub struct CollectedEvidence {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    polls: LatestPolls,
    counters: LatestCounters,
    speeds: LatestSpeeds,
    suspects: Suspects,
    poll_requested: Notify,
}

impl CollectedEvidence {
    /// Returns the last SMART poll of each drive.
    pub fn polls(&self) -> &LatestPolls {
        &self.inner.polls
    }

    /// Returns the values of each drive's SMART counters in the last week.
    pub fn counters(&self) -> &LatestCounters {
        &self.inner.counters
    }

    /// Returns the latencies of each drive in the last minute.
    pub fn speeds(&self) -> &LatestSpeeds {
        &self.inner.speeds
    }

    /// Returns the places of drives that were reported as unreadable, and were not read since.
    pub fn suspects(&self) -> &Suspects {
        &self.inner.suspects
    }

    /// Requests a SMART poll of every drive now instead of at the next interval.
    pub fn request_polls(&self) {
        self.inner.poll_requested.notify_one();
    }

    /// Waits until [`request_polls`](Self::request_polls) is called. Returns at once if it was called since the last wait; several calls
    /// count as one.
    pub(crate) async fn polls_requested(&self) {
        self.inner.poll_requested.notified().await;
    }
}

//! Evidence that the tasks of this crate collect for one another and for those who show it.

use std::sync::Arc;

use tokio::sync::Notify;

use drivebay_evidence::suspects::Suspects;
use drivebay_smart::{LatestPolls, slow::LatestSpeeds};

/// Cheap to clone; every clone is the same one. In memory only.
#[derive(Debug, Clone, Default)]
pub struct CollectedEvidence {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    polls: LatestPolls,
    speeds: LatestSpeeds,
    suspects: Suspects,
    poll_requested: Notify,
}

impl CollectedEvidence {
    /// The last SMART poll of each drive.
    pub fn polls(&self) -> &LatestPolls {
        &self.inner.polls
    }

    /// The latencies of each drive in the last minute.
    pub fn speeds(&self) -> &LatestSpeeds {
        &self.inner.speeds
    }

    /// Places of drives that were reported as unreadable, and are not read again yet.
    pub fn suspects(&self) -> &Suspects {
        &self.inner.suspects
    }

    /// Has every drive polled now instead of at the next interval.
    pub fn request_polls(&self) {
        self.inner.poll_requested.notify_one();
    }

    /// Waits for such a request.
    pub(crate) async fn polls_requested(&self) {
        self.inner.poll_requested.notified().await;
    }
}

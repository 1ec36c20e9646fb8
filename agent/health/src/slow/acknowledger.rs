//! Sends acknowledgements to the task that compares latencies.

use tokio::sync::{mpsc, oneshot};

use crate::acknowledge::AcknowledgeError;
use drivebay_model::{DriveId, Finding};

/// Limit of queued requests: they come one at a time.
const QUEUE: usize = 1;

/// Sends the acknowledgement that a drive is slow to the task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<SlowdownRequest>);

#[derive(Debug)]
pub struct SlowdownRequest {
    pub(super) drive: DriveId,
    /// True to withdraw: acknowledged findings count again.
    pub(super) withdraw: bool,
    pub(super) done: oneshot::Sender<Result<Vec<Finding>, AcknowledgeError>>,
}

impl Acknowledger {
    /// Returns the handle, and the receiver for the task.
    pub fn new() -> (Self, mpsc::Receiver<SlowdownRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Acknowledges, or withdraws if `withdraw`, and returns the newly acknowledged findings once that is durable.
    pub async fn send(
        &self,
        drive: DriveId,
        withdraw: bool,
    ) -> Result<Vec<Finding>, AcknowledgeError> {
        let (done, answer) = oneshot::channel();
        let stopping = || AcknowledgeError::Stopping;
        let request = SlowdownRequest {
            drive,
            withdraw,
            done,
        };
        let sent = self.0.send(request).await;
        sent.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

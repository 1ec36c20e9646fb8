//! Hands acknowledgements to the task that compares.

use tokio::sync::{mpsc, oneshot};

use crate::acknowledge::AcknowledgeError;
use drivebay_model::{DriveId, Finding};

/// Acknowledgements come one at a time.
const QUEUE: usize = 1;

/// Hands over that an operator has seen that a drive is slow. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<SlowdownRequest>);

/// One acknowledgement.
#[derive(Debug)]
pub struct SlowdownRequest {
    pub(super) drive: DriveId,
    /// What was acknowledged counts again.
    pub(super) withdraw: bool,
    pub(super) done: oneshot::Sender<Result<Vec<Finding>, AcknowledgeError>>,
}

impl Acknowledger {
    /// The handle, and what the task takes.
    pub fn new() -> (Self, mpsc::Receiver<SlowdownRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Answers what is acknowledged by it, when that is durable. `withdraw`: nothing is any more.
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

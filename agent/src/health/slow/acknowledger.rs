//! Hands acknowledgements to the task that compares.

use tokio::sync::{mpsc, oneshot};

use crate::{
    health::acknowledge::AcknowledgeError,
    model::{DriveId, Finding},
};

/// Acknowledgements come one at a time.
const QUEUE: usize = 1;

/// Hands over that an operator has seen that a drive is slow. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<Request>);

/// One acknowledgement.
#[derive(Debug)]
pub struct Request {
    pub(super) drive: DriveId,
    pub(super) done: oneshot::Sender<Result<Vec<Finding>, AcknowledgeError>>,
}

impl Acknowledger {
    /// The handle, and what the task takes.
    pub fn new() -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Answers what does not count any more, when that is durable.
    pub(in crate::health) async fn acknowledge(
        &self,
        drive: DriveId,
    ) -> Result<Vec<Finding>, AcknowledgeError> {
        let (done, answer) = oneshot::channel();
        let stopping = || AcknowledgeError::Stopping;
        let sent = self.0.send(Request { drive, done }).await;
        sent.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

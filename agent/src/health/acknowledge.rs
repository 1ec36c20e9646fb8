//! An operator's word that what a drive says is known: on its way to the task that keeps the histories, and what it does
//! to one of them. The latter is pure.

use tokio::sync::{mpsc, oneshot};

use crate::{
    model::{DriveId, Finding, Verdict, health::SmartFinding},
    smart::{Acknowledgement, History, rules},
};

/// Acknowledgements that wait for their turn.
const QUEUE: usize = 16;

/// What an acknowledgement did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What does not count any more unless it gets worse.
    pub acknowledged: Vec<SmartFinding>,
    /// What goes on counting.
    pub remaining: Vec<Finding>,
    /// What the drive's verdict is now.
    pub verdict: Verdict,
    /// The inventory that shows it.
    pub revision: u64,
}

/// Why nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AcknowledgeError {
    /// Nothing is kept of it.
    #[error(
        "drive {0} is not asked how it is, so there is nothing to acknowledge: only drives that are here and that a class selects are"
    )]
    NotAsked(DriveId),
    /// It would be forgotten at the next start.
    #[error(
        "the acknowledgement for drive {drive} cannot be written, so nothing was changed; see to the state directory"
    )]
    Write {
        drive: DriveId,
        #[source]
        source: std::io::Error,
    },
    /// Nobody takes it.
    #[error("the agent is stopping; try again")]
    Stopping,
}

/// One acknowledgement.
#[derive(Debug)]
pub struct Request {
    pub(super) drive: DriveId,
    pub(super) ack: Acknowledgement,
    pub(super) done: oneshot::Sender<Result<Done, AcknowledgeError>>,
}

/// Asks for acknowledgements. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<Request>);

impl Acknowledger {
    /// The handle, and what the task takes.
    pub fn new() -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Takes what this drive says as known. Durable when it is answered.
    pub async fn acknowledge(
        &self,
        drive: DriveId,
        ack: Acknowledgement,
    ) -> Result<Done, AcknowledgeError> {
        let (done, answer) = oneshot::channel();
        let request = Request { drive, ack, done };
        let stopping = || AcknowledgeError::Stopping;
        self.0.send(request).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

/// Acknowledges what the history holds, at `now` (seconds since 1970). Answers what does not count any more: what was
/// found last, and what a verdict was still held for.
pub(super) fn acknowledge(
    history: &mut History,
    ack: &Acknowledgement,
    now: u64,
) -> Vec<SmartFinding> {
    let held = history.reasons().to_vec();
    let mut done = history.acknowledge(ack, now);
    let same =
        |a: &rules::Finding, b: &rules::Finding| (a.code, &a.subject) == (b.code, &b.subject);
    for reason in held {
        let stays = history.reasons().iter().any(|left| same(left, &reason));
        if !stays && !done.iter().any(|known| same(known, &reason)) {
            done.push(reason);
        }
    }
    done.iter().map(to_smart_finding).collect()
}

/// A finding in the inventory's words.
pub(super) fn to_smart_finding(finding: &rules::Finding) -> SmartFinding {
    SmartFinding {
        code: finding.code.as_str().to_owned(),
        subject: finding.subject.clone(),
        value: finding.value,
        threshold: finding.threshold,
        message: finding.message.clone(),
        acknowledged: finding.acknowledged,
    }
}

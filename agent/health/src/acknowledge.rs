//! Requests to acknowledge a drive's findings, sent to the task that has the histories.

use tokio::sync::{mpsc, oneshot};

use drivebay_model::{DriveHealth, DriveId, Verdict, health::SmartFinding};
use drivebay_node::state::StateError;
use drivebay_smart::{Acknowledgement, history::Trends, rules};

/// Limit of queued requests.
const QUEUE: usize = 16;

/// Result of an acknowledgement or its withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// True if nothing changed.
    pub nothing: bool,
    /// Findings that are acknowledged by it.
    pub acknowledged: Vec<SmartFinding>,
    /// Health of the drive afterwards.
    pub health: DriveHealth,
    /// Revision of the inventory that has it.
    pub revision: u64,
}

/// Error of an acknowledgement or its withdrawal: nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AcknowledgeError {
    #[error(
        "drive {0} is not monitored: it is missing or in no class, so it has no findings to acknowledge"
    )]
    NotMonitored(DriveId),
    #[error(
        "drive {drive} is {}, and its findings are acknowledged only with its identity as confirmation, which is {drive}",
        Verdict::Bad
    )]
    NotConfirmed { drive: DriveId },
    #[error(
        "nothing was acknowledged of drive {drive}: {findings}. Look at its findings again, and name all that are to be acknowledged"
    )]
    NotNamed { drive: DriveId, findings: String },
    #[error(
        "drive {drive} cannot be used for new volumes by an acknowledgement: {codes} is its state now and cannot be \
         acknowledged. Acknowledge it without use, or override its verdict in the config ([[health.override]])"
    )]
    StateCounts { drive: DriveId, codes: String },
    #[error(
        "cannot write the acknowledgement for drive {drive}; nothing was changed. Check the state directory"
    )]
    Write {
        drive: DriveId,
        #[source]
        source: StateError,
    },
    #[error("the agent is stopping; try again")]
    Stopping,
}

/// A finding that an operator has seen, with the largest value that is acknowledged. Without a subject and a value if it is not from SMART data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFinding {
    pub code: String,
    pub subject: String,
    pub value: u64,
}

/// Decision of an operator.
#[derive(Debug)]
pub enum Order {
    /// `confirmed`: the identity was given as confirmation, without which nothing is acknowledged of a BAD drive.
    Acknowledge {
        ack: Acknowledgement,
        confirmed: bool,
        /// Nothing is acknowledged if another finding counts, or one of these is worse than named. Empty: all findings are acknowledged.
        named: Vec<NamedFinding>,
    },
    Withdraw {
        by: String,
    },
}

#[derive(Debug)]
pub struct AcknowledgeRequest {
    pub(super) drive: DriveId,
    pub(super) order: Order,
    pub(super) done: oneshot::Sender<Result<Done, AcknowledgeError>>,
}

/// Sends decisions of operators to the task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<AcknowledgeRequest>);

impl Acknowledger {
    /// Returns the handle, and the receiver for the task.
    pub fn new() -> (Self, mpsc::Receiver<AcknowledgeRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Executes a decision. It is durable when this returns.
    pub async fn send(&self, drive: DriveId, order: Order) -> Result<Done, AcknowledgeError> {
        let (done, answer) = oneshot::channel();
        let request = AcknowledgeRequest { drive, order, done };
        let stopping = || AcknowledgeError::Stopping;
        self.0.send(request).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

/// Converts a finding for the inventory.
pub(super) fn to_smart_finding(finding: &rules::RuleFinding, trends: &Trends) -> SmartFinding {
    SmartFinding {
        code: finding.code.as_str().to_owned(),
        subject: finding.subject.clone(),
        value: finding.value,
        threshold: finding.threshold,
        reading: finding.reading(trends),
        message: finding.message.clone(),
        acknowledged: finding.acknowledged,
    }
}

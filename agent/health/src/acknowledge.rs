//! Acknowledgements of a drive's findings, on their way to the task that keeps the histories.

use tokio::sync::{mpsc, oneshot};

use drivebay_model::{DriveHealth, DriveId, Verdict, health::SmartFinding};
use drivebay_node::state::StateError;
use drivebay_smart::{Acknowledgement, history::Trends, rules};

/// Acknowledgements that wait for their turn.
const QUEUE: usize = 16;

/// What an acknowledgement or its withdrawal did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Nothing was different before.
    pub nothing: bool,
    /// What is acknowledged by it.
    pub acknowledged: Vec<SmartFinding>,
    /// How well the drive is afterwards.
    pub health: DriveHealth,
    /// The inventory that shows it.
    pub revision: u64,
}

/// Why nothing was acknowledged or withdrawn.
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

/// What an operator decided.
#[derive(Debug)]
pub enum Order {
    /// Acknowledge; `confirmed`: the identity was spelled out, without which nothing is acknowledged of a BAD drive.
    Acknowledge {
        ack: Acknowledgement,
        confirmed: bool,
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

/// Hands over what an operator decided. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acknowledger(mpsc::Sender<AcknowledgeRequest>);

impl Acknowledger {
    /// The handle, and what the task takes.
    pub fn new() -> (Self, mpsc::Receiver<AcknowledgeRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Carries it out. Durable when it is answered.
    pub async fn send(&self, drive: DriveId, order: Order) -> Result<Done, AcknowledgeError> {
        let (done, answer) = oneshot::channel();
        let request = AcknowledgeRequest { drive, order, done };
        let stopping = || AcknowledgeError::Stopping;
        self.0.send(request).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

/// A finding in the inventory's words.
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

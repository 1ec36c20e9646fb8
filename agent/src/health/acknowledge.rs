//! An operator's word that what a drive says is known: on its way to the task that keeps the histories, and what it does
//! to one of them. The latter is pure.

use tokio::sync::{mpsc, oneshot};

use crate::{
    model::{DriveId, Finding, Verdict, health::SmartFinding},
    smart::{Acknowledgement, History, rules},
    state::StateError,
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
        source: StateError,
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

/// Whether there is nothing that an acknowledgement would change: what it would take as known (`done`) is known already, and
/// nothing but what the drive says of its state counts against the drive (`counts`). Pure.
pub(super) fn is_nothing(history: &History, done: &[SmartFinding], counts: &[Finding]) -> bool {
    let known = |one: &SmartFinding| {
        history.findings().iter().any(|finding| {
            finding.acknowledged
                && (finding.code.as_str(), &finding.subject) == (&one.code, &one.subject)
        })
    };
    let says_itself = |one: &Finding| {
        let mut reasons = history.reasons().iter();
        reasons.any(|reason| reason.code.as_str() == one.code)
    };
    done.iter().all(known) && counts.iter().all(says_itself)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smart::{Thresholds, collect, judge};

    const DRIVES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/smart/fixtures/drives");

    #[test]
    fn an_acknowledgement_of_nothing_new_is_told_from_one_that_changes_something() {
        let ack = Acknowledgement {
            by: "ann".to_owned(),
            note: String::new(),
        };
        let mut history = History::default();
        let done = acknowledge(&mut history.clone(), &ack, 1);
        assert!(is_nothing(&history, &done, &[]));
        let of_kernel = Finding {
            code: "Slow".to_owned(),
            message: String::new(),
        };
        assert!(!is_nothing(&history, &done, &[of_kernel]));

        let bytes = std::fs::read(format!("{DRIVES}/scsi-grown-defects.json")).unwrap();
        let outcome = collect::of_bytes(&bytes);
        judge(&outcome, &mut history, 1, &Thresholds::default(), None);
        let mut known = history.clone();
        let done = acknowledge(&mut known, &ack, 2);
        assert!(!done.is_empty());
        assert!(!is_nothing(&history, &done, &[]));
        // Again, and what the drive says of its state goes on counting.
        let counts: Vec<Finding> = known
            .reasons()
            .iter()
            .map(|reason| Finding {
                code: reason.code.as_str().to_owned(),
                message: String::new(),
            })
            .collect();
        let again = acknowledge(&mut known.clone(), &ack, 3);
        assert!(is_nothing(&known, &again, &counts));
    }
}

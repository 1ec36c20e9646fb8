//! Why an agent gets no session, or its session has ended.

use std::time::Duration;

use tonic::Status;

use super::admission::Refusal;
use crate::{
    bounds::Bound,
    call::CallError,
    inventory::{Gap, UpdateError},
    refusals::Reason,
    tokens::NotProven,
};

/// Why there is no session, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No hello.
    #[error("the agent did not say hello: {0}")]
    Hello(#[source] CallError),
    /// A name that cannot be one.
    #[error("the agent calls itself {0:?}, which is not a node id")]
    NodeId(String),
    /// Its certificate is another node's.
    #[error(
        "the agent at {address} calls itself {said:?}, but its certificate is that of node {certified:?}: it has another node's certificate, or its name was changed; see `certs node`"
    )]
    OtherCertificate {
        /// Where it comes from.
        address: String,
        /// What it says.
        said: String,
        /// What its certificate says.
        certified: String,
    },
    /// Its token is of a pod on another node.
    #[error(
        "the agent at {address} calls itself {said:?}, but its token is of a pod on node {proven:?}: in a cluster [node] name is the name of the Kubernetes node"
    )]
    OtherNode {
        address: String,
        said: String,
        proven: String,
    },
    /// Its token proves nothing.
    #[error("the agent at {address} has not proved which node it is on: {source}")]
    NotProven { address: String, source: NotProven },
    /// It has too many connections.
    #[error("node {0} has too many connections to this controller already")]
    TooMany(String),
    /// It has proved itself once, and does not any more.
    #[error("the agent no longer proves which node it is on: {0}")]
    Unproven(String),
    /// Versions that do not meet.
    #[error(
        "agent {node} ({version}) speaks versions {oldest} to {newest} of the protocol, and this controller {ours_oldest} to {ours}: update the older of the two"
    )]
    Version {
        node: String,
        /// The agent's version.
        version: String,
        /// The oldest it speaks.
        oldest: u32,
        /// The newest it speaks.
        newest: u32,
        /// The oldest spoken here.
        ours_oldest: u32,
        /// The newest spoken here.
        ours: u32,
    },
    /// Not let in.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// It had to show its drives, and did not.
    #[error("the agent with another machine or key has not shown its drives within {} s", .0.as_secs())]
    NotProved(Duration),
    /// The stream of its inventory broke.
    #[error("the inventory stream broke: {}", .0.message())]
    Stream(#[source] Status),
    /// It ended the stream.
    #[error("the agent ended the inventory stream")]
    Ended,
    /// Its updates do not follow from each other.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// It sent more than a node may have.
    #[error(transparent)]
    Bound(#[from] Bound),
    /// The agent has a session here already, and came again through a virtual address.
    #[error("the agent has a session with this controller already")]
    MetAlready,
    /// It did not answer when a newer connection came.
    #[error("a newer connection has replaced it")]
    Replaced,
    /// Ended from here.
    #[error("the controller has ended the session")]
    Stopped,
}

impl SessionError {
    /// Under which reason it is counted; None for what is no refusal.
    pub fn refusal(&self) -> Option<Reason> {
        Some(match self {
            Self::Hello(_) | Self::NodeId(_) => Reason::Hello,
            Self::OtherCertificate { .. } | Self::OtherNode { .. } => Reason::OtherNode,
            Self::NotProven { .. } | Self::Unproven(_) => Reason::Token,
            Self::TooMany(_) => Reason::IdentityConnections,
            Self::Version { .. } => Reason::Protocol,
            Self::Refused(refusal) => match **refusal {
                Refusal::Connected { .. } => Reason::Connected,
                Refusal::NotItsDrives { .. } => Reason::NotItsDrives,
            },
            Self::NotProved(_) => Reason::NotItsDrives,
            Self::Gap(_) => Reason::Updates,
            Self::Bound(bound) => (*bound).into(),
            Self::Stream(_) | Self::Ended | Self::MetAlready | Self::Replaced | Self::Stopped => {
                return None;
            }
        })
    }
}

impl SessionError {
    /// Nodes in whose history it belongs, when their agent has no session that it ended: the one whose proof was shown, and the
    /// one whose name was said.
    pub(super) fn nodes(&self) -> Vec<&str> {
        match self {
            Self::OtherCertificate {
                said,
                certified: proven,
                ..
            }
            | Self::OtherNode { said, proven, .. } => vec![said, proven],
            Self::Version { node, .. } | Self::TooMany(node) => vec![node],
            _ => Vec::new(),
        }
    }

    /// Whether the agent had not shown which node it is, or had too many connections: no node has it in its history as a session.
    pub(super) fn is_before_a_session(&self) -> bool {
        matches!(
            self,
            Self::Hello(_)
                | Self::NodeId(_)
                | Self::OtherCertificate { .. }
                | Self::OtherNode { .. }
                | Self::NotProven { .. }
                | Self::TooMany(_)
                | Self::Version { .. }
        )
    }

    /// What the agent's operator should find in the agent's own log.
    pub(super) fn for_peer(&self) -> Option<String> {
        match self {
            Self::NodeId(_)
            | Self::OtherCertificate { .. }
            | Self::OtherNode { .. }
            | Self::NotProven { .. }
            | Self::TooMany(_)
            | Self::Unproven(_)
            | Self::Version { .. }
            | Self::NotProved(_)
            | Self::Bound(_) => Some(self.to_string()),
            Self::Refused(refusal) => Some(refusal.for_peer()),
            // Its text has the instance and revision of whoever was there before.
            Self::Gap(_) => Some(
                "the inventory updates do not follow from each other; the controller's log says more"
                    .to_owned(),
            ),
            Self::Hello(_)
            | Self::Stream(_)
            | Self::Ended
            | Self::MetAlready
            | Self::Replaced
            | Self::Stopped => None,
        }
    }
}

impl From<UpdateError> for SessionError {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Gap(gap) => Self::Gap(gap),
            UpdateError::Bound(bound) => Self::Bound(bound),
        }
    }
}

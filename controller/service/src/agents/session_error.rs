//! Reasons why an agent gets no session, or its session has ended.

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

/// Reason why there is no session, or why it has ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The hello call failed.
    #[error("the agent did not say hello: {0}")]
    Hello(#[source] CallError),
    /// The agent's node id is malformed.
    #[error("the agent calls itself {0:?}, which is not a node id")]
    NodeId(String),
    /// The agent's certificate is another node's.
    #[error(
        "the agent at {address} calls itself {stated:?}, but its certificate is that of node {certified:?}: it has another node's certificate, or its name was changed; see `certs node`"
    )]
    OtherCertificate {
        /// Address of the peer.
        address: String,
        /// Node id in its hello.
        stated: String,
        /// Node id in its certificate.
        certified: String,
    },
    /// The agent's token is of a pod on another node.
    #[error(
        "the agent at {address} calls itself {stated:?}, but its token is of a pod on node {proven:?}: in a cluster [node] name is the name of the Kubernetes node"
    )]
    OtherNode {
        address: String,
        stated: String,
        proven: String,
    },
    /// The agent's token does not prove a node.
    #[error("the agent at {address} has not proved which node it is on: {source}")]
    NotProven { address: String, source: NotProven },
    /// The identity has as many connections as it may.
    #[error("node {0} has too many connections to this controller already")]
    TooMany(String),
    /// The identity was proved once, and can no longer be.
    #[error("the agent no longer proves which node it is on: {0}")]
    Unproven(String),
    /// The two have no protocol version in common.
    #[error(
        "agent {node} ({version}) speaks versions {oldest} to {newest} of the protocol, and this controller {ours_oldest} to {ours}: update the older of the two"
    )]
    Version {
        node: String,
        version: String,
        /// Oldest protocol version of the agent.
        oldest: u32,
        /// Newest protocol version of the agent.
        newest: u32,
        /// Oldest protocol version of this controller.
        ours_oldest: u32,
        /// Newest protocol version of this controller.
        ours: u32,
    },
    /// Admission was refused. The agent receives [`Refusal::for_peer`] instead of this text.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// The agent had to show drives of the node, and did not in time.
    #[error("the agent with another machine or key has not shown its drives within {} s", .0.as_secs())]
    NotProved(Duration),
    /// The inventory stream failed.
    #[error("the inventory stream broke: {}", .0.message())]
    Stream(#[source] Status),
    /// The agent ended the inventory stream.
    #[error("the agent ended the inventory stream")]
    Ended,
    /// The updates do not follow from each other.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// The node exceeded a bound.
    #[error(transparent)]
    Bound(#[from] Bound),
    /// The agent has a session with this controller already, and was dialled again through a virtual address.
    #[error("the agent has a session with this controller already")]
    MetAlready,
    /// The agent did not answer when a newer connection came, which replaced it.
    #[error("a newer connection has replaced it")]
    Replaced,
    /// The controller ended the session.
    #[error("the controller has ended the session")]
    Stopped,
}

impl SessionError {
    /// Returns the reason under which it counts as a refusal; None if it is none.
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
    /// Returns the nodes to whose history an error before a session belongs: the proved one and the stated one.
    pub(super) fn nodes(&self) -> Vec<&str> {
        match self {
            Self::OtherCertificate {
                stated,
                certified: proven,
                ..
            }
            | Self::OtherNode { stated, proven, .. } => vec![stated, proven],
            Self::Version { node, .. } | Self::TooMany(node) => vec![node],
            _ => Vec::new(),
        }
    }

    /// True if the agent had not proved its node, or had too many connections: it is in no node's history as a session.
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

    /// Returns the text for the agent's own log; None if its operator can do nothing about it.
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
            // The error's own text has the instance and revision of the former agent.
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

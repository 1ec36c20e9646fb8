//! Reasons why a token proves no node.

/// Longest accepted token, bytes: a projected one has about 1,200.
pub(super) const MAX_TOKEN_BYTES: usize = 16 << 10;

/// No API server reviewed the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server has not reviewed the token: {0}")]
pub struct Unavailable(pub String);

/// Reason why a token proves no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotProven {
    #[error("what the agent has shown is not a ServiceAccount token")]
    NotAToken,
    #[error("the agent's token has expired; the kubelet renews it, so see whether that works")]
    Expired,
    #[error("the API server does not accept the agent's token: {0}")]
    NotAuthenticated(String),
    #[error(
        "the agent's token is for {actual:?} and not for this controller ({expected:?}); see the audience of the agent's projected token"
    )]
    Audience {
        actual: Vec<String>,
        expected: String,
    },
    #[error(
        "the token is of {actual:?}, and agents run as {expected:?}; see --agent-service-account"
    )]
    OtherUser { actual: String, expected: String },
    #[error("the token does not say on which node its pod is; Kubernetes writes that since 1.30")]
    NoNode,
    #[error("the token is of a pod on node {0:?}, which cannot be a node id")]
    NodeName(String),
    #[error("the agent has not shown a token: {0}")]
    NotShown(String),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

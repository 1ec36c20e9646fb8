//! Decides what an API server's answer to a TokenReview proves. Pure.

use drivebay_proto::volume_id::is_node_id;

use super::{claims::Claims, error::NotProven};

/// The audience and user of acceptable tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Required audience of the token: this controller.
    pub audience: String,
    /// Required user, the agents' ServiceAccount: `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
}

/// Status of a TokenReview.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub authenticated: bool,
    pub audiences: Vec<String>,
    pub user: String,
    /// Nodes of the pod to which the token is bound.
    pub nodes: Vec<String>,
    /// Reason why it is not authenticated.
    pub error: String,
}

impl Expected {
    /// Returns the user name of a ServiceAccount.
    pub fn user(namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }

    /// Checks the unverified claims of a token. An API server is asked only if they are acceptable.
    pub(super) fn plausible(&self, claims: &Claims) -> Result<(), NotProven> {
        if claims.subject != self.user {
            return Err(NotProven::OtherUser {
                actual: claims.subject.clone(),
                expected: self.user.clone(),
            });
        }
        self.for_us(&claims.audiences)
    }

    /// Returns the node id that the answer proves.
    pub(super) fn judge(&self, answer: &Answer) -> Result<String, NotProven> {
        if !answer.authenticated {
            return Err(NotProven::NotAuthenticated(answer.error.clone()));
        }
        // An API server without support for audiences returns none: then the token may be for another audience.
        self.for_us(&answer.audiences)?;
        if answer.user != self.user {
            return Err(NotProven::OtherUser {
                actual: answer.user.clone(),
                expected: self.user.clone(),
            });
        }
        match answer.nodes.as_slice() {
            [node] if is_node_id(node) => Ok(node.clone()),
            [node] => Err(NotProven::NodeName(node.clone())),
            _ => Err(NotProven::NoNode),
        }
    }

    fn for_us(&self, audiences: &[String]) -> Result<(), NotProven> {
        if audiences.contains(&self.audience) {
            return Ok(());
        }
        Err(NotProven::Audience {
            actual: audiences.to_vec(),
            expected: self.audience.clone(),
        })
    }
}

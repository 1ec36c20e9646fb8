//! What an API server's answer to a TokenReview proves. Pure.

use drivebay_proto::volume_id::is_node_id;

use super::{claims::Claims, error::NotProven};

/// Whose tokens are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Whom the token has to be for: this controller.
    pub audience: String,
    /// The agents' ServiceAccount, as a user: `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
}

/// A TokenReview's status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub authenticated: bool,
    pub audiences: Vec<String>,
    pub user: String,
    /// The node of the pod that the token is bound to.
    pub nodes: Vec<String>,
    /// Why it is not authenticated.
    pub error: String,
}

impl Expected {
    /// The user that a ServiceAccount is.
    pub fn user(namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }

    /// Whether a token that says this of itself can be good: an API server is asked only then.
    pub(super) fn plausible(&self, claims: &Claims) -> Result<(), NotProven> {
        if claims.subject != self.user {
            return Err(NotProven::OtherUser {
                found: claims.subject.clone(),
                expected: self.user.clone(),
            });
        }
        self.for_us(&claims.audiences)
    }

    /// The node that the answer proves.
    pub(super) fn judge(&self, answer: &Answer) -> Result<String, NotProven> {
        if !answer.authenticated {
            return Err(NotProven::NotAuthenticated(answer.error.clone()));
        }
        // An API server that does not know of audiences leaves them out: then the token may be for somebody else.
        self.for_us(&answer.audiences)?;
        if answer.user != self.user {
            return Err(NotProven::OtherUser {
                found: answer.user.clone(),
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
            found: audiences.to_vec(),
            expected: self.audience.clone(),
        })
    }
}

//! How jobs travel: length-prefixed JSON over a socket pair.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::jobs::Outcome;

/// Agent → worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Grows with every call on this connection.
    pub id: u64,
    /// `Job::NAME`.
    pub name: String,
    /// The job.
    pub arguments: Value,
}

/// Worker → agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// A step begins.
    Step {
        /// Of this call.
        id: u64,
        /// Name.
        name: String,
    },
    /// The job ended.
    Done {
        /// Of this call.
        id: u64,
        /// Answer or error.
        outcome: Outcome,
    },
    /// The call made no sense to this worker.
    Broken {
        /// Of this call.
        id: u64,
        /// Why.
        message: String,
    },
}

//! Guarantees of one node while it runs: nothing is lost when the agent is killed, nothing is formatted twice, no volume shows another
//! one's data, and reads start no process.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod one_node {
    pub(crate) mod agent_life;
    pub(crate) mod counted;
    pub(crate) mod data;
    pub(crate) mod repeats;
    pub(crate) mod single_writer;
    pub(crate) mod workers;
    pub(crate) mod writer;
}

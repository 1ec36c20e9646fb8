//! What must hold on one node while it runs: nothing is lost to a killed agent, nothing is
//! formatted twice, nobody reads another's data, and reads start no process.
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

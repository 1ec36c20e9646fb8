//! A model of a node: random calls, kills, restarts, and drives pulled and plugged, on a real agent with loop drives, compared
//! with the model after each step. hwtests/README.md describes how to run it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod model {
    pub(crate) mod calls;
    pub(crate) mod cases;
    pub(crate) mod data;
    pub(crate) mod disk;
    pub(crate) mod execute;
    pub(crate) mod fixture;
    pub(crate) mod observe;
    pub(crate) mod states;
    pub(crate) mod steps;
    pub(crate) mod testbed;
}

use std::time::{Duration, Instant};

use drivebay_hwtests::need;
use model::cases;

/// Number of steps of the short run.
const SHORT: usize = 160;
/// Number of steps of the long run.
const LONG: usize = 10_000;
/// Time limit for shrinking a failing case of the short run.
const SHRINKING: Duration = Duration::from_secs(120);
/// Time limit for shrinking a failing case of the long run.
const LONG_SHRINKING: Duration = Duration::from_secs(900);

#[test]
fn a_node_matches_the_model_after_each_random_step() {
    need!(root, loop, layout "partition", tool "sfdisk", tool "mkfs.ext4", tool "mkfs.xfs", tool "mkfs.btrfs", fs "ext4", fs "xfs", fs "btrfs");
    let start = Instant::now();
    if cases::run_given() {
        return;
    }
    cases::run_regressions();
    // The seed is the same in each short run; the long run has a fresh one.
    cases::run_seeded(cases::seed_or(14), cases::steps_or(SHORT), SHRINKING).print(start);
}

#[test]
#[ignore = "takes half an hour: hwtests/all-tests --long"]
fn a_node_matches_the_model_after_each_of_ten_thousand_random_steps() {
    need!(root, loop, layout "partition", tool "sfdisk", tool "mkfs.ext4", tool "mkfs.xfs", tool "mkfs.btrfs", fs "ext4", fs "xfs", fs "btrfs");
    let start = Instant::now();
    cases::run_regressions();
    cases::run_seeded(
        cases::seed_or(fastrand::u64(..)),
        cases::steps_or(LONG),
        LONG_SHRINKING,
    )
    .print(start);
}

//! Every hung call: each RPC, hanging at each step that sends a request to the drive. The call returns a retryable code before its
//! deadline, the drive's other volumes can be unpublished and unstaged, and the rest of the node is unaffected, also after a restart of the
//! agent. Once the drive responds, the repeated call succeeds and all data is kept. Prints a table. Needs root, FUSE and loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "hung_calls/call.rs"]
mod call;
#[path = "hung_calls/doubt.rs"]
mod doubt;
#[path = "hung_calls/row.rs"]
mod row;
#[path = "hung_calls/stand.rs"]
mod stand;

use drivebay_hwtests::{hang::Hang, need};

use call::Call;
use row::{Restart, Spec};
use stand::{all_steps, run};

/// Small table: one step of each call.
#[tokio::test]
#[ignore = "takes a minute and a half: hwtests/faults --long"]
async fn a_call_that_hangs_at_any_step_costs_itself_and_nothing_else() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", tool "mkfs.xfs", tool "xfs_io", tool "debugfs", fs "ext4", fs "xfs");
    let specs = [
        (Call::Claim, Hang::After(20)),
        (Call::Create, Hang::Writes),
        (Call::CreateEither, Hang::After(12)),
        (Call::StageExt4, Hang::After(30)),
        (Call::StageAgain, Hang::After(4)),
        (Call::Publish, Hang::All),
        (Call::Stats, Hang::All),
        (Call::Expand, Hang::After(12)),
        (Call::Unstage, Hang::Writes),
        (Call::Delete, Hang::After(9)),
        (Call::Repair, Hang::Writes),
    ];
    let specs = specs.map(|(call, hang)| Spec { call, hang });
    run(&specs, Restart::BeforeAnswers).await.print().assert();
}

/// Whole table: each step of each call.
#[tokio::test]
#[ignore = "takes most of an hour: hwtests/faults --long"]
async fn every_call_that_hangs_at_every_step_costs_itself_and_nothing_else() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", tool "mkfs.xfs", tool "xfs_io", tool "debugfs", fs "ext4", fs "xfs");
    all_steps().await.print().assert();
}

//! The formats of the first release (commit 4d75420): its files, its drives, its messages and its outputs are read by
//! today's build, and the two work together. `hwtests/golden` makes the files again.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "golden/files.rs"]
mod files;
#[path = "golden/mixed.rs"]
mod mixed;
#[path = "golden/outputs.rs"]
mod outputs;
#[path = "golden/peers.rs"]
mod peers;
#[path = "golden/record.rs"]
mod record;
#[path = "golden/record_lvm.rs"]
mod record_lvm;
#[path = "golden/restored.rs"]
mod restored;

//! Layout `lvm` with faults: a drive that hangs, with LVM commands in D state on it, and an agent that is killed at each of its LVM
//! commands.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod lab_lvm_faults {
    pub(crate) mod hung;
    pub(crate) mod killed;
}

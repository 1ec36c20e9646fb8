//! Layout `lvm` in a guest with real LVM: beside foreign VGs, consistent with the host's own commands, up to the last extent, with a
//! bounded number of processes, and on a drive that was unplugged and returned.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod lab_lvm {
    pub(crate) mod counted;
    pub(crate) mod helpers;
    pub(crate) mod neighbours;
    pub(crate) mod renumbered;
    pub(crate) mod returned;
    pub(crate) mod space;
}

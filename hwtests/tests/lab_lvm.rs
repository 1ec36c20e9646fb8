//! Layout `lvm` in a guest with real LVM: beside other people's VGs, in agreement with the host's own commands,
//! to the last extent, with no more processes than promised, and on a drive that was pulled out and is back.
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

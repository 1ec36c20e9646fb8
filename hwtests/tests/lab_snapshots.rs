//! Snapshots and copies of volumes of layout `lvm`, in a guest with real LVM: what a snapshot holds while its volume goes on, what it
//! keeps from being done, how it ends, and volumes that are made of one, or of a volume in use.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod lab_snapshots {
    pub(crate) mod copies;
    pub(crate) mod ends;
    pub(crate) mod helpers;
    pub(crate) mod holds;
    pub(crate) mod records;
    pub(crate) mod refused;
}

//! Snapshots and copies of volumes of layout `lvm`, in a guest with real LVM: contents of a snapshot while its volume is written to,
//! alone and in a group; operations that it blocks; its end; and volumes created from a snapshot or from a volume in use. All of it also
//! while the agent is killed, and while drives hang and fail.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod lab_snapshots {
    pub(crate) mod ages;
    pub(crate) mod bad;
    pub(crate) mod copies;
    pub(crate) mod ends;
    pub(crate) mod groups;
    pub(crate) mod helpers;
    pub(crate) mod holds;
    pub(crate) mod hung;
    pub(crate) mod killed;
    pub(crate) mod records;
    pub(crate) mod refused;
    pub(crate) mod relay;
    pub(crate) mod stand;
    pub(crate) mod suspended;
}

//! The fault table, on loop drives: each fault is real, and the reported conditions are recorded (`hwtests/faults` prints the table).
//! Faults that loop drives cannot have are in `lab_faults`. Needs root.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "faults/damage.rs"]
mod damage;
#[path = "faults/drives.rs"]
mod drives;
#[path = "faults/filesystems.rs"]
mod filesystems;
#[path = "faults/mounts.rs"]
mod mounts;
#[path = "faults/stand.rs"]
mod stand;

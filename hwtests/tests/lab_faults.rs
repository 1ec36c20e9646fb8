//! The fault table, in the lab: faults that loop drives cannot have (`hwtests/faults --lab`). SMART data that no emulated drive reports is
//! replayed, and marked so.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "lab_faults/drives.rs"]
mod drives;
#[path = "lab_faults/lvm.rs"]
mod lvm;
#[path = "lab_faults/smart.rs"]
mod smart;

//! The fault table, in the lab: what loop drives cannot do (`hwtests/faults --lab`). What a drive would say by SMART
//! is replayed where no emulated drive says it, and marked so.
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

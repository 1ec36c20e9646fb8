//! Drives and volumes as both command lines show them: tables, sort orders, JSON and YAML, what is wrong and what to do
//! about it. Pure, over the messages of the protocols.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

use std::{error::Error, io, time::SystemTime};

use drivebay_common::{table, terminal};

pub mod args;
pub mod complete;
pub mod copies;
pub mod cordon;
pub mod document;
pub mod drives;
pub mod kube;
pub mod legend;
pub mod moves;
pub mod order;
pub mod pv;
pub mod row;
pub mod show;
pub mod snapshots;
pub mod tally;
pub mod unreadable;
pub mod volumes;
pub mod watch;
pub mod wrong;

/// Whether what failed was not permitted, by the reasons of an error.
pub fn denied(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return true;
        }
        next = error.source();
    }
    false
}

/// A moment or a limit as JSON has it: of the wire, 0 stands for none.
pub fn moment(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

/// Seconds since 1970; 0 when the clock stands before it.
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

//! Drives and volumes as both command lines show them: tables, sort orders, JSON and YAML, problems and their remedies. Pure, over the
//! messages of the protocols.

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
pub mod listing;
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

/// True if permission was denied, by the sources of an error.
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

/// Returns a time or a limit for JSON: None for 0, which the protocol uses for none.
pub fn moment(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

/// Returns the time in seconds since 1970; 0 if the clock is before that.
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

//! Rate of the next step of a copy: lower while others use its drives.

use std::time::Duration;

use drivebay_model::{DriveRef, MIB};
use drivebay_sys::{
    blockstat::{self, SYSFS_DEADLINE},
    offload::offload,
};

/// Lowest rate to which other requests slow a copy, in bytes per second: 1 TB takes 17 hours, and a failing drive must
/// be evacuated in time.
const FLOOR: u64 = 16 * MIB;

/// The rate of a copy. It halves with each step before which a drive had other requests, and doubles with each other
/// step, up to the limit.
#[derive(Debug)]
pub(in crate::volumes) struct Pace {
    /// Bytes per second; `u64::MAX`: no limit.
    limit: u64,
    rate: u64,
    /// Measured rate of the last step.
    reached: u64,
}

impl Pace {
    pub(in crate::volumes) fn new(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        Self {
            limit,
            rate: limit,
            reached: u64::MAX,
        }
    }

    /// Returns the rate of the next step; None: no limit. Must be called between two steps, when the copy itself has no
    /// request at either drive.
    pub(in crate::volumes) async fn next(&mut self, drives: [&DriveRef; 2]) -> Option<u64> {
        let mut is_used = false;
        for drive in drives {
            is_used |= has_requests(drive.kernel_name.clone()).await;
        }
        self.rate = next_rate(self.limit, self.rate.min(self.reached), self.rate, is_used);
        (self.rate != u64::MAX).then_some(self.rate)
    }

    /// Records the bytes and the duration of a step.
    pub(in crate::volumes) fn step_ended(&mut self, bytes: u64, took: Duration) {
        let rate = bytes as f64 / took.as_secs_f64().max(0.001);
        self.reached = rate as u64;
    }
}

/// Computes the next rate. Pure.
fn next_rate(limit: u64, reached: u64, last: u64, is_used: bool) -> u64 {
    match is_used {
        true => (reached / 2).max(FLOOR).min(limit),
        false => last.saturating_mul(2).min(limit),
    }
}

/// True if a drive has requests now, by the kernel's counters, which are read without accessing it. Counters that
/// cannot be read slow nothing down.
async fn has_requests(name: String) -> bool {
    let read = offload("activity", SYSFS_DEADLINE, move || {
        blockstat::activity(&name)
    })
    .await;
    let activity = read.and_then(|read| read).ok().flatten();
    activity.is_some_and(|activity| activity.in_flight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_slows_down_to_a_floor_while_its_drives_are_used_and_recovers_up_to_its_limit() {
        let limit = 200 * MIB;
        let (mut rate, mut rates) = (limit, Vec::new());
        for is_used in [true, true, true, true, true, false, false, false, false] {
            rate = next_rate(limit, rate, rate, is_used);
            rates.push(rate / MIB);
        }
        assert_eq!(rates, [100, 50, 25, 16, 16, 32, 64, 128, 200]);
        // Half of what it reached, where the limit does not matter.
        let slow = next_rate(u64::MAX, 100 * MIB, u64::MAX, true);
        assert_eq!(slow, 50 * MIB);
        assert_eq!(next_rate(u64::MAX, 0, u64::MAX, false), u64::MAX);
        // A limit below the floor is kept.
        assert_eq!(next_rate(MIB, MIB, MIB, true), MIB);
    }

    #[tokio::test]
    async fn a_drive_that_is_not_there_has_no_requests() {
        assert!(!has_requests("no-such-drive".into()).await);
    }
}

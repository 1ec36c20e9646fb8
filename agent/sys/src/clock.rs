//! Wall-clock time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 when the clock stands before it.
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Time since the machine was booted, on a clock that does not jump: the one that the kernel log is stamped with.
pub fn since_boot() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of our own. This clock is always there, so it cannot fail; if it did, the
    // time would be 0.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

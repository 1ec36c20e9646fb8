//! Wall-clock time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns seconds since 1970; 0 if the clock is set to before 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Returns the time since boot by CLOCK_MONOTONIC, the clock of kernel log timestamps.
pub fn since_boot() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local timespec. This clock always exists, so the call cannot fail; if it did, the time would be 0.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

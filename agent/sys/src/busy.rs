//! Retries while a device is open: the kernel has no notification of its closing.

use std::{
    io,
    time::{Duration, Instant},
};

/// Time to wait for a device to be closed before it is removed from the kernel: udevd opens each new one for a moment.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Repeats `attempt` while it fails with EBUSY, for `patience` at most, and returns its last result. Blocks.
pub fn retry<T>(patience: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + patience;
    let mut pause = Duration::from_millis(5);
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() + pause < end => {}
            done => return done,
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

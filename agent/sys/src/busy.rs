//! Asking again while a device is open: the kernel tells nobody when it is closed.

use std::{
    io,
    time::{Duration, Instant},
};

/// How long a device that is to be taken from the kernel may be open: udevd looks into each new one for a moment.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Repeats what is refused with EBUSY, until it is not or the time is over.
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

//! Progress messages of the lab, which bypass the test runner's capture: a boot takes half a minute.

use std::{fmt, io::Write, sync::LazyLock, time::Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints a line with the seconds since the first one.
pub fn print_progress(what: impl fmt::Display) {
    let line = format!("lab: {:6.1} s: {what}\n", START.elapsed().as_secs_f64());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Skips a test that takes minutes, with a message, unless DRIVEBAY_LAB_LONG is set (`hwtests/lab test --long`).
#[macro_export]
macro_rules! long {
    () => {
        $crate::left_out!(
            ::std::env::var_os("DRIVEBAY_LAB_LONG").is_none(),
            "takes long; hwtests/lab test --long runs it"
        );
    };
}

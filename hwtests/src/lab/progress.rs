//! What the lab is doing, said past the test runner's capture: a boot takes half a minute.

use std::{fmt, io::Write, sync::LazyLock, time::Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Says a line, with the seconds since the first one.
pub fn say(what: impl fmt::Display) {
    let line = format!("lab: {:6.1} s: {what}\n", START.elapsed().as_secs_f64());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Returns from a test that takes minutes, visibly, unless DRIVEBAY_LAB_LONG is set
/// (`hwtests/lab test --long`).
#[macro_export]
macro_rules! long {
    () => {
        if ::std::env::var_os("DRIVEBAY_LAB_LONG").is_none() {
            fn here() {}
            let name = ::std::any::type_name_of_val(&here)
                .trim_end_matches("::here")
                .trim_end_matches("::{{closure}}");
            $crate::need::skipped(name, "takes long; hwtests/lab test --long runs it");
            return;
        }
    };
}

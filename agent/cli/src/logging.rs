//! Where log lines go: stderr, as text for people or as JSON. `DRIVEBAY_LOG` says what is logged.

use super::LogFormat;

/// Starts logging. A second call changes nothing.
pub fn start(format: LogFormat) {
    drivebay_common::logging::start(format, "DRIVEBAY_LOG");
}

//! Log lines on stderr, as text or JSON. `DRIVEBAY_LOG` is the filter.

use super::LogFormat;

/// Starts logging. A second call has no effect.
pub fn start(format: LogFormat) {
    drivebay_common::logging::start(format, "DRIVEBAY_LOG");
}

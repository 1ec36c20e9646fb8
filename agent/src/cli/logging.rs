//! Where log lines go: stderr, as text for people or as JSON. `DRIVEBAY_LOG` says what is logged.

use tracing_subscriber::{EnvFilter, fmt};

use super::LogFormat;

/// Starts logging. A second call changes nothing.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env("DRIVEBAY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => lines
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // Somebody has set up logging before: theirs stays.
    drop(started);
}

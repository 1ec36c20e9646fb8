//! Log lines on stderr, as text or JSON, and changes of the filter at run time. Shared by the controller and the agent.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    path::Path,
    sync::OnceLock,
};

use clap::ValueEnum;
use drivebay_proto::log::{
    GetLevelRequest, Level, SetLevelRequest,
    log_client::LogClient,
    log_server::{Log, LogServer},
};
use tonic::{Request, Response, Status};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::ParseError, fmt, layer::SubscriberExt, reload,
    util::SubscriberInitExt,
};

use crate::query::{CalledProgram, Program, QueryError};

/// Longest filter, bytes.
const MAX_FILTER: usize = 1024;
/// Filter when the environment sets none.
const DEFAULT: &str = "info";
/// Longest line, bytes: enough for the full output of a tool, and a bound for input of a peer.
const MAX_LINE: usize = 32 << 10;
/// Levels that a filter may name.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

struct Started {
    filter: reload::Handle<EnvFilter, Registry>,
    first: String,
}

// Logging is per process.
static STARTED: OnceLock<Started> = OnceLock::new();

/// Starts logging with the filter in the environment variable `variable`, or `info` if it is unset or invalid, which is logged. A second
/// call changes nothing.
pub fn start(format: LogFormat, variable: &str) {
    let given = std::env::var(variable).ok();
    let first = given.as_deref().unwrap_or(DEFAULT).to_owned();
    let (filter, wrong) = match parse(&first) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let first = filter.to_string();
    let (filter, handle) = reload::Layer::new(filter);
    let terminal = io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(move || Lines { format, terminal });
    let lines = match format {
        LogFormat::Text => lines.with_ansi(terminal).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
    // A subscriber that was installed before stays.
    if started.is_ok() {
        let _ = STARTED.set(Started {
            filter: handle,
            first,
        });
    }
    if let Some(error) = wrong {
        tracing::error!(variable, %error, default = DEFAULT, "invalid log filter; using the default");
    }
}

/// Standard error, with one line for each event whatever characters the event's texts have: a newline in one would forge a further line.
#[derive(Debug, Clone, Copy)]
struct Lines {
    format: LogFormat,
    terminal: bool,
}

impl Write for Lines {
    // The layer writes an event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = one_line(&text, *self);
        io::stderr().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn one_line(event: &str, lines: Lines) -> Cow<'_, str> {
    let text = event.strip_suffix('\n').unwrap_or(event);
    // Escape characters (colours) are kept only for a terminal; there the layer escapes those in texts.
    let is_fine = |c: char| !c.is_control() || c == '\t' || (lines.terminal && c == '\u{1b}');
    if text.len() <= MAX_LINE && text.chars().all(is_fine) {
        return Cow::Borrowed(event);
    }
    if lines.format == LogFormat::Json && text.len() > MAX_LINE {
        // A line that was cut would not be valid JSON.
        let bytes = text.len();
        let line =
            format!("{{\"level\":\"WARN\",\"message\":\"log line too long\",\"bytes\":{bytes}}}\n");
        return Cow::Owned(line);
    }
    let mut line = String::new();
    for c in text.chars() {
        if line.len() >= MAX_LINE {
            line.push('…');
            break;
        }
        if is_fine(c) {
            line.push(c);
        } else {
            line.extend(c.escape_default());
        }
    }
    line.push('\n');
    Cow::Owned(line)
}

/// A filter that cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A word that is no level. As a target it would silence everything else.
    #[error(
        "{0:?} is no level: give one of off, error, warn, info, debug, trace, or target=level, separated by commas"
    )]
    NoLevel(String),
    #[error("a filter has at most {MAX_FILTER} bytes")]
    TooLong,
    #[error("{filter:?} cannot be understood: {source}")]
    Syntax {
        /// The filter as given.
        filter: String,
        source: ParseError,
    },
}

/// Parses a filter. Errs if a part without `=` is no level.
fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    if text.len() > MAX_FILTER {
        return Err(FilterError::TooLong);
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    for part in &parts {
        let is_level = LEVELS.contains(&part.to_ascii_lowercase().as_str());
        if !is_level && !part.contains('=') {
            return Err(FilterError::NoLevel((*part).to_owned()));
        }
    }
    EnvFilter::try_new(parts.join(",")).map_err(|source| FilterError::Syntax {
        filter: text.to_owned(),
        source,
    })
}

/// gRPC service that reads and changes the log filter.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogService;

impl LogService {
    /// Returns the service for a server; its socket must be accessible to root only.
    pub fn server() -> LogServer<Self> {
        LogServer::new(Self)
    }
}

fn started() -> Result<&'static Started, Status> {
    STARTED
        .get()
        .ok_or_else(|| Status::failed_precondition("logging was already initialised"))
}

fn gone(error: reload::Error) -> Status {
    Status::internal(format!("the log cannot be changed: {error}"))
}

#[tonic::async_trait]
impl Log for LogService {
    async fn get_level(&self, _: Request<GetLevelRequest>) -> Result<Response<Level>, Status> {
        let filter = started()?.filter.with_current(EnvFilter::to_string);
        let filter = filter.map_err(gone)?;
        Ok(Response::new(Level { filter }))
    }

    async fn set_level(
        &self,
        request: Request<SetLevelRequest>,
    ) -> Result<Response<Level>, Status> {
        let started = started()?;
        let requested = request.into_inner().filter;
        let wanted = match requested.as_str() {
            "" => started.first.as_str(),
            requested => requested,
        };
        let filter = parse(wanted).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let now = filter.to_string();
        // Logged before and after the change, so that one of the filters shows it.
        tracing::warn!(now, "changing the log filter");
        started.filter.reload(filter).map_err(gone)?;
        tracing::warn!(now, "log filter changed");
        Ok(Response::new(Level { filter: now }))
    }
}

/// Returns the log filter of a running program, after changing it if `filter` is given. An empty one restores the filter of the program's
/// start.
pub async fn query_level(
    program: &'static Program,
    socket: &Path,
    filter: Option<&str>,
) -> Result<String, QueryError> {
    let (called, channel) = CalledProgram::dial(program, socket).await?;
    let mut client = LogClient::new(channel);
    let call = async {
        match filter {
            None => client.get_level(GetLevelRequest {}).await,
            Some(filter) => {
                let filter = filter.to_owned();
                client.set_level(SetLevelRequest { filter }).await
            }
        }
    };
    Ok(called.answered(call).await?.into_inner().filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_bounded_length() {
        let text = Lines {
            format: LogFormat::Text,
            terminal: false,
        };
        let json = Lines {
            format: LogFormat::Json,
            ..text
        };
        assert_eq!(one_line("INFO fine\n", text), "INFO fine\n");
        let forged = one_line("INFO m\n2026 ERROR x\r\u{1b}[2K\n", text);
        assert_eq!(forged, "INFO m\\n2026 ERROR x\\r\\u{1b}[2K\n");
        for (lines, most) in [(text, MAX_LINE + 16), (json, 100)] {
            let long = format!("{{\"a\":\"{}\"}}\n", "ü".repeat(1 << 20));
            let line = one_line(&long, lines);
            assert!(line.len() < most && line.ends_with('\n'), "{}", line.len());
        }
    }

    #[test]
    fn a_level_or_targets_with_levels_are_taken() {
        for filter in [
            "debug",
            "OFF",
            "info,drivebay=debug",
            "warn, drivebay_worker=trace",
        ] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn a_mistyped_level_does_not_silence_the_log() {
        for filter in [
            "debgu",
            "info,verbose",
            "",
            "a=b",
            "info,",
            &"x".repeat(2000),
        ] {
            assert!(parse(filter).is_err(), "{filter}");
        }
    }
}

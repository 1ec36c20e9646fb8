//! The worker's side: reads calls from descriptor 0, runs them one after another, exits
//! when the agent hangs up.
//!
//! If the agent exits in the middle of a job, the job is run to its end (half a change is worse
//! than a whole one) and the worker exits after it. There is no PR_SET_PDEATHSIG here: it fires
//! when the *thread* that forked ends, and the agent's threads come and go.

use std::{
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    rc::Rc,
};

use tracing_subscriber::EnvFilter;

use super::{
    Context,
    job::{Dispatch, Kept, Outcome},
    protocol::{self, Call, ProtocolError, Reply},
};
use drivebay_model::cause::chain;
use drivebay_sys::{self as sys, worker_server};

/// Exit code: descriptor 0 is not a socket, or setting up the process failed.
const NOT_STARTED_BY_AGENT: u8 = 2;
/// Exit code: a call could not be read, or a reply could not be written.
const CONNECTION_FAILED: u8 = 3;
/// Exit code: a tool cannot be killed, or a descendant of a tool is still running.
const TOOL_LEFT: u8 = 4;

/// Runs this process as a worker if it was started as `drivebay-agent worker`, or as the server
/// that forks workers, and returns its exit code; None for any other command line. Must be called
/// before anything else in `main`.
pub fn if_worker(dispatch: Dispatch) -> Option<ExitCode> {
    let command = std::env::args_os().nth(1)?;
    let begin = match command.to_str()? {
        "worker" => |socket: OwnedFd| Ok(Some(UnixStream::from(socket))),
        worker_server::COMMAND => worker_server::serve,
        _ => return None,
    };
    Some(match start(begin) {
        Ok(Some(socket)) => serve(socket, dispatch),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "drivebay-agent worker: {error}");
            ExitCode::from(NOT_STARTED_BY_AGENT)
        }
    })
}

/// Sets up what every worker needs, then returns its socket; None in the server, when the agent
/// hung up. Log and tool namespace are set up before the server forks, so that workers share them.
fn start(begin: fn(OwnedFd) -> io::Result<Option<UnixStream>>) -> io::Result<Option<UnixStream>> {
    let socket = sys::worker_socket::socket_from_stdin()?;
    log_to_stderr();
    sys::tool_namespace::inherit()?;
    let begun = begin(socket)?;
    if begun.is_some() {
        sys::child::adopt()?;
    }
    Ok(begun)
}

/// Logs to stderr, which the agent reads. After the agent's exit the pipe has no reader; that must
/// not end a job, so write errors are discarded.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .without_time()
        .with_ansi(false)
        .with_writer(|| UnfailingStderr(io::stderr()))
        .log_internal_errors(false)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Stderr whose writes always succeed; errors are discarded.
struct UnfailingStderr(io::Stderr);

impl Write for UnfailingStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn serve(socket: UnixStream, dispatch: Dispatch) -> ExitCode {
    let socket = Rc::new(socket);
    let mut input = io::BufReader::new(&*socket);
    let kept = Kept::default();
    loop {
        let call: Call = match protocol::read(&mut input) {
            Ok(Some(call)) => call,
            // Success means that this worker left no process: the agent then need not search for
            // one.
            Ok(None) if sys::child::reap_all() => return ExitCode::SUCCESS,
            Ok(None) => return ExitCode::from(TOOL_LEFT),
            Err(error) => {
                tracing::error!(error = %chain(&error), "cannot read a call from the agent");
                return ExitCode::from(CONNECTION_FAILED);
            }
        };
        let id = call.id;
        let outcome = run(call, &socket, &kept, dispatch);
        let retire = sys::cmd::left_behind();
        if !retire {
            // Descendants of a killed tool become children of this worker, which must reap them.
            sys::child::reap_all();
        }
        let reply = match outcome {
            Ok(outcome) => Reply::Done {
                id,
                outcome,
                retire,
            },
            Err(message) => Reply::Broken { id, message },
        };
        let written = match protocol::write(&mut &*socket, &reply) {
            Err(error @ (ProtocolError::TooLarge { .. } | ProtocolError::Json(_))) => {
                let message = chain(&error);
                protocol::write(&mut &*socket, &Reply::Broken { id, message })
            }
            other => other,
        };
        if let Err(error) = written {
            tracing::error!(error = %chain(&error), "cannot write a reply to the agent");
            return ExitCode::from(CONNECTION_FAILED);
        }
        if retire {
            tracing::error!("killed tool is still running; this worker exits");
            return ExitCode::from(TOOL_LEFT);
        }
    }
}

/// Runs one job. Err: the job is unknown, does not fit its type, or panicked; the text is its
/// cause.
fn run(
    call: Call,
    socket: &Rc<UnixStream>,
    kept: &Kept,
    dispatch: Dispatch,
) -> Result<Outcome, String> {
    let steps = Rc::clone(socket);
    let id = call.id;
    let mut context = Context::new(move |name| {
        let name = name.to_owned();
        // The agent may have exited; the job continues, and writing the reply will fail the same
        // way.
        let _ = protocol::write(&mut &*steps, &Reply::Step { id, name });
    });
    let line = Rc::clone(socket);
    context = context
        .watching(move || sys::worker_socket::is_hung_up(&line))
        .keeping(Rc::clone(kept));
    let dispatched = catch_unwind(AssertUnwindSafe(|| {
        dispatch(&call.name, call.arguments, &mut context)
    }));
    match dispatched {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => Err(chain(&error)),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            Err(format!("the job panicked: {text}"))
        }
    }
}

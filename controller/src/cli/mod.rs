//! The command line: arguments (`args`), calls to a running controller (`client`), and the output. Drives and
//! volumes are shown as by the agent's command line.
//!
//! All commands but `run` are here. Each makes its calls in a runtime of its own, and reads files and standard
//! input outside of it, since that blocks.

use std::{
    error::Error,
    future::Future,
    io::{self, BufWriter, Write},
    process::ExitCode,
    sync::OnceLock,
    time::SystemTime,
};

pub mod args;
pub mod claims;
pub mod client;
pub mod complete;
mod cordon;
pub mod drives;
pub mod health;
mod moves;
pub mod node;
pub mod nodes;
pub mod one;
mod one_node;
mod output;
pub mod pv;
pub mod snapshots;
pub mod volumes;
pub mod watch;

pub use args::ClientCommand;

use drivebay_common::{
    cli::{NOBODY, NOT_FOUND, NOT_PERMITTED, NOT_POLLED, USAGE, WRONG, chain},
    pick::PickError,
    printed::{Given, option},
    query::QueryError,
    table, terminal,
};
use drivebay_view::{
    denied, listing::ListingError, moves::MovesError, pv::PvError, show, unix_seconds, wrong,
};

use args::{DEFAULT_SOCKET, DriveCommand, LogLevelArgs, NodeCommand, VolumeCommand};
use claims::{Claims, ClaimsError};
use client::{CONTROLLER, Client};
use node::NodeError;
use terminal::Terminal;

use crate::logging;

/// Failure of a command, or its exit code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The runtime cannot be started.
    #[error("cannot start")]
    Start(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] QueryError),
    /// `--node` names an unknown node.
    #[error(
        "no node {} is known; `drivebay-controller nodes` shows all of them",
        .0.join(", ")
    )]
    NoSuchNode(Vec<String>),
    /// `drive show` and `volume show`: not exactly one object matches.
    #[error(transparent)]
    Pick(#[from] PickError),
    /// `health`: there are problems. They were printed, so this is no failure of the command.
    #[error("something is wrong")]
    Unwell,
    /// `health`: there are no known problems, but some drives were not polled yet.
    #[error("not every drive was polled yet")]
    NotPolled,
    /// The operator's name is required and unknown.
    #[error("{NOBODY}")]
    Nobody,
    /// `drive evacuate`, `drive replace` or `volume move` failed.
    #[error(transparent)]
    Moves(#[from] MovesError),
    /// The same commands: the result was printed, and has this exit code.
    #[error("ended with exit code {0}")]
    Answered(u8),
    /// `--unclaimed`: the list of PersistentVolumes cannot be used.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    /// `volume pv`: the volume was deleted, or the controller's answer cannot be used.
    #[error(transparent)]
    Pv(#[from] PvError),
    /// `node forget` or `node remember` failed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Writing the output failed.
    #[error("cannot write the answer")]
    Output(#[source] io::Error),
    /// Converting the output to JSON or YAML failed.
    #[error("cannot write the answer as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

impl From<ListingError> for CommandError {
    fn from(error: ListingError) -> Self {
        match error {
            ListingError::Output(error) => Self::Output(error),
            ListingError::Json(error) => Self::Json(error),
        }
    }
}

impl CommandError {
    /// Returns the process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error)
            | Self::Claims(ClaimsError::Client(error))
            | Self::Node(NodeError::Client(error)) => error.code(),
            Self::Node(error) if error.is_usage() => USAGE,
            Self::Pick(error) => error.code(),
            Self::NoSuchNode(_) => NOT_FOUND,
            Self::Nobody => USAGE,
            Self::Moves(error) => error.code(),
            Self::Answered(code) => *code,
            error => match denied(error) {
                true => NOT_PERMITTED,
                false => WRONG,
            },
        }
    }

    /// True if the reader closed the pipe (`| head`), which is no failure.
    fn is_hang_up(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Runs any command but `run`, and returns the exit code. Writes the result to stdout, notes and errors to stderr.
pub fn run(command: &ClientCommand) -> ExitCode {
    // Ignored if it is set already, by an earlier call.
    let _ = GIVEN.set(given(command));
    let mut out = BufWriter::new(io::stdout().lock());
    let done = execute_on(command, &mut out, &mut io::stderr(), Terminal::of_stdout())
        .and_then(|()| out.flush().map_err(CommandError::Output));
    // After a failure, the buffered part of the output is still written if possible.
    let _ = out.flush();
    match done {
        // These were reported on standard output.
        Err(CommandError::Unwell) => ExitCode::from(WRONG),
        Err(CommandError::NotPolled) => ExitCode::from(NOT_POLLED),
        Err(CommandError::Answered(code)) => ExitCode::from(code),
        Err(error) if !error.is_hang_up() => {
            complain(&error);
            ExitCode::from(error.code())
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Program name and options of this call, repeated in the commands that messages suggest.
static GIVEN: OnceLock<Given> = OnceLock::new();

fn given(command: &ClientCommand) -> Given {
    let default_socket =
        std::env::var_os("DRIVEBAY_CONTROLLER_SOCKET").unwrap_or(DEFAULT_SOCKET.into());
    let socket = command
        .socket()
        .filter(|socket| socket.as_os_str() != default_socket);
    Given {
        program: "drivebay-controller",
        socket: socket.map_or_else(String::new, |socket| {
            option("socket", &socket.display().to_string())
        }),
        config: String::new(),
        socket_commands: &[
            "nodes",
            "drives",
            "volumes",
            "snapshots",
            "moves",
            "health",
            "drive",
            "volume",
            "log-level",
        ],
        config_commands: &[],
    }
}

/// Prints an error with its causes to stderr.
pub fn complain(error: &(dyn Error + 'static)) {
    let text = chain(error);
    let text = match GIVEN.get() {
        Some(given) => given.repeated_in(&text),
        None => text.as_str().into(),
    };
    let shown = Terminal::of_stderr().message("drivebay-controller: ", &text);
    eprint!("{shown}");
}

/// Runs any command but `run`, without a terminal. Writes the result to `out`, and notes for the operator to
/// `notes`. Must not be called within a runtime.
pub fn execute(
    command: &ClientCommand,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), CommandError> {
    execute_on(command, out, notes, Terminal::NONE)
}

/// Runs the same with the layout and colours of this terminal.
fn execute_on(
    command: &ClientCommand,
    out: &mut dyn Write,
    notes: &mut dyn Write,
    terminal: Terminal,
) -> Result<(), CommandError> {
    let now = unix_seconds();
    match command {
        ClientCommand::Health(args) => wait(async {
            let mut client = Client::connect(&args.socket.socket).await?;
            health::run(&mut client, args, now, terminal, out).await
        }),
        ClientCommand::Drive(DriveCommand::Show(args)) => wait(async {
            let mut client = Client::connect(&args.show.socket.socket).await?;
            one::drive(&mut client, args, now, terminal, out).await
        }),
        ClientCommand::Drive(DriveCommand::Locate(args)) => wait(async {
            let mut client = Client::connect(&args.socket.socket).await?;
            one::locate(&mut client, args, out).await
        }),
        ClientCommand::Drive(DriveCommand::Cordon(args)) => wait(async {
            let mut client = Client::connect(&args.of.of.at.socket.socket).await?;
            cordon::run(&mut client, &args.of, Some(&args.reason), out).await
        }),
        ClientCommand::Drive(DriveCommand::Uncordon(args)) => wait(async {
            let mut client = Client::connect(&args.of.at.socket.socket).await?;
            cordon::run(&mut client, args, None, out).await
        }),
        ClientCommand::Drive(DriveCommand::Evacuate(args)) => wait(async {
            let mut client = Client::connect(&args.at.socket.socket).await?;
            moves::evacuate(&mut client, args, terminal, out).await
        }),
        ClientCommand::Drive(DriveCommand::Replace(args)) => wait(async {
            let mut client = Client::connect(&args.at.socket.socket).await?;
            moves::replace(&mut client, args, terminal, out).await
        }),
        ClientCommand::Volume(VolumeCommand::Move(args)) => wait(async {
            let mut client = Client::connect(&args.at.socket.socket).await?;
            moves::move_volume(&mut client, args, terminal, out).await
        }),
        ClientCommand::Moves(args) => wait(async {
            let mut client = Client::connect(&args.at.socket.socket).await?;
            watch::show(args.watch, terminal, out, async |now, terminal, out| {
                moves::list(&mut client, args, now, terminal, out).await
            })
            .await
        }),
        ClientCommand::Volume(VolumeCommand::Show(args)) => wait(async {
            let mut client = Client::connect(&args.show.socket.socket).await?;
            one::volume(&mut client, args, now, terminal, out).await
        }),
        ClientCommand::Nodes(args) => wait(async {
            let mut client = Client::connect(&args.show.socket.socket).await?;
            watch::show(args.show.watch, terminal, out, async |_, terminal, out| {
                nodes::run(&mut client, args, terminal, out).await
            })
            .await
        }),
        ClientCommand::Drives(args) | ClientCommand::Drive(DriveCommand::List(args)) => {
            wait(async {
                let mut client = Client::connect(&args.show.socket.socket).await?;
                watch::show(
                    args.show.watch,
                    terminal,
                    out,
                    async |now, terminal, out| {
                        drives::run(&mut client, args, now, terminal, out).await
                    },
                )
                .await
            })
        }
        ClientCommand::Volumes(args) | ClientCommand::Volume(VolumeCommand::List(args)) => {
            let list = args.unclaimed.as_ref().and_then(Option::as_deref);
            let claims = list.map(Claims::read).transpose()?;
            wait(async {
                let mut client = Client::connect(&args.show.socket.socket).await?;
                watch::show(
                    args.show.watch,
                    terminal,
                    out,
                    async |now, terminal, out| {
                        let claims = claims.as_ref();
                        volumes::run(&mut client, args, claims, now, terminal, out, notes).await
                    },
                )
                .await
            })
        }
        ClientCommand::Snapshots(args) => wait(async {
            let mut client = Client::connect(&args.show.socket.socket).await?;
            watch::show(
                args.show.watch,
                terminal,
                out,
                async |now, terminal, out| {
                    snapshots::run(&mut client, args, now, terminal, out).await
                },
            )
            .await
        }),
        ClientCommand::LogLevel(args) => wait(async {
            let filter = LogLevelArgs::filter(args.level.as_deref());
            let now = logging::query_level(&CONTROLLER, &args.socket.socket, filter).await?;
            writeln!(out, "{now}").map_err(CommandError::Output)
        }),
        ClientCommand::Volume(VolumeCommand::Pv(args)) => wait(async {
            let mut client = Client::connect(&args.socket.socket).await?;
            pv::run(&mut client, args, out, notes).await
        }),
        ClientCommand::Node(NodeCommand::Show(args)) => wait(async {
            let mut client = Client::connect(&args.socket.socket).await?;
            one_node::run(&mut client, args, now, terminal, out).await
        }),
        ClientCommand::Node(NodeCommand::Forget(args)) => {
            let query_loss = || {
                wait(async {
                    let mut client = Client::connect(&args.socket.socket).await?;
                    Ok(node::loss(&mut client, &args.node).await?)
                })
            };
            node::forget(args, SystemTime::now(), query_loss, out, notes)
        }
        ClientCommand::Node(NodeCommand::Remember(args)) => node::remember(args, out),
    }
}

/// Runs a command in a runtime of its own. No other task is in that runtime, so writing the output may block it.
fn wait<T>(command: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Start)?
        .block_on(command)
}

#[cfg(test)]
mod tests;

//! The command line: arguments (`args`), calls to the agent (`client`), and rendering of results.
//!
//! All commands but `run` are here; `run` is the caller's, since it builds a runtime of its own.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

use std::{borrow::Cow, error::Error, io, path::Path, process::ExitCode, sync::OnceLock};

use drivebay_proto::agent::InventoryUpdate;

use drivebay_config::{self as config, DEFAULT_AGENT_SOCKET, DEFAULT_PATH, HostFacts};
use drivebay_model::Verdict;

pub mod ack;
pub mod adopt;
pub mod args;
pub mod check;
pub mod check_config;
pub mod claim_plan;
pub mod client;
pub mod complete;
pub mod copy;
mod cordon;
pub mod drives;
mod erased;
pub mod explain;
pub mod health;
pub mod init;
mod keys;
mod latency;
mod light;
pub mod logging;
pub mod manual;
pub mod mounts;
pub mod moves;
pub mod name;
pub mod nomad;
pub mod one_drive;
pub mod prefer;
pub mod quarantine;
pub mod release;
pub mod retire;
pub mod rules;
pub mod schema;
pub mod snapshots;
pub mod volumes;
pub mod watch;
pub mod wipe;

pub use drivebay_common::table;
use drivebay_common::{
    cli::{self, NOT_PERMITTED, NOT_POLLED, RUN_AS_ROOT, WRONG, chain},
    logging as log,
    pick::{Part, PickError},
    printed::{Given, option},
    progress::waiting,
    query::QueryError,
    terminal::Terminal,
};
use drivebay_view::{denied, moves::Answer, unix_seconds};

pub use args::{
    Cli, Command, DriveCommand, LogFormat, RunArgs, RunOptions, SmartCommand, SnapshotCommand,
    VolumeCommand,
};

use args::Show;

use client::{AGENT, Client};
use drivebay_view::args::log_filter;
use health::HealthOutput;

/// Exit code if there is no configuration, or `run` got an invalid one (EX_CONFIG of sysexits.h).
pub const BAD_CONFIG: u8 = 78;

/// A command failed, or has an exit code of its own. `main` prints it and exits with its code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// claim-plan's scan of the drives failed.
    #[error(transparent)]
    Plan(#[from] claim_plan::PlanError),
    /// `init` failed. A config that sets anything is never replaced.
    #[error(transparent)]
    Init(#[from] init::InitError),
    /// `drive wipe` was refused, was not confirmed, or failed. After [`Unfinished`](wipe::WipeError::Unfinished), a part of the drive's
    /// contents is lost.
    #[error(transparent)]
    Wipe(#[from] wipe::WipeError),
    /// drive adopt, drive release.
    #[error(transparent)]
    Adopt(#[from] one_drive::OneDriveError),
    /// drive show, volume show.
    #[error(transparent)]
    Pick(#[from] PickError),
    /// health: a problem was found; the result has been printed.
    #[error("something is wrong")]
    Unwell,
    /// health: no problem is known, and drives were not polled yet.
    #[error("not every drive was polled yet")]
    NotPolled,
    /// drive evacuate, drive replace, volume move.
    #[error(transparent)]
    Move(#[from] moves::MoveError),
    /// `volume prefer` failed or was not confirmed.
    #[error(transparent)]
    Prefer(#[from] prefer::PreferError),
    /// drive evacuate, replace and retire, volume move and clone, snapshot restore: a result with this exit code, no failure.
    #[error("ended with exit code {0}")]
    Answered(u8),
    /// `volume check`: the filesystem is damaged, or the result could not be determined.
    #[error(transparent)]
    Check(#[from] check::CheckVolumeError),
    /// volume create, expand, delete, pv.
    #[error(transparent)]
    Manual(#[from] manual::ManualError),
    /// `snapshot create` or `snapshot delete` failed, or the deletion was not confirmed.
    #[error(transparent)]
    Snapshot(#[from] snapshots::SnapshotError),
    /// snapshot restore, volume clone.
    #[error(transparent)]
    Copy(#[from] copy::CopyError),
    /// volume mount, unmount, list.
    #[error(transparent)]
    Mount(#[from] mounts::MountError),
    #[error(transparent)]
    Key(#[from] keys::KeyError),
    /// `volume erased` found no such volume, or no receipt.
    #[error(transparent)]
    Erased(#[from] erased::ErasedError),
    /// `nomad-plugin` failed. The refusal has been printed to standard output, as JSON for Nomad.
    #[error(transparent)]
    Nomad(#[from] nomad::NomadError),
    /// `smart explain` has no result: the input cannot be read or is not smartctl's JSON, or the device cannot be polled.
    #[error(transparent)]
    Explain(#[from] explain::ExplainError),
    /// smart explain: a result, no failure.
    #[error("the drive's verdict is {0}")]
    Verdict(Verdict),
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    #[error("cannot write the answer as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

impl CommandError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Plan(claim_plan::PlanError::NotRoot) => NOT_PERMITTED,
            Self::Wipe(error) => error.code(),
            Self::Adopt(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Check(error) => error.code(),
            Self::Move(error) => error.code(),
            Self::Prefer(error) => error.code(),
            Self::Answered(code) => *code,
            Self::Manual(error) => error.code(),
            Self::Snapshot(error) => error.code(),
            Self::Copy(error) => error.code(),
            Self::Mount(error) => error.code(),
            Self::Key(error) => error.code(),
            Self::Erased(error) => error.code(),
            Self::Nomad(nomad::NomadError::Client(error)) => error.code(),
            Self::Config(config::ConfigError::Missing { .. }) => BAD_CONFIG,
            Self::Explain(error) => error.code(),
            Self::NotPolled => NOT_POLLED,
            Self::Verdict(verdict) => explain::exit_code(*verdict),
            error if denied(error) => NOT_PERMITTED,
            _ => WRONG,
        }
    }

    /// True if it is a result, which has been printed, and no failure.
    fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Unwell | Self::NotPolled | Self::Verdict(_) | Self::Answered(_)
        )
    }
}

/// Runs any command but `run`.
pub async fn run(command: Command) -> ExitCode {
    // A second call keeps the first values.
    let _ = GIVEN.set(given(&command));
    let _ = FOR_PROGRAMS.set(command.is_for_programs());
    match execute(command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_answer() {
                complain(&error);
            }
            ExitCode::from(error.code())
        }
    }
}

/// Options of this command line, for the commands that are printed.
static GIVEN: OnceLock<Given> = OnceLock::new();

/// True if the output is for programs.
static FOR_PROGRAMS: OnceLock<bool> = OnceLock::new();

fn given(command: &Command) -> Given {
    let socket = command.socket().filter(|socket| {
        let default = std::env::var_os("DRIVEBAY_SOCKET").unwrap_or(DEFAULT_AGENT_SOCKET.into());
        socket.as_os_str() != default
    });
    let config = command
        .config()
        .filter(|config| *config != Path::new(DEFAULT_PATH));
    let path_option = |name, path: Option<&Path>| match path {
        Some(path) => option(name, &path.display().to_string()),
        None => String::new(),
    };
    Given {
        program: "drivebay-agent",
        socket: path_option("socket", socket),
        config: path_option("config", config),
        socket_commands: &[
            "drives",
            "drive",
            "volumes",
            "volume",
            "snapshots",
            "snapshot",
            "moves",
            "health",
            "rescan",
            "log-level",
        ],
        config_commands: &["drive wipe"],
    }
}

/// Adds the options of this command line to the commands in a text.
fn printed(text: &str) -> Cow<'_, str> {
    match GIVEN.get() {
        Some(given) => given.repeated_in(text),
        None => Cow::Borrowed(text),
    }
}

/// Adds the options to the commands in a result, unless the output is for programs.
fn answered(text: &str) -> Cow<'_, str> {
    match FOR_PROGRAMS.get() {
        Some(true) => Cow::Borrowed(text),
        _ => printed(text),
    }
}

/// Prints an error with its causes to stderr.
pub fn complain(error: &(dyn Error + 'static)) {
    let mut text = chain(error);
    if denied(error) && !text.contains(RUN_AS_ROOT) {
        text.push_str("; run as root");
    }
    let shown = Terminal::of_stderr().message("drivebay-agent: ", &printed(&text));
    eprint!("{shown}");
}

async fn execute(command: Command) -> Result<(), CommandError> {
    match command {
        // The caller handles `run`; it has no effect here.
        Command::Run(_) => Ok(()),
        Command::Drives(args) | Command::Drive(DriveCommand::List(args)) => {
            watch::show(
                &args.socket.socket,
                args.watch.watch,
                async |client, target| drives::render(&client.inventory().await?, &args, target),
            )
            .await
        }
        Command::Volumes(args) | Command::Volume(VolumeCommand::List(args)) => {
            watch::show(
                &args.socket.socket,
                args.watch.watch,
                async |client, target| volumes::list(client, &args, target).await,
            )
            .await
        }
        Command::Health { show } => {
            let (inventory, output) = query(&show).await?;
            let (text, health) = health::health(&inventory, output)?;
            print(&text)?;
            match () {
                () if health.well => Ok(()),
                () if health.awaits_polls() => Err(CommandError::NotPolled),
                () => Err(CommandError::Unwell),
            }
        }
        Command::Drive(DriveCommand::Show(args)) => {
            let (inventory, output) = query(&args.show).await?;
            let drive = name::drive(&inventory, &args.id, Part::Beginning)?;
            let mut client = Client::connect(&args.show.socket.socket).await?;
            let latency = client.drive_latency(&drive.id).await?;
            print(&health::show_drive(
                &inventory,
                drive,
                latency.as_ref(),
                output,
            )?)
        }
        Command::Drive(DriveCommand::Ack(args)) => print(&ack::run(&args).await?),
        Command::Drive(DriveCommand::Unack(args)) => {
            let socket = &args.at.socket;
            print(&ack::withdraw(socket, &args.drive, args.by.as_deref()).await?)
        }
        Command::Drive(DriveCommand::Locate {
            drive,
            light,
            socket,
        }) => print(&light::run(&socket.socket, &drive, light).await?),
        Command::Drive(DriveCommand::Cordon(args)) => {
            print(&cordon::run(&args.of, Some(&args.reason)).await?)
        }
        Command::Drive(DriveCommand::Uncordon(args)) => print(&cordon::run(&args, None).await?),
        Command::Drive(DriveCommand::Evacuate(args)) => answer(&moves::evacuate(&args).await?),
        Command::Drive(DriveCommand::Replace(args)) => answer(&moves::replace(&args).await?),
        Command::Drive(DriveCommand::Retire(args)) => answer(&retire::run(&args).await?),
        Command::Volume(VolumeCommand::Move(args)) => answer(&moves::move_volume(&args).await?),
        Command::Volume(VolumeCommand::Prefer(args)) => print(&prefer::run(&args).await?),
        Command::Moves(args) => {
            watch::show(&args.at.socket, args.watch.watch, async |client, target| {
                moves::list(client, &args, target).await
            })
            .await
        }
        Command::Volume(VolumeCommand::Show(args)) => {
            let (inventory, output) = query(&args.show).await?;
            let volume = name::volume(&inventory, &args.id, Part::Beginning)?;
            let mut client = Client::connect(&args.show.socket.socket).await?;
            let copies = client.copies_to(std::slice::from_ref(volume)).await?;
            print(&health::show_volume(&inventory, volume, &copies, output)?)
        }
        Command::Snapshots(args) | Command::Snapshot(SnapshotCommand::List(args)) => {
            watch::show(
                &args.socket.socket,
                args.watch.watch,
                async |client, target| snapshots::render(&client.inventory().await?, &args, target),
            )
            .await
        }
        Command::Snapshot(SnapshotCommand::Create(args)) => print(&snapshots::create(&args).await?),
        Command::Snapshot(SnapshotCommand::Restore { snapshot, copy }) => {
            answer(&copy::restore(&snapshot, &copy).await?)
        }
        Command::Snapshot(SnapshotCommand::Delete {
            snapshot,
            confirm,
            socket,
        }) => print(&snapshots::delete(&socket.socket, &snapshot, confirm.as_deref()).await?),
        Command::Volume(VolumeCommand::Clone { volume, copy }) => {
            answer(&copy::clone(&volume, &copy).await?)
        }
        Command::ClaimPlan {
            config,
            output,
            all,
        } => {
            let checked = config::load(&config.config, &HostFacts::here())?;
            check_config::warn(&config.config, &checked.warnings);
            let text = claim_plan::run(&checked.config, output, all).await?;
            print(&text)
        }
        Command::Drive(DriveCommand::Wipe {
            drive,
            confirm,
            socket,
            config,
        }) => wipe::run(&socket.socket, &config.config, &drive, confirm.as_deref())
            .await
            .map_err(Into::into),
        Command::Drive(DriveCommand::Release {
            drive,
            confirm,
            socket,
        }) => print(&release::run(&socket.socket, &drive, confirm.as_deref()).await?),
        Command::Drive(DriveCommand::Adopt {
            drive,
            confirm,
            socket,
        }) => print(&adopt::run(&socket.socket, &drive, confirm.as_deref()).await?),
        Command::Volume(VolumeCommand::Check { volume, socket }) => {
            print(&check::run(&socket.socket, &volume).await?)
        }
        Command::Volume(VolumeCommand::Create(args)) => print(&manual::create(&args).await?),
        Command::Volume(VolumeCommand::Erased {
            name,
            receipt,
            show,
        }) => {
            let (socket, format) = (&show.socket.socket, show.output);
            print(&erased::run(socket, name.as_deref(), receipt, format).await?)
        }
        Command::Volume(VolumeCommand::Rekey {
            name,
            key,
            new_key_file,
            socket,
        }) => print(&keys::rekey(&socket.socket, &name, &key, &new_key_file).await?),
        Command::Volume(VolumeCommand::CheckKey { name, key, socket }) => {
            print(&keys::check(&socket.socket, &name, &key).await?)
        }
        Command::Volume(VolumeCommand::RecoveryKey { name, key, socket }) => {
            print(&keys::recovery_key(&socket.socket, &name, &key).await?)
        }
        Command::Volume(VolumeCommand::Mount(args)) => print(&mounts::mount(&args).await?),
        Command::Volume(VolumeCommand::Unmount { what, socket }) => {
            print(&mounts::unmount(&socket.socket, &what).await?)
        }
        Command::Volume(VolumeCommand::Expand { name, size, show }) => {
            print(&manual::expand(&name, size, &show).await?)
        }
        Command::Volume(VolumeCommand::Delete {
            name,
            confirm,
            wait,
            socket,
        }) => print(&manual::delete(&socket.socket, &name, confirm.as_deref(), wait).await?),
        Command::Volume(VolumeCommand::EraseNow(args)) => {
            print(&quarantine::end(&args, quarantine::End::Erase).await?)
        }
        Command::Volume(VolumeCommand::Restore(args)) => {
            print(&quarantine::end(&args, quarantine::End::Restore).await?)
        }
        Command::Volume(VolumeCommand::Pv(args)) => {
            let made = manual::pv(&args).await?;
            eprintln!("{}\n", printed(&made.first.join("\n")));
            print(&args.claim.output.document().write(&made.value)?)
        }
        Command::NomadPlugin(args) => match nomad::run(&args).await {
            Ok(answer) => print(&answer),
            Err(error) => {
                // Nomad shows the standard output; its log has the rest.
                print(&nomad::refusal(&error)?)?;
                Err(error.into())
            }
        },
        Command::Rescan { socket } => {
            let mut client = Client::connect(&socket.socket).await?;
            let revision = waiting("scanning drives", client.rescan()).await?;
            print(&format!(
                "rescanned; the inventory is at revision {revision}\n"
            ))
        }
        Command::LogLevel { level, socket } => {
            let filter = log_filter(level.as_deref());
            let now = log::query_level(&AGENT, &socket.socket, filter).await?;
            print(&format!("{now}\n"))
        }
        Command::Smart(SmartCommand::Explain(args)) => {
            let explained = explain::run(&args)?;
            print(&explained.render(args.output)?)?;
            match explained.verdict() {
                Verdict::Good => Ok(()),
                verdict => Err(CommandError::Verdict(verdict)),
            }
        }
        Command::Rules { output } => print(&rules::render(output)?),
        Command::Schema { of } => print(&schema::render(of)?),
        Command::UdevRule => print(drivebay_sys::host_udev::RULE),
        Command::Init {
            config,
            print: only_print,
            allow_loop,
        } => print(&init::run(&config.config, only_print, allow_loop).await?),
        Command::CheckConfig { config } => {
            let checked = config::load(&config.config, &HostFacts::with_kernel())?;
            check_config::warn(&config.config, &checked.warnings);
            for warning in check_config::unmatched_links(&checked.config) {
                check_config::print_warning(&warning);
            }
            print(&check_config::summary(&checked.config))
        }
    }
}

/// Returns the inventory, and the output settings.
async fn query(show: &Show) -> Result<(InventoryUpdate, HealthOutput), CommandError> {
    let mut client = Client::connect(&show.socket.socket).await?;
    let output = HealthOutput {
        format: show.output,
        now: unix_seconds(),
        terminal: Terminal::of_stdout(),
    };
    Ok((client.inventory().await?, output))
}

/// Prints a result that has an exit code of its own.
fn answer(answer: &Answer) -> Result<(), CommandError> {
    print(&answer.text)?;
    match answer.code {
        0 => Ok(()),
        code => Err(CommandError::Answered(code)),
    }
}

fn print(text: &str) -> Result<(), CommandError> {
    cli::print(&mut io::stdout().lock(), &answered(text)).map_err(CommandError::Output)
}

#[cfg(test)]
mod screens;
#[cfg(test)]
mod tests;

//! The command line: what can be typed (`args`), asking the agent (`client`), showing what it says.
//!
//! Everything but `run` is here; `run` is the caller's, since it builds a runtime of its own.

use std::{error::Error, io, process::ExitCode};

use drivebay_proto::agent::InventoryUpdate;

use crate::{
    config::{self, HostFacts},
    model::Verdict,
};

pub mod ack;
pub mod adopt;
pub mod args;
pub mod by_hand;
pub mod check;
pub mod check_config;
pub mod claim_plan;
pub mod client;
pub mod drives;
pub mod explain;
pub mod health;
pub mod init;
mod latency;
pub mod logging;
pub mod mounts;
pub mod nomad;
pub mod one_drive;
pub mod release;
pub mod rules;
pub mod volumes;
pub mod wipe;

pub use drivebay_common::table;
use drivebay_common::{
    ask::AskError,
    cli::{self, FAILED, NO_ANSWER, UNKNOWN, UNWELL, USAGE, chain},
    logging as log,
    paint::Paint,
};
use drivebay_controller::cli::{show::PickError, unix_seconds};

pub use args::{
    Cli, Command, DriveCommand, LogFormat, RunArgs, RunOptions, SmartCommand, VolumeCommand,
};

use args::Show;

use client::{AGENT, Client};
use drivebay_controller::cli::args::LogLevelArgs;
use health::Look;
use one_drive::OneDriveError;

/// There is no config, or `run` was given one with a mistake (EX_CONFIG of sysexits.h).
pub const BAD_CONFIG: u8 = 78;

/// How a command failed. `main` prints it and ends with its exit code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The agent.
    #[error(transparent)]
    Client(#[from] AskError),
    /// The config.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// claim-plan's look at the drives.
    #[error(transparent)]
    Plan(#[from] claim_plan::PlanError),
    /// init.
    #[error(transparent)]
    Init(#[from] init::InitError),
    /// drive wipe.
    #[error(transparent)]
    Wipe(#[from] wipe::WipeError),
    /// drive adopt, drive release.
    #[error(transparent)]
    Adopt(#[from] one_drive::OneDriveError),
    /// drive show, volume show.
    #[error(transparent)]
    Pick(#[from] PickError),
    /// health: an answer, and no failure.
    #[error("something is wrong")]
    Unwell,
    /// volume check.
    #[error(transparent)]
    Check(#[from] check::CheckVolumeError),
    /// volume create, expand, delete, pv.
    #[error(transparent)]
    ByHand(#[from] by_hand::ByHandError),
    /// volume mount, unmount, list.
    #[error(transparent)]
    Mount(#[from] mounts::MountError),
    /// nomad-plugin.
    #[error(transparent)]
    Nomad(#[from] nomad::NomadError),
    /// smart explain.
    #[error(transparent)]
    Explain(#[from] explain::ExplainError),
    /// smart explain: an answer, and no failure.
    #[error("the drive's verdict is {0}")]
    Verdict(Verdict),
    /// Writing the answer.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// Making JSON.
    #[error("cannot write the answer as JSON")]
    Json(#[from] serde_json::Error),
}

impl CommandError {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error)
            | Self::Adopt(OneDriveError::Client(error))
            | Self::Check(check::CheckVolumeError::Client(error))
            | Self::ByHand(by_hand::ByHandError::Client(error))
            | Self::Mount(mounts::MountError::Client(error))
            | Self::Nomad(nomad::NomadError::Client(error))
            | Self::Wipe(wipe::WipeError::Drive(OneDriveError::Client(error)))
                if error.is_absence() =>
            {
                NO_ANSWER
            }
            Self::Wipe(wipe::WipeError::NoConfig { .. }) => NO_ANSWER,
            Self::Adopt(error) | Self::Wipe(wipe::WipeError::Drive(error)) if error.is_usage() => {
                USAGE
            }
            Self::ByHand(error) if error.is_usage() => USAGE,
            Self::Config(config::ConfigError::Missing { .. }) => BAD_CONFIG,
            _ => FAILED,
        }
    }
}

/// Runs any command but `run`.
pub async fn run(command: Command) -> ExitCode {
    let is_health = matches!(command, Command::Health { .. });
    match execute(command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Unwell) => ExitCode::from(UNWELL),
        Err(CommandError::Verdict(verdict)) => ExitCode::from(explain::exit_code(verdict)),
        Err(error) if is_health => {
            complain(&error);
            // Of this one, 1 is an answer.
            ExitCode::from(UNKNOWN)
        }
        Err(error) => {
            complain(&error);
            ExitCode::from(error.code())
        }
    }
}

/// An error as a person at a prompt sees it, with its reasons.
pub fn complain(error: &(dyn Error + 'static)) {
    eprintln!("drivebay-agent: {}", chain(error));
}

async fn execute(command: Command) -> Result<(), CommandError> {
    match command {
        // The caller has taken `run` out; it does nothing here.
        Command::Run(_) => Ok(()),
        Command::Drives { show, all } => {
            let inventory = Client::connect(&show.socket.socket)
                .await?
                .inventory()
                .await?;
            print(&drives::render(&inventory, show.output, all)?)
        }
        Command::Volumes { show } => {
            let inventory = Client::connect(&show.socket.socket)
                .await?
                .inventory()
                .await?;
            print(&volumes::render(&inventory, show.output)?)
        }
        Command::Health { show } => {
            let (inventory, look) = asked(&show).await?;
            let (text, well) = health::health(&inventory, look)?;
            print(&text)?;
            if well {
                Ok(())
            } else {
                Err(CommandError::Unwell)
            }
        }
        Command::Drive(DriveCommand::Show(args)) => {
            let (inventory, look) = asked(&args.show).await?;
            let drive = health::drive(&inventory, &args.id)?;
            let mut client = Client::connect(&args.show.socket.socket).await?;
            let latency = client.drive_latency(&drive.id).await?;
            print(&health::show_drive(
                &inventory,
                drive,
                latency.as_ref(),
                look,
            )?)
        }
        Command::Drive(DriveCommand::Ack {
            drive,
            note,
            socket,
        }) => print(&ack::run(&socket.socket, &drive, &note).await?),
        Command::Volume(VolumeCommand::Show(args)) => {
            let (inventory, look) = asked(&args.show).await?;
            let volume = health::volume(&inventory, &args.id)?;
            print(&health::show_volume(&inventory, volume, look)?)
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
        Command::Volume(VolumeCommand::Create(args)) => print(&by_hand::create(&args).await?),
        Command::Volume(VolumeCommand::Mount(args)) => print(&mounts::mount(&args).await?),
        Command::Volume(VolumeCommand::Unmount { what, socket }) => {
            print(&mounts::unmount(&socket.socket, &what).await?)
        }
        Command::Volume(VolumeCommand::Expand { name, size, show }) => {
            print(&by_hand::expand(&name, size, &show).await?)
        }
        Command::Volume(VolumeCommand::Delete {
            name,
            confirm,
            socket,
        }) => print(&by_hand::delete(&socket.socket, &name, confirm.as_deref()).await?),
        Command::Volume(VolumeCommand::List { show }) => print(&mounts::list(&show).await?),
        Command::Volume(VolumeCommand::Pv(args)) => {
            let made = by_hand::pv(&args).await?;
            eprintln!("{}\n", made.first.join("\n"));
            print(&(serde_json::to_string_pretty(&made.value)? + "\n"))
        }
        Command::NomadPlugin(args) => match nomad::run(&args).await {
            Ok(answer) => print(&answer),
            Err(error) => {
                // Nomad shows what is on standard output; its log has the rest.
                print(&nomad::refusal(&error)?)?;
                Err(error.into())
            }
        },
        Command::Rescan { socket } => {
            let revision = Client::connect(&socket.socket).await?.rescan().await?;
            print(&format!(
                "rescanned; the inventory is at revision {revision}\n"
            ))
        }
        Command::LogLevel { level, socket } => {
            let filter = LogLevelArgs::filter(level.as_deref());
            let now = log::ask(&AGENT, &socket.socket, filter).await?;
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
        Command::UdevRule => print(crate::sys::host_udev::RULE),
        Command::Init {
            config,
            print: only_print,
            allow_loop,
        } => print(&init::run(&config.config, only_print, allow_loop).await?),
        Command::CheckConfig { config } => {
            let checked = config::load(&config.config, &HostFacts::with_kernel())?;
            check_config::warn(&config.config, &checked.warnings);
            for warning in check_config::unmatched_links(&checked.config) {
                eprintln!("warning: {warning}");
            }
            print(&check_config::summary(&checked.config))
        }
    }
}

/// The inventory, and the output format.
async fn asked(show: &Show) -> Result<(InventoryUpdate, Look), CommandError> {
    let mut client = Client::connect(&show.socket.socket).await?;
    let look = Look {
        format: show.output,
        now: unix_seconds(),
        paint: Paint::of_stdout(),
    };
    Ok((client.inventory().await?, look))
}

fn print(text: &str) -> Result<(), CommandError> {
    cli::print(&mut io::stdout().lock(), text).map_err(CommandError::Output)
}

#[cfg(test)]
mod tests;

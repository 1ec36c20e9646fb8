//! `drivebay-agent`: runs as a worker, as the agent, or as a command that calls the agent.

#![forbid(unsafe_code)]

use std::{alloc::System, process::ExitCode};

use drivebay_agent::{app, jobs};
use drivebay_cli::{self as cli, Cli, Command, RunArgs};
use drivebay_config as config;
use drivebay_worker as worker;
use zeroizing_alloc::ZeroAlloc;

/// Zeroes memory when it is freed. The secret of an encrypted volume passes through buffers of gRPC, of the protocol of workers and of this
/// program, none of which would do that by itself.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    if let Some(code) = worker::child::if_worker(jobs::dispatch) {
        return code;
    }
    cli::complete::if_completing();
    match drivebay_common::parse::parse::<Cli>().command {
        Command::Run(run) => agent(run),
        other => run_command(other),
    }
}

fn agent(RunArgs { config, options }: RunArgs) -> ExitCode {
    let checked = match config::load(&config.config, &config::HostFacts::here()) {
        Ok(checked) => checked,
        Err(error) => {
            cli::complain(&error);
            return ExitCode::from(match error {
                // A restart does not help, and a service manager can be configured by this code not to try.
                config::ConfigError::Invalid { .. } | config::ConfigError::Missing { .. } => {
                    cli::BAD_CONFIG
                }
                config::ConfigError::Read { .. } => drivebay_common::cli::WRONG,
            });
        }
    };
    cli::logging::start(options.log_format);
    for warning in &checked.warnings {
        tracing::warn!(file = %config.config.display(), warning = %warning, "configuration warning");
    }
    app::run(checked.config, options)
}

fn run_command(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(cli::run(command)),
        Err(error) => {
            cli::complain(&error);
            ExitCode::from(drivebay_common::cli::WRONG)
        }
    }
}

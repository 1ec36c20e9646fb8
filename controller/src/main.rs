//! `drivebay-controller`.

use std::{error::Error, process::ExitCode};

use drivebay_common::logging;
#[cfg(all(feature = "certs", feature = "kubernetes"))]
use drivebay_controller::kubernetes::certificates;
use drivebay_controller::{
    app, cli,
    config::{Cli, Command},
};
#[cfg(feature = "certs")]
use drivebay_controller::{certs, config::Certs};

fn main() -> ExitCode {
    cli::complete::if_completing();
    let options = match drivebay_common::parse::parse::<Cli>().command {
        Command::Run(options) => options,
        #[cfg(feature = "certs")]
        Command::Certs(command) => return make(&command),
        Command::Client(command) => return cli::run(&command),
    };
    logging::start(options.log_format, "RUST_LOG");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result: Result<(), Box<dyn Error>> = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(app::run(*options));
            runtime.shutdown_background();
            result.map_err(Into::into)
        }
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error.as_ref()),
    }
}

#[cfg(feature = "certs")]
fn make(command: &Certs) -> ExitCode {
    use std::io::Write;

    let output: Result<String, Box<dyn Error>> = match command {
        Certs::Files(command) => certs::run(command).map_err(Into::into),
        #[cfg(feature = "kubernetes")]
        Certs::Kubernetes(args) => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Into::into)
            .and_then(|runtime| runtime.block_on(certificates(args)).map_err(Into::into)),
    };
    let result = output.and_then(|output| Ok(std::io::stdout().write_all(output.as_bytes())?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error.as_ref()),
    }
}

fn failed(error: &(dyn Error + 'static)) -> ExitCode {
    cli::complain(error);
    ExitCode::FAILURE
}

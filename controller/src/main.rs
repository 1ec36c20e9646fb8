//! `drivebay-controller`.

use std::{error::Error, process::ExitCode};

use drivebay_common::logging;
use drivebay_controller::{
    app, cli,
    config::{Cli, Command},
};

fn main() -> ExitCode {
    let options = match drivebay_common::parse::parse::<Cli>().command {
        Command::Run(options) => options,
        #[cfg(feature = "certs")]
        Command::Certs(command) => return make(&command),
        Command::Ask(command) => return cli::run(&command),
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
fn make(command: &drivebay_controller::certs::args::CertsCommand) -> ExitCode {
    use std::io::Write;

    match drivebay_controller::certs::run(command) {
        Ok(said) => match std::io::stdout().write_all(said.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        Err(error) => failed(&error),
    }
}

fn failed(error: &(dyn Error + 'static)) -> ExitCode {
    cli::complain(error);
    ExitCode::FAILURE
}

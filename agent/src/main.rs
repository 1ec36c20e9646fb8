//! `drivebay-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = drivebay_agent::worker::child::if_worker() {
        return code;
    }
    ExitCode::SUCCESS
}

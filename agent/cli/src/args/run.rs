//! `run`.

use clap::Args;

use super::{ConfigArg, LogFormat};
use drivebay_config::HealthApi;
use drivebay_page::PageListen;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The config.
    #[command(flatten)]
    pub config: ConfigArg,
    #[command(flatten)]
    pub options: RunOptions,
}

/// Options of `run` that have no key in the configuration file.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Serve the CSI Controller service on the CSI socket, too (a single machine, Nomad, tests)
    #[arg(long)]
    pub headless: bool,
    /// Where the page for people is served over HTTP, read-only: a loopback address, a path of a unix socket, or off. Whoever can
    /// connect can read
    #[arg(
        long,
        value_name = "ADDRESS:PORT|PATH|off",
        requires = "headless",
        default_value_t
    )]
    pub page: PageListen,
    /// Which health API to advertise: VOLUME_CONDITION of CSI 1.12, the health calls of 1.13, both or none
    #[arg(long, value_name = "API", value_enum, default_value_t = HealthApi::Legacy)]
    pub health_api: HealthApi,
    /// Format of log lines (on stderr)
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn each_health_api_word_selects_its_api() {
        for (word, meaning) in [
            ("legacy", HealthApi::Legacy),
            ("v1.13", HealthApi::V1_13),
            ("both", HealthApi::Both),
            ("none", HealthApi::None),
        ] {
            let cli = Cli::try_parse_from(["x", "run", "--health-api", word]).unwrap();
            assert!(
                matches!(cli.command, Command::Run(run) if run.options.health_api == meaning),
                "{word}"
            );
        }
    }
}

//! `run`.

use clap::Args;

use super::{ConfigArg, LogFormat};
use drivebay_config::HealthApi;

/// How the agent runs.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The config.
    #[command(flatten)]
    pub config: ConfigArg,
    /// How it runs.
    #[command(flatten)]
    pub options: RunOptions,
}

/// What is said at the command line and not in the config.
#[derive(Debug, Clone, Copy, Args)]
pub struct RunOptions {
    /// Serve the CSI Controller service on the CSI socket, too (a single machine, Nomad, tests)
    #[arg(long)]
    pub headless: bool,
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
    fn the_health_api_words_mean_what_they_say() {
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

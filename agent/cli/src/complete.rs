//! Completes command lines with the drives, volumes and classes of the running agent. Read-only; if the agent does not respond in time, or
//! refuses the user, only commands and options are completed.

use std::{env, path::Path};

use clap::CommandFactory;
use drivebay_config::DEFAULT_AGENT_SOCKET;
use drivebay_proto::agent::InventoryUpdate;
use drivebay_view::complete::{
    self, CompleteEnv, CompletionCandidate, LIMIT, Named, of_classes, of_drives, of_quarantined,
    of_snapshots, of_snapshots_and_groups, of_volumes, with_candidates,
};
use tokio::{runtime::Builder, time::timeout};

use super::{Cli, client::Client};

/// Responds to a shell's completion request, and then exits; returns if there is none.
pub fn if_completing() {
    CompleteEnv::with_factory(command).complete();
}

fn command() -> clap::Command {
    with_candidates(Cli::command(), candidates)
}

fn candidates(what: Named) -> Vec<CompletionCandidate> {
    let words = complete::typed(env::args_os());
    let environment = env::var_os("DRIVEBAY_SOCKET");
    let socket = complete::socket(&words, environment, DEFAULT_AGENT_SOCKET);
    inventory(&socket).map_or_else(Vec::new, |inventory| of(what, &inventory))
}

fn inventory(socket: &Path) -> Option<InventoryUpdate> {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let answer = timeout(LIMIT, async {
            let mut client = Client::connect(socket).await?;
            client.inventory().await
        });
        answer.await.ok()?.ok()
    })
}

fn of(what: Named, inventory: &InventoryUpdate) -> Vec<CompletionCandidate> {
    match what {
        Named::Drive => of_drives(&inventory.drives, |drive| &drive.kernel_name),
        Named::Volume => of_volumes(&inventory.volumes),
        Named::Quarantined => of_quarantined(&inventory.volumes),
        Named::Snapshot => of_snapshots(&inventory.volumes),
        Named::SnapshotOrGroup => of_snapshots_and_groups(&inventory.volumes),
        Named::Class => of_classes(&inventory.classes),
        // An agent has one node only, and no command takes its name.
        Named::Node => Vec::new(),
    }
}

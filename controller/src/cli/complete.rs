//! Shell completion of the nodes, drives, volumes and classes that the running controller knows. Changes nothing. If no controller
//! answers, only commands and options are completed. After a timeout, the candidates received so far are offered.

use std::{env, ffi::OsString};

use clap::CommandFactory;
use drivebay_common::query::QueryError;
use drivebay_proto::agent::Drive;
use drivebay_view::complete::{
    self, CompleteEnv, CompletionCandidate, LIMIT, Named, of_classes, of_drives, of_nodes,
    of_quarantined, of_volumes, with_candidates,
};
use tokio::{runtime::Builder, time::timeout};

use super::{args::DEFAULT_SOCKET, client::Client};
use crate::config::Cli;

/// Answers a shell's completion request and exits the process; otherwise returns.
pub fn if_completing() {
    CompleteEnv::with_factory(command).complete();
}

fn command() -> clap::Command {
    with_candidates(Cli::command(), candidates)
}

fn candidates(what: Named) -> Vec<CompletionCandidate> {
    query_candidates(what, &complete::typed(env::args_os()))
}

/// Returns the controller's objects of this kind. `words`: the command line so far.
pub(super) fn query_candidates(what: Named, words: &[OsString]) -> Vec<CompletionCandidate> {
    let mut offers = Vec::new();
    if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
        // An error cannot be shown during completion.
        let _ = runtime.block_on(async { timeout(LIMIT, query(what, words, &mut offers)).await });
    }
    offers
}

async fn query(
    what: Named,
    words: &[OsString],
    offers: &mut Vec<CompletionCandidate>,
) -> Result<(), QueryError> {
    let environment = env::var_os("DRIVEBAY_CONTROLLER_SOCKET");
    let socket = complete::socket(words, environment, DEFAULT_SOCKET);
    let mut client = Client::connect(&socket).await?;
    let node = complete::option_value(words, "--node").and_then(|node| node.into_string().ok());
    let nodes: Vec<String> = node.into_iter().collect();
    match what {
        // The controller knows snapshots, but none of its commands takes one.
        Named::Snapshot | Named::SnapshotOrGroup => {}
        Named::Node => {
            let nodes = client.nodes(&[]).await?;
            *offers = of_nodes(nodes.iter().map(|node| node.node_id.as_str()));
        }
        Named::Class => {
            let nodes = client.nodes(&nodes).await?;
            *offers = of_classes(nodes.iter().flat_map(|node| &node.classes));
        }
        Named::Drive => {
            // Kernel names are not unique across nodes: each may have an sda.
            let name: fn(&Drive) -> &str = match nodes.is_empty() {
                true => |drive| &drive.id,
                false => |drive| &drive.kernel_name,
            };
            let mut incoming = client.drives(&nodes).await?;
            while let Some(node) = incoming.next().await? {
                offers.extend(of_drives(&node.drives, name));
            }
        }
        Named::Volume | Named::Quarantined => {
            let mut incoming = client.volumes(&nodes, what == Named::Quarantined).await?;
            while let Some(there) = incoming.next().await? {
                offers.extend(match what {
                    Named::Quarantined => of_quarantined(&there.volume),
                    _ => of_volumes(&there.volume),
                });
            }
        }
    }
    Ok(())
}

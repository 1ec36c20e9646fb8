//! What completes a command line at the Tab key: the nodes, drives, volumes and classes that the running controller knows. Reads, and
//! changes nothing; where no controller answers, there are only commands and options. What has arrived in time is offered.

use std::{env, ffi::OsString};

use clap::CommandFactory;
use drivebay_common::ask::AskError;
use drivebay_proto::agent::Drive;
use drivebay_view::complete::{
    self, CompleteEnv, CompletionCandidate, LIMIT, Named, of_classes, of_drives, of_nodes,
    of_quarantined, of_volumes, with_candidates,
};
use tokio::{runtime::Builder, time::timeout};

use super::{args::DEFAULT_SOCKET, client::Client};
use crate::config::Cli;

/// Answers a shell that completes a command line, and ends the program then.
pub fn if_completing() {
    CompleteEnv::with_factory(command).complete();
}

fn command() -> clap::Command {
    with_candidates(Cli::command(), candidates)
}

fn candidates(what: Named) -> Vec<CompletionCandidate> {
    known(what, &complete::typed(env::args_os()))
}

/// What is known to the controller that the words of the command line name.
pub(super) fn known(what: Named, words: &[OsString]) -> Vec<CompletionCandidate> {
    let mut found = Vec::new();
    if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
        // Whoever is completing a word has no use for an error.
        let _ = runtime.block_on(async { timeout(LIMIT, ask(what, words, &mut found)).await });
    }
    found
}

async fn ask(
    what: Named,
    words: &[OsString],
    found: &mut Vec<CompletionCandidate>,
) -> Result<(), AskError> {
    let environment = env::var_os("DRIVEBAY_CONTROLLER_SOCKET");
    let socket = complete::socket(words, environment, DEFAULT_SOCKET);
    let mut client = Client::connect(&socket).await?;
    let node = complete::option_value(words, "--node").and_then(|node| node.into_string().ok());
    let nodes: Vec<String> = node.into_iter().collect();
    match what {
        // A controller knows them, and no command takes one.
        Named::Snapshot => {}
        Named::Node => {
            let nodes = client.nodes(&[]).await?;
            *found = of_nodes(nodes.iter().map(|node| node.node_id.as_str()));
        }
        Named::Class => {
            let nodes = client.nodes(&nodes).await?;
            *found = of_classes(nodes.iter().flat_map(|node| &node.classes));
        }
        Named::Drive => {
            // Each node has an sda.
            let name: fn(&Drive) -> &str = match nodes.is_empty() {
                true => |drive| &drive.id,
                false => |drive| &drive.kernel_name,
            };
            let mut incoming = client.drives(&nodes).await?;
            while let Some(node) = incoming.next().await? {
                found.extend(of_drives(&node.drives, name));
            }
        }
        Named::Volume | Named::Quarantined => {
            let mut incoming = client.volumes(&nodes, what == Named::Quarantined).await?;
            while let Some(there) = incoming.next().await? {
                found.extend(match what {
                    Named::Quarantined => of_quarantined(&there.volume),
                    _ => of_volumes(&there.volume),
                });
            }
        }
    }
    Ok(())
}

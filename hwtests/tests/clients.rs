//! gRPC clients in Go and Python dial every socket that other programs dial: both send authorities that h2 rejects.
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use drivebay_hwtests::{Rig, fleet::Controller, need, wait};
use tempfile::TempDir;

/// The agent serves registration as soon as its CSI socket answers.
const REGISTRATION: Duration = Duration::from_secs(30);

#[tokio::test]
async fn registration_and_csi_sockets_of_the_agent_answer_clients_in_go_and_python() {
    need!(root, loop, clients);
    let rig = Rig::tuned(Vec::new(), |settings| {
        settings.registration = true;
        fs::create_dir_all(settings.dir.join("kubelet/plugins_registry")).unwrap();
    })
    .await;
    let settings = rig.agent.settings();
    let registration = settings.registration_socket();
    wait::until_async(REGISTRATION, "the registration socket", async || {
        registration.exists().then_some(())
    })
    .await;
    dial(&registration, &["registration"]);
    dial(&settings.csi_socket(), &["csi", "node", "controller"]);
}

#[tokio::test]
async fn csi_socket_of_the_controller_answers_clients_in_go_and_python() {
    need!(clients);
    let dir = TempDir::with_prefix("drivebay-controller-").unwrap();
    let controller = Controller::start(dir.path(), None, &[]).await.unwrap();
    dial(&controller.socket(), &["csi", "controller"]);
}

/// Dials the socket with every client. `what`: the kind of socket, and its additional services.
fn dial(socket: &Path, what: &[&str]) {
    let (kind, services) = what.split_first().unwrap();
    for client in need::clients().unwrap() {
        let (program, first) = client.split_first().unwrap();
        let output = Command::new(program)
            .args(first)
            .arg(kind)
            .arg(socket)
            .args(services)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}: {}{}",
            program.display(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

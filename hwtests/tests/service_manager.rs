//! Notifications of agent and controller to the service manager: ready, watchdog while they accept calls, and stopping.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use drivebay_hwtests::{DriveSpec, GIB, Rig, need, program};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Watchdog interval of the service.
const PERIOD: Duration = Duration::from_millis(1500);
/// Time limit for a notification, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The service manager's end of the notification socket.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(dir: &Path) -> Self {
        let path = dir.join("manager.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    /// Returns the environment of a service.
    fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("NOTIFY_SOCKET", self.path.display().to_string()),
            ("WATCHDOG_USEC", PERIOD.as_micros().to_string()),
        ]
    }

    /// Returns the next notification, or None if there is none within this time.
    fn receive(&self, limit: Duration) -> Option<String> {
        let mut buffer = [0; 4096];
        self.socket.set_read_timeout(Some(limit)).unwrap();
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// Waits for a notification with this line, and returns those before it.
    fn waits_for(&self, line: &str) -> Vec<String> {
        let mut before = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            match self.receive(Duration::from_secs(1)) {
                Some(message) if message.lines().any(|one| one == line) => return before,
                Some(message) => before.push(message),
                None => {}
            }
        }
        panic!("{line} was not told; this was: {before:?}");
    }

    /// Verifies that the service is ready and sends watchdog notifications; then removes its socket, and verifies that they end.
    fn sees_a_service_until_nobody_can_call_it(&self, csi_socket: &Path) {
        let before = self.waits_for("READY=1");
        assert!(before.iter().any(|message| message.starts_with("STATUS=")));
        for _ in 0..3 {
            self.waits_for("WATCHDOG=1");
        }
        fs::remove_file(csi_socket).unwrap();
        // One may be in transit.
        let begun = Instant::now();
        while begun.elapsed() < PERIOD {
            self.receive(PERIOD);
        }
        assert_eq!(self.receive(3 * PERIOD), None, "nobody can call it");
    }
}

#[tokio::test]
async fn an_agent_is_alive_to_its_manager_for_as_long_as_it_can_be_called() {
    need!(root, loop);
    let mut manager = None;
    let rig = Rig::tuned(vec![DriveSpec::blank("a", GIB)], |settings| {
        let made = Manager::new(&settings.dir);
        let set = made
            .environment()
            .map(|(name, value)| format!("{name}={value}"));
        let script = settings.dir.join("managed");
        fs::write(
            &script,
            format!("#!/bin/sh\nexec env {} \"$@\"\n", set.join(" ")),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
        settings.under = script.display().to_string();
        manager = Some(made);
    })
    .await;
    let manager = manager.unwrap();
    manager.sees_a_service_until_nobody_can_call_it(&rig.agent.settings().csi_socket());
    drop(rig);
}

#[test]
fn a_controller_is_alive_to_its_manager_for_as_long_as_it_can_be_called_and_reports_that_it_stops()
{
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::new(dir.path());
    let csi_socket = dir.path().join("csi.sock");
    let mut child = Command::new(program::controller().unwrap())
        .arg("run")
        .args([Path::new("--agent-socket"), &dir.path().join("none.sock")])
        .args([Path::new("--csi-socket"), &csi_socket])
        .args([Path::new("--socket"), &dir.path().join("c.sock")])
        .args(["--metrics", "off"])
        .envs(manager.environment())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    manager.sees_a_service_until_nobody_can_call_it(&csi_socket);
    kill(
        Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    manager.waits_for("STOPPING=1");
    assert!(child.wait().unwrap().success());
}

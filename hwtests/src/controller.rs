//! A real controller: certificates made by its own command, started on a free port, killed, started again.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{Csi, Trouble, agent, wait};

/// A started controller serves within this; the machine may be building at the same time.
const SERVING_LIMIT: Duration = Duration::from_secs(30);

/// The controller's program: DRIVEBAY_CONTROLLER, else beside the agent's.
///
/// # Errors
/// It has not been built.
pub fn program() -> Result<PathBuf, Trouble> {
    if let Some(named) = std::env::var_os("DRIVEBAY_CONTROLLER") {
        return Ok(named.into());
    }
    let beside = agent::program()?.with_file_name("drivebay-controller");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Trouble::new(format!(
        "no {}: run `cargo build --workspace` first, or name it in DRIVEBAY_CONTROLLER",
        beside.display()
    )))
}

/// A running (or killed) controller with a directory of its own.
#[derive(Debug)]
pub struct Controller {
    dir: PathBuf,
    listen: SocketAddr,
    more: Vec<String>,
    child: Option<Child>,
    // Goes last.
    _own: Option<TempDir>,
}

impl Controller {
    /// Makes certificates in `dir`, starts the controller with these further options, and waits until it serves.
    ///
    /// # Errors
    /// It did not start: with its log.
    pub async fn start(dir: &Path, more: &[&str]) -> Result<Self, Trouble> {
        fs::create_dir_all(dir)?;
        let mut controller = Self {
            dir: dir.to_owned(),
            // Free now; nothing else on this machine takes ports by number.
            listen: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?,
            more: more.iter().map(|&word| word.to_owned()).collect(),
            child: None,
            _own: None,
        };
        let certs = controller.certs();
        controller.run(&[
            "certs",
            "init",
            "--name",
            "127.0.0.1",
            "--dir",
            &text(&certs),
        ])?;
        controller.launch().await?;
        Ok(controller)
    }

    /// As `start`, in a directory of its own that goes with it.
    ///
    /// # Errors
    /// It did not start: with its log.
    pub async fn new(more: &[&str]) -> Result<Self, Trouble> {
        let own = TempDir::with_prefix("drivebay-controller-")?;
        let mut controller = Self::start(own.path(), more).await?;
        controller._own = Some(own);
        Ok(controller)
    }

    async fn launch(&mut self) -> Result<(), Trouble> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("controller.log"))?;
        let mut command = Command::new(program()?);
        command
            .arg("run")
            .arg("--csi-socket")
            .arg(self.csi_socket())
            .arg("--socket")
            .arg(self.socket())
            .arg("--listen")
            .arg(self.listen.to_string())
            .arg("--state-dir")
            .arg(self.dir.join("state"));
        for (option, file) in [
            ("--ca", "ca.pem"),
            ("--cert", "controller.pem"),
            ("--key", "controller-key.pem"),
        ] {
            command.arg(option).arg(self.certs().join(file));
        }
        command
            .args(&self.more)
            .env("RUST_LOG", "info,drivebay_controller=debug")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        self.child = Some(command.spawn()?);
        let start = Instant::now();
        while Csi::connect(&self.csi_socket()).await.is_err() {
            if start.elapsed() > SERVING_LIMIT {
                return Err(Trouble::new(format!(
                    "the controller does not serve\n{}",
                    self.log()
                )));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Ok(())
    }

    fn certs(&self) -> PathBuf {
        self.dir.join("certs")
    }

    /// The CSI socket.
    pub fn csi_socket(&self) -> PathBuf {
        self.dir.join("controller.sock")
    }

    /// The socket of its command line.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("cluster.sock")
    }

    /// Makes a certificate for a node; the lines of an agent's configuration that dial this controller with it.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn agent_config(&self, node: &str) -> Result<String, Trouble> {
        let certs = self.certs();
        self.run(&["certs", "node", node, "--dir", &text(&certs)])?;
        let files = certs.join("nodes").join(node);
        let (listen, files) = (self.listen, files.display());
        Ok(format!(
            "\n[controller]\naddresses = [\"{listen}\"]\nca = \"{files}/ca.pem\"\ncert = \"{files}/node.pem\"\nkey = \"{files}/node-key.pem\"\n"
        ))
    }

    /// Runs one of its other commands to its end.
    ///
    /// # Errors
    /// It failed: with what it said.
    pub fn run(&self, args: &[&str]) -> Result<Output, Trouble> {
        let output = Command::new(program()?)
            .args(args)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(output);
        }
        Err(Trouble::new(format!(
            "drivebay-controller {args:?} ended with {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )))
    }

    /// Everything it has written so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.dir.join("controller.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Kills it without a chance to say goodbye.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("the controller runs");
        child.kill().expect("killing the controller");
        child.wait().expect("reaping the controller");
    }

    /// Starts it again, after `kill9`, on the same port and state.
    ///
    /// # Errors
    /// It does not serve.
    pub async fn start_again(&mut self) -> Result<(), Trouble> {
        self.launch().await
    }

    /// Waits until it lists this node as connected.
    ///
    /// # Errors
    /// It does not, within half a minute: with its log.
    pub async fn connected(&self, node: &str) -> Result<(), Trouble> {
        let start = Instant::now();
        loop {
            let nodes = crate::cluster::nodes(&self.socket()).await?;
            let found = nodes.iter().find(|of| of.node_id == node);
            if found.is_some_and(|of| of.state == "connected") {
                return Ok(());
            }
            if start.elapsed() > SERVING_LIMIT {
                return Err(Trouble::new(format!(
                    "node {node} is not connected: {nodes:#?}\n{}",
                    self.log()
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        if let Some(mut child) = self.child.take() {
            agent::terminate(child.id());
            if wait::poll(agent::STOP_LIMIT * 2, || child.try_wait().transpose()).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

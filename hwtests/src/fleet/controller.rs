//! A real controller in its own process: started, killed, stopped, restarted and measured.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use drivebay_proto::controller::{ListNodesRequest, Node, cluster_client::ClusterClient};

use tokio::time::timeout;

use crate::{
    Csi, Trouble,
    agent::terminate,
    children::{self, Process},
    csi,
    netns::Host,
    program, wait,
};

/// Longest time until a started controller serves; it may have to read the state of a fleet.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Longest time of a stop: ten seconds for calls, twenty for saving its state.
const STOP_LIMIT: Duration = Duration::from_secs(40);
/// Number of log lines that a failing test prints.
const LOG_TAIL: usize = 40;

/// Value of a controller's `--listen`, on which agents connect; with `Tls` also the directory of its certificates.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A unix socket in its directory.
    Socket,
    /// This address, with the certificates that [`super::certs::make`] created in the directory.
    Tls(SocketAddr, PathBuf),
    /// This address, without certificates, which the controller refuses.
    Plain(SocketAddr),
}

impl Listen {
    /// Returns a free port of 127.0.0.1. Every start of a controller binds it again, since agents dial no other.
    ///
    /// # Errors
    /// No port is free.
    pub fn free_port() -> Result<SocketAddr, Trouble> {
        Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
    }
}

/// A controller that runs, or was stopped or killed.
#[derive(Debug)]
pub struct Controller {
    dir: PathBuf,
    args: Vec<String>,
    address: String,
    host: Option<Host>,
    env: Vec<(String, PathBuf)>,
    process: Option<Process>,
}

/// Resources used by a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Resident memory at the time of the call (VmRSS), bytes.
    pub resident: u64,
    /// User and system CPU time since the start of the process, seconds.
    pub cpu: f64,
}

impl Controller {
    /// Starts a controller with its sockets and log in this directory. `certs`: directory of [`super::certs::make`], for a free port of
    /// 127.0.0.1; None: agents dial a unix socket. `more`: further arguments of `run`.
    ///
    /// # Errors
    /// It does not serve: with the end of its log.
    pub async fn start(dir: &Path, certs: Option<&Path>, more: &[&str]) -> Result<Self, Trouble> {
        let listen = match certs {
            Some(certs) => Listen::Tls(Listen::free_port()?, certs.to_owned()),
            None => Listen::Socket,
        };
        let mut controller = Self::prepare(None, &listen, dir, more);
        controller.start_again().await?;
        Ok(controller)
    }

    /// Prepares a controller like `start`, optionally on a host of a test's own network, without starting it.
    pub fn prepare(host: Option<Host>, listen: &Listen, dir: &Path, more: &[&str]) -> Self {
        let address = match listen {
            Listen::Socket => format!("unix:{}", dir.join("agents.sock").display()),
            Listen::Tls(address, _) | Listen::Plain(address) => address.to_string(),
        };
        let mut args: Vec<String> = ["run", "--listen", &address].map(str::to_owned).to_vec();
        let mut option = |name: &str, path: &Path| {
            args.extend([name.to_owned(), path.display().to_string()]);
        };
        option("--csi-socket", &dir.join("csi.sock"));
        option("--socket", &dir.join("admin.sock"));
        option("--metrics", &dir.join("metrics.sock"));
        if let Listen::Tls(_, certs) = listen {
            option("--ca", &certs.join("ca.pem"));
            option("--cert", &certs.join("controller.pem"));
            option("--key", &certs.join("controller-key.pem"));
        }
        args.extend(more.iter().map(|&word| word.to_owned()));
        Self {
            dir: dir.to_owned(),
            args,
            address,
            host,
            env: Vec::new(),
            process: None,
        }
    }

    /// Adds arguments of `run`, and an environment variable, for its next start.
    pub fn retune(&mut self, more: &[&str], env: (&str, &Path)) {
        self.args.extend(more.iter().map(|&word| word.to_owned()));
        self.env.push((env.0.to_owned(), env.1.to_owned()));
    }

    /// Returns the path of its program.
    ///
    /// # Errors
    /// It is not built.
    pub fn program(&self) -> Result<PathBuf, Trouble> {
        Ok(program::controller()?)
    }

    /// Runs another command of the program on its socket, e.g. `["nodes", "-o", "json"]`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run_command(&self, args: &[&str]) -> Result<Output, Trouble> {
        let mut command = Command::new(self.program()?);
        let command = command.args(args).arg("--socket").arg(self.admin_socket());
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// Returns the socket of its command line.
    pub fn admin_socket(&self) -> PathBuf {
        self.dir.join("admin.sock")
    }

    /// Returns the socket on which it serves metrics.
    pub fn metrics_socket(&self) -> PathBuf {
        self.dir.join("metrics.sock")
    }

    /// Starts it on the same port and sockets. It serves when this returns, but may not be ready.
    ///
    /// # Errors
    /// It does not serve: with the end of its log.
    pub async fn start_again(&mut self) -> Result<(), Trouble> {
        let mut process = self.spawn()?;
        let began = std::time::Instant::now();
        loop {
            if let Ok(csi) = Csi::connect(&self.socket()).await
                && timeout(START_LIMIT, csi.answers()).await == Ok(true)
            {
                self.process = Some(process);
                return Ok(());
            }
            if let Some(status) = process.ended() {
                return Err(Trouble::new(format!(
                    "it ended with {status}\n{}",
                    self.log_tail()
                )));
            }
            if began.elapsed() > START_LIMIT {
                return Err(Trouble::new(format!(
                    "it does not serve\n{}",
                    self.log_tail()
                )));
            }
            tokio::time::sleep(wait::STEP).await;
        }
    }

    /// Starts a process of it without waiting.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self) -> Result<Process, Trouble> {
        let path = self.program()?.display().to_string();
        let mut command = match &self.host {
            Some(host) => host.command(&path)?,
            None => children::mortal(&path)?,
        };
        command.args(&self.args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Process::of(command, &self.log_file())
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops it with SIGTERM, and waits until it has ended.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self) -> Result<(), Trouble> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        terminate(process.pid());
        wait::poll(STOP_LIMIT, || process.ended())
            .map(drop)
            .ok_or_else(|| Trouble::new(format!("it does not end\n{}", self.log_tail())))
    }

    /// Returns the address that agents dial, as in their configuration.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Returns its CSI socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("csi.sock")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("controller.log")
    }

    /// Returns its log so far, of all its processes.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LOG_TAIL);
        format!(
            "--- {}\n{}\n---",
            self.log_file().display(),
            lines[from..].join("\n")
        )
    }

    /// Connects to its CSI socket.
    ///
    /// # Errors
    /// It does not serve.
    pub async fn csi(&self) -> Result<Csi, Trouble> {
        Csi::connect(&self.socket()).await
    }

    /// Returns its nodes, as its command line shows them.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn nodes(&self) -> Result<Vec<Node>, Trouble> {
        let mut client = ClusterClient::new(csi::channel(&self.dir.join("admin.sock")).await?);
        let mut stream = client
            .list_nodes(ListNodesRequest::default())
            .await?
            .into_inner();
        let mut nodes = Vec::new();
        while let Some(node) = stream.message().await? {
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Waits until this many nodes are connected and their inventory is known.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn until_connected(&self, count: usize, limit: Duration) {
        let began = std::time::Instant::now();
        loop {
            let nodes = self.nodes().await.unwrap();
            let connected = nodes
                .iter()
                .filter(|node| node.state == "connected")
                .count();
            if connected == count {
                return;
            }
            assert!(
                began.elapsed() < limit,
                "{connected} of {count} nodes are connected\n{}",
                self.log_tail()
            );
            tokio::time::sleep(wait::STEP).await;
        }
    }

    /// Returns its resource usage since its start.
    ///
    /// # Errors
    /// It does not run.
    pub fn usage(&self) -> Result<Usage, Trouble> {
        let process = self.process.as_ref();
        let pid = process
            .ok_or_else(|| Trouble::new("the controller does not run"))?
            .pid();
        usage(pid)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
    }
}

/// Returns the resource usage of a process since its start.
///
/// # Errors
/// There is no such process.
pub fn usage(pid: u32) -> Result<Usage, Trouble> {
    let unreadable = || Trouble::new(format!("/proc/{pid} is not as expected"));
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .ok_or_else(unreadable)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, which may contain anything, is followed by the fields from the third on; 14 and 15 are the times.
    let (_, fields) = stat.rsplit_once(')').ok_or_else(unreadable)?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().map_err(|_| unreadable()))
        .sum::<Result<u64, Trouble>>()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .unwrap_or(100);
    Ok(Usage {
        resident: resident * 1024,
        cpu: ticks as f64 / per_second as f64,
    })
}

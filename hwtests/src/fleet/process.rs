//! Control of a simulated fleet that runs in its own process.

use std::{collections::BTreeSet, fs::File, path::PathBuf, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command as Program},
};

use super::{
    command::{Command, Nodes, Percent},
    plan::Plan,
};
use crate::{Trouble, netns::Host, program, wait};

/// Longest time until the first line: thousands of certificates are read before it.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Longest time of a command: stopping an agent takes up to ten seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Simulated nodes, and the controllers that they dial.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Size of the fleet.
    pub plan: Plan,
    /// Address of each controller, `HOST:PORT` or `unix:PATH`.
    pub controllers: Vec<String>,
    /// Directory where [`super::certs::make`] created certificates for this plan; None: unix sockets only.
    pub certs: Option<PathBuf>,
    /// File that persists changes.
    pub journal: Option<PathBuf>,
    /// Share of all volumes that change each minute.
    pub change: Percent,
}

/// Host and log of a fleet.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// Host of a test's own network; None: the test's host.
    pub host: Option<Host>,
    /// File for the agents' log; None: only errors, to standard error.
    pub log: Option<PathBuf>,
    /// True if certificates are read again when they change.
    pub follow_certs: bool,
}

/// A running fleet; killed on drop.
#[derive(Debug)]
pub struct Fleet {
    plan: Plan,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Starts it; its agents have begun to dial when this returns.
    ///
    /// # Errors
    /// It cannot be started, or it ended; standard error has its reason.
    pub async fn start(options: &FleetOptions) -> Result<Self, Trouble> {
        Self::start_at(options, &Place::default()).await
    }

    /// Like `start`, on another host or with another log.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_at(options: &FleetOptions, place: &Place) -> Result<Self, Trouble> {
        let plan = &options.plan;
        let program = program::fleet()?;
        let mut command = match &place.host {
            Some(host) => host.plain_command(&program.display().to_string())?.into(),
            None => Program::new(&program),
        };
        command
            .args(["--nodes", &plan.nodes.to_string()])
            .args(["--volumes", &plan.volumes.to_string()])
            .args(["--drives", &plan.drives.to_string()])
            .args(["--prefix", &plan.prefix])
            .args(["--machine", &plan.machine])
            .args(["--seed", &plan.seed.to_string()])
            .args(["--controllers", &options.controllers.join(",")])
            .args(["--change-per-minute", &options.change.to_string()])
            // Own process group: Ctrl-C on the terminal goes to the harness, and the fleet ends with its input.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(certs) = &options.certs {
            command.arg("--certs").arg(certs);
        }
        if place.follow_certs {
            command.arg("--follow-certs");
        }
        if let Some(journal) = &options.journal {
            command.arg("--volumes-file").arg(journal);
        }
        if let Some(log) = &place.log {
            let log = File::options().create(true).append(true).open(log)?;
            command.env("RUST_LOG", "info").stderr(log);
        }
        let mut child = command
            .spawn()
            .map_err(|error| Trouble::doing(format!("starting {}", program.display()), &error))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| Trouble::new("the fleet has no pipes"))?;
        let mut fleet = Self {
            plan: plan.clone(),
            child,
            input,
            output: BufReader::new(output).lines(),
        };
        let ready = fleet.line(READY_LIMIT).await?;
        if !ready.starts_with("ready ") {
            return Err(Trouble::new(format!("the fleet began with {ready:?}")));
        }
        Ok(fleet)
    }

    async fn line(&mut self, limit: Duration) -> Result<String, Trouble> {
        match tokio::time::timeout(limit, self.output.next_line()).await {
            Ok(line) => line?.ok_or_else(|| Trouble::new("the fleet has ended")),
            Err(_) => Err(Trouble::new(format!(
                "the fleet says nothing for {} s",
                limit.as_secs()
            ))),
        }
    }

    /// Executes a command; returns the rest of the answer.
    ///
    /// # Errors
    /// The fleet answered with an error.
    pub async fn request(&mut self, command: &Command) -> Result<String, Trouble> {
        self.input
            .write_all(format!("{command}\n").as_bytes())
            .await?;
        let answer = self.line(ANSWER_LIMIT).await?;
        match answer.split_once(' ') {
            None if answer == "ok" => Ok(String::new()),
            Some(("ok", answer)) => Ok(answer.to_owned()),
            _ => Err(Trouble::new(format!("{command}: {answer}"))),
        }
    }

    /// Returns the plan that it simulates.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns its process id; None after it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the number of nodes with a session, and the number of sessions.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn connected(&mut self) -> Result<(usize, usize), Trouble> {
        let answer = self.request(&Command::Connected).await?;
        let counts = answer
            .split_once(' ')
            .and_then(|(nodes, sessions)| Some((nodes.parse().ok()?, sessions.parse().ok()?)));
        counts.ok_or_else(|| Trouble::new(format!("no counts: {answer:?}")))
    }

    /// Waits until this many nodes have a session.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn until_connected(&mut self, nodes: usize, limit: Duration) {
        let began = std::time::Instant::now();
        loop {
            let (now, _) = self.connected().await.unwrap();
            if now == nodes {
                return;
            }
            assert!(
                began.elapsed() < limit,
                "{now} of {nodes} nodes have a session"
            );
            tokio::time::sleep(wait::STEP).await;
        }
    }

    /// Returns the ids of these nodes' volumes.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn ids(&mut self, nodes: Nodes) -> Result<BTreeSet<String>, Trouble> {
        let ids = self.words(Command::Ids(nodes)).await?;
        Ok(ids.into_iter().collect())
    }

    /// Returns the CSI names of a node's volumes.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn names(&mut self, node: &str) -> Result<Vec<String>, Trouble> {
        self.words(Command::List(node.to_owned())).await
    }

    async fn words(&mut self, command: Command) -> Result<Vec<String>, Trouble> {
        let answer = self.request(&command).await?;
        serde_json::from_str(&answer)
            .map_err(|error| Trouble::doing(format!("reading the answer to {command}"), &error))
    }

    /// Returns the nodes with these indexes, inclusive.
    pub fn range(&self, first: usize, last: usize) -> Nodes {
        Nodes::Range(self.plan.node(first), self.plan.node(last))
    }

    /// Kills it, like a power failure of all its machines; waits until it has ended.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub async fn kill(mut self) -> Result<(), Trouble> {
        Ok(self.child.kill().await?)
    }
}

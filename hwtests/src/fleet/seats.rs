//! Many nodes in one process: each a machine and, while it is started, an agent with real sessions.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use drivebay_agent::uplink::{self, UplinkConfig};
use drivebay_common::tls::{Credentials, Role, TlsFiles};
use drivebay_config::Target;
use fastrand::Rng;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    change, contents::Contents, journal::Journal, machine::Machine, node::SimNode, plan::Plan,
};
use crate::Trouble;

/// Longest time for an agent to end; its own limit is two seconds.
const END: Duration = Duration::from_secs(10);
/// Interval at which certificates are read again.
const REREAD: Duration = Duration::from_secs(1);

/// Connection of the nodes to their controllers.
#[derive(Debug, Clone)]
pub struct Way {
    /// Addresses that every agent dials, to have a session with each controller replica.
    pub targets: Vec<Target>,
    /// Directory of the CA, as `certs` creates it, with a certificate for every node; None: unix sockets only.
    pub certs: Option<PathBuf>,
    /// True if certificates are read again when they change, as an agent does.
    pub follow_certs: bool,
}

#[derive(Debug)]
struct Running {
    node: SimNode,
    stop: CancellationToken,
    uplink: JoinHandle<()>,
}

impl Running {
    async fn end(self) {
        self.node.end();
        self.stop.cancel();
        if tokio::time::timeout(END, self.uplink).await.is_err() {
            tracing::warn!("an agent's sessions have not ended in time");
        }
    }
}

#[derive(Debug)]
struct Seat {
    machine: Arc<Machine>,
    credentials: Option<Credentials>,
    running: Option<Running>,
}

/// The nodes of a plan.
#[derive(Debug)]
pub struct Seats {
    plan: Plan,
    targets: Vec<Target>,
    follow_certs: bool,
    seats: Vec<Seat>,
    rng: Rng,
}

impl Seats {
    /// Creates the machines, without running agents. With a volumes file, applies its recorded changes and appends further ones.
    ///
    /// # Errors
    /// A certificate, or the file, cannot be used.
    pub async fn new(plan: Plan, way: Way, volumes: Option<&Path>) -> Result<Self, Trouble> {
        let (journal, mut past) = match volumes.map(Journal::open).transpose()? {
            Some((journal, past)) => (Some(Arc::new(journal)), past),
            None => (None, BTreeMap::new()),
        };
        let mut seats = Vec::with_capacity(plan.nodes);
        for index in 0..plan.nodes {
            let node = plan.node(index);
            let credentials = match &way.certs {
                None => None,
                Some(dir) => {
                    let own = dir.join("nodes").join(&node);
                    let files = TlsFiles {
                        ca: own.join("ca.pem"),
                        cert: own.join("node.pem"),
                        key: own.join("node-key.pem"),
                    };
                    let loaded = Credentials::load(files, Role::Agent).await;
                    Some(loaded.map_err(|error| Trouble::doing(format!("node {node}"), &error))?)
                }
            };
            let mut contents = Contents::planned(&plan, index);
            contents.recall(past.remove(&node).unwrap_or_default());
            let machine_id = plan.machine_id(index);
            seats.push(Seat {
                machine: Machine::new(node, machine_id, contents, journal.clone()),
                credentials,
                running: None,
            });
        }
        Ok(Self {
            rng: Rng::with_seed(plan.seed),
            targets: way.targets,
            follow_certs: way.follow_certs,
            plan,
            seats,
        })
    }

    /// Returns the plan from which the machines were created.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Starts the agents of these nodes that do not run.
    pub fn start(&mut self, nodes: &[usize]) {
        for index in nodes {
            let Some(seat) = self.seats.get_mut(*index) else {
                continue;
            };
            if seat.running.is_none() {
                let node = SimNode::start(&seat.machine);
                let stop = CancellationToken::new();
                if let Some(credentials) = seat.credentials.clone().filter(|_| self.follow_certs) {
                    tokio::spawn(credentials.follow(REREAD, stop.clone()));
                }
                let config = UplinkConfig {
                    token: None,
                    drive_verbs: Default::default(),
                    targets: self.targets.clone(),
                    credentials: seat.credentials.clone(),
                };
                seat.running = Some(Running {
                    uplink: tokio::spawn(uplink::run(config, node.clone(), stop.clone())),
                    node,
                    stop,
                });
            }
        }
    }

    /// Ends the agents of these nodes, and waits for it.
    pub async fn stop(&mut self, nodes: &[usize]) {
        let mut ending = JoinSet::new();
        for index in nodes {
            let running = self
                .seats
                .get_mut(*index)
                .and_then(|seat| seat.running.take());
            if let Some(running) = running {
                ending.spawn(running.end());
            }
        }
        ending.join_all().await;
    }

    /// Returns the agent of this node.
    ///
    /// # Errors
    /// It does not run.
    pub fn node(&self, index: usize) -> Result<&SimNode, Trouble> {
        let running = self.seats.get(index).and_then(|seat| seat.running.as_ref());
        running.map(|running| &running.node).ok_or_else(|| {
            Trouble::new(format!(
                "the agent of {} does not run",
                self.plan.node(index)
            ))
        })
    }

    /// Returns the machine of this node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn machine(&self, index: usize) -> Result<&Arc<Machine>, Trouble> {
        let seat = self.seats.get(index);
        seat.map(|seat| &seat.machine)
            .ok_or_else(|| Trouble::new(format!("there is no node {}", self.plan.node(index))))
    }

    /// Returns the number of nodes with a session, and the number of sessions.
    pub fn connected(&self) -> (usize, usize) {
        let streams = self.seats.iter().filter_map(|seat| seat.running.as_ref());
        streams.fold((0, 0), |(nodes, sessions), running| {
            let streams = running.node.streams();
            (nodes + usize::from(streams > 0), sessions + streams)
        })
    }

    /// Returns the number of volumes that are not deleted.
    pub fn count(&self) -> usize {
        self.seats
            .iter()
            .map(|seat| seat.machine.contents().living().count())
            .sum()
    }

    /// Makes up to `times` changes, each to a volume of a random node whose agent runs.
    pub fn change(&mut self, times: usize) {
        for _ in 0..times {
            let index = self.rng.usize(..self.seats.len().max(1));
            let running = self.seats.get(index).and_then(|seat| seat.running.as_ref());
            if let Some(running) = running {
                change::one(&running.node, &mut self.rng);
            }
        }
    }
}

//! A cluster in its own network: controllers and simulated nodes, each a process on its own host, with certificates of one CA.

use std::{
    cell::Cell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    Trouble,
    authority::Authority,
    balancer::Balancer,
    fleet::{Fleet, FleetOptions, Place, Plan, command::Percent},
    netns::{Host, NET, Network},
};

mod controller;
mod node;

pub use controller::{Controller, ControllerOptions, request};
pub use node::SimHost;

/// Port on which controllers listen for agents.
pub const PORT: u16 = 9443;
/// Value of their `--away-grace`, seconds.
pub const GRACE: u64 = 2;
/// Limit of waiting for events. A dead peer is detected within ten seconds, and an agent that could not connect dials again within ten
/// more; the machine may be building at the same time.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Host number of the balancer; controllers are from 1, nodes from `FIRST_NODE`.
const BALANCER: u8 = 10;
const FIRST_NODE: u8 = 20;

/// A network and a CA for controllers and simulated nodes, whose processes the caller owns. Drop removes the directory with their
/// certificates, state and logs.
#[derive(Debug)]
pub struct Cluster {
    /// Certificates for controllers 1 to 3 and the balancer; those of nodes are created on demand.
    pub authority: Authority,
    network: Network,
    dir: TempDir,
    next: Cell<u8>,
}

impl Cluster {
    /// Creates a network and a CA.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new() -> Result<Self, Trouble> {
        let dir = tempfile::tempdir()?;
        let address = |number| IpAddr::from(Ipv4Addr::new(NET[0], NET[1], NET[2], number));
        let controllers = [1, 2, 3, BALANCER].map(address);
        Ok(Self {
            authority: Authority::new(&dir.path().join("ca"), &controllers)?,
            network: Network::new()?,
            dir,
            next: Cell::new(FIRST_NODE),
        })
    }

    /// Creates and returns a directory of this name, for a process of the cluster.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Creates a host on which nothing runs yet.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn host(&self) -> Host {
        let number = self.next.replace(self.next.get() + 1);
        self.network.host(number).unwrap()
    }

    /// Starts a controller on host 1, 2 or 3.
    ///
    /// # Panics
    /// When it does not serve.
    pub async fn controller(&self, number: u8) -> Controller {
        self.controller_with(number, |_| ()).await
    }

    /// Like `controller`, with other options.
    ///
    /// # Panics
    /// When it does not serve.
    pub async fn controller_with(
        &self,
        number: u8,
        tune: impl FnOnce(&mut ControllerOptions),
    ) -> Controller {
        Controller::start(self.controller_options(number, tune))
            .await
            .unwrap()
    }

    /// Returns the options with which `controller_with` starts.
    ///
    /// # Panics
    /// When there is no host for it.
    pub fn controller_options(
        &self,
        number: u8,
        tune: impl FnOnce(&mut ControllerOptions),
    ) -> ControllerOptions {
        let host = self.network.host(number).unwrap();
        let dir = self.dir(&format!("controller-{number}"));
        let state = self.dir(&format!("state-{number}")).display().to_string();
        let grace = GRACE.to_string();
        let more = ["--away-grace", &grace, "--state-dir", &state];
        let mut options = ControllerOptions {
            listen: host.at(PORT),
            certs: Some(self.authority.dir().to_owned()),
            more: more.map(str::to_owned).to_vec(),
            host,
            dir,
        };
        tune(&mut options);
        options
    }

    /// Starts a balancer in front of several controllers.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn balancer(&self, behind: &[&Controller]) -> Balancer {
        let host = self.network.host(BALANCER).unwrap();
        let behind = behind
            .iter()
            .map(|controller| controller.address())
            .collect();
        Balancer::start(host, PORT, behind).unwrap()
    }

    /// Starts a host with one simulated node, whose id is the name with a 0 appended, and which dials these addresses.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn node(&self, name: &str, dial: &[SocketAddr]) -> SimHost {
        self.node_on(self.host(), name, dial, |_| ()).await
    }

    /// Like `node`, on an existing host, with other options.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn node_on(
        &self,
        host: Host,
        name: &str,
        dial: &[SocketAddr],
        tune: impl FnOnce(&mut FleetOptions),
    ) -> SimHost {
        let plan = Plan {
            nodes: 1,
            prefix: name.to_owned(),
            ..Plan::default()
        };
        let id = plan.node(0);
        self.authority.node(&id).unwrap();
        let log = self.dir(&format!("node-{}", host.address())).join("log");
        let mut options = FleetOptions {
            plan,
            controllers: dial.iter().map(SocketAddr::to_string).collect(),
            certs: Some(self.authority.dir().to_owned()),
            journal: None,
            change: Percent::default(),
        };
        tune(&mut options);
        let place = Place {
            host: Some(host.clone()),
            log: Some(log.clone()),
            follow_certs: options.certs.is_some(),
        };
        let fleet = Fleet::start_at(&options, &place).await.unwrap();
        SimHost {
            fleet,
            host,
            id,
            log,
        }
    }
}

//! A controller of a cluster: a real one on its own host, with a client and helpers for tests.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
    path::PathBuf,
    process::ExitStatus,
};

use drivebay_proto::{
    controller::Node,
    csi::{
        CreateVolumeRequest, GetCapacityRequest, Topology, TopologyRequirement,
        list_volumes_response::Entry,
    },
    names::DRIVER_NAME,
};
use tonic::Status;

use super::LIMIT;
use crate::{
    Csi, MIB, Trouble, csi,
    fleet::{self, controller::Listen},
    netns::Host,
    wait,
};

/// Options of a controller's start.
#[derive(Debug)]
pub struct ControllerOptions {
    /// Host that it runs on.
    pub host: Host,
    /// Address at which it listens for agents.
    pub listen: SocketAddr,
    /// Directory for its sockets and its log.
    pub dir: PathBuf,
    /// Directory of the CA; None: without TLS, which is refused.
    pub certs: Option<PathBuf>,
    /// Further arguments of `run`.
    pub more: Vec<String>,
}

impl ControllerOptions {
    fn prepare(&self) -> fleet::Controller {
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let listen = match &self.certs {
            Some(certs) => Listen::Tls(self.listen, certs.clone()),
            None => Listen::Plain(self.listen),
        };
        fleet::Controller::prepare(Some(self.host.clone()), &listen, &self.dir, &more)
    }
}

/// A controller of a cluster.
#[derive(Debug)]
pub struct Controller {
    /// A client for its CSI socket.
    pub csi: Csi,
    address: SocketAddr,
    process: fleet::Controller,
}

impl Deref for Controller {
    type Target = fleet::Controller;

    fn deref(&self) -> &fleet::Controller {
        &self.process
    }
}

impl DerefMut for Controller {
    fn deref_mut(&mut self) -> &mut fleet::Controller {
        &mut self.process
    }
}

impl Controller {
    /// Starts it, and waits until it serves. Does not wait for agents.
    ///
    /// # Errors
    /// It does not serve: with the end of its log.
    pub async fn start(options: ControllerOptions) -> Result<Self, Trouble> {
        let mut process = options.prepare();
        process.start_again().await?;
        Ok(Self {
            csi: process.csi().await?,
            address: options.listen,
            process,
        })
    }

    /// Starts a controller that must refuse to run; returns its exit status and log.
    ///
    /// # Errors
    /// It keeps running.
    pub fn refused(options: &ControllerOptions) -> Result<(ExitStatus, String), Trouble> {
        let controller = options.prepare();
        let mut process = controller.spawn()?;
        match wait::poll(LIMIT, || process.ended()) {
            Some(status) => Ok((status, controller.log())),
            None => Err(Trouble::new(format!("it runs:\n{}", controller.log()))),
        }
    }

    /// Restarts it after it was killed, with the same options.
    ///
    /// # Errors
    /// It does not serve: with the end of its log.
    pub async fn start_again(&mut self) -> Result<(), Trouble> {
        self.process.start_again().await?;
        self.csi = self.process.csi().await?;
        Ok(())
    }

    /// Returns the address that agents dial.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until its log has a line with all these words; returns the line.
    ///
    /// # Panics
    /// When it has none in time.
    pub async fn wait_for_log_line(&self, words: &[&str]) -> String {
        let what = format!("the controller says {words:?}");
        wait::until_async(LIMIT, &what, async || wait::line(&self.log(), words)).await
    }

    /// Returns a node's state, if it knows the node.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn node(&self, id: &str) -> Option<Node> {
        let nodes = self.nodes().await.unwrap();
        nodes.into_iter().find(|node| node.node_id == id)
    }

    /// Waits until a node has this state: `connected`, `starting`, `away` or `forgotten`.
    ///
    /// # Panics
    /// When it has not in time.
    pub async fn node_is(&self, id: &str, state: &str) -> Node {
        let what = format!("node {id} is {state}");
        wait::until_async(LIMIT, &what, async || {
            self.node(id).await.filter(|node| node.state == state)
        })
        .await
    }

    /// Returns a volume's entry in ListVolumes.
    ///
    /// # Panics
    /// When the call fails.
    pub async fn listed(&self, id: &str) -> Option<Entry> {
        let of = |entry: &Entry| {
            let volume = entry.volume.as_ref();
            volume.is_some_and(|volume| volume.volume_id == id)
        };
        self.csi.list().await.unwrap().into_iter().find(of)
    }

    /// Calls CreateVolume for these nodes; returns the volume's id.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn create_on(&self, name: &str, nodes: &[&str]) -> Result<String, Status> {
        let created = self.csi.create_with(request(name, nodes)).await?;
        Ok(created.volume_id)
    }

    /// Calls GetCapacity for one node.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn capacity_of(&self, node: &str) -> Result<i64, Status> {
        let request = GetCapacityRequest {
            accessible_topology: Some(topology(node)),
            ..GetCapacityRequest::default()
        };
        let answer = self.csi.controller().get_capacity(request).await?;
        Ok(answer.into_inner().available_capacity)
    }
}

fn topology(node: &str) -> Topology {
    let key = drivebay_csi::topology::TopologyKey::new(DRIVER_NAME);
    key.of(node)
}

/// Returns a request for a small volume of this name on one of these nodes, preferably the first.
pub fn request(name: &str, nodes: &[&str]) -> CreateVolumeRequest {
    let requisite: Vec<Topology> = nodes.iter().map(|node| topology(node)).collect();
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(64 * MIB)),
        volume_capabilities: vec![csi::mount("ext4")],
        accessibility_requirements: Some(TopologyRequirement {
            preferred: requisite.clone(),
            requisite,
        }),
        ..CreateVolumeRequest::default()
    }
}

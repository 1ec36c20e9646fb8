//! A machine, an agent in it, and a client: the usual setup of a lab test. All methods of [`Node`] work as on a [`Rig`](crate::Rig).

use std::ops::{Deref, DerefMut};

use super::{DriveSpec, Guest, Kind, LabAgent, Machine, MachineSpec, agent, letters::LAB_LIMIT};
use crate::{Node, Settings, wait};

/// A node in the lab, with its machine and agent.
#[derive(Debug)]
pub struct LabRig {
    /// Node, as its orchestrator sees it.
    pub node: Node,
    /// Agent in the guest of `machine`; its sockets are forwarded to this host.
    pub agent: LabAgent,
    /// Machine that the agent runs in; its power is cut on drop.
    pub machine: Machine,
}

impl LabRig {
    /// Starts a machine with these drives, and an agent on it. The machine starts from a snapshot, or boots if a drive is SATA, which has
    /// no hotplug.
    ///
    /// # Panics
    /// When one of them does not start.
    pub async fn with(drives: Vec<DriveSpec>, layout: &str) -> Self {
        let boots = drives.iter().any(|drive| drive.kind() == Kind::Sata);
        let spec = MachineSpec::new("node1").with(drives);
        let machine = if boots {
            Machine::boot(spec)
        } else {
            Machine::restored(spec)
        };
        Self::on(machine.unwrap(), layout).await
    }

    /// Starts an agent with the default settings on a machine.
    ///
    /// # Panics
    /// When the agent does not become ready.
    pub async fn on(machine: Machine, layout: &str) -> Self {
        Self::tuned(machine, layout, |_| ()).await
    }

    /// Like `on`, with other settings.
    ///
    /// # Panics
    /// When the agent does not become ready.
    pub async fn tuned(machine: Machine, layout: &str, tune: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = agent::settings(machine.node(), layout);
        tune(&mut settings);
        let agent = LabAgent::start(&machine, settings).await.unwrap();
        Self::of(agent, machine).await
    }

    /// Like `tuned`, with the agent run by this repository's unit file.
    ///
    /// # Panics
    /// When the agent does not become ready.
    pub async fn installed(
        machine: Machine,
        layout: &str,
        tune: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut settings = agent::settings(machine.node(), layout);
        tune(&mut settings);
        let agent = LabAgent::installed(&machine, settings).await.unwrap();
        Self::of(agent, machine).await
    }

    /// Uses the agent that a test has installed and started.
    ///
    /// # Panics
    /// When the agent does not become ready.
    pub async fn attach(machine: Machine) -> Self {
        let agent = LabAgent::attach(&machine).await.unwrap();
        Self::of(agent, machine).await
    }

    async fn of(agent: LabAgent, machine: Machine) -> Self {
        let node = Node {
            csi: agent.csi().await.unwrap(),
            agent_socket: agent.agent_socket().to_owned(),
            dir: agent::DIR.into(),
        };
        Self {
            node,
            agent,
            machine,
        }
    }

    /// Returns the connection to the machine.
    pub fn guest(&self) -> &Guest {
        self.machine.guest()
    }

    /// Waits for an agent that started without the test, after a reboot or by its service manager, and opens a new client.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn comes_up(&mut self) {
        self.agent.forward_sockets();
        let agent = &self.agent;
        let csi = wait::until_async(LAB_LIMIT, "the agent answers", async || {
            let csi = agent.csi().await.ok()?;
            csi.ready().await.then_some(csi)
        });
        self.node.csi = csi.await;
    }

    /// Starts the agent again after `stop`, `kill9` or a reboot, and opens a new client.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start_again(&mut self) {
        self.agent.start_again().await.unwrap();
        self.node.csi = self.agent.csi().await.unwrap();
    }
}

impl Deref for LabRig {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for LabRig {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

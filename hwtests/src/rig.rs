//! A shelf, an agent on it, and a client: the usual setup of a test. Dropped in order: the agent is stopped before its drives are removed.

use std::{
    ops::{Deref, DerefMut},
    path::Path,
};

use drivebay_proto::agent as wire;

use crate::{Agent, DriveSpec, Settings, Shelf, wait};

pub use crate::node::{Node, Placed};

/// A node with drives made of files.
#[derive(Debug)]
pub struct Rig {
    /// Node, as its orchestrator sees it.
    pub node: Node,
    /// Agent on the drives of `shelf`; stopped on drop, before they are removed.
    pub agent: Agent,
    /// Drives of the agent; removed on drop unless `Shelf::keep` was called.
    pub shelf: Shelf,
}

impl Deref for Rig {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

impl Rig {
    /// Creates drives, and starts an agent on them.
    ///
    /// # Panics
    /// When the shelf cannot be created or the agent does not start.
    pub async fn with(drives: Vec<DriveSpec>) -> Self {
        Self::tuned(drives, |_| ()).await
    }

    /// Like `with`, with other settings.
    ///
    /// # Panics
    /// When the shelf cannot be created or the agent does not start.
    pub async fn tuned(drives: Vec<DriveSpec>, tune: impl FnOnce(&mut Settings)) -> Self {
        let mut shelf = Shelf::new().unwrap();
        for drive in drives {
            shelf.add(drive).unwrap();
        }
        let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
        tune(&mut settings);
        let agent = Agent::start(settings).await.unwrap();
        Self::of(agent, shelf).await
    }

    /// Uses an agent and a shelf that a test has created.
    ///
    /// # Panics
    /// When the agent's socket does not answer.
    pub async fn of(agent: Agent, shelf: Shelf) -> Self {
        let node = Node {
            csi: agent.csi().await.unwrap(),
            agent_socket: agent.settings().agent_socket(),
            dir: shelf.dir().to_owned(),
        };
        Self { node, agent, shelf }
    }

    /// Returns the drive with this shelf name, if the agent lists it.
    pub async fn drive(&self, name: &str) -> Option<wire::Drive> {
        let named = named(name);
        let ours = |drive: &wire::Drive| named(drive) && self.is_ours(drive);
        self.node.drive_where(ours).await
    }

    /// False for a drive that another shelf left behind: names are the same on every shelf.
    fn is_ours(&self, drive: &wire::Drive) -> bool {
        let file = format!("/sys/block/{}/loop/backing_file", drive.kernel_name);
        let file = std::fs::read_to_string(file).unwrap_or_default();
        file.is_empty() || Path::new(file.trim_end()).starts_with(self.shelf.dir())
    }

    /// Waits until a drive has this state; returns the drive.
    ///
    /// # Panics
    /// When that takes longer than an event; the periodic rescan comes later.
    pub async fn drive_is(&self, name: &str, state: &str) -> wire::Drive {
        let named = named(name);
        let ours = |drive: &wire::Drive| named(drive) && self.is_ours(drive);
        self.node.drive_where_is(name, state, ours).await
    }

    /// Waits until all free space of every claimed drive is zeroed, which the agent does in the background after a claim: only calls change
    /// these drives from then on.
    ///
    /// # Panics
    /// When that takes too long, or no drive is claimed.
    pub async fn zeroed(&self) {
        let limit = std::time::Duration::from_secs(30);
        wait::until_async(limit, "free space is zeroed", async || {
            let drives = self.inventory().await.drives;
            let claimed = |drive: &&wire::Drive| drive.state == "claimed" && self.is_ours(drive);
            let mut claimed = drives.iter().filter(claimed).peekable();
            (claimed.peek().is_some() && claimed.all(|drive| drive.unzeroed_bytes == 0))
                .then_some(())
        })
        .await;
    }

    /// Returns the shelf name of the drive that is rejected with this code.
    ///
    /// # Panics
    /// When there is none.
    pub async fn holding(&self, code: &str) -> String {
        let inventory = self.inventory().await;
        let drive = inventory.drives.iter().find(|drive| {
            drive.id.starts_with("loop-")
                && self.is_ours(drive)
                && drive.rejects.iter().any(|reject| reject.code == code)
        });
        let id = &drive
            .unwrap_or_else(|| panic!("no drive is refused for {code}"))
            .id;
        let name = id
            .strip_prefix("loop-")
            .and_then(|rest| rest.split(".img-").next());
        name.unwrap_or_default().to_owned()
    }

    /// Starts the agent again after `stop` or `kill9`, with a new client.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start_again(&mut self) {
        self.agent.start_again().await.unwrap();
        self.csi = self.agent.csi().await.unwrap();
    }
}

/// Returns a filter for the drive with this shelf name.
fn named(name: &str) -> impl Fn(&wire::Drive) -> bool + use<> {
    let prefix = format!("loop-{name}.img-");
    move |drive| drive.id.starts_with(&prefix)
}

//! An agent and a controller of any two builds, on loop drives, with a relay between them that keeps what they say.

use std::{fs, path::PathBuf};

use crate::{Agent, Csi, Node, Settings, Shelf, Trouble, fleet, program, tap::Tap, wait};

/// The node's name. A simulated node can have it too (`fleet::Plan`, whose names end with a number).
pub const NODE: &str = "golden0";

/// Which programs run.
#[derive(Debug, Clone)]
pub struct Builds {
    /// `drivebay-agent`.
    pub agent: PathBuf,
    /// `drivebay-controller`.
    pub controller: PathBuf,
}

impl Builds {
    /// Those that this test was built with, or that `DRIVEBAY_AGENT` and `DRIVEBAY_CONTROLLER` name.
    ///
    /// # Errors
    /// They are not built.
    pub fn here() -> Result<Self, Trouble> {
        Ok(Self {
            agent: program::agent()?,
            controller: program::controller()?,
        })
    }
}

/// Both of them. Dropped in order: the agent is stopped before its drives go.
#[derive(Debug)]
pub struct Pair {
    /// The node: its CSI socket has Identity and Node only.
    pub node: Node,
    /// The controller's CSI socket.
    pub csi: Csi,
    /// The agent.
    pub agent: Agent,
    /// The controller.
    pub controller: fleet::Controller,
    /// Between them.
    pub tap: Tap,
    /// The drives.
    pub shelf: Shelf,
}

impl Pair {
    /// Starts both on a shelf, and waits until they are connected.
    ///
    /// # Panics
    /// When one of them does not serve, or they do not connect.
    pub async fn start(builds: &Builds, shelf: Shelf, tune: impl FnOnce(&mut Settings)) -> Self {
        let dir = shelf.dir().join("controller");
        fs::create_dir_all(&dir).unwrap();
        let config = dir.join("controller.toml");
        fs::write(&config, "").unwrap();
        let state = dir.join("state").display().to_string();
        let config = config.display().to_string();
        let more = [
            "--state-dir",
            &state,
            "--config",
            &config,
            "--away-grace",
            "1",
        ];
        let controller =
            fleet::Controller::start_build(&builds.controller, &dir, None, &more).await;
        let controller = controller.unwrap();
        let tap = Tap::before_controller(&controller.address()).await.unwrap();
        let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
        // The first release does not know the key.
        settings.placement.clear();
        settings.node = NODE.to_owned();
        settings.headless = false;
        tune(&mut settings);
        settings.more.push_str(&format!(
            "\n[controller]\naddresses = [\"{}\"]\ninsecure-loopback = true\n",
            tap.address()
        ));
        let agent = Agent::start_build(builds.agent.clone(), settings).await;
        let agent = agent.unwrap();
        let node = Node {
            csi: agent.csi().await.unwrap(),
            agent_socket: agent.settings().agent_socket(),
            dir: shelf.dir().to_owned(),
        };
        let pair = Self {
            node,
            csi: controller.csi().await.unwrap(),
            agent,
            controller,
            tap,
            shelf,
        };
        pair.are_connected().await;
        pair
    }

    /// Waits until the controller has the node's inventory.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn are_connected(&self) {
        let limit = std::time::Duration::from_secs(60);
        wait::until_async(
            limit,
            "the agent is connected to the controller",
            async || {
                let nodes = self.controller.nodes().await.ok()?;
                let node = nodes.iter().find(|node| node.node_id == NODE)?;
                (node.state == "connected").then_some(())
            },
        )
        .await;
    }

    /// Starts the agent again after `stop` or `kill9`.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start_agent_again(&mut self) {
        self.agent.start_again().await.unwrap();
        self.node.csi = self.agent.csi().await.unwrap();
    }

    /// Starts the controller again after `stop` or `kill`.
    ///
    /// # Panics
    /// When it does not serve.
    pub async fn start_controller_again(&mut self) {
        self.controller.start_again().await.unwrap();
        self.csi = self.controller.csi().await.unwrap();
    }

    /// The controller's config file.
    pub fn controller_config(&self) -> PathBuf {
        self.shelf.dir().join("controller/controller.toml")
    }

    /// The controller's state directory.
    pub fn controller_state(&self) -> PathBuf {
        self.shelf.dir().join("controller/state")
    }
}

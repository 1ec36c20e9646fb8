//! An agent on loop drives and a controller, connected.

use std::{fs, net::Ipv4Addr};

use crate::{Agent, Csi, Node, Settings, Shelf, authority::Authority, fleet, wait};

/// Node id. A simulated node can have the same (`fleet::Plan`, whose ids end with a number).
pub const NODE: &str = "pair0";

/// Connection between agent and controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A unix socket, without certificates.
    Socket,
    /// A loopback address with TLS.
    Certificates,
}

/// An agent and a controller. Dropped in order: the agent is stopped before its drives are removed.
#[derive(Debug)]
pub struct Pair {
    /// Node; its CSI socket has Identity and Node only.
    pub node: Node,
    /// Client of the controller's CSI socket.
    pub csi: Csi,
    /// Agent on the drives of `shelf`, which dials `controller`.
    pub agent: Agent,
    /// Controller whose sockets, state and log are below the shelf's directory.
    pub controller: fleet::Controller,
    /// Drives of the agent; removed on drop, after the agent is stopped.
    pub shelf: Shelf,
}

impl Pair {
    /// Starts both on a shelf, and waits until they are connected.
    ///
    /// # Panics
    /// When one of them does not serve, or they do not connect.
    pub async fn start(link: Link, shelf: Shelf, tune: impl FnOnce(&mut Settings)) -> Self {
        let dir = shelf.dir().join("controller");
        fs::create_dir_all(&dir).unwrap();
        let state = dir.join("state").display().to_string();
        let more = ["--state-dir", &state, "--away-grace", "1"];
        let (certs, keys) = match link {
            Link::Socket => (None, String::new()),
            Link::Certificates => {
                let certs = dir.join("certs");
                let authority = Authority::new(&certs, &[Ipv4Addr::LOCALHOST.into()]).unwrap();
                let files = authority.node(NODE).unwrap();
                let keys = format!(
                    "ca = {:?}\ncert = {:?}\nkey = {:?}\n",
                    files.ca, files.cert, files.key
                );
                (Some(certs), keys)
            }
        };
        let controller = fleet::Controller::start(&dir, certs.as_deref(), &more).await;
        let controller = controller.unwrap();
        let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
        settings.node = NODE.to_owned();
        settings.headless = false;
        tune(&mut settings);
        let section = format!(
            "\n[controller]\naddresses = [\"{}\"]\n{keys}{}",
            controller.address(),
            settings.controller_keys
        );
        settings.more.push_str(&section);
        let agent = Agent::start(settings).await.unwrap();
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
                let own = &self.agent.settings().node;
                let node = nodes.iter().find(|node| node.node_id == *own)?;
                (node.state == "connected").then_some(())
            },
        )
        .await;
    }

    /// Starts the agent again after `stop` or `kill9`, with a new client.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn start_agent_again(&mut self) {
        self.agent.start_again().await.unwrap();
        self.node.csi = self.agent.csi().await.unwrap();
    }

    /// Starts the controller again after `stop` or `kill`, with a new client.
    ///
    /// # Panics
    /// When it does not serve.
    pub async fn start_controller_again(&mut self) {
        self.controller.start_again().await.unwrap();
        self.csi = self.controller.csi().await.unwrap();
    }
}

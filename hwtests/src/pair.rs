//! An agent and a controller of any two builds, on loop drives, with a relay between them that keeps what they say.

use std::{fs, net::Ipv4Addr, path::PathBuf};

use crate::{
    Agent, Csi, Node, Settings, Shelf, Trouble,
    authority::Authority,
    fleet::{self, controller::Listen},
    program,
    tap::Tap,
    tools, wait,
};

/// The node's name. A simulated node can have it too (`fleet::Plan`, whose names end with a number).
pub const NODE: &str = "golden0";

/// Which programs run.
#[derive(Debug, Clone)]
pub struct Builds {
    /// `drivebay-agent`.
    pub agent: PathBuf,
    /// `drivebay-controller`.
    pub controller: PathBuf,
    /// What is between them.
    pub link: Link,
}

/// What is between agent and controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A unix socket.
    Socket,
    /// A loopback address without certificates, as the first release had it for one machine.
    Loopback,
    /// A loopback address and certificates, which every release knows.
    Certificates,
}

impl Builds {
    /// Those that this test was built with, or that `DRIVEBAY_AGENT` and `DRIVEBAY_CONTROLLER` name.
    ///
    /// # Errors
    /// They are not built.
    pub fn here() -> Result<Self, Trouble> {
        let controller = program::controller()?;
        let help = tools::run(&controller.display().to_string(), &["run", "--help"])?;
        Ok(Self {
            agent: program::agent()?,
            controller,
            link: if help.contains(INSECURE_LOOPBACK) {
                Link::Loopback
            } else {
                Link::Socket
            },
        })
    }
}

/// The first release's option, and with it key.
const INSECURE_LOOPBACK: &str = "insecure-loopback";

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
    /// Between them; with certificates it reads nothing.
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
        let mut more = vec![
            "--state-dir",
            &state,
            "--config",
            &config,
            "--away-grace",
            "1",
        ];
        let (mut here, mut keys) = ("127.0.0.1:0".to_owned(), String::new());
        let option = format!("--{INSECURE_LOOPBACK}");
        let listen = match builds.link {
            Link::Socket => {
                here = format!("unix:{}", dir.join("tap.sock").display());
                Listen::Socket
            }
            Link::Loopback => {
                more.push(&option);
                keys = format!("{INSECURE_LOOPBACK} = true\n");
                Listen::Plain(Listen::free_port().unwrap())
            }
            Link::Certificates => {
                let certs = dir.join("certs");
                let authority = Authority::new(&certs, &[Ipv4Addr::LOCALHOST.into()]).unwrap();
                let files = authority.node(NODE).unwrap();
                keys = format!(
                    "ca = {:?}\ncert = {:?}\nkey = {:?}\n",
                    files.ca, files.cert, files.key
                );
                Listen::Tls(Listen::free_port().unwrap(), certs)
            }
        };
        let controller =
            fleet::Controller::start_build(&builds.controller, &dir, &listen, &more).await;
        let controller = controller.unwrap();
        let tap = Tap::before_controller(&here, &controller.address()).await;
        let tap = tap.unwrap();
        let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
        // The first release does not know the key.
        settings.placement.clear();
        settings.node = NODE.to_owned();
        settings.headless = false;
        tune(&mut settings);
        settings.more.push_str(&format!(
            "\n[controller]\naddresses = [\"{}\"]\n{keys}",
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

//! Hosts in their own network: a network namespace each, joined by veth pairs through a bridge in a further one.
//!
//! The namespaces have no names. They exist as long as a descriptor of them is open or a process is in them, so that nothing is left behind
//! however a test ends, and tests do not interfere.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsRawFd,
    path::PathBuf,
    process::Command,
    sync::Arc,
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{Trouble, children, tools};

/// First three bytes of the network's addresses, which are not visible outside.
pub const NET: [u8; 3] = [10, 77, 0];
const BRIDGE: &str = "bridge";

/// A network namespace. Clones share it.
#[derive(Debug, Clone)]
pub struct Space {
    file: Arc<File>,
}

impl Space {
    /// Creates a namespace that has only a loopback device, which is down.
    ///
    /// # Errors
    /// The kernel does not support it, or this process has no permission.
    pub fn new() -> io::Result<Self> {
        // unshare(2) applies to the thread only; this process stays in its namespace.
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.join().map_err(|_| io::ErrorKind::Other)??;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Runs `work` inside, on another thread. Sockets, threads and processes that it creates stay in the namespace.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let done = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET).expect("entering a network namespace");
                work()
            });
            done.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Returns a path that is valid as long as `self` lives.
    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    fn ip(&self, words: &str) -> Result<(), Trouble> {
        let words: Vec<&str> = words.split(' ').collect();
        self.inside(|| tools::run("ip", &words)).map(drop)
    }
}

/// A switch that connects hosts.
#[derive(Debug)]
pub struct Network {
    switch: Space,
}

impl Network {
    /// Creates a switch without hosts.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new() -> Result<Self, Trouble> {
        let switch = Space::new()?;
        switch.ip(&format!("link add {BRIDGE} type bridge"))?;
        switch.ip(&format!("link set {BRIDGE} up"))?;
        Ok(Self { switch })
    }

    /// Creates a host with this number, 1 to 254, which must be unused.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn host(&self, number: u8) -> Result<Host, Trouble> {
        let host = Host {
            space: Space::new()?,
            switch: self.switch.clone(),
            port: format!("port{number}"),
            address: Ipv4Addr::new(NET[0], NET[1], NET[2], number),
        };
        let Host {
            space,
            switch,
            port,
            address,
        } = &host;
        switch.ip(&format!(
            "link add {port} type veth peer name eth0 netns {}",
            space.path().display()
        ))?;
        switch.ip(&format!("link set {port} master {BRIDGE} up"))?;
        space.ip("link set lo up")?;
        space.ip(&format!("address add {address}/24 dev eth0"))?;
        space.ip("link set eth0 up")?;
        Ok(host)
    }
}

/// A host. It disappears, without closing connections, when the last clone is dropped and all processes on it have ended.
#[derive(Debug, Clone)]
pub struct Host {
    space: Space,
    switch: Space,
    // Name of the switch's end of its cable.
    port: String,
    address: Ipv4Addr,
}

impl Host {
    /// Returns its IPv4 address: [`NET`], followed by the number of the host.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns its address with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.address, port).into()
    }

    /// Drops all packets to and from the host at the switch. Links stay up, so neither side notices.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self) {
        self.port_state("nomaster");
    }

    /// Reverts `cut`.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn heal(&self) {
        self.port_state(&format!("master {BRIDGE}"));
    }

    /// Unplugs its cable: its own link goes down, too.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn unplug(&self) {
        self.port_state("down");
    }

    /// Reverts `unplug`.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn plug(&self) {
        self.port_state("up");
    }

    fn port_state(&self, state: &str) {
        let set = format!("link set {} {state}", self.port);
        self.switch.ip(&set).unwrap();
    }

    /// Runs `work` in the host's network, like [`Space::inside`].
    ///
    /// # Panics
    /// When `work` panics.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.space.inside(work)
    }

    /// Returns a command that runs on this host, and is killed with this process; for [`children::start`].
    ///
    /// # Errors
    /// The program, or nsenter, is not installed.
    pub fn command(&self, program: &str) -> Result<Command, Trouble> {
        self.enter(children::mortal("nsenter")?, program)
    }

    /// Like `command`, for a program that ends without a kill when this process does.
    ///
    /// # Errors
    /// The program, or nsenter, is not installed.
    pub fn plain_command(&self, program: &str) -> Result<Command, Trouble> {
        let nsenter =
            tools::find("nsenter").ok_or_else(|| Trouble::new("nsenter is not installed"))?;
        self.enter(Command::new(nsenter), program)
    }

    fn enter(&self, mut command: Command, program: &str) -> Result<Command, Trouble> {
        let path = tools::find(program)
            .ok_or_else(|| Trouble::new(format!("{program} is not installed")))?;
        command
            .arg(format!("--net={}", self.space.path().display()))
            .arg("--")
            .arg(path);
        Ok(command)
    }
}

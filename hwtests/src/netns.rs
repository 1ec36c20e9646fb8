//! Hosts on a network of their own: a network namespace each, joined by veth pairs through a bridge in one more.
//!
//! A namespace here has no name. It lives as long as a descriptor of it is open or a process is in it, so that
//! nothing stays behind however a test ends, and two tests never meet.

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

/// The network's first three bytes; nobody outside sees it.
pub const NET: [u8; 3] = [10, 77, 0];
const BRIDGE: &str = "bridge";

/// A network namespace.
#[derive(Debug, Clone)]
pub struct Space {
    file: Arc<File>,
}

impl Space {
    /// A new one, with nothing in it but a loopback device that is down.
    ///
    /// # Errors
    /// The kernel has none, or this process may not.
    pub fn new() -> io::Result<Self> {
        // A thread's own namespace is another one as soon as it wants; this process stays where it is.
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.join().map_err(|_| io::ErrorKind::Other)??;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Does something inside, on a thread of its own. Sockets stay where they were made; so do the threads and
    /// processes that are started there.
    ///
    /// # Panics
    /// When it panics.
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

    /// A name for it that works as long as this lives.
    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    fn ip(&self, words: &str) -> Result<(), Trouble> {
        let words: Vec<&str> = words.split(' ').collect();
        self.inside(|| tools::run("ip", &words)).map(drop)
    }
}

/// A switch that hosts are plugged into.
#[derive(Debug)]
pub struct Network {
    switch: Space,
}

impl Network {
    /// Without hosts.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self, Trouble> {
        let switch = Space::new()?;
        switch.ip(&format!("link add {BRIDGE} type bridge"))?;
        switch.ip(&format!("link set {BRIDGE} up"))?;
        Ok(Self { switch })
    }

    /// A host of this number, 1 to 254; none of this number must be there.
    ///
    /// # Errors
    /// It cannot be made.
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

/// A host. When the last clone and all processes on it are gone, so is the host, without a word to anybody.
#[derive(Debug, Clone)]
pub struct Host {
    space: Space,
    switch: Space,
    // The switch's end of its cable.
    port: String,
    address: Ipv4Addr,
}

impl Host {
    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its address with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.address, port).into()
    }

    /// The switch takes nothing from it and gives it nothing. Nobody is told: links stay up, packets vanish.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self) {
        self.port_state("nomaster");
    }

    /// Ends `cut`.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn heal(&self) {
        self.port_state(&format!("master {BRIDGE}"));
    }

    /// Pulls its cable: its own link goes down, too.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn unplug(&self) {
        self.port_state("down");
    }

    /// Ends `unplug`.
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

    /// As [`Space::inside`].
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.space.inside(work)
    }

    /// A command that runs on this host, and dies with this process; for [`children::start`].
    ///
    /// # Errors
    /// The program, or nsenter, is not installed.
    pub fn command(&self, program: &str) -> Result<Command, Trouble> {
        self.enter(children::mortal("nsenter")?, program)
    }

    /// As `command`, for a program that ends by itself when this process does.
    ///
    /// # Errors
    /// The program, or nsenter, is not installed.
    pub fn plain_command(&self, program: &str) -> Result<Command, Trouble> {
        let nsenter =
            tools::find("nsenter").ok_or_else(|| Trouble::new("nsenter is not installed"))?;
        self.enter(Command::new(nsenter), program)
    }

    fn enter(&self, mut command: Command, program: &str) -> Result<Command, Trouble> {
        let found = tools::find(program)
            .ok_or_else(|| Trouble::new(format!("{program} is not installed")))?;
        command
            .arg(format!("--net={}", self.space.path().display()))
            .arg("--")
            .arg(found);
        Ok(command)
    }
}

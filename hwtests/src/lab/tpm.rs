//! An emulated TPM 2.0 of a machine. Its state outlives the power of the machine, as a chip's does.

use std::{path::PathBuf, time::Duration};

use tempfile::TempDir;

use crate::{Trouble, children::Process, wait};

/// Longest time until swtpm has its control socket.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A TPM; its state is removed on drop.
#[derive(Debug)]
pub struct Tpm {
    // Dropped before the directory, whose files it uses.
    process: Option<Process>,
    dir: TempDir,
}

impl Tpm {
    /// Starts a TPM without any state.
    ///
    /// # Errors
    /// swtpm is not installed, or does not start.
    pub fn new() -> Result<Self, Trouble> {
        let mut tpm = Self {
            process: None,
            dir: TempDir::with_prefix("drivebay-tpm-")?,
        };
        tpm.start()?;
        Ok(tpm)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn start(&mut self) -> Result<(), Trouble> {
        let state = format!("dir={}", self.dir.path().display());
        let socket = format!("type=unixio,path={}", self.socket().display());
        let args = ["socket", "--tpm2", "--tpmstate", &state, "--ctrl", &socket];
        let log = self.dir.path().join("log");
        self.process = Some(Process::start("swtpm", &args, &log)?);
        wait::poll(START_LIMIT, || self.socket().exists().then_some(()))
            .ok_or_else(|| Trouble::new("swtpm does not start"))
    }

    /// Starts it again with its state, before the next power on of its machine.
    ///
    /// # Errors
    /// swtpm does not start.
    pub fn power_on(&mut self) -> Result<(), Trouble> {
        self.process = None;
        let _ = std::fs::remove_file(self.socket());
        self.start()
    }

    /// Replaces it with one that has no state, as another board does.
    ///
    /// # Errors
    /// swtpm does not start.
    pub fn replace(&mut self) -> Result<(), Trouble> {
        self.process = None;
        for file in std::fs::read_dir(self.dir.path())? {
            std::fs::remove_file(file?.path())?;
        }
        self.start()
    }

    /// Returns qemu's arguments for a machine with it, which has to be booted: the snapshot is of one without.
    pub fn args(&self) -> Vec<String> {
        [
            "-chardev",
            &format!("socket,id=tpm,path={}", self.socket().display()),
            "-tpmdev",
            "emulator,id=tpm,chardev=tpm",
            "-device",
            "tpm-tis,tpmdev=tpm",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

//! smartctl_exporter, with the harness' program in smartctl's place.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{Shelf, Trouble, children::Process, scrape, wait};

use super::named;

/// Where its program is; hwtests/bench builds it.
pub(super) const PROGRAM: &str = "DRIVEBAY_BENCH_SMARTCTL_EXPORTER";
const START_LIMIT: Duration = Duration::from_secs(30);

/// A running exporter; killed when dropped.
pub(super) struct Exporter {
    process: Process,
    address: SocketAddr,
}

impl Exporter {
    /// Of all drives of a shelf, each of which gives the answer that the agent has from all of them. It polls them when it starts,
    /// and in the first scrape after an interval, 60 seconds if none is given. None: its program is not named.
    pub(super) fn start(
        shelf: &Shelf,
        answer: &Path,
        interval: Option<&str>,
    ) -> Result<Option<Self>, Trouble> {
        let Some(program) = named(PROGRAM) else {
            return Ok(None);
        };
        let smartctl = smartctl(shelf, answer)?;
        let address = free_address()?;
        let log = shelf.dir().join("smartctl_exporter.log");
        let mut args = vec![
            format!("--web.listen-address={address}"),
            format!("--smartctl.path={}", smartctl.display()),
        ];
        args.extend(interval.map(|interval| format!("--smartctl.interval={interval}")));
        let drives = shelf.drives().iter();
        args.extend(
            drives.map(|drive| format!("--smartctl.device={};sat", drive.device.display())),
        );
        let process = Process::start(&program.display().to_string(), &args, &log)?;
        let serves = || std::net::TcpStream::connect(address).ok();
        if wait::poll(START_LIMIT, serves).is_none() {
            let log = fs::read_to_string(&log).unwrap_or_default();
            return Err(Trouble::new(format!(
                "smartctl_exporter does not serve: {log}"
            )));
        }
        Ok(Some(Self { process, address }))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Fails unless so many drives answered.
    pub(super) fn scrape(&self, drives: usize) -> Result<(), Trouble> {
        let text = scrape::scrape_at(self.address)?;
        let found = text
            .lines()
            .filter(|line| line.starts_with("smartctl_device_smart_status{"))
            .count();
        match found == drives {
            true => Ok(()),
            false => Err(Trouble::new(format!(
                "smartctl_exporter has metrics of {found} drives instead of {drives}"
            ))),
        }
    }
}

/// The program in smartctl's place: it prints a file for each drive, in which the drive's name is right, since the exporter
/// refuses a name that comes twice.
fn smartctl(shelf: &Shelf, answer: &Path) -> Result<PathBuf, Trouble> {
    let dir = shelf.dir().join("smartctl_exporter");
    fs::create_dir_all(&dir)?;
    let answer = fs::read_to_string(answer)?;
    for drive in shelf.drives() {
        let named = answer.replace("/dev/x", &drive.device.display().to_string());
        fs::write(dir.join(&drive.kernel_name), named)?;
    }
    let program = dir.join("smartctl");
    let text = format!(
        "#!/bin/sh\nfor last; do :; done\nexec /bin/cat {}/\"${{last##*/}}\"\n",
        dir.display()
    );
    fs::write(&program, text)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// An address of this machine with a port that is not in use.
pub(super) fn free_address() -> Result<SocketAddr, Trouble> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

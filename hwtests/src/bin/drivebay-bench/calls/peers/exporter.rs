//! smartctl_exporter, with a script of the harness instead of smartctl.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{Shelf, Trouble, children::Process, scrape, wait};

use super::named;

/// Environment variable with the path of its program; hwtests/bench builds it.
pub(super) const PROGRAM: &str = "DRIVEBAY_BENCH_SMARTCTL_EXPORTER";
const START_LIMIT: Duration = Duration::from_secs(30);

/// A running exporter; killed when dropped.
pub(super) struct Exporter {
    process: Process,
    address: SocketAddr,
}

impl Exporter {
    /// Starts an exporter for all drives of a shelf, each of which gives the same answer as to the agent. It polls them at its start, and
    /// in the first scrape after each interval (default 60 seconds). None if the environment does not name its program.
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

    /// Errs unless this many drives answered.
    pub(super) fn scrape(&self, drives: usize) -> Result<(), Trouble> {
        let text = scrape::scrape_at(self.address)?;
        let scraped = text
            .lines()
            .filter(|line| line.starts_with("smartctl_device_smart_status{"))
            .count();
        match scraped == drives {
            true => Ok(()),
            false => Err(Trouble::new(format!(
                "smartctl_exporter has metrics of {scraped} drives instead of {drives}"
            ))),
        }
    }
}

/// Writes the script that replaces smartctl: it prints a file for each drive, which has the drive's own name, since the exporter refuses
/// duplicate names.
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

/// Returns an address of this machine with a free port.
pub(super) fn free_address() -> Result<SocketAddr, Trouble> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

//! Snapshot of a booted guest, stored beside the image: another machine starts from it within seconds. It has no drive but the root disk,
//! no mounted share and no open connection.

use std::{
    collections::hash_map::DefaultHasher,
    fs::{self, File},
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use serde_json::json;

use super::{
    Machine, MachineSpec,
    image::Image,
    progress::print_progress,
    qemu::{self, Parts},
};
use crate::{Trouble, tools, wait};

/// Longest time for units to start that are still starting when ssh answers.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);
const SAVE_LIMIT: Duration = Duration::from_secs(120);

/// A complete snapshot: a directory with qemu's saved state and the root disk's overlay. Machines start from it without changing it.
#[derive(Debug, Clone)]
pub struct Booted {
    dir: PathBuf,
}

impl Booted {
    /// Returns the overlay over the image's root disk, as of the snapshot.
    pub fn overlay(&self) -> PathBuf {
        self.dir.join("root.qcow2")
    }

    /// Returns qemu's arguments that load it.
    pub fn incoming(&self) -> Vec<String> {
        let state = self.dir.join("state").display().to_string();
        vec![
            "-incoming".to_owned(),
            format!("exec:cat {}", super::ssh::quote(&state)),
        ]
    }
}

/// Returns the snapshot for this image and this version of qemu; creates it if there is none.
///
/// # Errors
/// It cannot be created.
pub fn booted(image: &Image) -> Result<Booted, Trouble> {
    let dir = image.dir.join(format!("booted-{:016x}", fits(image)?));
    // A second program waits here, and finds the snapshot of the first.
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(image.dir.join("booted.lock"))?;
    let _turn = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, error)| Trouble::doing("locking the lab's snapshot", &error))?;
    if !dir.is_dir() {
        make(image, &dir)?;
    }
    Ok(Booted { dir })
}

/// Returns a hash of everything that a snapshot depends on besides its image.
fn fits(image: &Image) -> Result<u64, Trouble> {
    let (none, version) = (
        Path::new(""),
        tools::run(image.processor.emulator(), &["--version"])?,
    );
    let args = qemu::args(&Parts {
        image,
        overlay: none,
        share: none,
        console: none,
        journal: none,
        qmp: none,
        port: 0,
    });
    let mut hasher = DefaultHasher::new();
    (version, args).hash(&mut hasher);
    Ok(hasher.finish())
}

fn make(image: &Image, dir: &Path) -> Result<(), Trouble> {
    print_progress("making the snapshot of a booted guest, once");
    let work = image.dir.join("booting");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir(&work)?;
    let spec = MachineSpec::new("booted");
    let mut machine = Machine::new(spec, image.clone(), &image.root(), "raw")?;
    machine.power_on()?;
    let settle = "systemctl is-system-running --wait; sync; echo 3 >/proc/sys/vm/drop_caches";
    machine.guest().try_run(settle, SETTLE_LIMIT)?;
    machine.guest().connected(None);
    // Wait until the journal shows that the session is closed: a connection in the snapshot would stay in every copy.
    let journal = machine.run_dir().file("journal.log");
    wait::until(SAVE_LIMIT, "the guest sees the connection closed", || {
        let text = fs::read_to_string(&journal).unwrap_or_default();
        text.contains("session closed for user root").then_some(())
    });

    let mut qmp = machine.qmp()?;
    let mut execute = |command: &str, arguments| {
        qmp.execute(command, arguments)
            .map_err(|error| Trouble::doing(format!("qemu: {command}"), &error))
    };
    execute("stop", json!({}))?;
    execute(
        "migrate-set-parameters",
        json!({"max-bandwidth": 1_u64 << 40}),
    )?;
    let state = super::ssh::quote(&work.join("state").display().to_string());
    execute("migrate", json!({"uri": format!("exec:cat >{state}")}))?;
    wait::until(SAVE_LIMIT, "the snapshot is written", || {
        match execute("query-migrate", json!({})) {
            Ok(answer) if answer["status"] == "completed" => Some(Ok(())),
            Ok(answer) if answer["status"] == "failed" => {
                Some(Err(Trouble::new(format!("saving the snapshot: {answer}"))))
            }
            Ok(_) => None,
            Err(trouble) => Some(Err(trouble)),
        }
    })?;
    // In order, since qemu writes out the overlay when it quits.
    execute("quit", json!({}))?;
    machine.ends(SAVE_LIMIT)?;
    fs::copy(
        machine.run_dir().file("root.qcow2"),
        work.join("root.qcow2"),
    )?;
    for name in ["state", "root.qcow2"] {
        File::open(work.join(name))?.sync_all()?;
    }
    // Only a complete snapshot has the final name.
    fs::rename(&work, dir)?;
    Ok(())
}

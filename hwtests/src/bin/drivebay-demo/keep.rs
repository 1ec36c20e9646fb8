//! `--keep` and `--stop`: keeping a demo at its end, and removing it later.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{Agent, Shelf, Trouble, agent, tree, wait};

use crate::print;

/// Returns the file in which a kept demo records its agent's process id.
fn note(dir: &Path) -> PathBuf {
    dir.join("demo.pid")
}

/// Keeps agent and drives, and prints how to use and stop them.
pub(crate) fn leave(agent: Agent, shelf: &mut Shelf) -> Result<(), Trouble> {
    let dir = shelf.dir().to_owned();
    let pid = agent.pid();
    fs::write(note(&dir), pid.to_string())?;
    let program = agent.program().display().to_string();
    let settings = agent.keep();
    shelf.keep();
    let socket = settings.agent_socket().display().to_string();
    let config = settings.config().display().to_string();
    print::chapter("Left running");
    print::line("drives", &format!("{program} drives --socket {socket}"));
    print::line("volumes", &format!("{program} volumes --socket {socket}"));
    print::line(
        "claim plan",
        &format!("{program} claim-plan --config {config}"),
    );
    print::line(
        "CSI",
        &format!("unix://{}", settings.csi_socket().display()),
    );
    print::line("log", &settings.log_file().display().to_string());
    print::line("stop it", &format!("hwtests/demo --stop {}", dir.display()));
    Ok(())
}

/// Stops the agent of a kept demo and removes its drives.
pub(crate) fn stop(dir: &Path) -> Result<(), Trouble> {
    let dir = dir
        .canonicalize()
        .map_err(|error| Trouble::doing(format!("{}", dir.display()), &error))?;
    let refuse = |why: &str| Trouble::new(format!("{} {why}; nothing was done", dir.display()));
    let pid: u32 = fs::read_to_string(note(&dir))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| refuse("is not the directory of a kept demo"))?;
    // The process id may be reused: only a process with this directory's configuration is stopped.
    let ours = || {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let config = dir.join("agent.toml").display().to_string();
        line.split(|&byte| byte == 0)
            .any(|word| word == config.as_bytes())
    };
    if ours() {
        agent::terminate(pid);
        let limit = agent::STOP_LIMIT + Duration::from_secs(1);
        wait::poll(limit, || (!ours()).then_some(()))
            .ok_or_else(|| refuse(&format!("has an agent ({pid}) that does not stop")))?;
    }
    let left = tree::sweep(&dir);
    if !left.is_empty() {
        return Err(Trouble::new(format!("left behind: {}", left.join("; "))));
    }
    fs::remove_dir_all(&dir)?;
    println!("{} is gone: nothing mounted, nothing looped", dir.display());
    Ok(())
}

//! Time from the start of the agent's process until it answers, and until it has scanned the drives.

use std::{
    process::Child,
    time::{Duration, Instant},
};

use drivebay_hwtests::{Agent, Csi, MIB, Rig, Trouble, agent, csi, hang::HungDrive};

use super::{Table, Times, rig};

/// Drives beside the unresponsive one.
const BESIDE_HUNG: usize = 64;
/// Pause between two polls of a starting agent; limits the resolution of the measured times.
const STEP: Duration = Duration::from_millis(2);
/// Longest time of a start.
const LIMIT: Duration = Duration::from_secs(120);

/// Times from right after the spawn of the agent's process until it has reached a state, one value for each measured start.
#[derive(Debug, Default)]
pub(super) struct Started {
    /// Until a call is answered.
    pub(super) answers: Times,
    /// Until this many drives are listed.
    pub(super) listed: Times,
    /// Until Probe answers ready: every drive was scanned, or its scan timed out.
    pub(super) complete: Times,
}

/// Restarts a node's agent repeatedly.
pub(super) async fn measure(
    rig: &mut Rig,
    drives: usize,
    rounds: usize,
) -> Result<Started, Trouble> {
    let mut started = Started::default();
    rig.agent.stop()?;
    for _ in 0..rounds {
        let mut child = spawn(&rig.agent)?;
        let result = follow(&rig.agent, drives, &mut started).await;
        stop(&mut child)?;
        result?;
    }
    rig.start_again().await;
    Ok(started)
}

/// Measures starts with one more drive, which is unresponsive.
pub(crate) async fn beside_hung(table: &mut Table, rounds: usize) -> Result<(), Trouble> {
    let hung = with_hung_drive(rounds).await?;
    table.section("The agent's start with a drive that gives no answer");
    let size = format!("{BESIDE_HUNG} + 1 hung");
    table.alone("start until first RPC", &size, &hung.answers);
    table.alone("start until others are listed", &size, &hung.listed);
    table.alone("start until Probe says ready", &size, &hung.complete);
    Ok(())
}

async fn with_hung_drive(rounds: usize) -> Result<Started, Trouble> {
    let hung = HungDrive::new(512 * MIB)?;
    /// Must be dropped first: nothing else ends while the drive is unresponsive.
    struct Resume<'a>(&'a HungDrive);
    impl Drop for Resume<'_> {
        fn drop(&mut self) {
            self.0.resume();
        }
    }
    let mut rig = rig(BESIDE_HUNG, 0).await;
    let path = hung.file();
    let class = format!(
        "[[class]]\nname = \"hung\"\nlayout = \"partition\"\n[class.select]\npath = [\"{}\"]\n",
        path.display()
    );
    rig.agent.retune(|settings| settings.more = class)?;
    let resume = Resume(&hung);
    let mut started = Started::default();
    rig.agent.stop()?;
    for _ in 0..rounds {
        hung.hang();
        let mut child = spawn(&rig.agent)?;
        let result = follow(&rig.agent, BESIDE_HUNG, &mut started).await;
        hung.resume();
        stop(&mut child)?;
        result?;
    }
    drop(resume);
    rig.start_again().await;
    Ok(started)
}

fn spawn(agent: &Agent) -> Result<Child, Trouble> {
    let settings = agent.settings();
    agent.spawn(&settings.config(), &settings.log_file())
}

fn stop(child: &mut Child) -> Result<(), Trouble> {
    agent::terminate(child.id());
    child.wait()?;
    Ok(())
}

async fn follow(agent: &Agent, drives: usize, started: &mut Started) -> Result<(), Trouble> {
    let begin = Instant::now();
    let settings = agent.settings();
    let client = loop {
        if let Ok(csi) = Csi::connect(&settings.csi_socket()).await
            && csi.answers().await
        {
            break csi;
        }
        pause(begin, agent).await?;
    };
    started.answers.push(begin.elapsed());
    let (mut listed, mut ready) = (false, false);
    while !(listed && ready) {
        if !listed {
            let inventory = csi::inventory(&settings.agent_socket()).await;
            let are_listed = inventory.is_ok_and(|inventory| {
                let states = inventory.drives.iter().map(|drive| drive.state.as_str());
                states
                    .filter(|state| ["claimed", "available"].contains(state))
                    .count()
                    >= drives
            });
            if are_listed {
                started.listed.push(begin.elapsed());
                listed = true;
            }
        }
        if !ready && client.ready().await {
            started.complete.push(begin.elapsed());
            ready = true;
        }
        pause(begin, agent).await?;
    }
    Ok(())
}

async fn pause(begin: Instant, agent: &Agent) -> Result<(), Trouble> {
    if begin.elapsed() > LIMIT {
        let log = agent.log_tail();
        return Err(Trouble::new(format!("the agent is not ready\n{log}")));
    }
    tokio::time::sleep(STEP).await;
    Ok(())
}

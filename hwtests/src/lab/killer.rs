//! Kills the agent of a guest, with its child processes, right before, during or right after an `lvm` command that it runs.

use std::path::Path;

use tonic::Status;

use super::{Guest, LabRig, agent, letters::LAB_LIMIT};

/// Wrapper of the agent's `lvm`: at the command that /run/kill names it kills all processes of the agent's unit, once.
const WRAPPER: &str = r#"#!/bin/sh
read when command pause 2>/dev/null </run/kill
[ "$command" = "$1" ] || exec /usr/sbin/lvm "$@"
strike() { mv /run/kill /run/killed || exit 0; systemctl kill --kill-who=all --signal=KILL UNIT; sleep 60; }
[ "$when" = before ] && strike
if [ "$when" = during ]; then
    # In a session of its own: what is left of the command's process group ends with the command.
    export pause; setsid sh -c 'sleep "$pause"; mv /run/kill /run/killed || exit 0
        systemctl kill --kill-who=all --signal=KILL UNIT' </dev/null >/dev/null 2>&1 &
    exec /usr/sbin/lvm "$@"
fi
/usr/sbin/lvm "$@"
strike
"#;

/// Makes calls during which the agent is killed.
#[derive(Debug)]
pub struct Killer<'a> {
    /// The machine; [`install`] must have been called for its guest.
    pub lab: &'a mut LabRig,
    // "before", "after", or "during" and a pause in seconds.
    when: String,
    // PID of the agent that the next strike kills.
    pid: u32,
    strikes: usize,
}

/// Makes the agent of this guest run `lvm` through the wrapper from now on.
///
/// # Panics
/// If the wrapper cannot be written.
pub fn install(guest: &Guest) {
    let there = Path::new("/usr/local/sbin/lvm");
    let script = WRAPPER.replace("UNIT", agent::UNIT);
    guest.write(there, script.as_bytes());
    guest.run("chmod 755 /usr/local/sbin/lvm");
}

impl<'a> Killer<'a> {
    /// `when`: "before", "after", or "during" and a pause in seconds.
    pub fn new(lab: &'a mut LabRig, when: &str) -> Self {
        let when = when.to_owned();
        Self {
            lab,
            when,
            pid: 0,
            strikes: 0,
        }
    }

    /// True if the wrapper has killed the agent since `aim`, or since the last call of this; waits until the process has ended.
    ///
    /// # Panics
    /// If the process does not end.
    pub fn has_struck(&mut self) -> bool {
        let guest = self.lab.guest();
        if !guest.ran("mv /run/killed /run/was-killed").ok() {
            return false;
        }
        let script = format!("test -d /proc/{}", self.pid);
        guest.wait_until(LAB_LIMIT, "the agent has died of the strike", |guest| {
            (!guest.ran(&script).ok()).then_some(())
        });
        self.strikes += 1;
        true
    }

    /// Returns how often `has_struck` was true. A test whose strikes can miss must check that it is not 0.
    pub fn strikes(&self) -> usize {
        self.strikes
    }

    /// Makes a call during which the agent is killed at this command, and restarts the agent.
    ///
    /// # Panics
    /// If the command was not run (a strike during a command can miss), or the agent does not start.
    pub async fn interrupted<T>(
        &mut self,
        command: &str,
        call: &impl AsyncFn(&LabRig) -> Result<T, Status>,
    ) {
        let struck = self.perhaps_interrupted(command, call).await;
        assert!(struck || self.is_during(), "{command} was not run");
    }

    /// The same for work that the agent continues by itself: it may have run the command before the call. Returns true if the agent was
    /// killed.
    ///
    /// # Panics
    /// If the agent does not start.
    pub async fn perhaps_interrupted<T>(
        &mut self,
        command: &str,
        call: &impl AsyncFn(&LabRig) -> Result<T, Status>,
    ) -> bool {
        self.aim(command);
        let answer = call(self.lab).await;
        // Before `has_struck`: no strike can begin between the two.
        self.disarm();
        let struck = self.has_struck();
        if struck && !self.is_during() {
            assert!(answer.is_err(), "{command}: a dead agent answered");
        }
        if struck || !self.lab.agent.runs() {
            self.restart().await;
        }
        struck
    }

    /// As [`interrupted`](Self::interrupted), then repeats the call and returns its answer.
    ///
    /// # Panics
    /// If the repeated call fails.
    pub async fn call<T>(
        &mut self,
        command: &str,
        call: impl AsyncFn(&LabRig) -> Result<T, Status>,
    ) -> T {
        self.interrupted(command, &call).await;
        call(self.lab)
            .await
            .unwrap_or_else(|status| panic!("{} {command}, repeated: {status:?}", self.when))
    }

    /// True if strikes are during a command: how far the command gets, and whether the call is answered before, is left to timing.
    pub fn is_during(&self) -> bool {
        self.when.starts_with("during")
    }

    /// Arms the wrapper: the agent is killed at the next command of this name.
    ///
    /// # Panics
    /// If the agent does not run, or the guest's file cannot be written.
    pub fn aim(&mut self, command: &str) {
        self.pid = self.lab.agent.pid();
        let (when, pause) = self.when.split_once(' ').unwrap_or((&self.when, "0"));
        let line = format!("{when} {command} {pause}\n");
        let guest = self.lab.guest();
        guest.write(Path::new("/run/kill"), line.as_bytes());
    }

    /// Disarms the wrapper. A strike that has begun is not stopped.
    ///
    /// # Panics
    /// If the command in the guest fails.
    pub fn disarm(&self) {
        self.lab.guest().run("rm -f /run/kill");
    }

    /// Kills the remaining processes of the agent, and starts it. A strike can have been interrupted by the time limit of the command
    /// that it runs in.
    ///
    /// # Panics
    /// If the agent does not start.
    pub async fn restart(&mut self) {
        let unit = agent::UNIT;
        self.lab.guest().run(&format!(
            "systemctl kill --kill-who=all --signal=KILL {unit}
             while systemctl is-active --quiet {unit}; do sleep 0.1; done"
        ));
        let guest = self.lab.guest().clone();
        let has_struck = guest.ran("test -e /run/killed").ok();
        self.lab.start_again().await;
        // The next strike is for this agent, which may already have been killed by it.
        let pid = guest.run(&format!("systemctl show --property=MainPID --value {unit}"));
        match pid.trim().parse() {
            Ok(pid) if pid != 0 && !has_struck => self.pid = pid,
            _ => {}
        }
    }
}

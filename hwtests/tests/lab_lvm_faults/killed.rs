//! The agent is killed, with everything it started, right before, during or right after each `lvm` command of a volume's
//! life. Repeating the call converges: one volume, its data there, all of the space back at the end.

use std::path::Path;

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig, agent, letters::LAB_LIMIT},
    long, wait,
};
use tonic::Status;

/// In the way of the agent's `lvm`: at the command that /run/kill names it ends the agent and all below it, once.
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

struct Killer<'a> {
    lab: &'a mut LabRig,
    when: String,
}

impl Killer<'_> {
    /// Makes a call in whose middle the agent dies at this command, and starts the agent again.
    async fn interrupted<T>(
        &mut self,
        command: &str,
        call: &impl AsyncFn(&LabRig) -> Result<T, Status>,
    ) {
        let guest = self.lab.guest().clone();
        self.aim(command);
        let answer = call(self.lab).await;
        let struck = guest.ran("mv /run/killed /run/was-killed").ok();
        if !self.when.starts_with("during") {
            assert!(struck, "{command} was not run");
            assert!(answer.is_err(), "{command}: a dead agent answered");
        }
        guest.run("rm -f /run/kill");
        if struck || !self.lab.agent.runs() {
            self.restart().await;
        }
    }

    /// The same, and repeats the call.
    async fn call<T>(
        &mut self,
        command: &str,
        call: impl AsyncFn(&LabRig) -> Result<T, Status>,
    ) -> T {
        self.interrupted(command, &call).await;
        call(self.lab)
            .await
            .unwrap_or_else(|status| panic!("{} {command}, repeated: {status:?}", self.when))
    }

    fn aim(&self, command: &str) {
        let (when, pause) = self.when.split_once(' ').unwrap_or((&self.when, "0"));
        let line = format!("{when} {command} {pause}\n");
        let guest = self.lab.guest();
        guest.write(Path::new("/run/kill"), line.as_bytes());
    }

    /// The strike itself may have been cut short, by the deadline of the command that it stands in.
    async fn restart(&mut self) {
        let unit = agent::UNIT;
        self.lab.guest().run(&format!(
            "systemctl kill --kill-who=all --signal=KILL {unit}
             while systemctl is-active --quiet {unit}; do sleep 0.1; done"
        ));
        self.lab.start_again().await;
    }
}

/// A volume's life, with a kill at each command.
async fn life(lab: &mut LabRig, when: &str) {
    let when = when.to_owned();
    let free = lab.csi.capacity().await.unwrap();
    let mut killer = Killer { lab, when };
    let create = async |lab: &LabRig| {
        let capability = csi::mount("ext4");
        let volume = lab.csi.create("one", 96 * MIB, &capability).await?;
        Ok(lab.place(&volume, "one", &capability))
    };
    // The claim, and what it leaves, twice.
    for command in ["pvcreate", "vgcreate"] {
        killer.interrupted(command, &create).await;
    }
    let volume = killer.call("lvcreate", create).await;
    assert_eq!(killer.lab.csi.ids().await.unwrap(), [volume.id.as_str()]);

    let stage = async |lab: &LabRig| {
        let (id, staging) = (&volume.id, &volume.staging);
        lab.csi.stage(id, staging, &volume.capability).await
    };
    killer.call("lvchange", stage).await;
    killer.lab.publish(&volume).await;
    let letter = volume.target.join("letter");
    killer.lab.guest().write(&letter, b"dear reader");

    let expand = async |lab: &LabRig| {
        let grown = lab.csi.expand(&volume.id, 160 * MIB, &volume.capability);
        grown.await
    };
    let (bytes, _) = killer.call("lvextend", expand).await;
    assert_eq!(bytes, 160 * MIB as i64);
    let lab = &killer.lab;
    let grown = lab.csi.node_expand(&volume.id, &volume.target, 160 * MIB);
    grown.await.unwrap();
    assert_eq!(lab.guest().read(&letter), b"dear reader");
    lab.leave_volume(&volume).await;

    let delete = async |lab: &LabRig| lab.csi.delete(&volume.id).await;
    killer.call("lvrename", delete).await;
    assert!(killer.lab.csi.ids().await.unwrap().is_empty());
    killer.lab.erased().await;
    killer.lab.csi.capacity_is(free).await;

    // The erase: nobody calls, the agent itself goes on where it was.
    let other = killer.lab.volume("other", 768 * MIB, &csi::block()).await;
    killer.aim("lvremove");
    killer.lab.csi.delete(&other.id).await.unwrap();
    killer.lab.agent.kill9();
    killer.restart().await;
    let guest = killer.lab.guest().clone();
    // A quick erase may have ended in the first agent's time, and a strike that is still to come ends with its agent.
    let may_miss = killer.when.starts_with("during");
    let lab = &killer.lab;
    let struck = wait::until_async(LAB_LIMIT, "the erase's end", async || {
        let struck = guest.ran("mv /run/killed /run/was-killed").ok();
        let left = csi::inventory(&lab.agent_socket).await;
        let done = may_miss && left.is_ok_and(|left| left.ready && left.volumes.is_empty());
        (struck || done).then_some(struck)
    })
    .await;
    guest.run("rm -f /run/kill");
    if struck {
        killer.restart().await;
    }
    killer.lab.erased().await;
    killer.lab.csi.capacity_is(free).await;
    let said = guest.run("lvs --noheadings -o lv_name");
    assert_eq!(said.trim(), "", "LVs are left");
}

async fn lab() -> LabRig {
    let lab = LabRig::with(vec![DriveSpec::scsi("only", GIB)], "lvm").await;
    let there = Path::new("/usr/local/sbin/lvm");
    let script = WRAPPER.replace("UNIT", agent::UNIT);
    lab.guest().write(there, script.as_bytes());
    lab.guest().run("chmod 755 /usr/local/sbin/lvm");
    lab
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_call_whose_agent_is_killed_before_a_command_converges_when_it_is_repeated() {
    life(&mut lab().await, "before").await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_call_whose_agent_is_killed_after_a_command_converges_when_it_is_repeated() {
    life(&mut lab().await, "after").await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_call_whose_agent_is_killed_while_a_command_runs_converges_when_it_is_repeated() {
    long!();
    for pause in ["0.01", "0.03", "0.06", "0.1", "0.15", "0.25"] {
        life(&mut lab().await, &format!("during {pause}")).await;
    }
}

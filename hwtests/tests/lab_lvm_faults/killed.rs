//! The agent is killed, with its child processes, right before, during or right after each `lvm` command of a volume's life. Repeating the
//! call converges: one volume with its data, and all of the space free at the end.

use std::time::Instant;

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec, LabRig,
        killer::{self, Killer},
        letters::LAB_LIMIT,
    },
    long, wait,
};

/// Creates, uses and deletes a volume, killing the agent at each command. Returns how often the agent was killed.
async fn life(lab: &mut LabRig, when: &str) -> usize {
    let free = lab.csi.capacity().await.unwrap();
    let mut killer = Killer::new(lab, when);
    let create = async |lab: &LabRig| {
        let capability = csi::mount("ext4");
        let volume = lab.csi.create("one", 96 * MIB, &capability).await?;
        Ok(lab.place(&volume, "one", &capability))
    };
    // The claim twice: the second time with the remains of the first.
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

    // The erase needs no call: the agent continues it after its restart.
    let other = killer.lab.volume("other", 768 * MIB, &csi::block()).await;
    killer.aim("lvremove");
    killer.lab.csi.delete(&other.id).await.unwrap();
    killer.lab.agent.kill9();
    killer.restart().await;
    // A quick erase may have ended before the agent was killed; a strike that is still pending ends with its agent.
    let struck = struck(&mut killer).await;
    killer.disarm();
    if struck {
        killer.restart().await;
    }
    killer.lab.erased().await;
    killer.lab.csi.capacity_is(free).await;
    let output = killer.lab.guest().run("lvs --noheadings -o lv_name");
    assert_eq!(output.trim(), "", "LVs are left");
    killer.strikes()
}

/// Waits until the agent is killed in an erase. False if the erase ended before, which only a strike during a command allows.
async fn struck(killer: &mut Killer<'_>) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LAB_LIMIT {
        if killer.has_struck() {
            return true;
        }
        let left = csi::inventory(&killer.lab.agent_socket).await;
        let is_erased = left.is_ok_and(|left| left.ready && left.volumes.is_empty());
        if is_erased && killer.is_during() {
            killer.disarm();
            return killer.has_struck();
        }
        tokio::time::sleep(wait::STEP).await;
    }
    panic!("neither was the agent killed in the erase nor did the erase end");
}

async fn lab() -> LabRig {
    let lab = LabRig::with(vec![DriveSpec::scsi("only", GIB)], "lvm").await;
    killer::install(lab.guest());
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
    let mut strikes = 0;
    for pause in ["0.01", "0.03", "0.06", "0.1", "0.15", "0.25"] {
        strikes += life(&mut lab().await, &format!("during {pause}")).await;
    }
    assert!(strikes > 0, "the agent was never killed");
}

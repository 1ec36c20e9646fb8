//! While the volumes of a group are suspended, the agent is killed, with its workers or alone, or a drive hangs. The volumes are resumed.

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    MIB, csi,
    lab::{Guest, LabRig, agent, letters::LAB_LIMIT, nbd::Throttle, progress::print_progress},
    long,
    node::Placed,
    wait,
};
use tonic::Code;

use super::{
    helpers::{
        delete, delete_group, group, lab, member, nothing_is_left, nothing_is_suspended,
        snapshot_device, suspended, try_group, volume,
    },
    relay::{self, Relay},
    stand::{device, on_both, stand},
};

/// Perl script that waits until all of these devices are suspended, and not by a command of LVM, which suspends devices as well.
/// Then it prints a line ("tell"), or kills one process, or all of the agent's ("all"), and records how many devices were suspended
/// after the kill, and after how many milliseconds none was: a minute at most.
const STRIKE: &str = r#"
my ($whom, $group, $note, @devices) = @ARGV;
$group = "/sys/fs/cgroup$group";
sub text { open(my $in, "<", $_[0]) or return ""; local $/; my $text = <$in>; return $text // "" }
sub suspended { return scalar grep { text("/sys/block/$_/dm/suspended") =~ /^1/ } @devices }
sub lvm { return scalar grep { text("/proc/$_/comm") =~ /^lvm/ } split(' ', text("$group/cgroup.procs")) }
sub pause { select(undef, undef, undef, $_[0]) }
until (suspended() == @devices && !lvm() && suspended() == @devices) {
    exit 0 if -e "$note.stop";
    pause(0.0002);
}
if ($whom eq "tell") {
    print "suspended\n";
    exit 0;
}
if ($whom eq "all") {
    open(my $kill, ">", "$group/cgroup.kill") or die "cgroup.kill: $!";
    print $kill "1\n";
    close($kill) or die "cgroup.kill: $!";
    pause(0.01) while text("$group/cgroup.procs") =~ /\d/;
} else {
    kill(9, $whom) or die "kill: $!";
}
my ($left, $ms) = (suspended(), 0);
if ($whom ne "all") {
    while (suspended() && $ms < 60000) { pause(0.01); $ms += 10 }
}
open(my $out, ">", "$note.new") or die "note: $!";
print $out "$left $ms\n";
close($out) or die "note: $!";
rename("$note.new", $note) or die "note: $!";
"#;
const SCRIPT: &str = "/run/strike.pl";
const NOTE: &str = "/run/struck";
/// Largest number of groups that are taken until a strike hits the suspended volumes.
const TRIES: usize = 20;
/// Longest suspension of a volume on a responsive drive, in a busy emulated machine.
const BOUND: Duration = Duration::from_secs(30);
/// Time limit for creating and deleting a volume there.
const BESIDE: Duration = Duration::from_secs(60);
/// Timeout of a caller.
const ANSWER: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// The agent with all of its workers.
    All,
    /// The agent's own process; its workers are not killed.
    Agent,
}

/// Slows writes, so that the volumes are suspended for long enough to be observed.
fn slow() -> Throttle {
    Throttle {
        latency: Duration::from_millis(40),
        read_latency: Some(Duration::ZERO),
        ..Throttle::default()
    }
}

/// Writes the script into the guest, and returns its arguments for these devices.
fn words(guest: &Guest, whom: &str, devices: &[String]) -> String {
    guest.write(SCRIPT.as_ref(), STRIKE.as_bytes());
    let group = format!(
        "systemctl show --property=ControlGroup --value {}",
        agent::UNIT
    );
    let group = guest.run(&group).trim().to_owned();
    assert!(!group.is_empty(), "the agent has no control group");
    format!("{SCRIPT} {whom} {group} {NOTE} {}", devices.join(" "))
}

/// Takes groups of two volumes until the agent is killed while both are suspended. Returns how many were suspended after the kill, at
/// least one, and the time until none was.
async fn struck(
    lab: &mut LabRig,
    whom: Whom,
    volumes: &[Placed; 2],
    name: &str,
) -> (usize, Duration) {
    let [first, second] = volumes;
    for number in 1..=TRIES {
        let devices = [device(lab, first).await, device(lab, second).await];
        let guest = lab.guest().clone();
        let pid = match whom {
            Whom::All => "all".to_owned(),
            Whom::Agent => lab.agent.pid().to_string(),
        };
        let words = words(&guest, &pid, &devices);
        guest.run(&format!(
            "rm -f {NOTE} {NOTE}.stop; systemd-run --quiet --collect --unit=striker perl {words}"
        ));
        let answer = try_group(&lab.csi, name, &[first, second], &[]).await;
        guest.run(&format!("touch {NOTE}.stop"));
        guest.wait_until(LAB_LIMIT, "the striker has ended", |guest| {
            (!guest.ran("systemctl is-active striker").ok()).then_some(())
        });
        let note = guest.ran(&format!("cat {NOTE}"));
        if note.ok() {
            assert!(answer.is_err(), "a dead agent answered: {answer:?}");
            let numbers: Vec<u64> = note
                .stdout
                .split_whitespace()
                .map(|word| word.parse().unwrap())
                .collect();
            guest.wait_until(LAB_LIMIT, "the agent is dead", |_| {
                (!lab.agent.runs()).then_some(())
            });
            if numbers[0] > 0 {
                print_progress(format!("struck in group {number}: {numbers:?}"));
                return (
                    usize::try_from(numbers[0]).unwrap(),
                    Duration::from_millis(numbers[1]),
                );
            }
            // They had been resumed before the kill.
            lab.start_again().await;
        }
        match answer {
            Ok(taken) => delete_group(lab, &taken).await,
            Err(status) => print_progress(format!("group {number} was not taken: {status}")),
        }
    }
    panic!("{TRIES} groups were taken, and the volumes were never met suspended");
}

/// Waits until nothing is left of a group whose agent was killed, and takes it again.
async fn is_taken_anew(lab: &LabRig, volumes: &[Placed; 2], name: &str) {
    for of in volumes {
        wait::until_async(LAB_LIMIT, "no member is left", async || {
            let listed = lab.csi.list_snapshots(&of.id).await.ok()?;
            listed.is_empty().then_some(())
        })
        .await;
    }
    nothing_is_left(lab).await;
    nothing_is_suspended(lab.guest());
    let [first, second] = volumes;
    let taken = group(lab, name, &[first, second], &[]).await;
    let last = [first, second].map(|of| {
        let device = snapshot_device(lab.guest(), &member(&taken, of).snapshot_id);
        relay::held_by_device(lab.guest(), &device, of)
    });
    assert!(last[1] <= last[0], "{last:?} are the last records");
    delete_group(lab, &taken).await;
    nothing_is_left(lab).await;
}

async fn ends(lab: &LabRig, relays: Vec<Relay>, volumes: &[Placed; 2]) {
    for relay in relays {
        relay.advances();
        relay.finish();
    }
    for of in volumes {
        delete(lab, of).await;
    }
    nothing_is_left(lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn volumes_go_on_after_agent_and_worker_were_killed_in_a_group() {
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let volumes = [
        volume(lab, "killed-first", 32 * MIB, &csi::mount("ext4")).await,
        volume(lab, "killed-second", 32 * MIB, &csi::block()).await,
    ];
    for of in &volumes {
        lab.serve(of).await;
    }
    let relay = Relay::start(lab.guest(), "relay", &[&volumes[0], &volumes[1]]);
    lab.machine
        .drive("other-drive")
        .nbd()
        .throttle(Some(slow()));
    let (left, _) = struck(lab, Whom::All, &volumes, "killed").await;
    lab.machine.drive("other-drive").nbd().throttle(None);
    // No process is left to resume them.
    let names = suspended(lab.guest());
    assert!(left > 0, "no volume was suspended when the agent was dead");
    assert!(names.len() >= left, "{left} were, and now are {names:?}");
    let still = relay.synced();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(relay.synced(), still, "records are written to {names:?}");
    let logged = lab.agent.log().len();
    lab.start_again().await;
    relay.advances();
    nothing_is_suspended(lab.guest());
    let log = lab.agent.log().split_off(logged);
    for name in names {
        let is_resumed = |line: &String| line.contains(&name) && line.contains("resumed");
        assert!(log.iter().any(is_resumed), "{name} is not in {log:#?}");
    }
    is_taken_anew(lab, &volumes, "killed").await;
    ends(lab, vec![relay], &volumes).await;
}

/// The agent runs from its unit file, and its workers outlive it. It is not restarted, so that the worker must resume the volumes.
#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn volumes_go_on_by_their_worker_after_the_agent_alone_was_killed_in_a_group() {
    long!();
    let mut lab = stand(true).await;
    let unit = agent::UNIT;
    let drop_in = format!("/etc/systemd/system/{unit}.service.d/once.conf");
    lab.guest()
        .write(drop_in.as_ref(), b"[Service]\nRestart=no\n");
    lab.guest().run("systemctl daemon-reload");
    let volumes = on_both(&lab).await;
    let relay = Relay::start(lab.guest(), "relay", &[&volumes[0], &volumes[1]]);
    let nbd = lab.machine.drive("hang-drive").nbd();
    nbd.throttle(Some(slow()));
    let (left, after) = struck(&mut lab, Whom::Agent, &volumes, "orphaned").await;
    assert!(left > 0, "no volume was suspended when the agent was dead");
    assert!(after < BOUND, "suspended for {after:?}");
    lab.machine.drive("hang-drive").nbd().throttle(None);
    relay.advances();
    assert!(!lab.agent.runs(), "the agent was started again");
    lab.start_again().await;
    is_taken_anew(&lab, &volumes, "orphaned").await;
    ends(&lab, vec![relay], &volumes).await;
}

/// A drive hangs when the other volume is already suspended, or while the reserves of both snapshots are initialized again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_drive_that_hangs_in_a_group_is_named_and_the_other_volumes_go_on() {
    long!();
    let lab = stand(false).await;
    let volumes = on_both(&lab).await;
    let [well, hangs] = &volumes;
    let guest = lab.guest();
    let beside = Relay::start(guest, "beside", &[well]);
    let stuck = Relay::start(guest, "stuck", &[hangs]);
    let nbd = lab.machine.drive("hang-drive").nbd();
    let mut met = false;
    for number in 1..=TRIES {
        nbd.throttle(Some(slow()));
        let words = words(guest, "tell", &[device(&lab, well).await]);
        let stream = guest.stream(&format!("exec perl {words}")).unwrap();
        let (csi, of) = (lab.csi.clone(), volumes.clone());
        let call = tokio::spawn(async move {
            let begun = Instant::now();
            let answer = try_group(&csi, "hung", &[&of[0], &of[1]], &[]).await;
            (answer, begun.elapsed())
        });
        stream.wait_for("suspended", LAB_LIMIT);
        nbd.hang();
        nbd.throttle(None);
        beside.advances();
        let (answer, took) = call.await.unwrap();
        met = answer.is_err();
        match answer {
            Ok(taken) => {
                // The group was complete before the drive hung.
                nbd.resume();
                delete_group(&lab, &taken).await;
                nothing_is_left(&lab).await;
            }
            Err(status) => {
                print_progress(format!("group {number}, answered after {took:?}: {status}"));
                assert!(took < ANSWER, "answered after {took:?}");
                assert!(status.message().contains("hang-drive"), "{status}");
                break;
            }
        }
    }
    assert!(met, "{TRIES} groups were taken before the drive hung");
    assert!(nbd.is_hung());
    beside.advances();
    let well_device = device(&lab, well).await;
    let state = guest.run(&format!("cat /sys/block/{well_device}/dm/suspended"));
    assert_eq!(state.trim(), "0", "beside a drive that hangs");
    assert!(beside.longest() < BOUND, "{:?}", beside.longest());
    // The rest of the group does not block the other drive either.
    let begun = Instant::now();
    let how = csi::block();
    let another = lab.volume_in("well", "another", 16 * MIB, &how).await;
    delete(&lab, &another).await;
    let took = begun.elapsed();
    assert!(
        took < BESIDE,
        "a volume of the other drive took {took:?} to make and delete"
    );
    assert!(nbd.is_hung());
    nbd.resume();
    stuck.advances();
    is_taken_anew(&lab, &volumes, "hung").await;
    ends(&lab, vec![beside, stuck], &volumes).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_group_with_a_volume_of_layout_partition_is_refused_and_leaves_nothing() {
    long!();
    let lab = stand(false).await;
    let how = csi::block();
    let volumes = [
        lab.volume_in("well", "well", 32 * MIB, &how).await,
        lab.volume_in("table", "table", 32 * MIB, &how).await,
    ];
    let [first, second] = &volumes;
    for members in [[first, second], [second, first]] {
        let refused = try_group(&lab.csi, "mixed", &members, &[]).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("partition"), "{refused}");
        let uuid = second.id.split('@').next().unwrap();
        assert!(refused.message().contains(uuid), "{refused}");
    }
    let listed = lab.csi.list_snapshots(&first.id).await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    ends(&lab, Vec::new(), &volumes).await;
}

//! The life of a host with the Debian package: installed from nothing, rebooted, upgraded under a writer, removed, purged, installed again,
//! and a mounted volume through all of it; and volumes managed manually there, with the commands of the documents.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use drivebay_hwtests::{
    GIB,
    lab::{
        DriveSpec, Guest, Machine, MachineSpec, Writer,
        image::{self, target_dir},
        letters::LAB_LIMIT,
    },
    long,
};

const DAILY_LIFE: &str = include_str!("../../deploy/docs/daily-life.md");
const CONFIG: &str = "/etc/drivebay/drivebay.toml";
const RULE: &str = "/etc/udev/rules.d/09-drivebay.rules";
const MOUNT: &str = "/srv/db";
/// Time limit of apt, which includes building an initramfs in an emulated machine.
const APT_LIMIT: Duration = Duration::from_secs(900);
/// A version that is lower than any other: the same programs, packed with this number.
const OLDER: &str = "0.0.1";

/// Builds the agent's package of a version from the release agent and the debug build of the rest, and returns its path in the guest.
fn package(version: &str) -> PathBuf {
    let target = target_dir().unwrap();
    let dir = target.join("lab-packages").join(version);
    let programs = dir.join("programs");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&programs).unwrap();
    for (profile, program) in [
        ("release", "drivebay-agent"),
        ("debug", "drivebay-controller"),
        ("debug", "drivebay-pages"),
    ] {
        let built = target.join(profile).join(program);
        assert!(built.is_file(), "no {}", built.display());
        symlink(built, programs.join(program)).unwrap();
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new(repository.join("deploy/package"))
        .args(["--fast", "--programs"])
        .arg(&programs)
        .args(["--version", version])
        .args([dir.as_os_str(), "deb".as_ref()])
        .status()
        .unwrap();
    assert!(made.success(), "deploy/package");
    let file = dir.join(format!("drivebay-agent_{version}-1_amd64.deb"));
    image::in_guest(&file).unwrap()
}

/// Runs apt without prompts, and returns its output.
fn apt(guest: &Guest, what: &str) -> String {
    eprintln!("apt-get {what}");
    let script = format!("DEBIAN_FRONTEND=noninteractive apt-get -y -q {what} </dev/null 2>&1");
    let ran = guest.try_run(&script, APT_LIMIT).unwrap();
    assert!(ran.ok(), "{ran:?}");
    ran.stdout
}

fn process(guest: &Guest) -> String {
    guest.run("systemctl show --property=MainPID --value drivebay-agent")
}

fn is_up(guest: &Guest) {
    guest.wait_until(LAB_LIMIT, "the agent is up", |guest| {
        let is_active = guest.ran("systemctl is-active drivebay-agent").ok();
        is_active.then_some(())
    });
}

/// Returns the mount with its id: a later mount at the same place has another id.
fn mounted(guest: &Guest) -> String {
    guest.run(&format!("findmnt --task 1 -no ID,SOURCE {MOUNT}"))
}

fn letter(guest: &Guest) -> String {
    guest.run(&format!(
        "dd if={MOUNT}/letter iflag=nocache count=0 status=none; sha256sum <{MOUNT}/letter"
    ))
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_package_is_installed_upgraded_under_a_writer_removed_purged_and_installed_again() {
    long!();
    let (older, newer) = (package(OLDER), package(env!("CARGO_PKG_VERSION")));
    let drives = vec![DriveSpec::nvme("data", 2 * GIB)];
    let mut machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let guest = machine.guest().clone();

    // From nothing: the agent runs, is in the initramfs, and claims no drive.
    apt(&guest, &format!("install {}", older.display()));
    is_up(&guest);
    let rules = "lsinitramfs /boot/initrd.img-* | grep -c 09-drivebay.rules";
    assert_eq!(guest.run(rules).trim(), "1");
    // Tested only once: each update takes a minute or more.
    guest.run("echo update_initramfs=no >/etc/initramfs-tools/update-initramfs.conf");
    let plan = guest.run("drivebay-agent claim-plan");
    assert!(plan.contains("NotSelected"), "{plan}");
    let drives = guest.run("drivebay-agent drives -o json");
    assert!(
        !drives.contains("\"claimed\"") && !drives.contains("\"available\""),
        "{drives}"
    );
    let health = guest.run("drivebay-agent health || true");
    assert!(!health.contains("HostReadsVolumes"), "{health}");

    // A volume that is mounted again at boot.
    let class = "\n[[class]]\nname = \"of-mine\"\n[class.select]\nmedia = [\"nvme\"]\n";
    guest.run(&format!(
        "set -e; printf '%s' '{class}' >>{CONFIG}; systemctl restart drivebay-agent"
    ));
    let create = "drivebay-agent volume create db --size 256MiB --class of-mine";
    guest.wait_until(LAB_LIMIT, "the volume is created", |guest| {
        guest.ran(create).ok().then_some(())
    });
    guest.run(&format!(
        "set -e; mkdir -p {MOUNT}; drivebay-agent volume mount db {MOUNT} --persist; \
         head -c 2M /dev/urandom >{MOUNT}/letter; sync -f {MOUNT}"
    ));
    let written = letter(&guest);
    machine.reboot().unwrap();
    guest.wait_until(LAB_LIMIT, "the volume is mounted by itself", |guest| {
        let there = guest.ran(&format!("mountpoint --quiet {MOUNT}"));
        there.ok().then_some(())
    });
    assert_eq!(letter(&guest), written);

    // Upgraded while a process writes: another agent, the same mount.
    is_up(&guest);
    let writer = Writer::start(&guest, "writer", Path::new(MOUNT));
    let (agent, mount) = (process(&guest), mounted(&guest));
    apt(&guest, &format!("install {}", newer.display()));
    is_up(&guest);
    assert_ne!(process(&guest), agent);
    assert_eq!(mounted(&guest), mount, "it was mounted anew");
    writer.advances();
    let configuration = guest.run(&format!("cat {CONFIG}"));
    assert!(configuration.contains("of-mine"), "{configuration}");

    // Removed: no agent; configuration, rule, state, and the mount under its writer stay.
    apt(&guest, "remove drivebay-agent");
    let left = guest.run("ps -eo args= | grep '[d]rivebay-agent' || true");
    assert_eq!(left, "");
    assert_eq!(mounted(&guest), mount);
    writer.advances();
    guest.run(&format!(
        "set -e; grep -q of-mine {CONFIG}; test -s {RULE}; test -s /var/lib/drivebay/known.json"
    ));

    // Purged: configuration and rule are removed, and the output lists what is kept.
    let output = apt(&guest, "purge drivebay-agent");
    assert!(
        output.contains("kept: the state directory /var/lib/drivebay"),
        "{output}"
    );
    assert!(
        output.contains("kept: claimed drives with their volumes"),
        "{output}"
    );
    guest.run(&format!(
        "set -e; test ! -e {CONFIG}; test ! -e {RULE}; test -s /var/lib/drivebay/known.json"
    ));
    assert_eq!(mounted(&guest), mount);
    writer.advances();
    eprintln!(
        "lines written over upgrade, removal and purge: {}",
        writer.finish()
    );

    // Installed again: no class selects a drive, and yet the volume is known by the label of its drive.
    apt(&guest, &format!("install {}", newer.display()));
    is_up(&guest);
    let listed = guest.wait_until(LAB_LIMIT, "the volume is listed", |guest| {
        let listed = guest.ran("drivebay-agent volume list");
        listed.stdout.contains("db").then_some(listed.stdout)
    });
    assert!(listed.contains(MOUNT), "{listed}");
    assert_eq!(mounted(&guest), mount);
    assert_eq!(letter(&guest), written);
    guest.run(
        "set -e; drivebay-agent volume unmount db; drivebay-agent volume delete db --confirm db",
    );
}

/// Returns the commands of the documents for a host without an orchestrator: those of a volume's life, and those for a drive that was
/// unplugged.
fn manual() -> [Vec<&'static str>; 2] {
    let (_, section) = DAILY_LIFE
        .split_once("## Volumes without an orchestrator")
        .unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let (life, pulled) = section.split_once("A drive that was pulled").unwrap();
    let commands = |text: &'static str| {
        text.lines()
            .filter_map(|line| line.strip_prefix("    "))
            .collect()
    };
    [commands(life), commands(pulled)]
}

#[test]
fn the_documents_commands_for_a_host_without_an_orchestrator_are_found() {
    let [life, pulled] = manual();
    let verbs = |commands: &[&str]| -> Vec<String> {
        commands
            .iter()
            .filter_map(|line| line.strip_prefix("drivebay-agent "))
            .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let all = [
        "volume create",
        "volume mount",
        "volume list",
        "volume expand",
        "volume unmount",
        "volume delete",
        "drive release",
    ];
    assert_eq!(verbs(&life), all);
    assert_eq!(verbs(&pulled), ["volume unmount", "volume mount"]);
}

/// Returns the size of the mounted filesystem in MiB.
fn mib(guest: &Guest) -> u64 {
    let output = guest.run(&format!(
        "df --output=size -BM {MOUNT} | tail -n 1 | tr -d M"
    ));
    output.trim().parse().unwrap()
}

#[test]
#[ignore = "needs the lab: hwtests/lab"]
fn a_host_is_used_by_hand_with_the_commands_of_the_documents() {
    long!();
    let newer = package(env!("CARGO_PKG_VERSION"));
    let drives = vec![DriveSpec::nvme("data", 3 * GIB)];
    let mut machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let guest = machine.guest().clone();
    let [life, pulled] = manual();
    // Same commands, with sizes for a small drive.
    let run = |command: &str| -> String {
        let command = command
            .replace("GiB", "0MiB")
            .replace("--class fast", "--class nvme");
        eprintln!("{command}");
        let ran = guest.try_run(&command, LAB_LIMIT).unwrap();
        assert!(ran.ok(), "{command}: {ran:?}");
        ran.stdout
    };
    let [create, mkdir, mount, list, expand, unmount, delete, release] = life.as_slice() else {
        panic!("eight commands: {life:?}");
    };

    // Installed, a first configuration generated from the drives, one class activated, the plan checked.
    apt(&guest, &format!("install {}", newer.display()));
    is_up(&guest);
    run("drivebay-agent init");
    let kept = guest.run("ls /etc/drivebay");
    assert_eq!(
        kept.trim(),
        "drivebay.toml",
        "the package's text is no loss"
    );
    run("drivebay-agent check-config");
    let plan = run("drivebay-agent claim-plan");
    assert!(
        plan.contains("NotSelected") && !plan.contains("Would be claimed"),
        "{plan}"
    );
    run(&format!(
        "sed -i '/^#\\[\\[class\\]\\]/,/^$/s/^#\\([^ ]\\)/\\1/' {CONFIG}"
    ));
    let plan = run("drivebay-agent claim-plan");
    assert!(plan.contains("Would be claimed"), "{plan}");
    run("systemctl restart drivebay-agent");
    is_up(&guest);

    // The first volume; it is mounted again at boot.
    run(create);
    run(mkdir);
    run(mount);
    assert!(run(list).contains("/srv/db"));
    run(&format!(
        "head -c 2M /dev/urandom >{MOUNT}/letter; sync -f {MOUNT}"
    ));
    let written = letter(&guest);
    let is_mounted = |guest: &Guest| {
        let there = guest.ran(&format!("mountpoint --quiet {MOUNT}"));
        there.ok().then_some(())
    };
    machine.reboot().unwrap();
    guest.wait_until(LAB_LIMIT, "the volume is mounted by itself", is_mounted);
    assert_eq!(letter(&guest), written);
    guest.wait_until(LAB_LIMIT, "the unit is done", |guest| {
        let unit = guest.ran("systemctl is-active drivebay-mounts");
        unit.ok().then_some(())
    });

    // Expanded while mounted.
    let before = mib(&guest);
    run(expand);
    let after = mib(&guest);
    assert!(
        before < 1000 && after > 1800,
        "{before} MiB before, {after} MiB after"
    );

    // Unplugged, and plugged in again.
    machine.unplug("data");
    guest.wait_until(LAB_LIMIT, "the drive is missing", |guest| {
        let health = guest.ran("drivebay-agent drives");
        health.stdout.contains("missing").then_some(())
    });
    let health = guest.ran("drivebay-agent health");
    assert!(!health.ok() && health.stdout.contains("db"), "{health:?}");
    machine.plug("data");
    guest.wait_until(LAB_LIMIT, "the drive is back", |guest| {
        let drives = guest.ran("drivebay-agent drives");
        (drives.stdout.contains("claimed") && !drives.stdout.contains("missing")).then_some(())
    });
    for command in &pulled {
        run(command);
    }
    assert_eq!(letter(&guest), written);

    // Deleted, and the drive released: by its identity, since its kernel name may have changed.
    run(unmount);
    run(delete);
    guest.wait_until(LAB_LIMIT, "the space is erased", |guest| {
        let volumes = guest.ran("drivebay-agent volumes -o name");
        (volumes.ok() && volumes.stdout.trim().is_empty()).then_some(())
    });
    let drive = guest.run("drivebay-agent drives -o name");
    let identity = drive.lines().find(|line| line.contains("data")).unwrap();
    run(&release
        .replace("sdb", identity)
        .replace("wwn-0x5000c500a1b2c3d4", identity));
    let drives = run("drivebay-agent drives");
    assert!(!drives.contains("claimed"), "{drives}");
}

//! The life of a host without packages, with the commands of deploy/docs exactly as documented: installed, serving volumes, rebooted,
//! upgraded under a writer, uninstalled with all data preserved, installed again.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::path::{Path, PathBuf};

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{
        DriveSpec, Guest, LabRig, Machine, MachineSpec, Writer, image,
        letters::{LAB_LIMIT, persistently},
    },
    long,
};

const INSTALL: &str = include_str!("../../deploy/docs/install-host.md");
const UNINSTALL: &str = include_str!("../../deploy/docs/uninstall.md");
/// Path of the repository in the guest.
const REPOSITORY: &str = "/root/drivebay";
const CONFIG: &str = "/etc/drivebay/drivebay.toml";

/// Returns the indented blocks of a document after `from`, each as a script.
fn blocks(document: &str, from: &str) -> Vec<String> {
    let (_, text) = document.split_once(from).unwrap();
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("    ") {
            let block = blocks.last_mut().unwrap();
            block.push_str(command);
            block.push('\n');
        } else if !blocks.last().unwrap().is_empty() {
            blocks.push(String::new());
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// Returns the blocks that install the programs and set up the service, and those that uninstall.
fn commands() -> ([String; 2], Vec<String>) {
    let install = blocks(INSTALL, "\n## From the repository\n");
    let uninstall = blocks(UNINSTALL, "\nA host from the repository");
    (install.try_into().unwrap(), uninstall)
}

#[test]
fn the_documents_have_the_commands_that_are_run_here() {
    let ([programs, service], uninstall) = commands();
    assert!(programs.contains("install -m 755"), "{programs}");
    assert!(
        service.contains("systemctl enable --now drivebay-agent"),
        "{service}"
    );
    assert!(
        uninstall
            .concat()
            .contains("systemctl disable --now drivebay-agent"),
        "{uninstall:?}"
    );
}

/// Runs a block, and returns its standard output. Panics at the first command that fails.
fn type_in(guest: &Guest, block: &str) -> String {
    eprintln!("{block}");
    let script = format!("cd {REPOSITORY}; set -eux\n{block}");
    let ran = guest.try_run(&script, LAB_LIMIT).unwrap();
    assert!(ran.ok(), "{ran:?}");
    ran.stdout
}

/// Copies the repository with its built programs into the guest. The controller is the debug build: it is installed here and not used.
fn bring_repository(guest: &Guest) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in [
        "agent/drivebay.example.toml",
        "systemd/drivebay-agent.service",
        "systemd/drivebay-mounts.service",
        "systemd/drivebay-mount@.service",
        "systemd/drivebay.tmpfiles.conf",
        "systemd/09-drivebay.rules",
    ] {
        guest.copy_in(&root.join(file), &Path::new(REPOSITORY).join(file));
    }
    let built = |path: &str| -> PathBuf {
        let path = image::target_dir().unwrap().join(path);
        image::in_guest(&path).unwrap()
    };
    guest.run(&format!(
        "mkdir -p {REPOSITORY}/target/release && cp {} {} {REPOSITORY}/target/release/",
        built("release/drivebay-agent").display(),
        built("debug/drivebay-controller").display()
    ));
}

fn process(guest: &Guest) -> String {
    guest.run("systemctl show --property=MainPID --value drivebay-agent")
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_host_is_installed_rebooted_upgraded_and_uninstalled_by_the_readme_and_keeps_its_data() {
    long!();
    let drives = vec![DriveSpec::nvme("data", 2 * GIB)];
    let machine = Machine::restored(MachineSpec::new("node1").with(drives)).unwrap();
    let guest = machine.guest().clone();
    bring_repository(&guest);
    let ([programs, service], uninstall) = commands();

    // From nothing to the plan: by default no drive is selected.
    type_in(&guest, &programs);
    let plan = guest.run("drivebay-agent claim-plan");
    assert!(plan.contains("NotSelected"), "{plan}");
    let class =
        "\n[[class]]\nname = \"of-mine\"\nlayout = \"lvm\"\n[class.select]\nmedia = [\"nvme\"]\n";
    guest.run(&format!("printf '%s' '{class}' >>{CONFIG}"));
    let headless = "[Service]\nExecStart=\nExecStart=/usr/bin/drivebay-agent run --headless --config /etc/drivebay/drivebay.toml\n";
    let drop_in = "/etc/systemd/system/drivebay-agent.service.d/override.conf";
    guest.write(Path::new(drop_in), headless.as_bytes());
    let listed = type_in(&guest, &service);
    assert!(
        listed.contains("available") && listed.contains("of-mine"),
        "{listed}"
    );

    // A volume created through the socket, over a reboot.
    let mut lab = LabRig::attach(machine).await;
    let volume = lab
        .volume_in("of-mine", "kept", 256 * MIB, &csi::mount("ext4"))
        .await;
    lab.serve(&volume).await;
    let written = lab.put_letter(&volume, 2048);
    lab.machine.reboot().unwrap();
    guest.wait_until(LAB_LIMIT, "the service is up by itself", |guest| {
        guest
            .ran("systemctl is-active drivebay-agent")
            .ok()
            .then_some(())
    });
    lab.comes_up().await;
    lab.volume_is(&volume.id, "ready").await;
    lab.serve(&volume).await;
    assert_eq!(lab.letter(&volume), written);
    // The rule is in effect, so that the agent logs no warning about it.
    let device = lab.device(&volume).await;
    let properties = guest.run(&format!(
        "udevadm info --query=property {}",
        device.display()
    ));
    assert!(properties.contains("ID_FS_TYPE=drivebay"), "{properties}");
    let health = guest.run("drivebay-agent health");
    assert!(!health.contains("HostReadsVolumes"), "{health}");

    // Upgraded while a process writes.
    let writer = Writer::start(&guest, "writer", &volume.target);
    let (before, mount) = (
        process(&guest),
        format!("findmnt --task 1 -no ID {}", volume.target.display()),
    );
    let mounted = guest.run(&mount);
    let install = programs
        .lines()
        .find(|line| line.starts_with("install -m 755"))
        .unwrap();
    type_in(
        &guest,
        &format!("{install}\nsystemctl restart drivebay-agent"),
    );
    assert_ne!(process(&guest), before);
    assert_eq!(guest.run(&mount), mounted, "it was mounted anew");
    writer.advances();
    eprintln!("lines written over the upgrade: {}", writer.finish());
    lab.comes_up().await;
    let unpublished = persistently(async || lab.csi.unpublish(&volume.id, &volume.target).await);
    unpublished.await;
    persistently(async || lab.csi.unstage(&volume.id, &volume.staging).await).await;

    // Uninstalled: no process or unit remains, and the data is readable without Drivebay.
    type_in(&guest, &uninstall.concat());
    let left = guest.run("ps -eo args= | grep '[d]rivebay-agent' || true");
    assert_eq!(left, "");
    let read = guest.run(
        "lv=$(lvs --noheadings -o lv_full_name | tr -d ' '); lvchange -ay \"$lv\"; mkdir -p /mnt/by-hand; \
         mount -o ro \"/dev/$lv\" /mnt/by-hand; sha256sum </mnt/by-hand/letter; umount /mnt/by-hand; lvchange -an \"$lv\"",
    );
    assert_eq!(read.split_whitespace().next(), Some(written.as_str()));

    // Installed again, everything is as before.
    type_in(&guest, &service);
    let lab = LabRig::attach(lab.machine).await;
    lab.volume_is(&volume.id, "ready").await;
    lab.serve(&volume).await;
    assert_eq!(lab.letter(&volume), written);
    lab.leave_volume(&volume).await;
}

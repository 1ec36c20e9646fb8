//! Hosts with a different setup: without udevd, and with an LVM devices file.

use drivebay_hwtests::lab::{LabRig, Machine, MachineSpec};

use super::stand::{both_layouts, uses_both_layouts};

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn without_udevd_both_layouts_work() {
    let machine = Machine::restored(MachineSpec::new("node1")).unwrap();
    // Without udevd no other process loads the modules of devices that are plugged in later.
    machine.guest().run(
        "modprobe sd_mod; systemctl stop systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udevd.service; \
         test ! -e /run/udev/control; ! pgrep -x systemd-udevd",
    );
    let mut lab = LabRig::tuned(machine, "partition", both_layouts).await;
    uses_both_layouts(&mut lab).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn with_a_devices_file_of_the_host_both_layouts_work_and_the_file_stays_as_it_is() {
    let machine = Machine::restored(MachineSpec::new("node1")).unwrap();
    let guest = machine.guest().clone();
    guest.run(
        "sed -i 's/.*use_devicesfile = .*/\\tuse_devicesfile = 1/' /etc/lvm/lvm.conf; \
         mkdir -p /etc/lvm/devices; echo '# of the host' >/etc/lvm/devices/system.devices; \
         lvmconfig devices/use_devicesfile | grep -qx use_devicesfile=1; lvm pvs",
    );
    let listed = guest.run("cat /etc/lvm/devices/system.devices");
    let mut lab = LabRig::tuned(machine, "partition", both_layouts).await;
    uses_both_layouts(&mut lab).await;
    assert_eq!(guest.run("cat /etc/lvm/devices/system.devices"), listed);
}

//! A second node in a guest of the lab, which has what this machine may lack: device-mapper, udevd, real capabilities, and
//! drives that can be unplugged. Its kubelet joins the cluster over a network interface of its own.

use std::{
    ffi::OsStr,
    fs::{self, File},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use super::wait;
use super::{Cluster, DRIVER, Install, LIMIT, NAMESPACE, Scenario, merge};
use crate::{
    GIB,
    lab::{
        DriveSpec, Guest, Machine, MachineSpec,
        drives::{ROOT_PORTS, root_port},
        guest::quote,
        image::{in_guest, target_dir},
        progress::print_progress,
        service,
    },
    tools,
};

/// Name of the guest's Kubernetes node, its host name, and the name of its tap interface in the cluster's network.
const NODE: &str = "node-2";
/// The StorageClass of its drives, which its host's node has none of.
pub const GUEST_CLASS: &str = "drivebay-nvme";

const ADDRESS: &str = "10.90.0.2";
const PODS: &str = "10.89.0.0/16";
/// Of its interface in the cluster's network; its configuration is found by it.
const MAC: &str = "52:54:00:90:00:02";
/// An emulated processor is five to ten times slower.
const SLOW: Duration = Duration::from_secs(600);

/// A scenario that shares a guest with others, since a guest takes minutes to join.
pub type GuestScenario = fn(&mut GuestNode, &Cluster);

/// A Kubernetes node in a guest of the lab. Drop cuts the guest's power and deletes the Node object.
#[derive(Debug)]
pub struct GuestNode {
    /// Emulated machine of the node.
    pub machine: Machine,
    cluster: Cluster,
    /// Number of drives for volumes.
    drives: usize,
}

impl GuestNode {
    /// A node with these drives, ready. This thread, and whatever this process starts, is in the cluster's network from
    /// now on: this comes before all else.
    ///
    /// # Panics
    /// It does not come up.
    pub fn join(cluster: &Cluster, drives: Vec<DriveSpec>) -> Self {
        enter_network(cluster);
        let from = Instant::now();
        let step =
            |what: &str| print_progress(format!("{NODE}: {what}, {} s", from.elapsed().as_secs()));
        let made = tempfile::tempdir_in(target_dir().unwrap().join("kubernetes")).unwrap();
        make(cluster, made.path());
        let unpacked = made.path().join("containerd");
        // An image of a filesystem instead of a copy: an emulated processor takes minutes to import images.
        let images = DriveSpec::virtio("images", 4 * GIB).holding(move |file| {
            let words = ["-q", "-L", "images", "-d"].map(OsStr::new);
            let words = [&words[..], &[unpacked.as_ref(), file.as_ref()]].concat();
            tools::run("mkfs.ext4", &words).map(drop)
        });
        step("configuration and images made");
        let count = drives.len();
        let spec = MachineSpec::new(NODE).with(vec![images]).with(drives);
        let node = Self {
            machine: Machine::restored(spec).unwrap(),
            cluster: cluster.clone(),
            drives: count,
        };
        node.copy(made.path());
        step("programs copied");
        node.plug_network();
        step("in the cluster's network");
        node.start();
        step("containerd and kubelet started");
        wait::until(SLOW, "the guest's node is ready", || {
            let node = cluster.get("default", &["node", NODE]);
            let conditions = node["status"]["conditions"].as_array()?.clone();
            let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            conditions.iter().any(ready).then_some(())
        });
        step("ready");
        node
    }

    /// The way into the machine.
    pub fn guest(&self) -> &Guest {
        self.machine.guest()
    }

    /// Runs each of the scenarios, also after one has failed.
    ///
    /// # Panics
    /// If one failed, after all have run, with the names of those that failed.
    pub fn run(&mut self, scenarios: &[(&str, GuestScenario)]) {
        let cluster = self.cluster.clone();
        let mut failed = Vec::new();
        for (name, scenario) in scenarios {
            let from = Instant::now();
            let passed = catch_unwind(AssertUnwindSafe(|| scenario(self, &cluster))).is_ok();
            let how = if passed { "passed" } else { "FAILED" };
            print_progress(format!("{name}: {how}, {} s", from.elapsed().as_secs()));
            if !passed {
                failed.push(*name);
            }
        }
        assert!(failed.is_empty(), "failed: {failed:?}");
    }

    fn must(&self, script: &str) -> String {
        let ran = self.guest().try_run(script, SLOW).unwrap();
        assert!(ran.ok(), "in the guest: {script}\n{}", ran.stderr);
        ran.stdout
    }

    /// Puts programs and configuration in their places.
    fn copy(&self, made: &Path) {
        let there = |path: &Path| quote(&in_guest(path).unwrap().display().to_string());
        let programs = target_dir().unwrap().join("kubernetes/guest");
        assert!(
            programs.is_dir(),
            "no programs for the guest: hwtests/cluster/guest programs"
        );
        self.must(&format!(
            "cp -r {}/usr / && cp {} /usr/local/bin/kubelet && cp -r {}/. / && networkctl reload && systemctl daemon-reload",
            there(&programs),
            there(&self.cluster.dir().join("bin/kubelet")),
            there(&made.join("root")),
        ));
    }

    /// Plugs in an interface, whose other end qemu makes in the cluster's namespace, and plugs that into the bridge.
    fn plug_network(&self) {
        let mut qmp = self.machine.qmp().unwrap();
        let tap = json!({"type": "tap", "id": "cluster", "ifname": NODE, "script": "no", "downscript": "no"});
        qmp.execute("netdev_add", tap).unwrap();
        let card = json!({
            "driver": "virtio-net-pci",
            "id": "cluster0",
            "netdev": "cluster",
            "mac": MAC,
            "romfile": "",
            "bus": root_port(ROOT_PORTS - 1),
        });
        qmp.execute("device_add", card).unwrap();
        let ip = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            self.cluster.inside(&words).unwrap();
        };
        ip(&format!("ip link set {NODE} master node0 up"));
        ip(&format!("ip route replace {PODS} via {ADDRESS}"));
        wait::until(SLOW, "the guest reaches the API server", || {
            let ran = self
                .guest()
                .try_run("timeout 5 bash -c 'exec 3<>/dev/tcp/10.90.0.1/6443'", LIMIT);
            ran.is_ok_and(|ran| ran.ok()).then_some(())
        });
    }

    fn start(&self) {
        self.must(
            "sysctl -qw net.ipv4.ip_forward=1
             mkdir -p /var/lib/containerd
             mount LABEL=images /var/lib/containerd
             systemctl start containerd
             systemctl start kubelet",
        );
    }

    /// Installs Drivebay with a class of layout `lvm` for the guest's drives besides the usual one, and waits until both
    /// kubelets have registered it. Its controller runs beside the control plane.
    ///
    /// # Panics
    /// It does not come up.
    pub fn install(&self) {
        self.install_with(&json!({}));
    }

    /// As [`install`](Self::install), with further values of the Helm chart.
    ///
    /// # Panics
    /// If Drivebay is not ready in time.
    pub fn install_with(&self, more: &Value) {
        let classes = json!([
            {"name": "loop", "layout": "partition", "select": {"path": [self.cluster.drives_pattern()]}},
            {"name": "nvme", "layout": "lvm", "select": {"model": ["QEMU NVMe*"]}},
        ]);
        let mut values = json!({
            "classes": classes,
            "agent": {"healthApi": "both"},
            "controller": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}},
        });
        merge(&mut values, more);
        self.cluster.install(&Install::with(values));
        self.until_registered(true);
        wait::until(SLOW, "the guest's drives can be used", || {
            let drives = self.cluster.query_controller(&["drives"]);
            let here = |it: &&Value| it["node"] == NODE && it["class"] == "nvme";
            let states = drives["drives"].as_array()?.iter().filter(here);
            let usable = |it: &&Value| it["state"] == "available" || it["state"] == "claimed";
            (states.filter(usable).count() == self.drives).then_some(())
        });
    }

    /// Waits until the guest's kubelet has registered the driver, or unregistered it.
    ///
    /// # Panics
    /// Not within minutes.
    fn until_registered(&self, registered: bool) {
        let what = format!("the guest's kubelet has the driver registered: {registered}");
        wait::until(SLOW, &what, || {
            let node = self.cluster.get("default", &["csinode", NODE]);
            let drivers = node["spec"]["drivers"].as_array().cloned();
            let drivers = drivers.unwrap_or_default();
            let has = drivers.iter().any(|it| it["name"] == DRIVER);
            (has == registered).then_some(())
        });
    }

    /// Uninstalls the chart and has the agent run as a unit of systemd beside the guest's kubelet, until the kubelet has
    /// registered it.
    ///
    /// # Panics
    /// It does not come up.
    pub fn run_unit(&self) {
        self.cluster.uninstall();
        self.until_registered(false);
        let configuration = format!(
            "[node]\nname = \"{NODE}\"\ncluster = \"{}\"\n\
             [[class]]\nname = \"nvme\"\nlayout = \"lvm\"\n[class.select]\nmodel = [\"QEMU NVMe*\"]\n",
            self.cluster.name()
        );
        service::install_as_it_is(self.guest(), &configuration).unwrap();
        self.must("systemctl start drivebay-agent");
        self.until_registered(true);
    }

    /// Restarts the unit; whatever was published stays so.
    ///
    /// # Panics
    /// It does not come up.
    pub fn restart_unit(&self) {
        self.must("systemctl restart drivebay-agent");
        self.until_registered(true);
    }

    /// Ends the unit and installs the chart again.
    ///
    /// # Panics
    /// Either fails.
    pub fn end_unit(&self) {
        self.must("systemctl stop drivebay-agent");
        self.until_registered(false);
        self.install();
    }

    /// Which of the machine's drives a claim's volume is on.
    ///
    /// # Panics
    /// There is no such volume.
    pub fn drive_of(&self, namespace: &str, claim: &str, drives: &[&'static str]) -> &'static str {
        let claim = self.cluster.get(namespace, &["pvc", claim]);
        let volume = claim["spec"]["volumeName"].as_str().unwrap();
        let volume = self.cluster.get("default", &["pv", volume]);
        let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
        let shown = self
            .cluster
            .query_controller(&["volume", "show", handle])
            .to_string();
        let has = |drive: &&&str| shown.contains(**drive);
        drives
            .iter()
            .find(has)
            .unwrap_or_else(|| panic!("{handle} is on none of {drives:?}: {shown}"))
    }

    /// `drivebay-agent drive ack`, in the pod of the guest's agent.
    ///
    /// # Panics
    /// It fails.
    pub fn acknowledge(&self, drive: &str) {
        let pods = self.cluster.list(
            NAMESPACE,
            &[
                "pods",
                "--selector=app.kubernetes.io/component=agent",
                &format!("--field-selector=spec.nodeName={NODE}"),
            ],
        );
        let pod = pods[0]["metadata"]["name"].as_str().unwrap();
        let id = format!("serial-QEMU_NVMe_Ctrl_{drive}");
        let exec = ["--namespace", NAMESPACE, "exec", pod, "--"];
        let ack = ["drivebay-agent", "drive", "ack", &id, "--note", "unplugged"];
        let ack = [&ack[..], &["--by", "kubernetes_guest", "--use"]].concat();
        self.cluster.kubectl(&[&exec[..], &ack].concat());
    }

    /// Uninstalls Drivebay, looks whether it left anything mounted, mapped or registered, and takes the node out of the
    /// cluster.
    ///
    /// # Panics
    /// Something is left.
    pub fn leave(self) {
        self.cluster.uninstall();
        self.until_registered(false);
        let left = self
            .must("lvs --noheadings -o lv_full_name; findmnt -rn -o TARGET | grep -F csi || true");
        assert_eq!(left.trim(), "", "left in the guest");
    }
}

impl Drop for GuestNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let pods = ["--namespace", NAMESPACE, "describe", "pods"];
            let output = self.cluster.try_kubectl(&pods).unwrap_or_default();
            let _ = fs::write(self.machine.run_dir().file("pods.log"), output);
        }
        // Whoever comes next finds a cluster of one node, and Drivebay to be installed with the usual values.
        let _ = fs::remove_file(self.cluster.dir().join("usual-values"));
        self.machine.power_off();
        let _ = self
            .cluster
            .try_kubectl(&["delete", "node", NODE, "--wait=false"]);
    }
}

impl Scenario {
    /// Waits until a pod runs on the guest, the only node on which its volume can be created.
    ///
    /// # Panics
    /// If it does not run in time, or runs on another node.
    pub fn runs_in_the_guest(&self, pod: &str) {
        self.runs(pod);
        assert_eq!(self.get(&["pod", pod])["spec"]["nodeName"], NODE);
    }
}

/// Configuration, certificates and images, as hwtests/cluster/guest makes them.
fn make(cluster: &Cluster, out: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/guest");
    let words = ["node".as_ref(), cluster.dir().as_os_str(), out.as_os_str()];
    tools::run(script, &words).unwrap();
}

/// Takes this thread into the cluster's network; qemu and ssh, which it starts, follow. So the guest's interface there needs
/// no way through this machine's network, and its ssh answers there.
fn enter_network(cluster: &Cluster) {
    let init = fs::read_to_string(cluster.dir().join("run/init.pid")).unwrap();
    let network = File::open(format!("/proc/{}/ns/net", init.trim())).unwrap();
    setns(network, CloneFlags::CLONE_NEWNET).unwrap();
}

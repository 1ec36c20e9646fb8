//! topolvm's node plugin with embedded lvmd, as released. LVM is replaced by a script that prints a report about partitions of a loop
//! drive: no device-mapper is needed, and calls take less time than with LVM.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{
    Csi, MIB, Shelf, Trouble,
    children::{self, Process},
    csi,
    node::Placed,
    tools, wait,
};
use serde_json::json;

use super::{
    super::{
        admin::drive,
        admin_drive::{AdminDrive, Layout},
    },
    api::{Api, NODE},
    named,
};

/// Environment variable with the path of its program; hwtests/bench builds it.
pub(super) const PROGRAM: &str = "DRIVEBAY_BENCH_TOPOLVM_NODE";
const START_LIMIT: Duration = Duration::from_secs(60);
const CLASS: &str = "bench";
const VG: &str = "drivebay-bench-peer";

/// A running plugin. Killed before its API server ends.
pub(super) struct Topolvm {
    process: Process,
    socket: PathBuf,
    pub(super) csi: Csi,
    /// The volumes that `start` created, with ext4 and an empty staging path. `start` publishes none.
    pub(super) volumes: Vec<Placed>,
    _api: Api,
}

impl Topolvm {
    /// Starts the plugin with this many volumes of `mib` MiB. None if the environment does not name its program.
    pub(super) async fn start(
        shelf: &Shelf,
        volumes: usize,
        mib: u64,
    ) -> Result<Option<Self>, Trouble> {
        let Some(program) = named(PROGRAM) else {
            return Ok(None);
        };
        let dir = shelf.dir().join("topolvm");
        fs::create_dir(&dir)?;
        // The shelf removes the drive and its mounts.
        let device = drive(&dir, "drive.img", (volumes as u64 * mib + 64) * MIB)?;
        AdminDrive::new(Layout::Partition, &device, volumes, mib)?;
        for number in 1..=volumes {
            tools::run("mkfs.ext4", &["-q", &format!("{device}p{number}")])?;
        }
        let lvm = lvm(&dir, &device, volumes, mib)?;
        let api = Api::serve((0..volumes).map(|of| object(of, mib)).collect()).await?;
        let [config, kubeconfig, socket, log] =
            ["lvmd.yaml", "kubeconfig", "csi.sock", "log"].map(|name| dir.join(name));
        api.kubeconfig(&kubeconfig)?;
        let class = json!({"name": CLASS, "volume-group": VG, "spare-gb": 0, "default": true});
        let settings = json!({"device-classes": [class], "lvm-command-prefix": [lvm]});
        fs::write(&config, settings.to_string())?;
        let mut command = children::mortal(&program.display().to_string())?;
        command
            .args([
                "--embed-lvmd",
                "--metrics-bind-address=0",
                "--nodename",
                NODE,
            ])
            .arg("--config")
            .arg(&config)
            .arg("--csi-socket")
            .arg(&socket)
            .env("KUBECONFIG", &kubeconfig);
        let mut process = Process::of(command, &log)?;
        let ready = wait::poll_async(START_LIMIT, || {
            let (ended, socket) = (process.ended().is_some(), &socket);
            async move {
                if ended {
                    return Some(None);
                }
                let csi = Csi::connect(socket).await.ok()?;
                csi.ready().await.then_some(Some(csi))
            }
        });
        let Some(csi) = ready.await.flatten() else {
            let log = fs::read_to_string(&log).unwrap_or_default();
            return Err(Trouble::new(format!("topolvm-node does not serve: {log}")));
        };
        let volumes = (0..volumes).map(|number| Placed {
            id: name(number),
            bytes: mib * MIB,
            capability: csi::mount("ext4"),
            staging: PathBuf::new(),
            target: dir.join("pods").join(number.to_string()).join("mount"),
        });
        Ok(Some(Self {
            process,
            socket,
            csi,
            volumes: volumes.collect(),
            _api: api,
        }))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Opens a connection to the plugin's CSI socket, independent of `csi`. Errs if nothing answers there.
    pub(super) async fn client(&self) -> Result<Csi, Trouble> {
        Csi::connect(&self.socket).await
    }

    pub(super) async fn publish(&self, volume: &Placed) -> Result<(), Trouble> {
        let (target, capability) = (&volume.target, &volume.capability);
        let published = self
            .csi
            .publish(&volume.id, &volume.staging, target, capability, false);
        Ok(published.await?)
    }

    pub(super) async fn unpublish(&self, volume: &Placed) -> Result<(), Trouble> {
        Ok(self.csi.unpublish(&volume.id, &volume.target).await?)
    }
}

impl Drop for Topolvm {
    fn drop(&mut self) {
        self.process.kill();
    }
}

fn name(number: usize) -> String {
    format!("peer-{number}")
}

/// Returns a LogicalVolume that topolvm has already provisioned.
fn object(number: usize, mib: u64) -> serde_json::Value {
    let (name, size) = (name(number), format!("{mib}Mi"));
    json!({
        "kind": "LogicalVolume", "apiVersion": "topolvm.io/v1",
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1", "finalizers": ["topolvm.io/logicalvolume"],
            "labels": {"app.kubernetes.io/created-by": "topolvm-controller"},
        },
        "spec": {"name": name, "nodeName": NODE, "size": size, "deviceClass": CLASS},
        "status": {"volumeID": name, "currentSize": size},
    })
}

/// Writes the script that replaces LVM: it prints a file for each command.
fn lvm(dir: &Path, device: &str, volumes: usize, mib: u64) -> Result<String, Trouble> {
    let bytes = (mib * MIB).to_string();
    let vg = json!({
        "vg_name": VG, "vg_uuid": VG, "vg_size": (1024 * MIB).to_string(), "vg_free": bytes,
    });
    let lvs: Vec<_> = (0..volumes)
        .map(|number| {
            json!({
                "lv_name": name(number), "lv_full_name": format!("{VG}/{}", name(number)),
                "lv_uuid": name(number), "lv_path": format!("{device}p{}", number + 1),
                "lv_kernel_major": "259", "lv_kernel_minor": "0", "origin": "", "origin_size": "",
                "pool_lv": "", "lv_tags": "", "lv_attr": "-wi-ao----", "vg_name": VG, "lv_size": bytes,
                "data_percent": "", "metadata_percent": "",
            })
        })
        .collect();
    for (command, report) in [
        ("vgs", json!({"vg": [vg]})),
        ("lvs", json!({"lv": lvs})),
        ("fullreport", json!({"vg": [vg], "lv": lvs})),
    ] {
        fs::write(dir.join(command), json!({"report": [report]}).to_string())?;
    }
    let program = dir.join("lvm");
    let text = format!("#!/bin/sh\nexec /bin/cat {}/\"$1\"\n", dir.display());
    fs::write(&program, text)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program.display().to_string())
}

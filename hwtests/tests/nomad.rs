//! A real Nomad, server and client in one, whose jobs write to Drivebay's volumes: as dynamic host volumes, by the first page's five
//! lines, and through CSI, with the files of deploy/nomad. Started by hwtests/nomad.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{env, path::PathBuf, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, Shelf, program, settings,
    stage::{Stage, lines_of},
    wait,
};
use serde_json::Value;

const README: &str = include_str!("../../README.md");
/// Node name in the files in deploy/nomad.
const NODE: &str = "rack1-node7";
/// Time limit for Nomad to place, start and end jobs, on a busy machine.
const SOON: Duration = Duration::from_secs(240);
const NOMAD: &str = r#"data_dir = "/opt/nomad/data"
name = "rack1-node7"
bind_addr = "127.0.0.1"
advertise {
  http = "127.0.0.1"
  rpc = "127.0.0.1"
  serf = "127.0.0.1"
}
log_level = "DEBUG"
disable_update_check = true
server {
  enabled = true
  bootstrap_expect = 1
}
client {
  enabled = true
  servers = ["127.0.0.1"]
  host_volume_plugin_dir = "/opt/nomad/plugins"
  cgroup_parent = "drivebay-nomad"
  chroot_env {
    "/usr/bin/busybox" = "/bin/sh"
    "/bin/busybox" = "/bin/busybox"
  }
  options {
    "fingerprint.denylist" = "env_aws,env_azure,env_digitalocean,env_gce,consul,vault"
    "driver.allowlist" = "exec,raw_exec"
  }
}
plugin "raw_exec" {
  config { enabled = true }
}
"#;
/// Replaces systemctl, as systemd acts on Nomad's unit.
const SYSTEMCTL: &str = r#"[ "$*" = "restart nomad" ]
if [ -e /run/drivebay/nomad.pid ]; then
    kill -INT "$(cat /run/drivebay/nomad.pid)"
    while kill -0 "$(cat /run/drivebay/nomad.pid)" 2>/dev/null; do sleep 0.2; done
fi
setsid nomad agent -config /etc/nomad.d >>/var/lib/nomad.log 2>&1 </dev/null &
echo $! >/run/drivebay/nomad.pid
until nomad node status -self 2>/dev/null | grep -q '^Status  *= ready'; do
    kill -0 "$(cat /run/drivebay/nomad.pid)" || { tail -n 5 /var/lib/nomad.log >&2; exit 1; }
    sleep 0.5
done"#;

/// A host with Nomad's configuration, a drive and the agent's program.
struct Host {
    stage: Stage,
    // Dropped after the stage, which uses its drives.
    shelf: Shelf,
}

impl Host {
    fn new(bytes: u64) -> Self {
        let nomad = env::var_os("DRIVEBAY_NOMAD").expect("hwtests/nomad starts this");
        let mut shelf = Shelf::new().unwrap();
        shelf.add(DriveSpec::blank("a", bytes)).unwrap();
        let stage = Stage::new(shelf.dir()).unwrap();
        stage.program("nomad", &PathBuf::from(nomad)).unwrap();
        let agent = program::agent().unwrap();
        stage.program("drivebay-agent", &agent).unwrap();
        stage.stand_in("systemctl", SYSTEMCTL).unwrap();
        let host = Self { stage, shelf };
        host.file("/etc/nomad.d/nomad.hcl", NOMAD);
        host
    }

    fn file(&self, path: &str, text: &str) {
        let script = format!("mkdir -p \"$(dirname {path})\"; cat >{path} <<'END'\n{text}\nEND");
        self.run(&script);
    }

    /// Returns a configuration with the class "fast", which selects the host's drive.
    fn class(&self) -> String {
        format!(
            "[discovery]\nallow-loop = true\n[metrics]\nlisten = \"off\"\n[[class]]\nname = \"fast\"\nlayout = \"{}\"\n\
             [class.select]\npath = [\"{}\"]\n",
            settings::layout(),
            self.shelf.pattern()
        )
    }

    fn run(&self, script: &str) -> String {
        self.stage
            .run(script)
            .unwrap_or_else(|trouble| panic!("{trouble}\n{}", self.evidence()))
    }

    /// Returns the last lines of the logs of Nomad and the agent, and the state of the jobs.
    fn evidence(&self) -> String {
        let script = "tail -n 60 /var/lib/nomad.log /var/lib/agent.log 2>/dev/null || true; \
                      nomad job status 2>&1 || true; for id in $(nomad job status 2>/dev/null | awk 'NR > 1 {print $1}'); do \
                      nomad job allocs -json $id 2>/dev/null | grep -E 'DisplayMessage|DriverError' || true; done";
        self.stage.run(script).unwrap_or_default()
    }

    fn until(&self, what: &str, script: &str) -> String {
        let output = wait::poll_every(Duration::from_millis(500), SOON, || {
            self.stage.run(script).ok()
        });
        output.unwrap_or_else(|| panic!("{what}: not in time\n{}", self.evidence()))
    }

    /// Returns the agent's volumes, without those that are being erased.
    fn volumes(&self) -> Vec<Value> {
        let list: Value =
            serde_json::from_str(&self.run("drivebay-agent volume list -o json")).unwrap();
        let all = list["volumes"].as_array().unwrap().iter();
        all.filter(|one| one["state"] != "erasing")
            .cloned()
            .collect()
    }

    fn stop(&self, job: &str) {
        self.run(&format!("nomad job stop -purge {job}"));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Processes that Nomad leaves running when it stops, and its cgroups, which are of the whole machine.
        let _ = self.stage.run_unchecked(
            "set +e; nomad job stop -purge drivebay-trial; nomad job stop -purge drivebay-csi; sleep 1; \
             kill $(cat /run/drivebay/nomad.pid); for pid in $(pgrep -x drivebay-agent) $(pgrep -x nomad); do kill $pid; done; sleep 2; \
             for pid in $(pgrep -x nomad); do kill -9 $pid; done; sleep 1; \
             awk '$2 ~ \"^/opt/nomad/data/\" {print $2}' /proc/self/mounts | sort -r | while read -r at; do umount -l \"$at\"; done; \
             find /sys/fs/cgroup -depth -type d -path '*/drivebay-nomad*' -exec rmdir {} +",
        );
    }
}

#[test]
#[ignore = "needs Nomad: hwtests/nomad"]
fn the_first_pages_five_lines_on_nomad_end_with_a_job_that_writes_and_a_restart_keeps_its_volume() {
    let host = Host::new(4 * GIB);
    host.file("/etc/drivebay/drivebay.toml", &host.class());
    host.run("setsid drivebay-agent run >/var/lib/agent.log 2>&1 </dev/null &");
    host.until(
        "the agent is ready",
        "drivebay-agent drives -o json | grep '\"ready\": true'",
    );
    let lines = lines_of(README, "Five lines on Nomad");
    assert_eq!(lines.len(), 5, "{lines:#?}");
    for line in &lines[..4] {
        eprintln!("# {line}\n{}", host.run(line));
    }
    // The first of the job's lines may not be written yet.
    let logged = host.until("the job has logged", &format!("{} | grep .", lines[4]));
    assert!(logged.contains("UTC"), "{logged:?}");
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1, "{volumes:#?}");
    assert_eq!(volumes[0]["size_bytes"], GIB, "{volumes:#?}");
    // The name of its specification is shown everywhere, and Nomad knows its size.
    assert_eq!(volumes[0]["created_for"]["nomad_volume"], "db");
    for shown in [
        "volumes",
        "volume list",
        "volume show default/db",
        "volume show -o wide default/db",
    ] {
        let shown = host.run(&format!("drivebay-agent {shown}"));
        assert!(shown.contains("default/db"), "{shown}");
    }
    let name = volumes[0]["name"].as_str().unwrap();
    let id = name.strip_prefix("nomad-").unwrap().to_owned();
    let at = format!("/opt/nomad/data/host_volumes/{id}");
    let status = host.run(&format!("nomad volume status -type host {id}"));
    let is_capacity = |line: &str| line.starts_with("Capacity ") && line.ends_with(" 1.0 GiB");
    assert!(status.lines().any(is_capacity), "{status}");
    let written = format!("wc -l <{at}/written");
    let count = |script: &str| host.run(script).trim().parse::<u64>().unwrap();
    assert!(count(&written) > 0);

    // While a job uses it, Nomad does not delete it; a request that does not fit is refused with the agent's message.
    assert!(
        host.stage
            .run(&format!("nomad volume delete -type host {id}"))
            .is_err()
    );
    let large = "sed 's/\"db\"/\"large\"/; s/\"1GiB\"/\"1TiB\"/; s/\"2GiB\"/\"1TiB\"/' deploy/nomad/host-volume.hcl | nomad volume create -";
    let refused = host.stage.run(large).unwrap_err().to_string();
    assert!(
        refused.contains("error creating volume") && refused.contains("fast"),
        "{refused}"
    );
    assert_eq!(host.volumes().len(), 1);

    // As after a boot: the volume is not mounted when Nomad starts.
    host.stop("drivebay-trial");
    host.until("the task has ended", &format!("umount {at}"));
    host.run("systemctl restart nomad");
    let mounted = format!("findmnt -no FSTYPE {at}");
    assert_eq!(host.until("Nomad has it mounted", &mounted).trim(), "ext4");
    let before = count(&written);
    host.run(&lines[3]);
    let more = format!("test \"$(wc -l <{at}/written)\" -gt {before}");
    host.until("the next job writes on", &more);

    host.stop("drivebay-trial");
    let delete = format!("nomad volume delete -type host {id}");
    host.until("the volume is deleted", &delete);
    assert_eq!(host.volumes(), Vec::<Value>::new());
    host.run(&format!("test ! -e {at}"));
}

#[test]
#[ignore = "needs Nomad: hwtests/nomad"]
fn an_agent_that_nomad_runs_serves_its_volumes_to_nomads_jobs_through_csi() {
    let host = Host::new(12 * GIB);
    host.file("/etc/drivebay/classes.toml", &host.class());
    host.run("systemctl restart nomad");
    host.run(&format!(
        "nomad job run -detach -var node={NODE} -var program=/usr/local/bin/drivebay-agent \
         -var config=\"$(cat /etc/drivebay/classes.toml)\" deploy/nomad/agent-on-host.nomad.hcl"
    ));
    let healthy = format!(
        "nomad plugin status drivebay-{NODE} | grep -q '^Nodes Healthy  *= 1' && nomad plugin status drivebay-{NODE} | grep -q '^Controllers Healthy  *= 1'"
    );
    host.until("the plugin is healthy", &healthy);
    host.until(
        "the drive is available",
        "drivebay-agent drives | grep -q available",
    );
    eprintln!(
        "{}",
        host.run("nomad volume create deploy/nomad/volume.hcl")
    );
    let volumes = host.volumes();
    assert_eq!(volumes.len(), 1, "{volumes:#?}");
    assert_eq!(volumes[0]["name"], "db");
    // As in the job's file.
    let job = "deploy/nomad/csi-job.nomad.hcl";
    let own = "drivebay-agent volume mount db /mnt && chmod 0777 /mnt && drivebay-agent volume unmount db";
    host.run(&format!(
        "grep -qF '{own}' {job}\n{own}\nnomad job run -detach {job}"
    ));
    let log = "nomad alloc logs -job drivebay-csi writer | grep UTC | tail -n 1";
    eprintln!("{}", host.until("the job has logged", log));
    let mounts = host.run("findmnt -rno TARGET,FSTYPE | grep /opt/nomad/data/client/csi");
    assert!(
        mounts.contains("/staging/") && mounts.contains("/per-alloc/"),
        "{mounts}"
    );
    assert!(mounts.contains(" xfs"), "{mounts}");

    // The agent is replaced under the job.
    let written = "cat /opt/nomad/data/client/csi/monolith/*/per-alloc/*/*/*/written | wc -l";
    let before: u64 = host.run(written).trim().parse().unwrap();
    host.run(&format!("nomad job restart -yes drivebay-{NODE}"));
    host.until("the plugin is healthy again", &healthy);
    host.until(
        "the job writes on",
        &format!("test \"$({written})\" -gt {before}"),
    );

    host.stop("drivebay-csi");
    let unmounted = "! findmnt -rno TARGET | grep /opt/nomad/data/client/csi/monolith";
    host.until("the volume is unmounted", unmounted);
    host.until("the volume is deleted", "nomad volume delete db");
    assert_eq!(host.volumes(), Vec::<Value>::new());
    host.stop(&format!("drivebay-{NODE}"));
}

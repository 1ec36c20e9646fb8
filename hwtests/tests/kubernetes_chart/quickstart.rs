//! The five lines of the first page, run exactly as documented, and the drives made of files that they use.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use drivebay_hwtests::{
    kube::{Cluster, LIMIT, NAMESPACE, wait},
    tools,
};

const README: &str = include_str!("../../../README.md");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const POD: &str = "drivebay-trial";

/// Returns the lines of the section "Five lines on Kubernetes".
fn lines() -> Vec<&'static str> {
    let (_, section) = README
        .split_once("\n## Five lines on Kubernetes\n")
        .unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    section
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .collect()
}

/// Provides the `k3s ctr` command, which this cluster has by another name: its containerd's client, for the kubelet's images.
fn stand_in_for_k3s(cluster: &Cluster) {
    let path = cluster.dir().join("bin/k3s");
    let script = "#!/bin/sh\nset -e\n[ \"$1\" = ctr ]\nshift\nexec ctr --namespace k8s.io \"$@\"\n";
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a line in the repository, and returns its output.
fn run(cluster: &Cluster, line: &str) -> String {
    let helm = env::var("DRIVEBAY_HELM").unwrap();
    let path = Path::new(&helm).parent().unwrap().display();
    let there = format!("cd '{REPOSITORY}'\nexport PATH='{path}':$PATH");
    if line.starts_with("deploy/image ") {
        // The cluster's namespaces hide this machine's packages. The programs are the tested ones; without DRIVEBAY_BIN the line builds
        // them, optimized.
        let programs = cluster.dir().join("programs");
        let script = format!(
            "{there}\nexport DRIVEBAY_BIN='{}'\n{line}",
            programs.display()
        );
        return tools::must("bash", &["-euc", &script]);
    }
    let script = format!("{there}\n{line}");
    cluster.inside(&["bash", "-euc", &script]).unwrap()
}

/// Returns the loop devices of the trial's files.
fn loops(cluster: &Cluster) -> Vec<String> {
    let all = cluster
        .inside(&[
            "losetup",
            "--list",
            "--noheadings",
            "--output",
            "NAME,BACK-FILE",
        ])
        .unwrap();
    let ours = |line: &&str| line.contains("/var/lib/drivebay-trial/drivebay-trial-");
    all.lines().filter(ours).map(str::to_owned).collect()
}

fn written(cluster: &Cluster) -> usize {
    let words = ["exec", POD, "--", "wc", "-l", "/data/written"];
    let output = wait::until(LIMIT, "the pod answers", || {
        cluster.try_kubectl(&words).ok()
    });
    output.split(' ').next().unwrap().parse().unwrap()
}

fn ready(cluster: &Cluster) {
    let condition = "--for=condition=Ready";
    cluster.kubectl(&["wait", condition, "pod/drivebay-trial", "--timeout=300s"]);
}

/// Replaces the agent's pod, and waits until the new one is ready.
fn replace_agent(cluster: &Cluster) {
    let namespace = ["--namespace", NAMESPACE];
    let restart = ["rollout", "restart", "daemonset/drivebay-agent"];
    cluster.kubectl(&[&namespace[..], &restart].concat());
    cluster.drivebay_is_up();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_readmes_five_lines_end_with_a_pod_that_writes_to_drives_made_of_files() {
    let cluster = Cluster::running();
    cluster.uninstall_if_installed();
    stand_in_for_k3s(&cluster);
    let lines = lines();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    let mut output = String::new();
    for line in &lines {
        output = run(&cluster, line);
    }
    let written_last = output.lines().last().unwrap();
    assert!(
        written_last.contains("UTC"),
        "the pod has logged no time: {output:?}"
    );
    cluster.is_registered();
    let first = loops(&cluster);
    assert_eq!(first.len(), 2, "{first:#?}");

    // A restarted agent opens the same devices, with a pod that writes, and without one.
    let before = written(&cluster);
    replace_agent(&cluster);
    assert_eq!(loops(&cluster), first);
    assert!(written(&cluster) >= before);
    assert_eq!(
        cluster.get("default", &["pod", POD])["status"]["containerStatuses"][0]["restartCount"],
        0
    );
    cluster.kubectl(&["delete", "pod", POD, "--timeout=300s"]);
    replace_agent(&cluster);
    assert_eq!(loops(&cluster).len(), 2, "{:#?}", loops(&cluster));

    // Uninstalled, no device is left; installed again, the volume is found.
    cluster.uninstall();
    wait::until(LIMIT, "no loop device is left", || {
        loops(&cluster).is_empty().then_some(())
    });
    run(&cluster, lines[2]);
    run(&cluster, lines[3]);
    ready(&cluster);
    assert!(written(&cluster) > before, "the volume's data are lost");

    cluster.kubectl(&[
        "delete",
        "-f",
        &format!("{REPOSITORY}/deploy/values/trial/pod.yaml"),
        "--timeout=300s",
    ]);
    cluster.nothing_is_unclaimed();
    cluster.uninstall();
    wait::until(LIMIT, "no loop device is left", || {
        loops(&cluster).is_empty().then_some(())
    });
    fs::remove_file(Path::new(REPOSITORY).join("target/drivebay.tar")).unwrap();
}

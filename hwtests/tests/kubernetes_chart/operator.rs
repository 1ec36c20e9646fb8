//! The Prometheus operator's objects, with its CRDs and without.

use drivebay_hwtests::{
    kube::{Cluster, Install, NAMESPACE},
    long_scenario,
};
use serde_json::{Value, json};

/// Returns a CRD for a kind, without the operator's schema.
fn kind(kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn pod_monitors_and_rules_are_made_where_their_kinds_are_known_and_else_refused() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let install = Install::with(json!({"metrics": {
        "enabled": true,
        "podMonitor": {"enabled": true},
        "prometheusRule": {"enabled": true, "runbookBaseUrl": "https://git.example.net/drivebay"},
    }}));
    let refused = cluster.upgrade(&install, &[]).unwrap_err().to_string();
    let reason =
        "needs the Prometheus operator, and this cluster does not know its kind PodMonitor";
    assert!(refused.contains(reason), "{refused}");

    cluster.apply(
        "default",
        &[
            kind("PodMonitor", "podmonitors"),
            kind("PrometheusRule", "prometheusrules"),
        ],
    );
    for plural in ["podmonitors", "prometheusrules"] {
        let name = format!("crd/{plural}.monitoring.coreos.com");
        cluster.kubectl(&["wait", "--for=condition=Established", &name]);
    }
    cluster.install(&install);
    let monitors = cluster.list(NAMESPACE, &["podmonitors"]);
    assert_eq!(monitors.len(), 2, "{monitors:#?}");
    for monitor in &monitors {
        let labels = &monitor["spec"]["selector"]["matchLabels"];
        let labels: Vec<String> = labels
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
            .collect();
        let selector = format!("--selector={}", labels.join(","));
        let pods = cluster.list(NAMESPACE, &["pods", &selector]);
        let port = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
        let has_port = |pod: &Value| {
            let containers = pod["spec"]["containers"].as_array().unwrap();
            let mut ports = containers
                .iter()
                .filter_map(|container| container["ports"].as_array())
                .flatten();
            ports.any(|it| it["name"] == *port)
        };
        assert!(
            !pods.is_empty() && pods.iter().all(has_port),
            "{selector}: {pods:#?}"
        );
    }
    let rules = cluster
        .list(NAMESPACE, &["prometheusrules"])
        .pop()
        .unwrap()
        .to_string();
    assert!(
        rules.contains("https://git.example.net/drivebay/deploy/alerts/README.md#drivebay"),
        "{rules}"
    );

    cluster.uninstall();
    assert!(cluster.list(NAMESPACE, &["podmonitors"]).is_empty());
    cluster.kubectl(&[
        "delete",
        "crd",
        "podmonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
    ]);
}

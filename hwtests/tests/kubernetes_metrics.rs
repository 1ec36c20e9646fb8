//! Metrics of a real cluster: a Prometheus that scrapes as the chart's PodMonitors specify evaluates the documented joins with
//! kube-state-metrics' metrics. The kubelet's own volume metrics are not available for joins: in the cluster's namespaces it does not find
//! the filesystem of its own directory, and reports no statistics at all. Run by hwtests/kubernetes --long, which starts the cluster.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fs;

use drivebay_hwtests::{
    kube::{
        Cluster, Install, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
        wait,
    },
    long_scenario, scrape,
};
use serde_json::{Value, json};

/// Addresses at which `hwtests/cluster/services` has them serve.
const PROMETHEUS: &str = "http://127.0.0.1:9090";
const STATE_METRICS: &str = "127.0.0.1:8088";

/// Returns the pods of a component that serve metrics, as targets with the labels that the chart's PodMonitors set. Debian's Prometheus has
/// no service discovery for pods.
fn targets(cluster: &Cluster, component: &str, port: u16, instance: &str) -> Value {
    let label = format!("--selector=app.kubernetes.io/component={component}");
    let pods = cluster.list(NAMESPACE, &["pods", &label]);
    let target = |pod: &Value| {
        json!({
            "targets": [format!("{}:{port}", pod["status"]["podIP"].as_str().unwrap())],
            "labels": {"instance": pod.pointer(instance).unwrap(), "namespace": NAMESPACE},
        })
    };
    pods.iter().map(target).collect()
}

/// Returns the Prometheus configuration, which scrapes kube-state-metrics as kube-prometheus does.
fn configuration(cluster: &Cluster) -> Value {
    let ours = |component: &str, port, instance: &str| {
        json!({
            "job_name": format!("drivebay-{component}"),
            "honor_labels": true,
            "static_configs": targets(cluster, component, port, instance),
        })
    };
    json!({
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [
            ours("agent", 9810, "/spec/nodeName"),
            ours("controller", 9811, "/metadata/name"),
            {
                "job_name": "kube-state-metrics",
                "honor_labels": true,
                "static_configs": [{"targets": [STATE_METRICS]}],
            },
        ],
    })
}

/// Returns the labels of each series of a query's result; None if the query fails, such as a join that does not match.
fn query_series(cluster: &Cluster, query: &str) -> Option<Vec<Value>> {
    let words = ["promtool", "query", "instant", "--format=json", PROMETHEUS];
    let answer = cluster.inside(&[&words[..], &[query]].concat()).ok()?;
    let series: Vec<Value> = serde_json::from_str(&answer).ok()?;
    Some(
        series
            .into_iter()
            .map(|mut it| it["metric"].take())
            .collect(),
    )
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes --long"]
fn the_documented_joins_find_series_of_kube_state_metrics() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    cluster.install(&Install::with(json!({"metrics": {"enabled": true}})));
    let file = cluster.dir().join("etc/prometheus.yml");
    fs::write(file, configuration(&cluster).to_string()).unwrap();
    cluster.service("start", "kube-state-metrics");
    cluster.service("start", "prometheus");
    wait::until(LIMIT, "Prometheus answers", || {
        query_series(&cluster, "vector(1)")
    });

    let it = cluster.scenario("metrics");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    it.until(&["pvc", "data"], "/status/phase", "Bound");
    it.sh(
        "writer",
        "! dd if=/dev/zero of=/data/full bs=64k 2>/dev/null && sync",
    );
    let volume = it.get(&["pvc", "data"])["spec"]["volumeName"].clone();

    let documented = scrape::documented_joins();
    let [_, of_pods, of_claims] = &documented[..] else {
        unreachable!("other joins are documented: {documented:#?}")
    };
    // Labels of the one series that each query returns in this namespace.
    let expected = [
        (
            of_pods.as_str(),
            json!({"namespace": it.name, "pod": "writer", "persistentvolumeclaim": "data"}),
        ),
        (
            of_claims,
            json!({"claim_namespace": it.name, "name": "data", "persistentvolume": volume}),
        ),
    ];
    for (query, labels) in expected {
        let has = |series: &Value| {
            let mut labels = labels.as_object().unwrap().iter();
            labels.all(|(name, value)| series[name] == *value)
        };
        let metric = wait::until(LIMIT, query, || {
            query_series(&cluster, query)?.into_iter().find(has)
        });
        println!("{query}\n  {metric}\n");
    }

    it.end();
    cluster.service("stop", "prometheus");
    cluster.service("stop", "kube-state-metrics");
    cluster.install(&Install::default());
}

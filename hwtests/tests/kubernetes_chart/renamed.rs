//! One installation with further values: another name, images of a registry by digest, annotations of ServiceAccounts, several groups of
//! nodes, constraints on the nodes of controllers.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_hwtests::{
    kube::{
        Cluster, Install, LIMIT, NAMESPACE, Scenario,
        manifest::{IDLE, claim_of, mounted, pod},
        wait,
    },
    long_scenario,
};
use serde_json::{Value, json};

const NAME: &str = "storage";
/// A real registry, in the cluster's network.
const REGISTRY: &str = "127.0.0.1:5000";
/// Nodes that exist only in the API server: DaemonSets create a pod for each, and none can be scheduled.
const PAPER: [(&str, Option<&str>); 2] = [("paper-gpu", Some("gpu")), ("paper-plain", None)];
/// Images by their paths in the registry, with their digests.
type Images = BTreeMap<String, String>;

fn images(cluster: &Cluster, words: &[&str]) -> String {
    let ctr = ["ctr", "--namespace", "k8s.io", "images"];
    cluster.inside(&[&ctr, words].concat()).unwrap()
}

/// Returns the path of an image in the registry; None if the installation runs no container of it.
fn path(image: &str) -> Option<&str> {
    let (registry, path) = image.split_once('/')?;
    let mut optional = ["attacher", "snapshotter"].iter();
    let runs = match registry {
        "drivebay.test" => path.starts_with("drivebay:"),
        "registry.k8s.io" => {
            path.starts_with("sig-storage/") && !optional.any(|it| path.contains(it))
        }
        _ => false,
    };
    runs.then_some(path)
}

/// Pushes the images to the registry. Their names there are removed from containerd, so that it must pull them.
fn push(cluster: &Cluster) -> Images {
    let listed = images(cluster, &["list"]);
    let mut pushed = Images::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let image = words.next().unwrap();
        let Some(path) = path(image) else { continue };
        let digest = words.find(|word| word.starts_with("sha256:")).unwrap();
        let there = format!("{REGISTRY}/{path}");
        images(cluster, &["tag", image, &there]);
        images(cluster, &["push", "--plain-http", &there]);
        images(cluster, &["remove", &there]);
        pushed.insert(path.to_owned(), digest.to_owned());
    }
    pushed
}

/// Returns the image whose path contains `word`: its path without the tag, and its digest.
fn find<'a>(pushed: &'a Images, word: &str) -> (&'a str, &'a str) {
    let (path, digest) = pushed.iter().find(|(path, _)| path.contains(word)).unwrap();
    (path.split(':').next().unwrap(), digest)
}

fn values(pushed: &Images) -> Value {
    let (resizer, resizer_digest) = find(pushed, "csi-resizer");
    let role = |name: &str| json!({"annotations": {"example.net/role": name}});
    json!({
        "nameOverride": NAME,
        "global": {"imageRegistry": REGISTRY},
        "image": {"digest": find(pushed, "drivebay").1},
        "resizer": {"image": format!("registry.k8s.io/{resizer}@{resizer_digest}")},
        "agent": {
            "serviceAccount": role("drives"),
            "groups": [
                {
                    "name": "archive",
                    "nodeSelector": {"example.net/rack": "archive"},
                    "config": {"checks": {"repeats": 7}},
                },
                {"name": "gpu", "nodeSelector": {"example.net/rack": "gpu"}},
            ],
        },
        "controller": {
            "serviceAccount": role("volumes"),
            // A second controller only if there are nodes of two names; there is one node that can run any.
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "minDomains": 2,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
            }],
        },
    })
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn another_name_a_registry_digests_annotations_groups_and_spread_constraints_take_effect() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.uninstall_if_installed();
    cluster.service("start", "registry");
    wait::until(LIMIT, "the registry answers", || {
        let dial = "exec 3<>/dev/tcp/127.0.0.1/5000";
        cluster.inside(&["bash", "-c", dial]).ok()
    });
    let pushed = push(&cluster);
    assert_eq!(pushed.len(), 4, "{pushed:#?}");
    cluster.kubectl(&["label", "node", "node-1", "example.net/rack=archive"]);
    let cluster = cluster.named(NAME);
    cluster.install(&Install::with(values(&pushed)));

    let it = cluster.scenario("renamed");
    let class = format!("{NAME}-loop");
    it.apply(&[
        claim_of("data", 64, &class, "Filesystem", "ReadWriteOnce"),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    let digest = it.write("writer", "/data/letter", 4);
    assert_eq!(it.digest("writer", "/data/letter", 4), digest);
    objects_have_the_name(&cluster);
    images_are_of_the_registry(&it, &pushed);
    accounts_are_annotated(&cluster);
    each_group_has_its_nodes(&cluster);
    a_second_controller_waits(&cluster);

    it.end();
    for (node, _) in PAPER {
        cluster.kubectl(&["delete", "node", node]);
    }
    cluster.uninstall();
    for object in [
        "secret/storage-controller-tls",
        "configmap/storage-controller-ca",
    ] {
        cluster.kubectl(&["--namespace", NAMESPACE, "delete", object]);
    }
    cluster.kubectl(&["label", "node", "node-1", "example.net/rack-"]);
    cluster.service("stop", "registry");
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Returns the chart's objects of these kinds.
fn made(cluster: &Cluster, kinds: &str) -> Vec<Value> {
    let selector = "--selector=app.kubernetes.io/instance=drivebay";
    cluster.list(NAMESPACE, &[kinds, selector])
}

fn objects_have_the_name(cluster: &Cluster) {
    let kinds = "daemonsets,deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,\
                 clusterroles,clusterrolebindings,networkpolicies,poddisruptionbudgets,storageclasses,pods";
    let objects = made(cluster, kinds);
    let distinct: BTreeSet<_> = objects.iter().map(|it| it["kind"].to_string()).collect();
    assert!(distinct.len() >= 12, "{distinct:?}");
    for object in &objects {
        let name = name(object);
        assert!(name.starts_with("storage-"), "{} {name}", object["kind"]);
    }
}

/// Checks that every container runs an image of the registry, those with digests by digest, and that the kubelet pulled it.
fn images_are_of_the_registry(it: &Scenario, pushed: &Images) {
    let cluster = &it.cluster;
    let by_digest = ["drivebay", "csi-resizer"].map(|word| {
        let (path, digest) = find(pushed, word);
        format!("{REGISTRY}/{path}@{digest}")
    });
    let pods = made(cluster, "pods");
    let mut run = BTreeSet::new();
    for pod in &pods {
        for kind in ["initContainers", "containers"] {
            let images = pod["spec"][kind].as_array().into_iter().flatten();
            run.extend(images.map(|it| it["image"].as_str().unwrap().to_owned()));
        }
        let containers = pod["status"]["containerStatuses"].as_array();
        for container in containers.into_iter().flatten() {
            let id = container["imageID"].as_str().unwrap();
            println!("{}: {} runs {id}", name(pod), container["name"]);
            let digest = id.rsplit_once('@').map_or(id, |(_, digest)| digest);
            let is_pushed = pushed.values().any(|it| it == digest);
            assert!(is_pushed, "{id} is none of {pushed:#?}");
        }
    }
    assert_eq!(run.len(), 4, "{run:#?}");
    for image in &by_digest {
        assert!(run.contains(image), "{image}: {run:#?}");
    }
    for image in &run {
        assert!(image.starts_with(&format!("{REGISTRY}/")), "{image}");
        cluster.event(NAMESPACE, &["Successfully pulled image", image]);
    }
}

fn accounts_are_annotated(cluster: &Cluster) {
    for (component, role) in [("agent", "drives"), ("controller", "volumes")] {
        let account = format!("{NAME}-{component}");
        let annotations =
            &cluster.get(NAMESPACE, &["serviceaccount", &account])["metadata"]["annotations"];
        assert_eq!(annotations["example.net/role"], role, "{annotations:#}");
        let pods = made(cluster, "pods");
        let uses = pods.iter().filter(|it| name(it).starts_with(&account));
        let accounts: BTreeSet<_> = uses
            .map(|it| &it["spec"]["serviceAccountName"])
            .map(Value::to_string)
            .collect();
        assert_eq!(accounts, [json!(account).to_string()].into());
    }
}

/// Waits until each DaemonSet has its pod, scheduled or pending, on the expected nodes.
fn each_group_has_its_nodes(cluster: &Cluster) {
    let nodes = PAPER.map(|(name, rack)| {
        let mut labels = json!({"kubernetes.io/os": "linux"});
        if let Some(rack) = rack {
            labels["example.net/rack"] = json!(rack);
        }
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    });
    cluster.apply("default", &nodes);
    let expected: BTreeMap<_, _> = [
        ("storage-agent", "paper-plain"),
        ("storage-agent-archive", "node-1"),
        ("storage-agent-gpu", "paper-gpu"),
    ]
    .map(|(set, node)| (set.to_owned(), vec![node.to_owned()]))
    .into();
    wait::until(LIMIT, "each group has its node", || {
        let mut nodes = BTreeMap::<_, Vec<_>>::new();
        for pod in made(cluster, "pods") {
            let owner = &pod["metadata"]["ownerReferences"][0];
            let wanted = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                          /nodeSelectorTerms/0/matchFields/0/values/0";
            if let (Some(node), "DaemonSet") = (pod.pointer(wanted), owner["kind"].as_str()?) {
                let of = owner["name"].as_str()?.to_owned();
                nodes.entry(of).or_default().push(node.as_str()?.to_owned());
            }
        }
        (nodes == expected).then_some(())
    });
    let config = [
        "exec",
        "ds/storage-agent-archive",
        "--",
        "cat",
        "/etc/drivebay/drivebay.toml",
    ];
    let config = cluster.kubectl(&[&["--namespace", NAMESPACE], &config[..]].concat());
    assert!(config.contains("repeats = 7"), "{config}");
}

fn a_second_controller_waits(cluster: &Cluster) {
    let scale = |replicas: u32| {
        let replicas = format!("--replicas={replicas}");
        cluster.kubectl(&[
            "--namespace",
            NAMESPACE,
            "scale",
            "deployment/storage-controller",
            &replicas,
        ]);
    };
    scale(2);
    let event = cluster.event(
        NAMESPACE,
        &[
            "Pod/storage-controller",
            "FailedScheduling",
            "topology spread constraints",
        ],
    );
    println!("{event}");
    scale(1);
}

//! Authentication of nodes: agents with the wrong tokens, a token that is renewed, and an API server that is unreachable.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use drivebay_hwtests::{
    kube::{
        Cluster, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod as pod_of},
        wait,
    },
    long_scenario, program, tools,
    wait::poll_every,
};
use drivebay_service::tokens::Claims;
use serde_json::{Value, json};

/// The controller's name in its certificate.
const CONTROLLER: &str = "drivebay-controller.drivebay.svc.cluster.local";
const AUDIENCE: &str = "drivebay-controller";
/// Time limit for the refusal of an agent.
const REFUSED: Duration = Duration::from_secs(60);
/// The shortest lifetime of a token that the API server permits.
const SHORT: Duration = Duration::from_secs(600);
/// Lifetime of tokens in the chart.
const USUAL: Duration = Duration::from_secs(3600);

/// Returns the first pod of a component.
fn pod(cluster: &Cluster, component: &str) -> Value {
    let label = format!("app.kubernetes.io/component={component}");
    let mut pods = cluster.list(NAMESPACE, &["pods", "--selector", &label]);
    pods.remove(0)
}

/// Returns a token issued by the API server.
fn minted(cluster: &Cluster, account: &str, words: &[&str]) -> String {
    let create = ["--namespace", NAMESPACE, "create", "token", account];
    cluster.kubectl(&[&create[..], words].concat())
}

/// Returns a token bound to the agent's pod, as the kubelet projects it.
fn of_the_pod(cluster: &Cluster, audience: &str) -> String {
    let pod = pod(cluster, "agent");
    let name = pod["metadata"]["name"].as_str().unwrap();
    let words = [
        "--audience",
        audience,
        "--bound-object-kind",
        "Pod",
        "--bound-object-name",
        name,
    ];
    minted(cluster, "drivebay-agent", &words)
}

/// Returns a token with these claims, signed by a key.
fn signed(cluster: &Cluster, key: &str, claims: &Value) -> String {
    let dir = cluster.dir().join("impostor");
    fs::create_dir_all(&dir).unwrap();
    let encode = r#"base64 -w 0 | tr '+/' '-_' | tr -d '='"#;
    let script = format!(
        r#"set -eu; body=$(printf %s '{{"alg":"RS256"}}' | {encode}).$(printf %s "$1" | {encode})
        printf '%s.%s' "$body" "$(printf %s "$body" | openssl dgst -sha256 -sign "$2" | {encode})""#
    );
    tools::must("sh", &["-c", &script, "sign", &claims.to_string(), key])
}

/// Starts another agent that connects to the controller under a node's name. Returns its log up to the refusal.
fn dials(cluster: &Cluster, name: &str, token: &str) -> String {
    let dir: PathBuf = cluster.dir().join("impostor");
    fs::create_dir_all(&dir).unwrap();
    let path = |file: &str| dir.join(file).to_str().unwrap().to_owned();
    let ca = cluster.get(NAMESPACE, &["configmap", "drivebay-controller-ca"]);
    fs::write(dir.join("ca.pem"), ca["data"]["ca.crt"].as_str().unwrap()).unwrap();
    fs::write(dir.join("token"), token).unwrap();
    let address = pod(cluster, "controller")["status"]["podIP"]
        .as_str()
        .unwrap()
        .to_owned();
    let hosts = cluster.dir().join("etc/hosts");
    let mut entries = fs::read_to_string(&hosts).unwrap_or_default();
    entries.push_str(&format!("\n{address} {CONTROLLER}\n"));
    // Written in place, since it is bind mounted; newest first, since the first match is used.
    let newest_first: Vec<&str> = entries.lines().rev().collect();
    fs::write(&hosts, newest_first.join("\n") + "\n").unwrap();
    let config = format!(
        "[node]\nname = {name:?}\n[kubelet]\nregistration = false\n[csi]\nsocket = {:?}\n\
         [agent]\nsocket = {:?}\nstate-dir = {:?}\nruntime-dir = {:?}\n\
         [metrics]\nlisten = \"off\"\n\
         [controller]\naddresses = [\"{CONTROLLER}:9443\"]\nca = {:?}\ntoken = {:?}\n",
        path("csi.sock"),
        path("agent.sock"),
        path("state"),
        path("run"),
        path("ca.pem"),
        path("token"),
    );
    fs::write(dir.join("agent.toml"), config).unwrap();
    let log = cluster.dir().join("log/impostor.log");
    let _ = fs::remove_file(&log);
    let agent = program::agent().unwrap();
    let config = path("agent.toml");
    let command = [
        agent.to_str().unwrap(),
        "run",
        "--config",
        &config,
        "--headless",
    ];
    cluster.start("impostor", &[], &command);
    let end_line = wait::poll(REFUSED, || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let end = |line: &&str| {
            line.contains("controller refused this agent")
                || line.contains("connected to the controller")
        };
        text.lines().find(end).map(str::to_owned)
    });
    cluster.signal("-TERM", &format!("run --config {config}"));
    end_line.unwrap_or_else(|| panic!("it was not refused:\n{}", fs::read_to_string(&log).unwrap()))
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_node_is_whoever_has_its_token_and_nobody_else() {
    let cluster = Cluster::running();
    cluster.installed();
    let right = of_the_pod(&cluster, AUDIENCE);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = |until: u64| {
        json!({
            "iss": "https://kubernetes.default.svc", "aud": [AUDIENCE], "iat": now - 3600, "nbf": now - 3600, "exp": until,
            "sub": "system:serviceaccount:drivebay:drivebay-agent",
            "kubernetes.io": {"namespace": NAMESPACE, "node": {"name": "node-2", "uid": "x"},
                "serviceaccount": {"name": "drivebay-agent", "uid": "x"}},
        })
    };
    let accounts = cluster.dir().join("auth/accounts.key");
    let accounts = accounts.to_str().unwrap();
    let other = cluster.dir().join("other.key");
    let other = other.to_str().unwrap();
    tools::must("openssl", &["genrsa", "-out", other, "2048"]);
    let rows = [
        (
            "another node's name",
            "node-2",
            right.clone(),
            "pod on node",
        ),
        (
            "another ServiceAccount's",
            "node-1",
            minted(&cluster, "default", &["--audience", AUDIENCE]),
            "agents run as",
        ),
        (
            "for another audience",
            "node-1",
            of_the_pod(&cluster, "https://kubernetes.default.svc.cluster.local"),
            "not for this controller",
        ),
        (
            "bound to no pod",
            "node-1",
            minted(&cluster, "drivebay-agent", &["--audience", AUDIENCE]),
            "does not say on which node",
        ),
        (
            "expired, signed by the cluster",
            "node-2",
            signed(&cluster, accounts, &claims(now - 60)),
            "has expired",
        ),
        (
            "signed by another key",
            "node-2",
            signed(&cluster, other, &claims(now + 3600)),
            "does not accept",
        ),
        (
            "of a ServiceAccount that is gone",
            "node-2",
            signed(&cluster, accounts, &claims(now + 3600)),
            "does not accept",
        ),
        (
            "no token at all",
            "node-1",
            "x".to_owned(),
            "is not a ServiceAccount token",
        ),
        // Root on a node can act as that node; the connected agent keeps its session nevertheless.
        (
            "the node's own, a second time",
            "node-1",
            right,
            "has a connected agent",
        ),
    ];
    println!("{:<36}{:<8}WHAT THE CONTROLLER SAYS", "TOKEN", "AS");
    for (what, name, token, says) in rows {
        let line = dials(&cluster, name, token.trim());
        let reason = line.split("reason=").nth(1).unwrap_or(&line);
        println!("{what:<36}{name:<8}{reason}");
        assert!(line.contains(says), "{what}: {line}");
    }
    let nodes = cluster.query_controller(&["nodes"]);
    let nodes = nodes["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(nodes[0]["state"], "connected", "{nodes:?}");
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn sessions_outlast_an_api_server_that_is_away() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let sessions = |cluster: &Cluster| connected_lines(cluster).len();
    let before = sessions(&cluster);
    assert!(before > 0);
    let agent = "^drivebay-agent run ";
    let processes = cluster.processes(agent);

    cluster.service("stop", "kube-apiserver");
    // The kubelet restarts it; its token has been reviewed before.
    for process in &processes {
        let _ = cluster.inside(&["kill", "-KILL", process]);
    }
    wait::until(
        Duration::from_secs(120),
        "the agent has a session again",
        || (sessions(&cluster) > before).then_some(()),
    );
    cluster.service("start", "kube-apiserver");
    // Repeated until the API server responds.
    cluster.get("default", &["nodes"]);
    cluster.drivebay_is_up();
    let nodes = cluster.query_controller(&["nodes"]);
    assert_eq!(nodes["nodes"][0]["state"], "connected", "{nodes}");
}

/// Replaces the agent by one whose tokens have this lifetime.
fn tokens_last(cluster: &Cluster, life: Duration) {
    let set = cluster.get(NAMESPACE, &["daemonset", "drivebay-agent"]);
    let volumes = set["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    let tls = volumes.iter().position(|one| one["name"] == "tls").unwrap();
    let source = "projected/sources/0/serviceAccountToken/expirationSeconds";
    let patch = json!([{
        "op": "replace",
        "path": format!("/spec/template/spec/volumes/{tls}/{source}"),
        "value": life.as_secs(),
    }]);
    let words = ["--namespace", NAMESPACE, "patch", "daemonset"];
    let patch = patch.to_string();
    let how = ["drivebay-agent", "--type", "json", "--patch", &patch];
    cluster.kubectl(&[&words[..], &how].concat());
    cluster.drivebay_is_up();
}

/// Returns the claims of the agent's token, as projected by the kubelet.
fn projected(cluster: &Cluster) -> Claims {
    let uid = pod(cluster, "agent")["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap();
    let path = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected/tls/token");
    let token = cluster.inside(&["cat", &path]).unwrap();
    Claims::read(token.trim()).unwrap()
}

/// Returns the number of TokenReview requests to the API server.
fn reviews(cluster: &Cluster) -> f64 {
    let page = cluster.kubectl(&["get", "--raw", "/metrics"]);
    let of_reviews = |line: &&str| {
        line.starts_with("apiserver_request_total{") && line.contains("resource=\"tokenreviews\"")
    };
    let counts = page.lines().filter(of_reviews);
    counts
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_session_goes_on_over_the_renewal_of_its_token() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    tokens_last(&cluster, SHORT);
    let node = |cluster: &Cluster| cluster.query_controller(&["node", "show", "node-1"]);
    wait::until(LIMIT, "the agent has a session", || {
        (node(&cluster)["state"] == "connected").then_some(())
    });
    let first = projected(&cluster);
    assert_eq!(first.until.duration_since(first.issued).unwrap(), SHORT);
    let history = node(&cluster)["history"].clone();
    let sessions = connected_lines(&cluster);
    let reviewed = reviews(&cluster);

    let mut polls = 0;
    let end = first.until + Duration::from_secs(90);
    poll_every(Duration::from_secs(5), 2 * SHORT, || {
        let now = node(&cluster);
        assert_eq!(now["state"], "connected", "{now:#}");
        assert_eq!(now["history"], history, "no other session: {now:#}");
        polls += 1;
        (SystemTime::now() > end).then_some(())
    })
    .expect("the first token has expired");
    let second = projected(&cluster);
    assert!(second.issued > first.issued && second.until > SystemTime::now());
    assert_eq!(connected_lines(&cluster), sessions);
    // Reviews of the same session: a new one would be in the history.
    let renewed = reviews(&cluster) - reviewed;
    assert!(renewed >= 1.0, "{renewed}");
    println!(
        "first token: {} s; asked {polls} times until 90 s after its end: connected, in one session; {renewed} more reviews",
        SHORT.as_secs()
    );
    let it = cluster.scenario("renewed");
    it.apply(&[
        claim("data", 64),
        pod_of("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    it.end();
    tokens_last(&cluster, USUAL);
}

/// Returns the log lines about sessions with the controller, of all agents that the kubelet has run.
fn connected_lines(cluster: &Cluster) -> Vec<String> {
    let logs = cluster.inside(&[
        "sh",
        "-c",
        "cat /var/log/pods/drivebay_drivebay-agent-*/agent/*.log 2>/dev/null || true",
    ]);
    let is_it = |line: &&str| line.contains("connected to the controller");
    logs.unwrap_or_default()
        .lines()
        .filter(is_it)
        .map(str::to_owned)
        .collect()
}

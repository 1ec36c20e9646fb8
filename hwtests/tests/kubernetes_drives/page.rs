//! The page in a cluster: through a forwarded port, by tokens that the API server reviews.

use drivebay_hwtests::kube::{
    Cluster, LIMIT, NAMESPACE,
    manifest::{IDLE, claim, mounted, pod},
    wait,
};
use serde_json::Value;

use super::shown::drive_of_claim;

const PORT: &str = "9813";

/// GET through the forwarded port; returns the status and the body. None if the port does not answer.
fn get(cluster: &Cluster, path: &str, host: &str, token: &str) -> Option<(u16, String)> {
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    // Of HTTP/1.0, so that the body is not chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{authorization}\r\n");
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT}; cat >&3; cat <&3");
    let words = ["bash", "-c", script.as_str()];
    let answer = cluster.inside_with(&words, request.as_bytes()).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Returns a token of a ServiceAccount with this audience. Creates the account if it does not exist.
fn token(cluster: &Cluster, namespace: &str, account: &str, audience: &str) -> String {
    let existing = ["-n", namespace, "get", "serviceaccount", account];
    if cluster.try_kubectl(&existing).is_err() {
        cluster.kubectl(&["-n", namespace, "create", "serviceaccount", account]);
    }
    let create = ["-n", namespace, "create", "token", account];
    let audience = ["--audience", audience];
    let token = cluster.kubectl(&[&create[..], &audience].concat());
    token.trim().to_owned()
}

/// Returns all claims, each with the identity of its drive.
fn claims(body: &str) -> Vec<(String, String)> {
    let fleet: Value = serde_json::from_str(body).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut claims = Vec::new();
    for drive in fleet["drives"].as_array().unwrap() {
        let of_drive = drive["claims"].as_array().into_iter().flatten();
        claims.extend(of_drive.map(|claim| (text(claim), text(&drive["id"]))));
    }
    claims
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_page_is_read_with_a_token_and_shows_claims_of_namespaces_that_its_user_may_list() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("page");
    it.apply(&[
        claim("data", 64),
        pod("user", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("user");
    let namespace = it.name.as_str();
    let deployment = "deploy/drivebay-controller";
    let forward = ["kubectl", "-n", NAMESPACE, "port-forward", deployment, PORT];
    cluster.start("page-forward", &[], &forward);
    let local = format!("localhost:{PORT}");
    let request = |path: &str, token: &str| {
        wait::until(LIMIT, "the page answers", || {
            get(&cluster, path, &local, token)
        })
    };

    let (status, page) = request("/", "");
    assert!(
        status == 200 && page.contains("<title>Drivebay"),
        "{status}: {page}"
    );
    assert_eq!(request("/api/fleet", "").0, 401);
    let (status, _) = get(&cluster, "/", "evil.example", "").unwrap();
    assert!((400..500).contains(&status), "{status}");

    let stranger = token(&cluster, namespace, "stranger", "drivebay");
    assert_eq!(request("/api/fleet", &stranger).0, 403);
    for account in ["reader", "team"] {
        token(&cluster, namespace, account, "drivebay");
        cluster.kubectl(&[
            "create",
            "clusterrolebinding",
            &format!("page-{account}"),
            "--clusterrole=drivebay-page-reader",
            &format!("--serviceaccount={namespace}:{account}"),
        ]);
    }
    cluster.kubectl(&[
        "-n",
        namespace,
        "create",
        "rolebinding",
        "page-claims",
        "--clusterrole=view",
        &format!("--serviceaccount={namespace}:team"),
    ]);
    let other = token(&cluster, namespace, "reader", "somewhere-else");
    assert_eq!(request("/api/fleet", &other).0, 401);

    let own = format!("{namespace}/data");
    let object = drive_of_claim(&cluster, &own);
    let drive = object["status"]["drive"].as_str().unwrap().to_owned();
    let reader = token(&cluster, namespace, "reader", "drivebay");
    let (status, fleet) = request("/api/fleet", &reader);
    assert_eq!(status, 200, "{fleet}");
    assert!(fleet.contains("node-1"), "{fleet}");
    assert!(claims(&fleet).is_empty(), "{fleet}");
    let team = token(&cluster, namespace, "team", "drivebay");
    let expected = (own, drive);
    wait::until(LIMIT, "the page shows the claim on its drive", || {
        claims(&request("/api/fleet", &team).1)
            .contains(&expected)
            .then_some(())
    });
    // The claims that another user may list are not shown to the reader.
    let (status, fleet) = request("/api/fleet", &reader);
    assert!(status == 200 && claims(&fleet).is_empty(), "{fleet}");

    cluster.signal("-TERM", "kubectl -n drivebay port-forward");
    for account in ["reader", "team"] {
        cluster.kubectl(&["delete", "clusterrolebinding", &format!("page-{account}")]);
    }
    it.end();
}

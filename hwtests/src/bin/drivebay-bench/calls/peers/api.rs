//! The part of a Kubernetes API server that topolvm's node plugin needs to start: discovery, LogicalVolumes, the Node and the CSIDriver.
//! Objects never change.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use drivebay_hwtests::Trouble;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// Name of the node.
pub(super) const NODE: &str = "node1";

/// A server that runs until it is dropped.
pub(super) struct Api {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Api {
    /// Serves these LogicalVolumes on a free port of 127.0.0.1 until the result is dropped. Errs if it cannot listen.
    pub(super) async fn serve(volumes: Vec<Value>) -> Result<Self, Trouble> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let volumes = Arc::new(volumes);
        let task = tokio::spawn(async move {
            // Connections end with this task.
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let volumes = Arc::clone(&volumes);
                open.spawn(async move { connection(stream, &volumes).await });
            }
        });
        Ok(Self { address, task })
    }

    /// Writes a kubeconfig with its address.
    pub(super) fn kubeconfig(&self, file: &Path) -> Result<(), Trouble> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "users": [{"name": "bench", "user": {}}],
        });
        Ok(fs::write(file, config.to_string())?)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests on one connection sequentially.
async fn connection(stream: TcpStream, volumes: &[Value]) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut first = String::new();
        stream.read_line(&mut first).await.ok()?;
        let target = first.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok()?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        stream.read_exact(&mut vec![0; length]).await.ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if query.split('&').any(|word| word == "watch=true") {
            let events = match query.contains("sendInitialEvents=true") {
                true => initial_events(path, volumes),
                false => String::new(),
            };
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
            let all = format!("{head}{events}");
            stream.write_all(all.as_bytes()).await.ok()?;
            // A watch without further events: wait until the client closes the connection.
            stream.read_u8().await.ok()?;
            return None;
        }
        let (status, body) = match object(path, volumes) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", not_found(path)),
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

/// Returns the events of a watch that replaces a list: all objects, and a bookmark.
fn initial_events(path: &str, volumes: &[Value]) -> String {
    let list = object(path, volumes).unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let event = |kind: &str, object: &Value| json!({"type": kind, "object": object}).to_string();
    let mut events: Vec<String> = items.iter().map(|item| event("ADDED", item)).collect();
    let mut end = json!({"metadata": {
        "resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"},
    }});
    for key in ["apiVersion", "kind"] {
        end[key] = items.first().map_or(Value::Null, |item| item[key].clone());
    }
    events.push(event("BOOKMARK", &end));
    events.join("\n") + "\n"
}

fn object(path: &str, volumes: &[Value]) -> Option<Value> {
    let list = |kind: &str, version: &str, items: &[Value]| {
        json!({
            "kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items,
        })
    };
    let resource = |version: &str, name: &str, kind: &str| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [{
                "name": name, "singularName": "", "namespaced": false, "kind": kind,
                "verbs": ["get", "list", "watch", "patch"],
            }],
        })
    };
    Some(match path {
        "/api" => json!({"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]}),
        "/apis" => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": [group("topolvm.io"), group("storage.k8s.io")],
        }),
        "/api/v1" => resource("v1", "nodes", "Node"),
        "/apis/topolvm.io" => group("topolvm.io"),
        "/apis/storage.k8s.io" => group("storage.k8s.io"),
        "/apis/topolvm.io/v1" => resource("topolvm.io/v1", "logicalvolumes", "LogicalVolume"),
        "/apis/storage.k8s.io/v1" => resource("storage.k8s.io/v1", "csidrivers", "CSIDriver"),
        "/apis/topolvm.io/v1/logicalvolumes" => list("LogicalVolumeList", "topolvm.io/v1", volumes),
        "/apis/storage.k8s.io/v1/csidrivers/topolvm.io" => json!({
            "kind": "CSIDriver", "apiVersion": "storage.k8s.io/v1",
            "metadata": {"name": "topolvm.io", "resourceVersion": "1"}, "spec": {},
        }),
        "/api/v1/nodes" => list("PartialObjectMetadataList", "meta.k8s.io/v1", &[node()]),
        path if path.strip_prefix("/api/v1/nodes/") == Some(NODE) => node(),
        _ => return None,
    })
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name,
        "versions": [version], "preferredVersion": version,
    })
}

/// Only its metadata are requested.
fn node() -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": NODE, "uid": NODE, "resourceVersion": "1", "annotations": {"node": NODE}},
    })
}

fn not_found(path: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("{path} is not served"),
    })
}

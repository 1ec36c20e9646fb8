//! The part of a Kubernetes API server that a controller reads: PersistentVolumes and CSINodes. No object ever changes.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
};

use serde_json::{Value, json};

/// Serves PersistentVolumes (name, handle) until this process ends, and writes a kubeconfig with the server's address.
pub(super) fn serve(volumes: &[(&str, &str)], kubeconfig: &Path) {
    let volumes: Vec<Value> = volumes
        .iter()
        .map(|(name, handle)| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"csi": {"driver": "csi.drivebay.io", "volumeHandle": handle}},
            })
        })
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "t",
        "clusters": [{"name": "t", "cluster": {"server": server}}],
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "users": [{"name": "t", "user": {}}],
    });
    fs::write(kubeconfig, config.to_string()).unwrap();
    let volumes = Arc::new(volumes);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let volumes = volumes.clone();
            thread::spawn(move || answer_all(stream, &volumes));
        }
    });
}

/// Answers requests until the client closes the connection.
fn answer_all(stream: TcpStream, volumes: &[Value]) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut first = String::new();
        stream.read_line(&mut first).ok()?;
        let target = first.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        stream.read_exact(&mut vec![0; length]).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let list = |kind: &str, version: &str, items: &[Value]| {
            json!({
                "kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"},
                "items": items,
            })
        };
        let (status, body) = match path {
            "/api/v1/persistentvolumes" => ("200 OK", list("PersistentVolumeList", "v1", volumes)),
            "/apis/storage.k8s.io/v1/csinodes" => {
                ("200 OK", list("CSINodeList", "storage.k8s.io/v1", &[]))
            }
            _ => ("404 Not Found", json!({"kind": "Status", "code": 404})),
        };
        if query
            .split('&')
            .any(|word| matches!(word, "watch=true" | "watch=1"))
        {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
            stream.get_mut().write_all(head.as_bytes()).ok()?;
            stream.read_exact(&mut [0]).ok()?;
            return None;
        }
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

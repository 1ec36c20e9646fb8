//! Tests of the HTTP server, over real connections.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
};

use super::*;
use crate::{IdentityConfig, IdentityService, metrics, socket};
use drivebay_proto::csi::identity_server::IdentityServer;
use tonic::service::Routes;

struct ManagerState(bool);

impl Exposed for ManagerState {
    fn collect(&self, into: &mut Families) {
        metrics::build(into, "test", "1.2.3");
    }

    fn ready(&self) -> bool {
        self.0
    }
}

struct Served {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn connect(path: &std::path::Path) -> UnixStream {
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => return stream,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Returns the pages of a process whose CSI socket is in this directory.
fn pages(dir: &std::path::Path, ready: bool) -> Pages {
    let liveness = Liveness::new(dir.join("csi.sock"), async || Ok(()));
    Pages::all(Arc::new(ManagerState(ready)), liveness)
}

/// Serves CSI Identity in this directory until `stop`.
async fn serve_csi(dir: &std::path::Path, ready: bool, stop: CancellationToken) {
    let identity = IdentityService::new(IdentityConfig {
        driver_name: "csi.drivebay.io".to_owned(),
        version: "1.2.3".to_owned(),
        controller: false,
        ready: tokio::sync::watch::Sender::new(ready).subscribe(),
    });
    let routes = Routes::new(IdentityServer::new(identity));
    let bound = socket::bind(&dir.join("csi.sock")).await.unwrap();
    tokio::spawn(async move {
        let end = stop.cancelled_owned();
        socket::serve(routes, bound, end, Duration::ZERO)
            .await
            .unwrap();
    });
}

async fn served(ready: bool) -> Served {
    served_as(ready, |pages| pages).await
}

async fn served_as(ready: bool, which: impl FnOnce(Pages) -> Pages) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    let stop = CancellationToken::new();
    serve_csi(dir.path(), ready, stop.clone()).await;
    tokio::spawn(serve(
        Listen::Unix(path.clone()),
        which(pages(dir.path(), ready)),
        stop.clone(),
    ));
    connect(&path).await;
    Served {
        _dir: dir,
        path,
        stop,
    }
}

async fn query(path: &std::path::Path, request: &str) -> String {
    let mut stream = connect(path).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(path: &std::path::Path, what: &str) -> String {
    query(path, &format!("GET {what} HTTP/1.1\r\nHost: x\r\n\r\n")).await
}

#[tokio::test]
async fn metrics_health_and_readiness_are_served_and_nothing_else() {
    let ready = served(true).await;
    let answer = get(&ready.path, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert!(
        answer.contains("drivebay_build_info{component=\"test\",version=\"1.2.3\"} 1\n"),
        "{answer}"
    );
    assert!(answer.contains("\ndrivebay_ready 1\n"), "{answer}");
    for (what, status) in [
        ("/healthz", "200"),
        ("/readyz", "200"),
        ("/metrics?x=1", "200"),
        ("/", "404"),
        ("/debug/pprof", "404"),
    ] {
        let answer = get(&ready.path, what).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {answer}"
        );
    }
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    assert!(query(&ready.path, post).await.starts_with("HTTP/1.1 405 "));
    let starting = served(false).await;
    assert!(
        get(&starting.path, "/readyz")
            .await
            .starts_with("HTTP/1.1 503 ")
    );
    assert!(
        get(&starting.path, "/healthz")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn nonsense_and_large_headers_end_their_own_connection_only() {
    let served = served(true).await;
    for nonsense in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET".to_owned() + &"x".repeat(64 << 10),
        format!(
            "GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n",
            "y".repeat(64 << 10)
        ),
    ] {
        let mut stream = connect(&served.path).await;
        // The server may close the connection before all is written.
        let _ = stream.write_all(nonsense.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    assert!(get(&served.path, "/healthz").await.contains("ok"));
}

#[tokio::test]
async fn the_probes_address_serves_the_two_probes_and_no_metrics() {
    let served = served_as(true, |pages| pages.probes()).await;
    for (what, status) in [
        ("/healthz", "200"),
        ("/readyz", "200"),
        ("/metrics", "404"),
        ("/", "404"),
    ] {
        let answer = get(&served.path, what).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {answer}"
        );
        assert!(!answer.contains("drivebay_"), "{what}: {answer}");
    }
}

#[tokio::test]
async fn healthz_fails_when_nobody_answers_at_the_csi_socket_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    let stop = CancellationToken::new();
    let pages = pages(dir.path(), true).probes();
    tokio::spawn(serve(Listen::Unix(path.clone()), pages, stop.clone()));
    let answer = get(&path, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(get(&path, "/readyz").await.starts_with("HTTP/1.1 200 "));

    // A server that accepts connections and never answers.
    let hung = tokio::net::UnixListener::bind(dir.path().join("csi.sock")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let began = std::time::Instant::now();
    let answer = get(&path, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(began.elapsed() > Duration::from_secs(2), "not asked anew");
    drop(hung);

    std::fs::remove_file(dir.path().join("csi.sock")).unwrap();
    serve_csi(dir.path(), false, stop.clone()).await;
    loop {
        let answer = get(&path, "/healthz").await;
        if answer.starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
}

#[tokio::test]
async fn silent_clients_do_not_keep_others_waiting() {
    let served = served(true).await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS + 4 {
        silent.push(connect(&served.path).await);
    }
    let began = std::time::Instant::now();
    assert!(get(&served.path, "/healthz").await.contains("ok"));
    assert!(began.elapsed() < HEADER, "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_address_that_is_taken_is_tried_again_until_it_is_free() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(
        Listen::Tcp(address),
        pages(std::path::Path::new("/nonexistent"), true),
        stop.clone(),
    ));
    // The connection stays in the backlog of the other listener; no response comes from this server.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!serving.is_finished());
    drop(taken);
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stop.cancel();
    serving.await.unwrap();
}

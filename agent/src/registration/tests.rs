//! The kubelet's side of the registration: its calls, its refusals, its view of the directory.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use drivebay_proto::{
    csi::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoResponse,
        ProbeRequest, ProbeResponse,
        identity_server::{Identity, IdentityServer},
    },
    registration::registration_client::RegistrationClient,
};

use tokio::net::UnixListener;

use super::*;

struct FakeCsi;

#[tonic::async_trait]
impl Identity for FakeCsi {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse::default()))
    }
    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Err(Status::unimplemented(""))
    }
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

fn serve_csi(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(
        Server::builder()
            .add_service(IdentityServer::new(FakeCsi))
            .serve_with_incoming(authority::incoming(listener)),
    );
}

struct Node {
    _dir: tempfile::TempDir,
    config: RegistrationConfig,
    stop: CancellationToken,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("reg")).unwrap();
        let config = RegistrationConfig {
            dir: dir.path().join("reg"),
            driver_name: "csi.drivebay.io".into(),
            csi_socket: dir.path().join("csi.sock"),
            kubelet_csi_socket: "/var/lib/kubelet/plugins/csi.drivebay.io/csi.sock".into(),
            backoff: (Duration::from_millis(20), Duration::from_millis(40)),
        };
        Self {
            _dir: dir,
            config,
            stop: CancellationToken::new(),
        }
    }

    fn start(&self) -> tokio::task::JoinHandle<Result<(), RegistrationError>> {
        tokio::spawn(serve(self.config.clone(), self.stop.clone()))
    }

    /// Connects like the kubelet: a new connection per call, to the socket that exists then.
    async fn dial(&self) -> RegistrationClient<tonic::transport::Channel> {
        let path = self.config.socket();
        until(|| path.exists()).await;
        RegistrationClient::new(dial::once(&path).await.unwrap())
    }

    fn inode(&self) -> Option<u64> {
        std::fs::symlink_metadata(self.config.socket())
            .ok()
            .map(|metadata| metadata.ino())
    }
}

/// Waits for a condition that another task makes true; fails the test after 10 s.
async fn until(mut holds: impl FnMut() -> bool) {
    timeout(Duration::from_secs(10), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("it came true");
}

#[tokio::test]
async fn the_kubelet_learns_where_the_csi_socket_is() {
    let node = Node::new();
    serve_csi(&node.config.csi_socket);
    let served = node.start();
    let info = node
        .dial()
        .await
        .get_info(InfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.r#type, "CSIPlugin");
    assert_eq!(info.name, "csi.drivebay.io");
    assert_eq!(
        info.endpoint,
        "/var/lib/kubelet/plugins/csi.drivebay.io/csi.sock"
    );
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let mode = std::fs::metadata(node.config.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let accepted = RegistrationStatus {
        plugin_registered: true,
        error: String::new(),
    };
    let before = node.inode();
    node.dial()
        .await
        .notify_registration_status(accepted)
        .await
        .unwrap();
    // Responds until the end, on the same socket.
    for _ in 0..3 {
        node.dial().await.get_info(InfoRequest {}).await.unwrap();
    }
    assert_eq!(node.inode(), before);

    node.stop.cancel();
    served.await.unwrap().unwrap();
    assert!(!node.config.socket().exists(), "removed on stop");
    assert_eq!(std::fs::read_dir(&node.config.dir).unwrap().count(), 0);
}

#[tokio::test]
async fn a_refusal_makes_a_new_socket_and_the_next_answer_counts() {
    let node = Node::new();
    serve_csi(&node.config.csi_socket);
    let served = node.start();
    let mut inodes = Vec::new();
    for _ in 0..3 {
        let mut kubelet = node.dial().await;
        // Held open, so that the filesystem cannot reuse its inode number for the next one.
        let inode = node.inode().unwrap();
        std::fs::hard_link(
            node.config.socket(),
            node.config.dir.join(format!(".keep{inode}")),
        )
        .unwrap();
        inodes.push(inode);
        let refused = RegistrationStatus {
            plugin_registered: false,
            error: "topology value collision".into(),
        };
        kubelet.notify_registration_status(refused).await.unwrap();
        until(|| node.inode().is_some_and(|now| now != inode)).await;
    }
    inodes.dedup();
    assert_eq!(inodes.len(), 3);
    node.dial().await.get_info(InfoRequest {}).await.unwrap();
    node.stop.cancel();
    served.await.unwrap().unwrap();
    assert_eq!(node.inode(), None);
}

#[tokio::test]
async fn there_is_no_registration_before_csi_answers() {
    let node = Node::new();
    // A listener that never replies.
    let mute = UnixListener::bind(&node.config.csi_socket).unwrap();
    let served = node.start();
    let (connection, _) = mute.accept().await.unwrap();
    assert_eq!(node.inode(), None);
    drop((connection, mute));
    std::fs::remove_file(&node.config.csi_socket).unwrap();
    serve_csi(&node.config.csi_socket);
    node.dial().await.get_info(InfoRequest {}).await.unwrap();
    node.stop.cancel();
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_silent_client_holds_nothing_up() {
    let node = Node::new();
    serve_csi(&node.config.csi_socket);
    drop(std::os::unix::net::UnixListener::bind(node.config.socket()).unwrap());
    let stale = node.inode();
    let served = node.start();
    until(|| node.inode() != stale).await;
    let silent = tokio::net::UnixStream::connect(node.config.socket())
        .await
        .unwrap();
    node.stop.cancel();
    timeout(Duration::from_secs(5), served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(node.inode(), None);
    drop(silent);
}

#[tokio::test]
async fn stopping_while_csi_is_silent_ends_at_once() {
    let node = Node::new();
    let served = node.start();
    node.stop.cancel();
    timeout(Duration::from_secs(5), served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_missing_directory_is_reported() {
    let mut node = Node::new();
    serve_csi(&node.config.csi_socket);
    node.config.dir = "/nonexistent/reg".into();
    let error = node.start().await.unwrap().unwrap_err();
    assert!(matches!(error, RegistrationError::Bind { .. }), "{error}");
}

#[test]
fn the_wait_doubles_up_to_a_minute_and_is_spread() {
    let limits = RegistrationConfig::BACKOFF;
    for (refusals, low_ms, high_ms) in [
        (0, 500, 1000),
        (1, 1000, 2000),
        (5, 16_000, 32_000),
        (6, 30_000, 60_000),
        (1000, 30_000, 60_000),
    ] {
        assert_eq!(backoff(refusals, limits, 0), Duration::from_millis(low_ms));
        assert_eq!(
            backoff(refusals, limits, u32::MAX),
            Duration::from_millis(high_ms)
        );
    }
}

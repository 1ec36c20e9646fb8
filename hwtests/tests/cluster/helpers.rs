//! What several tests of clusters do.

use std::time::Duration;

use drivebay_hwtests::cluster::{Controller, request};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// A call does not wait for its own deadline, which is a minute.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// A CreateVolume that goes on while the test does something else.
pub(crate) type Creating = JoinHandle<Result<String, Status>>;

/// Begins to create a volume on one of these nodes.
pub(crate) fn creating(controller: &Controller, name: &str, nodes: &[&str]) -> Creating {
    let (csi, request) = (controller.csi.clone(), request(name, nodes));
    tokio::spawn(async move {
        let volume = csi.create_with(request).await?;
        Ok(volume.volume_id)
    })
}

/// Expects an answer that makes a provisioner ask again, and no other node.
pub(crate) async fn unavailable(call: Creating) {
    let ended = tokio::time::timeout(CALL_LIMIT, call).await;
    let ended = ended.expect("the call is answered before its own deadline");
    let status = ended.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

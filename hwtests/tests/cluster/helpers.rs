//! Steps that several tests of clusters share.

use std::time::Duration;

use drivebay_hwtests::cluster::{Controller, request};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// Time limit of a call; shorter than its own deadline, which is a minute.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// A CreateVolume call that runs while the test continues.
pub(crate) type Creating = JoinHandle<Result<String, Status>>;

/// Starts to create a volume on one of these nodes.
pub(crate) fn creating(controller: &Controller, name: &str, nodes: &[&str]) -> Creating {
    let (csi, request) = (controller.csi.clone(), request(name, nodes));
    tokio::spawn(async move {
        let volume = csi.create_with(request).await?;
        Ok(volume.volume_id)
    })
}

/// Checks that the call returns an error after which a provisioner repeats it, and chooses no other node.
pub(crate) async fn unavailable(call: Creating) {
    let ended = tokio::time::timeout(CALL_LIMIT, call).await;
    let ended = ended.expect("the call is answered before its own deadline");
    let status = ended.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

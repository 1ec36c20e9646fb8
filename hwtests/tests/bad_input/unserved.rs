//! RPCs that are not advertised return UNIMPLEMENTED with a message, for any request.

use drivebay_proto::csi as wire;
use tonic::Code;

use super::table::Ground;

const UNSERVED: &[Code] = &[Code::Unimplemented];

pub(crate) async fn rows(ground: &mut Ground) {
    let mut client = ground.controller.controller();
    let answer = client
        .controller_publish_volume(wire::ControllerPublishVolumeRequest::default())
        .await;
    ground.row("ControllerPublishVolume", "anything", UNSERVED, answer);
    let answer = client
        .controller_unpublish_volume(wire::ControllerUnpublishVolumeRequest::default())
        .await;
    ground.row("ControllerUnpublishVolume", "anything", UNSERVED, answer);
    let answer = client
        .controller_modify_volume(wire::ControllerModifyVolumeRequest::default())
        .await;
    ground.row("ControllerModifyVolume", "anything", UNSERVED, answer);
}

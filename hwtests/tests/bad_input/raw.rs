//! Requests as bytes that no generated client would send, and unknown methods.

use drivebay_hwtests::Csi;
use tonic::{
    Code, Request, Response, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::table::Ground;

/// Every served method of CSI, whether its capability is advertised or not.
const SERVED: [(&str, &[&str]); 4] = [
    (
        "csi.v1.Identity",
        &["GetPluginInfo", "GetPluginCapabilities", "Probe"],
    ),
    (
        "csi.v1.Controller",
        &[
            "CreateVolume",
            "DeleteVolume",
            "ControllerPublishVolume",
            "ControllerUnpublishVolume",
            "ValidateVolumeCapabilities",
            "ListVolumes",
            "ControllerListVolumeHealth",
            "ControllerGetVolumeHealth",
            "GetCapacity",
            "ControllerGetCapabilities",
            "CreateSnapshot",
            "DeleteSnapshot",
            "ListSnapshots",
            "GetSnapshot",
            "ControllerExpandVolume",
            "ControllerGetVolume",
            "ControllerModifyVolume",
        ],
    ),
    (
        "csi.v1.GroupController",
        &[
            "GroupControllerGetCapabilities",
            "CreateVolumeGroupSnapshot",
            "DeleteVolumeGroupSnapshot",
            "GetVolumeGroupSnapshot",
        ],
    ),
    (
        "csi.v1.Node",
        &[
            "NodeStageVolume",
            "NodeUnstageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeGetVolumeStats",
            "NodeGetVolumeHealth",
            "NodeGetStorageHealth",
            "NodeExpandVolume",
            "NodeGetCapabilities",
            "NodeGetInfo",
        ],
    ),
];

/// Services and methods that are not served.
const UNKNOWN: [&str; 7] = [
    "csi.v1.SnapshotMetadata/GetMetadataAllocated",
    "csi.v1.SnapshotMetadata/GetMetadataDelta",
    "csi.v1.Identity/Tomorrow",
    "csi.v1.Controller/Tomorrow",
    "csi.v1.GroupController/Tomorrow",
    "csi.v1.Node/Tomorrow",
    "csi.v2.Node/NodeGetInfo",
];

/// Byte sequences that are no protobuf message.
const UNDECODABLE: [(&str, &[u8]); 4] = [
    ("a tag that does not end", b"\xff\xff\xff"),
    ("a field number of 0", b"\x00"),
    ("a text that ends too early", b"\x0a\x7fx"),
    ("a group that does not end", b"\x0b"),
];

/// A field that a later version may have (number 1000): ignored.
const OF_TOMORROW: &[u8] = b"\xc2\x3e\x01x";

/// Codec that passes requests and responses as bytes.
#[derive(Default)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        use prost::bytes::BufMut;
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        use prost::bytes::Buf;
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

async fn call(ground: &Ground, method: &str, bytes: &[u8]) -> Result<Response<Vec<u8>>, Status> {
    let csi: &Csi = match method.contains("Controller/") {
        true => &ground.controller,
        false => &ground.csi,
    };
    let mut client = tonic::client::Grpc::new(csi.channel());
    client.ready().await.expect("the socket answers");
    let path = format!("/{method}").parse().expect("a path");
    client
        .unary(Request::new(bytes.to_vec()), path, Bytes)
        .await
}

pub(crate) async fn rows(ground: &mut Ground) {
    for (service, methods) in SERVED {
        for method in methods {
            for (what, bytes) in UNDECODABLE {
                let answer = call(ground, &format!("{service}/{method}"), bytes).await;
                ground.exactly(method, what, Code::InvalidArgument, answer);
            }
        }
    }
    for method in UNKNOWN {
        let answer = call(ground, method, b"").await;
        ground.exactly(method, "anything", Code::Unimplemented, answer);
    }
    for method in [
        "csi.v1.Identity/Probe",
        "csi.v1.Controller/ListVolumes",
        "csi.v1.Controller/GetCapacity",
        "csi.v1.Node/NodeGetInfo",
    ] {
        let answer = call(ground, method, OF_TOMORROW).await;
        ground.exactly(method, "a field of tomorrow", Code::Ok, answer);
    }
}

//! Rows of the agent's own services, which controllers and the command line call: the agent compares a request with its own plan before it
//! changes anything.

use drivebay_hwtests::{MIB, Node, csi as client};
use drivebay_proto::agent::{
    CreateVolumeRequest, ExpandVolumeRequest, agent_client::AgentClient,
    manual_volumes_client::ManualVolumesClient,
};
use tonic::Code::InvalidArgument;

use super::{
    fields::{Row, row, send},
    table::Ground,
};

type Create = CreateVolumeRequest;

fn rows_of_create() -> Vec<Row<Create>> {
    let mut rows: Vec<Row<Create>> = vec![
        row(
            "a limit below what is required",
            InvalidArgument,
            |r: &mut Create| {
                r.limit_bytes = 32 * MIB;
            },
        ),
        row("a limit of one byte", InvalidArgument, |r: &mut Create| {
            r.limit_bytes = 1;
        }),
        row("no size", InvalidArgument, |r: &mut Create| {
            r.required_bytes = 0
        }),
        row(
            "a size of no whole MiB",
            InvalidArgument,
            |r: &mut Create| {
                r.required_bytes += 1;
            },
        ),
        row("no name", InvalidArgument, |r: &mut Create| r.name.clear()),
        row("no mode", InvalidArgument, |r: &mut Create| r.mode.clear()),
        row("no class", InvalidArgument, |r: &mut Create| {
            r.class.clear()
        }),
        row("two sources", InvalidArgument, |r: &mut Create| {
            r.source_snapshot = "00000000-0000-4000-8000-000000000001@node1".into();
            r.source_volume = "00000000-0000-4000-8000-000000000002@node1".into();
        }),
    ];
    // Keys that Drivebay stores with a volume itself: the volume would differ from the request.
    for key in [
        "byHand",
        "createdAt",
        "claim",
        "claimNamespace",
        "persistentVolume",
    ] {
        rows.push(row(
            format!("parameter {key}"),
            InvalidArgument,
            move |r: &mut Create| {
                r.parameters.insert(key.into(), "true".into());
            },
        ));
    }
    rows
}

pub(crate) async fn rows(ground: &mut Ground, node: &Node) {
    let channel = client::channel(&node.agent_socket).await.unwrap();
    let good = Create {
        name: "never made".to_owned(),
        class: "demo".to_owned(),
        required_bytes: 64 * MIB,
        mode: "mount".to_owned(),
        fs_type: "ext4".to_owned(),
        ..Default::default()
    };
    let agent = AgentClient::new(channel.clone());
    let call = async |request| agent.clone().create_volume(request).await;
    send(ground, "Agent/CreateVolume", &good, rows_of_create(), call).await;
    let person = ManualVolumesClient::new(channel);
    let call = async |request| person.clone().create_volume(request).await;
    send(
        ground,
        "ManualVolumes/CreateVolume",
        &good,
        rows_of_create(),
        call,
    )
    .await;
    let good = ExpandVolumeRequest {
        id: ground.files.id.clone(),
        required_bytes: 128 * MIB,
        limit_bytes: 96 * MIB,
    };
    let rows = vec![row(
        "a limit below what is required",
        InvalidArgument,
        |_: &mut ExpandVolumeRequest| (),
    )];
    let call = async |request| agent.clone().expand_volume(request).await;
    send(ground, "Agent/ExpandVolume", &good, rows, call).await;
}

//! Sends RPCs and returns their answers as values of the model.

use std::path::PathBuf;

use drivebay_hwtests::{Csi, MIB};
use drivebay_proto::csi::{CapacityRange, CreateVolumeRequest, ListVolumesRequest};
use tonic::Status;

use super::{
    states::{Answer, Sent},
    steps::{Call, Spec},
    testbed::{capability, class_name},
};

/// Paths at which the volume of one name is staged and published.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) name: String,
    pub(crate) staging: PathBuf,
    pub(crate) targets: Vec<PathBuf>,
}

/// Sends the RPC that the call stands for, and returns its answer. A failure of the connection is an answer, too.
pub(crate) async fn send(csi: &Csi, paths: &Paths, sent: &Sent) -> Answer {
    let (id, staging) = (&sent.id, &paths.staging);
    let target = |target: u8| &paths.targets[usize::from(target)];
    let capability = capability(sent.kind);
    let done = |result: Result<(), Status>| result.map(|()| Answer::Done);
    let result = match sent.call {
        Call::Create(spec) => create(csi, &paths.name, spec).await,
        Call::Delete | Call::DeleteFormer => done(csi.delete(id).await),
        Call::Stage(_) => done(csi.stage(id, staging, &capability).await),
        Call::Unstage => done(csi.unstage(id, staging).await),
        Call::Publish {
            target: at,
            read_only,
        } => done(
            csi.publish(id, staging, target(at), &capability, read_only)
                .await,
        ),
        Call::Unpublish { target: at } => {
            let result = csi.unpublish(id, target(at)).await;
            done(result)
        }
        Call::Expand { mib } => {
            csi.expand(id, u64::from(mib) * MIB, &capability)
                .await
                .map(|(bytes, on_node)| Answer::Expanded {
                    bytes: unsigned(bytes),
                    on_node,
                })
        }
        Call::Grow => csi
            .node_expand(id, staging, 0)
            .await
            .map(|bytes| Answer::Grown {
                bytes: unsigned(bytes),
            }),
        Call::Stats { target: at } => csi.stats(id, target(at)).await.map(|stats| {
            let total = stats.usage.first().map_or(0, |usage| usage.total);
            Answer::Usage {
                total: unsigned(total),
            }
        }),
    };
    result.unwrap_or_else(|status| {
        // Reported by the transport, not by the agent.
        if std::error::Error::source(&status).is_some() {
            Answer::Lost
        } else {
            Answer::Refused(status.code(), status.message().to_owned())
        }
    })
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

async fn create(csi: &Csi, name: &str, spec: Spec) -> Result<Answer, Status> {
    let bytes = i64::from(spec.mib) << 20;
    let volume = csi
        .create_with(CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes,
                limit_bytes: if spec.exact { bytes } else { 0 },
            }),
            volume_capabilities: vec![capability(spec.kind)],
            parameters: [("class".to_owned(), class_name(spec.class).to_owned())].into(),
            ..Default::default()
        })
        .await?;
    Ok(Answer::Created {
        bytes: unsigned(volume.capacity_bytes),
        id: volume.volume_id,
    })
}

/// Returns the ids that ListVolumes lists, read in pages of at most `most` entries.
pub(crate) async fn list_in_pages(csi: &Csi, most: i32) -> Result<Vec<String>, Status> {
    let (mut all, mut starting_token) = (Vec::new(), String::new());
    loop {
        let request = ListVolumesRequest {
            max_entries: most,
            starting_token,
        };
        let page = csi.controller().list_volumes(request).await?.into_inner();
        if page.entries.len() > usize::try_from(most).unwrap_or(0) {
            return Err(Status::internal(format!(
                "a page of {} entries",
                page.entries.len()
            )));
        }
        let volumes = page.entries.into_iter().filter_map(|entry| entry.volume);
        all.extend(volumes.map(|volume| volume.volume_id));
        if page.next_token.is_empty() {
            return Ok(all);
        }
        starting_token = page.next_token;
    }
}

//! The CSI Node service.

use drivebay_common::{rpc::logged, units::size_beside};
use drivebay_csi::HealthApi;
use drivebay_proto::{
    csi::{self, node_server::Node, node_service_capability, volume_usage::Unit},
    names,
};
use tonic::{Request, Response, Status};

use super::{
    health,
    status::status,
    validate::{capability, path, pod, required, stage_secrets},
};
use drivebay_node::context::NodeContext;
use drivebay_node::volumes::{
    Caller, VolumeError, Volumes, publish::PublishRequest, stage::StageRequest,
};

/// Serves the Node RPCs of one node.
#[derive(Debug, Clone)]
pub struct NodeService {
    node: NodeContext,
    volumes: Volumes,
    health_api: HealthApi,
}

impl NodeService {
    /// Serves these volumes with this generation of the health API.
    pub fn new(volumes: Volumes, health_api: HealthApi) -> Self {
        Self {
            node: volumes.node().clone(),
            volumes,
            health_api,
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

/// Runs one RPC, logs its name, code and duration, and maps its error.
async fn answer<T>(
    method: &'static str,
    work: impl Future<Output = Result<T, VolumeError>>,
) -> Answer<T> {
    logged(method, async { work.await.map_err(|error| status(&error)) }).await
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Answer<csi::NodeStageVolumeResponse> {
        let mut request = request.into_inner();
        let work = async {
            required("volume_id", &request.volume_id)?;
            let staging = path("staging_target_path", &request.staging_target_path)?;
            let wanted = capability(request.volume_capability.as_ref())?;
            let secrets = stage_secrets(&mut request.secrets)?;
            self.volumes
                .stage(StageRequest {
                    id: request.volume_id,
                    path: staging,
                    mode: wanted.mode,
                    fs_type: wanted.fs_type,
                    flags: wanted.flags,
                    read_only: wanted.read_only,
                    secrets,
                })
                .await?;
            Ok(csi::NodeStageVolumeResponse {})
        };
        answer("NodeStageVolume", work).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Answer<csi::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let work = async {
            required("volume_id", &request.volume_id)?;
            let staging = path("staging_target_path", &request.staging_target_path)?;
            self.volumes
                .unmount(request.volume_id, staging, false)
                .await?;
            Ok(csi::NodeUnstageVolumeResponse {})
        };
        answer("NodeUnstageVolume", work).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Answer<csi::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let work = async {
            required("volume_id", &request.volume_id)?;
            let target = path("target_path", &request.target_path)?;
            let wanted = capability(request.volume_capability.as_ref())?;
            if request.staging_target_path.is_empty() {
                return Err(VolumeError::NotStagedFirst);
            }
            let staging = path("staging_target_path", &request.staging_target_path)?;
            self.volumes
                .publish(PublishRequest {
                    id: request.volume_id,
                    staging,
                    target,
                    mode: wanted.mode,
                    fs_type: wanted.fs_type,
                    flags: wanted.flags,
                    read_only: request.readonly || wanted.read_only,
                    exclusive: wanted.exclusive,
                    pod: pod(&request.volume_context),
                })
                .await?;
            Ok(csi::NodePublishVolumeResponse {})
        };
        answer("NodePublishVolume", work).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Answer<csi::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let work = async {
            required("volume_id", &request.volume_id)?;
            let target = path("target_path", &request.target_path)?;
            self.volumes
                .unmount(request.volume_id, target, true)
                .await?;
            Ok(csi::NodeUnpublishVolumeResponse {})
        };
        answer("NodeUnpublishVolume", work).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Answer<csi::NodeGetVolumeStatsResponse> {
        let request = request.into_inner();
        let work = async {
            required("volume_id", &request.volume_id)?;
            required("volume_path", &request.volume_path)?;
            let (id, path) = (&request.volume_id, &request.volume_path);
            let sample = self.volumes.stats(id, path).await?;
            let mut usage = vec![csi::VolumeUsage {
                available: signed(sample.usage.available_bytes),
                total: signed(sample.usage.total_bytes),
                used: signed(sample.usage.used_bytes),
                unit: Unit::Bytes.into(),
            }];
            if let Some((total, free, used)) = sample.usage.inodes {
                usage.push(csi::VolumeUsage {
                    available: signed(free),
                    total: signed(total),
                    used: signed(used),
                    unit: Unit::Inodes.into(),
                });
            }
            Ok(csi::NodeGetVolumeStatsResponse {
                usage,
                volume_condition: self
                    .health_api
                    .legacy()
                    .then(|| health::condition(&sample.volume.conditions)),
            })
        };
        answer("NodeGetVolumeStats", work).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Answer<csi::NodeExpandVolumeResponse> {
        let request = request.into_inner();
        let work = async {
            required("volume_id", &request.volume_id)?;
            required("volume_path", &request.volume_path)?;
            let range = request.capacity_range.unwrap_or_default();
            if range.required_bytes < 0
                || range.limit_bytes < 0
                || (range.limit_bytes != 0 && range.limit_bytes < range.required_bytes)
            {
                return Err(VolumeError::Invalid {
                    field: "capacity_range",
                    why: "must not be negative, nor its limit below what is required".to_owned(),
                });
            }
            let volume = self.volumes.require_scanned(&request.volume_id).await?;
            if let Some(requested) = request.volume_capability.as_ref() {
                let requested = capability(Some(requested)).map_err(|error| match error {
                    // CSI defines it as an invalid argument for this call only.
                    VolumeError::Unsupported(why) => VolumeError::Invalid {
                        field: "volume_capability",
                        why: why.to_string(),
                    },
                    other => other,
                })?;
                if requested.mode != volume.placed.record.mode {
                    return Err(VolumeError::Invalid {
                        field: "volume_capability",
                        why: format!(
                            "the volume is {}, asked for as {}",
                            volume.placed.record.mode.as_str(),
                            requested.mode.as_str()
                        ),
                    });
                }
            }
            let at = match path("volume_path", &request.volume_path) {
                Ok(path) => path,
                Err(_) => {
                    return Err(VolumeError::NotFound {
                        id: format!("{} at {:?}", request.volume_id, request.volume_path),
                    });
                }
            };
            let bytes = self
                .volumes
                .grow(request.volume_id, at, Caller::Csi)
                .await?;
            let needed = range.required_bytes.unsigned_abs();
            if needed > bytes {
                return Err(VolumeError::CannotGrow {
                    uuid: volume.uuid,
                    needed,
                    why: format!(
                        "its device has {}; ControllerExpandVolume comes first",
                        size_beside(bytes, needed)
                    ),
                });
            }
            Ok(csi::NodeExpandVolumeResponse {
                capacity_bytes: signed(bytes),
            })
        };
        answer("NodeExpandVolume", work).await
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Answer<csi::NodeGetCapabilitiesResponse> {
        use node_service_capability::{Rpc, Type, rpc::Type as Cap};
        let mut caps = vec![
            Cap::StageUnstageVolume,
            Cap::GetVolumeStats,
            Cap::ExpandVolume,
            Cap::SingleNodeMultiWriter,
        ];
        if self.health_api.legacy() {
            caps.push(Cap::VolumeCondition);
        }
        if self.health_api.v1_13() {
            caps.extend([Cap::GetVolumeHealth, Cap::GetStorageHealth]);
        }
        let capabilities = caps
            .into_iter()
            .map(|cap| csi::NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: cap.into() })),
            })
            .collect();
        logged("NodeGetCapabilities", async {
            Ok(csi::NodeGetCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn node_get_info(
        &self,
        _request: Request<csi::NodeGetInfoRequest>,
    ) -> Answer<csi::NodeGetInfoResponse> {
        let config = self.node.config();
        let segments = [(
            names::topology_key(&config.driver_name),
            config.node_id.clone(),
        )];
        let info = csi::NodeGetInfoResponse {
            node_id: config.node_id.clone(),
            // No limit; a full table is RESOURCE_EXHAUSTED at creation.
            max_volumes_per_node: 0,
            accessible_topology: Some(csi::Topology {
                segments: segments.into_iter().collect(),
            }),
        };
        logged("NodeGetInfo", async { Ok(info) }).await
    }

    async fn node_get_volume_health(
        &self,
        request: Request<csi::NodeGetVolumeHealthRequest>,
    ) -> Answer<csi::NodeGetVolumeHealthResponse> {
        let request = request.into_inner();
        let id = &request.volume_id;
        let work = async {
            required("volume_id", id)?;
            let (path, staging) = (&request.volume_publish_path, &request.staging_target_path);
            let conditions = self.volumes.health(id, path, staging).await?;
            Ok(csi::NodeGetVolumeHealthResponse {
                volume_health: Some(csi::VolumeHealth {
                    volume_id: id.clone(),
                    health_statuses: health::entries(&conditions),
                }),
            })
        };
        answer("NodeGetVolumeHealth", work).await
    }

    async fn node_get_storage_health(
        &self,
        _request: Request<csi::NodeGetStorageHealthRequest>,
    ) -> Answer<csi::NodeGetStorageHealthResponse> {
        let work = async {
            let snapshot = self.node.inventory().current();
            Ok(csi::NodeGetStorageHealthResponse {
                backend_health: health::storage(&snapshot),
            })
        };
        answer("NodeGetStorageHealth", work).await
    }
}

/// Converts bytes to the type that CSI uses.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

//! CSI Controller: each RPC checked, answered from the inventory or handed to the volume's agent.

use drivebay_proto::{
    csi::{controller_service_capability::rpc::Type as Capability, *},
    encoded::{ListVolumesResponse, controller_server::Controller},
    names,
    words::Mode,
};
use tonic::{Request, Response, Status};

use super::{
    attach::{Attached, publish, unpublish},
    create::create,
    delete::delete,
    grow::grow,
    listing::{list_health, list_volumes},
    logged,
    pending::Pending,
    snapshot_listing::list_snapshots,
    snapshots::{create_snapshot, delete_snapshot, shown_as},
    status::unimplemented,
    suitable::unsuitable,
    volumes::{self, CapacityQuery, signed},
};
use crate::{
    agents::{Agents, ReportedVolume},
    audit::Record,
    inventory::Inventory,
    page::parse_token,
    placement::PlacementError,
};
use drivebay_csi::{
    Content, NewSnapshot, NewVolume,
    health::{HealthApi, Whereabouts},
    size,
    topology::TopologyKey,
    validate::{self, Access},
};

/// Name and capabilities that the Controller service advertises.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// CSI driver name; the topology key is made of it.
    pub driver_name: String,
    /// The health API that is advertised.
    pub health_api: HealthApi,
    /// Attaching is advertised, for external-attacher's real handler.
    pub attach: bool,
}

/// CSI Controller and GroupController over the agents. Clones share their state.
#[derive(Debug, Clone)]
pub struct ControllerService {
    health_api: HealthApi,
    attach: bool,
    pub(super) key: TopologyKey,
    pub(super) agents: Agents,
    pending: Pending,
    pending_snapshots: Pending,
    pub(super) pending_groups: Pending,
    attached: Attached,
}

impl ControllerService {
    /// The service over these agents.
    pub fn new(config: ControllerConfig, agents: Agents) -> Self {
        Self {
            health_api: config.health_api,
            attach: config.attach,
            key: TopologyKey::new(&config.driver_name),
            agents,
            pending: Pending::default(),
            pending_snapshots: Pending::default(),
            pending_groups: Pending::default(),
            attached: Attached::default(),
        }
    }

    /// A call that changes something.
    pub(super) async fn audited<T>(
        &self,
        method: &'static str,
        on: &str,
        rpc: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let result = logged(method, rpc).await;
        if let Some(audit) = self.agents.audit() {
            audit.record(|| Record::call(method, on, result.as_ref().map(drop)));
        }
        result
    }

    async fn create(
        &self,
        mut request: CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Status> {
        let topology = request.accessibility_requirements.take();
        let requested = NewVolume::try_from(request)?;
        let (agents, key) = (self.agents.clone(), self.key.clone());
        let created = create(agents, key, self.pending.clone(), requested, topology);
        let (node, volume) = created.await?;
        Ok(CreateVolumeResponse {
            volume: Some(volumes::volume(volume, &node, &self.key)),
        })
    }

    async fn delete(&self, request: DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Status> {
        let id = validate::required("volume_id", &request.volume_id)?.to_owned();
        delete(&self.agents, id).await?;
        Ok(DeleteVolumeResponse {})
    }

    fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        let id = validate::required("volume_id", &request.volume_id)?;
        let wanted = validate::capabilities(&request.volume_capabilities);
        let wanted = match wanted {
            Err(error) if !error.is_unsupported() => return Err(error.into()),
            wanted => wanted,
        };
        validate::map_size("volume_context", &request.volume_context)?;
        let volume = self.agents.volume_of_csi(id)?.volume;
        let refusal = match wanted {
            Err(error) => Some(error.to_string()),
            Ok(wanted) => unsuitable(&volume, &wanted, &request),
        };
        Ok(match refusal {
            Some(message) => ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message,
            },
            None => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
        })
    }

    // Errs before the first agent has reported its volumes: a caller would take the empty list for complete.
    fn check_reported(&self) -> Result<(), Status> {
        // A volume is listed only for a node of which something is known; so thousands of nodes are not asked for each page.
        if !self.agents.catalog().is_empty() {
            return Ok(());
        }
        let all = self.agents.all();
        if all
            .iter()
            .any(|agent| agent.read_inventory(Inventory::listed))
        {
            return Ok(());
        }
        let nodes = all.iter().map(|agent| agent.node().to_owned()).collect();
        Err(PlacementError::NotReady { nodes }.into())
    }

    fn list(&self, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        let max = validate::max_entries(request.max_entries)?;
        let from = parse_token(&request.starting_token)?;
        self.check_reported()?;
        let (agents, key, attached) = (&self.agents, &self.key, &self.attached);
        let (api, from) = (self.health_api, from.as_ref());
        Ok(list_volumes(agents, key, attached, api, from, max))
    }

    fn list_health(
        &self,
        request: &ControllerListVolumeHealthRequest,
    ) -> Result<ControllerListVolumeHealthResponse, Status> {
        let max = validate::max_entries(request.max_entries)?;
        let from = parse_token(&request.starting_token)?;
        self.check_reported()?;
        Ok(list_health(&self.agents, from.as_ref(), max))
    }

    async fn take_snapshot(
        &self,
        mut request: CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse, Status> {
        let topology = request.accessibility_requirements.take();
        let requested = NewSnapshot::try_from(request)?;
        let (agents, key) = (self.agents.clone(), self.key.clone());
        let pending = self.pending_snapshots.clone();
        let created = create_snapshot(agents, key, pending, requested, topology);
        Ok(CreateSnapshotResponse {
            snapshot: Some(created.await?),
        })
    }

    fn page_of_snapshots(
        &self,
        request: &ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let max = validate::max_entries(request.max_entries)?;
        let from = parse_token(&request.starting_token)?;
        if request.snapshot_id.is_empty() && request.source_volume_id.is_empty() {
            self.check_reported()?;
        }
        let (agents, key) = (&self.agents, &self.key);
        Ok(list_snapshots(agents, key, request, from.as_ref(), max)?)
    }

    fn one_snapshot(&self, request: &GetSnapshotRequest) -> Result<GetSnapshotResponse, Status> {
        let id = validate::required("snapshot_id", &request.snapshot_id)?;
        let reported = self.agents.snapshot(id)?;
        Ok(GetSnapshotResponse {
            snapshot: Some(shown_as(id, reported, &self.key)),
        })
    }

    // An error would leave the provisioner's last figure standing, so what cannot be had is 0:
    // an unknown class, a topology of others, capabilities that are not supported. Parameters
    // that CreateVolume refuses are let pass, so that its error, not a full cluster, is reported.
    fn capacity(&self, request: &GetCapacityRequest) -> GetCapacityResponse {
        let nothing = GetCapacityResponse {
            available_capacity: 0,
            maximum_volume_size: Some(0),
            minimum_volume_size: None,
        };
        let access = match request.volume_capabilities.as_slice() {
            [] => Ok(Access::mount(None)),
            some => validate::capabilities(some),
        };
        let parameter = |key: &str| request.parameters.get(key).map(String::as_str);
        let fs_type = parameter(names::PARAM_FS_TYPE)
            .or_else(|| parameter(names::RESERVED_FS_TYPE))
            .map(|fs_type| validate::filesystem("parameters.fsType", fs_type));
        let content = match (access, fs_type.transpose()) {
            (Ok(Access::Block), Ok(_)) => Content::Block,
            (Ok(Access::Mount { fs_type, .. }), Ok(of_class)) => {
                Content::mount(fs_type.or(of_class.flatten()))
            }
            _ => return nothing,
        };
        let query = CapacityQuery {
            class: parameter(names::PARAM_CLASS).filter(|class| !class.is_empty()),
            content,
            overhead: match parameter(names::PARAM_ENCRYPTION) {
                Some(_) => names::ENCRYPTION_HEADER_BYTES,
                None => 0,
            },
            topology: request.accessible_topology.as_ref(),
        };
        volumes::capacity(&self.agents, &self.key, &query)
    }

    async fn expand(
        &self,
        request: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let id = validate::required("volume_id", &request.volume_id)?;
        let range = validate::required_capacity_range(request.capacity_range.as_ref())?;
        let capability = request.volume_capability.as_ref();
        let capability = capability.map(validate::capability).transpose()?;
        let ReportedVolume {
            agent,
            volume,
            moved_from,
        } = self.agents.volume_of_csi(id)?;
        if moved_from.is_some() {
            return Err(Status::failed_precondition(format!(
                "the drive of volume {id} was moved to node {}, where it is {}: expand that one",
                agent.node(),
                volume.id
            )));
        }
        if let Some(capability) = capability
            && capability.access.as_str() != volume.mode
        {
            return Err(Status::invalid_argument(format!(
                "volume_capability asks for {}, but volume {id} is a {} volume",
                capability.access.as_str(),
                volume.mode,
            )));
        }
        let class =
            agent.read_inventory(|inventory| inventory.classes().get(&volume.class).cloned());
        let extent = class.map_or(size::DEFAULT_EXTENT_BYTES, |class| class.extent_bytes);
        let bytes = size::grown_volume(range, volume.size_bytes, extent)?;
        let grown = grow(&agent, id, bytes, range.limit).await?;
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(grown.size_bytes),
            node_expansion_required: grown.known_mode() != Some(Mode::Block),
        })
    }

    fn get(
        &self,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let id = validate::required("volume_id", &request.volume_id)?;
        let reported = self.agents.volume_of_csi(id)?;
        let node = reported.agent.node();
        let at = whereabouts(&reported);
        let attached = &self.attached;
        let (published_node_ids, volume_condition) =
            volumes::status(&reported.volume, node, at, attached, self.health_api);
        let mut volume = volumes::volume(reported.volume, node, &self.key);
        // The caller knows it by the id it asked for.
        id.clone_into(&mut volume.volume_id);
        Ok(ControllerGetVolumeResponse {
            volume: Some(volume),
            status: Some(controller_get_volume_response::VolumeStatus {
                published_node_ids,
                volume_condition,
            }),
        })
    }

    fn get_health(
        &self,
        request: &ControllerGetVolumeHealthRequest,
    ) -> Result<ControllerGetVolumeHealthResponse, Status> {
        let id = validate::required("volume_id", &request.volume_id)?;
        let reported = self.agents.volume_of_csi(id)?;
        let mut health = volumes::volume_health(&reported.volume, whereabouts(&reported));
        id.clone_into(&mut health.volume_id);
        Ok(ControllerGetVolumeHealthResponse {
            volume_health: Some(health),
        })
    }

    fn capabilities(&self) -> ControllerGetCapabilitiesResponse {
        let mut all = vec![
            Capability::CreateDeleteVolume,
            Capability::ListVolumes,
            Capability::GetCapacity,
            Capability::ExpandVolume,
            Capability::GetVolume,
            Capability::SingleNodeMultiWriter,
            Capability::CreateDeleteSnapshot,
            Capability::ListSnapshots,
            Capability::GetSnapshot,
            Capability::CloneVolume,
        ];
        if self.attach {
            all.extend([
                Capability::PublishUnpublishVolume,
                Capability::ListVolumesPublishedNodes,
            ]);
        }
        if self.health_api.legacy() {
            all.push(Capability::VolumeCondition);
        }
        if self.health_api.v1_13() {
            all.extend([Capability::GetVolumeHealth, Capability::ListVolumeHealth]);
        }
        let capability = |kind: Capability| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(
                controller_service_capability::Rpc {
                    r#type: kind.into(),
                },
            )),
        };
        ControllerGetCapabilitiesResponse {
            capabilities: all.into_iter().map(capability).collect(),
        }
    }
}

fn whereabouts(reported: &ReportedVolume) -> Whereabouts<'_> {
    match &reported.moved_from {
        Some(from) => Whereabouts::Moved {
            from,
            now: reported.agent.node(),
        },
        None if reported.agent.unreachable() => Whereabouts::Away,
        None => Whereabouts::Here,
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let name = request.name.clone();
        self.audited("CreateVolume", &name, self.create(request))
            .await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        self.audited("DeleteVolume", &id, self.delete(request))
            .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let answer = async { self.validate(request.into_inner()) };
        logged("ValidateVolumeCapabilities", answer).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        logged("ListVolumes", async { self.list(request.get_ref()) }).await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        let answer = async { self.list_health(request.get_ref()) };
        logged("ControllerListVolumeHealth", answer).await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        let answer = async { self.get_health(request.get_ref()) };
        logged("ControllerGetVolumeHealth", answer).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        logged("GetCapacity", async {
            Ok(self.capacity(request.get_ref()))
        })
        .await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        Ok(Response::new(self.capabilities()))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        self.audited("ControllerExpandVolume", &id, self.expand(request))
            .await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        logged("ControllerGetVolume", async { self.get(request.get_ref()) }).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        if !self.attach {
            return Err(unimplemented("ControllerPublishVolume", NO_ATTACHING));
        }
        let request = request.get_ref();
        self.audited("ControllerPublishVolume", &request.volume_id, async {
            Ok(publish(&self.agents, &self.attached, request)?)
        })
        .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        if !self.attach {
            return Err(unimplemented("ControllerUnpublishVolume", NO_ATTACHING));
        }
        let request = request.get_ref();
        self.audited("ControllerUnpublishVolume", &request.volume_id, async {
            Ok(unpublish(&self.agents, &self.attached, request)?)
        })
        .await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let name = request.name.clone();
        self.audited("CreateSnapshot", &name, self.take_snapshot(request))
            .await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let id = request.into_inner().snapshot_id;
        self.audited("DeleteSnapshot", &id, async {
            validate::required("snapshot_id", &id)?;
            delete_snapshot(&self.agents, id.clone()).await?;
            Ok(DeleteSnapshotResponse {})
        })
        .await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let answer = async { self.page_of_snapshots(request.get_ref()) };
        logged("ListSnapshots", answer).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        let answer = async { self.one_snapshot(request.get_ref()) };
        logged("GetSnapshot", answer).await
    }

    async fn controller_modify_volume(
        &self,
        _: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let instead = "a volume has no parameters that could be changed";
        Err(unimplemented("ControllerModifyVolume", instead))
    }
}

const NO_ATTACHING: &str = "a local volume needs no attaching; set attachRequired: false in the CSIDriver object, or run the controller with --attach";

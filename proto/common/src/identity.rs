//! CSI Identity: constant answers from memory, and readiness of the plugin.

use drivebay_proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity,
    plugin_capability::{
        Service, Type, VolumeExpansion, service::Type as ServiceType,
        volume_expansion::Type as ExpansionType,
    },
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::rpc::logged;

/// Configuration of the identity service.
#[derive(Debug, Clone)]
pub struct IdentityConfig {
    pub driver_name: String,
    pub version: String,
    /// True if the plugin has a Controller and a GroupController service, here or in another process.
    pub controller: bool,
    /// False while starting: Probe then answers ready=false. The last value holds after the sender is dropped.
    pub ready: watch::Receiver<bool>,
}

#[derive(Debug, Clone)]
pub struct IdentityService {
    config: IdentityConfig,
}

impl IdentityService {
    pub fn new(config: IdentityConfig) -> Self {
        Self { config }
    }
}

fn service(kind: ServiceType) -> PluginCapability {
    PluginCapability {
        r#type: Some(Type::Service(Service {
            r#type: kind.into(),
        })),
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let info = GetPluginInfoResponse {
            name: self.config.driver_name.clone(),
            vendor_version: self.config.version.clone(),
            manifest: Default::default(),
        };
        logged("GetPluginInfo", async { Ok(info) }).await
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let mut capabilities = vec![service(ServiceType::VolumeAccessibilityConstraints)];
        if self.config.controller {
            capabilities.push(service(ServiceType::ControllerService));
            capabilities.push(service(ServiceType::GroupControllerService));
        }
        capabilities.push(PluginCapability {
            r#type: Some(Type::VolumeExpansion(VolumeExpansion {
                r#type: ExpansionType::Online.into(),
            })),
        });
        logged("GetPluginCapabilities", async {
            Ok(GetPluginCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let ready = *self.config.ready.borrow();
        logged("Probe", async { Ok(ProbeResponse { ready: Some(ready) }) }).await
    }
}

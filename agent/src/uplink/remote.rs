//! The calls that a controller may make over a session. All others are refused here, so that a compromised or false controller can do no
//! more than a controller does.

use std::sync::Arc;

use drivebay_proto::{
    agent::{agent_server::Agent, *},
    names,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use drivebay_config::DriveVerb;

use super::{Shared, parts::Parts, targets::Slot, token};
use drivebay_model::cause::chain;

/// Stage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// No hello was received.
    Silent,
    /// The peer is a replica that has a session with this agent already.
    MetAlready,
    /// The controller has sent its hello.
    Greeted,
    /// The controller refuses this agent.
    Refused,
    /// The session is open.
    Open,
}

/// A service for one session.
#[derive(Debug, Clone)]
pub(super) struct Remote<S> {
    pub(super) service: S,
    pub(super) shared: Arc<Shared>,
    pub(super) slot: Slot,
    pub(super) stage: watch::Sender<Stage>,
    /// Replica and version from the hello.
    pub(super) replica: watch::Sender<(String, String)>,
}

const ONLY_ON_HOST: &str = "this is done by a person on the node itself, with `drivebay-agent`";

// Error of every call that controllers must not make.
fn only_on_host<T>() -> Answer<T> {
    Err(Status::permission_denied(ONLY_ON_HOST))
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl<S: Agent> Agent for Remote<S> {
    async fn hello(&self, request: Request<HelloRequest>) -> Answer<HelloResponse> {
        let asker = request.get_ref();
        let (ours, theirs) = (
            (names::AGENT_PROTOCOL, names::OLDEST_AGENT_PROTOCOL),
            (asker.protocol, asker.oldest_protocol),
        );
        if !names::protocols_meet(ours, theirs) {
            let why = format!(
                "controller {} speaks versions {} to {} of the agent protocol, this agent {} to {}; upgrade the older of the two",
                asker.controller_version, theirs.1, theirs.0, ours.1, ours.0
            );
            self.stage.send_replace(Stage::Refused);
            tracing::error!(controller = %self.slot, why, "controller refused: no common protocol version");
            return Err(Status::failed_precondition(why));
        }
        let replica = asker.controller_instance.clone();
        if !self.shared.meet(&replica, &self.slot) {
            self.stage.send_replace(Stage::MetAlready);
            return Err(Status::already_exists(
                "this agent has a session with this controller already",
            ));
        }
        let replicas = asker.replicas;
        self.shared.announced.send_if_modified(|announced| {
            replicas > std::mem::replace(announced, replicas.max(*announced))
        });
        self.replica
            .send_replace((replica, asker.controller_version.clone()));
        let answer = self.service.hello(request).await;
        if answer.is_ok() {
            // A controller repeats the hello to check that this agent is alive; the session continues.
            self.stage.send_if_modified(|stage| {
                let first = *stage != Stage::Open;
                if first {
                    *stage = Stage::Greeted;
                }
                first
            });
        }
        answer
    }

    async fn prove(&self, _: Request<ProveRequest>) -> Answer<ProveResponse> {
        let Some(path) = &self.shared.token else {
            return Err(Status::unimplemented(
                "this agent has no token; see `token` of [controller] in its configuration",
            ));
        };
        let service_account_token = token::read(path)
            .await
            .map_err(|error| Status::unavailable(chain(&error)))?;
        Ok(Response::new(ProveResponse {
            service_account_token,
        }))
    }

    async fn refused(&self, request: Request<RefusedRequest>) -> Answer<RefusedResponse> {
        self.stage.send_replace(Stage::Refused);
        self.service.refused(request).await
    }

    type WatchInventoryStream = Parts<S::WatchInventoryStream>;

    async fn watch_inventory(
        &self,
        request: Request<WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        // Only a controller that accepted this agent makes this call.
        let (replica, version) = self.replica.borrow().clone();
        if self.stage.send_replace(Stage::Open) != Stage::Open {
            tracing::info!(controller = %self.slot, version, replica, "connected to the controller");
        }
        let updates = self.service.watch_inventory(request).await?;
        Ok(updates.map(Parts::of))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        self.service.create_volume(request).await
    }

    async fn keep_placement(
        &self,
        request: Request<KeepPlacementRequest>,
    ) -> Answer<KeepPlacementResponse> {
        self.service.keep_placement(request).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        self.service.delete_volume(request).await
    }

    async fn delete_unused_volume(
        &self,
        request: Request<DeleteUnusedVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        self.service.delete_unused_volume(request).await
    }

    async fn expand_volume(
        &self,
        request: Request<ExpandVolumeRequest>,
    ) -> Answer<ExpandVolumeResponse> {
        self.service.expand_volume(request).await
    }

    async fn rescan(&self, _: Request<RescanRequest>) -> Answer<RescanResponse> {
        only_on_host()
    }

    type WipeDriveStream = S::WipeDriveStream;

    async fn wipe_drive(&self, _: Request<WipeDriveRequest>) -> Answer<Self::WipeDriveStream> {
        only_on_host()
    }

    async fn acknowledge_drive(
        &self,
        request: Request<AcknowledgeDriveRequest>,
    ) -> Answer<AcknowledgeDriveResponse> {
        self.shared.allows(DriveVerb::Acknowledge)?;
        if request.get_ref().named.is_empty() {
            return Err(Status::invalid_argument(
                "named is empty: a controller acknowledges only findings that it names",
            ));
        }
        self.service.acknowledge_drive(request).await
    }

    async fn unacknowledge_drive(
        &self,
        _: Request<UnacknowledgeDriveRequest>,
    ) -> Answer<AcknowledgeDriveResponse> {
        only_on_host()
    }

    async fn cordon_drive(
        &self,
        request: Request<CordonDriveRequest>,
    ) -> Answer<CordonDriveResponse> {
        self.shared.allows(DriveVerb::Cordon)?;
        self.service.cordon_drive(request).await
    }

    async fn locate_drive(
        &self,
        request: Request<LocateDriveRequest>,
    ) -> Answer<LocateDriveResponse> {
        self.shared.allows(DriveVerb::Locate)?;
        self.service.locate_drive(request).await
    }

    async fn move_volumes(
        &self,
        request: Request<MoveVolumesRequest>,
    ) -> Answer<MoveVolumesResponse> {
        self.shared.allows(DriveVerb::Evacuate)?;
        self.service.move_volumes(request).await
    }

    async fn cancel_moves(
        &self,
        request: Request<CancelMovesRequest>,
    ) -> Answer<CancelMovesResponse> {
        self.shared.allows(DriveVerb::Evacuate)?;
        self.service.cancel_moves(request).await
    }

    async fn list_moves(&self, request: Request<ListMovesRequest>) -> Answer<ListMovesResponse> {
        self.shared.allows(DriveVerb::Evacuate)?;
        self.service.list_moves(request).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Answer<CreateSnapshotResponse> {
        self.service.create_snapshot(request).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        self.service.delete_snapshot(request).await
    }

    async fn create_group_snapshot(
        &self,
        request: Request<CreateGroupSnapshotRequest>,
    ) -> Answer<CreateGroupSnapshotResponse> {
        self.service.create_group_snapshot(request).await
    }

    async fn delete_group_snapshot(
        &self,
        request: Request<DeleteGroupSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        self.service.delete_group_snapshot(request).await
    }

    async fn list_copies(&self, request: Request<ListCopiesRequest>) -> Answer<ListCopiesResponse> {
        self.service.list_copies(request).await
    }

    async fn prefer_place(&self, _: Request<PreferPlaceRequest>) -> Answer<PreferPlaceResponse> {
        only_on_host()
    }

    async fn retire_drive(&self, _: Request<RetireDriveRequest>) -> Answer<RetireDriveResponse> {
        only_on_host()
    }

    async fn adopt_drive(&self, _: Request<AdoptDriveRequest>) -> Answer<AdoptDriveResponse> {
        only_on_host()
    }

    async fn drive_latency(
        &self,
        request: Request<DriveLatencyRequest>,
    ) -> Answer<DriveLatencyResponse> {
        self.service.drive_latency(request).await
    }

    async fn drive_history(
        &self,
        request: Request<DriveHistoryRequest>,
    ) -> Answer<DriveHistoryResponse> {
        self.service.drive_history(request).await
    }

    async fn check_volume(&self, _: Request<CheckVolumeRequest>) -> Answer<CheckVolumeResponse> {
        only_on_host()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::Mutex,
    };

    use tokio_stream::Empty;
    use tonic::Code;

    use super::{super::targets::Address, *};

    // Replies to every call with UNIMPLEMENTED.
    #[derive(Debug, Clone)]
    struct Reached;

    fn reached<T>() -> Answer<T> {
        Err(Status::unimplemented("reached"))
    }

    macro_rules! reached {
        ($($call:ident $request:ty => $answer:ty),* $(,)?) => {
            #[tonic::async_trait]
            impl Agent for Reached {
                type WatchInventoryStream = Empty<Result<InventoryUpdate, Status>>;
                type WipeDriveStream = Empty<Result<WipeDriveProgress, Status>>;
                $(async fn $call(&self, _: Request<$request>) -> Answer<$answer> {
                    reached()
                })*
            }

            // The code that each call over a session is answered with.
            async fn codes(remote: &Remote<Reached>) -> BTreeMap<&'static str, Code> {
                let mut codes = BTreeMap::new();
                $(
                    let answer = remote.$call(Request::new(<$request>::default())).await;
                    codes.insert(stringify!($call), answer.map_or_else(|status| status.code(), |_| Code::Ok));
                )*
                codes
            }
        };
    }

    reached! {
        hello HelloRequest => HelloResponse,
        prove ProveRequest => ProveResponse,
        refused RefusedRequest => RefusedResponse,
        watch_inventory WatchInventoryRequest => Self::WatchInventoryStream,
        create_volume CreateVolumeRequest => CreateVolumeResponse,
        keep_placement KeepPlacementRequest => KeepPlacementResponse,
        delete_volume DeleteVolumeRequest => DeleteVolumeResponse,
        delete_unused_volume DeleteUnusedVolumeRequest => DeleteVolumeResponse,
        expand_volume ExpandVolumeRequest => ExpandVolumeResponse,
        rescan RescanRequest => RescanResponse,
        wipe_drive WipeDriveRequest => Self::WipeDriveStream,
        adopt_drive AdoptDriveRequest => AdoptDriveResponse,
        acknowledge_drive AcknowledgeDriveRequest => AcknowledgeDriveResponse,
        unacknowledge_drive UnacknowledgeDriveRequest => AcknowledgeDriveResponse,
        cordon_drive CordonDriveRequest => CordonDriveResponse,
        locate_drive LocateDriveRequest => LocateDriveResponse,
        move_volumes MoveVolumesRequest => MoveVolumesResponse,
        cancel_moves CancelMovesRequest => CancelMovesResponse,
        list_moves ListMovesRequest => ListMovesResponse,
        create_snapshot CreateSnapshotRequest => CreateSnapshotResponse,
        delete_snapshot DeleteSnapshotRequest => DeleteSnapshotResponse,
        create_group_snapshot CreateGroupSnapshotRequest => CreateGroupSnapshotResponse,
        delete_group_snapshot DeleteGroupSnapshotRequest => DeleteSnapshotResponse,
        list_copies ListCopiesRequest => ListCopiesResponse,
        prefer_place PreferPlaceRequest => PreferPlaceResponse,
        retire_drive RetireDriveRequest => RetireDriveResponse,
        check_volume CheckVolumeRequest => CheckVolumeResponse,
        drive_latency DriveLatencyRequest => DriveLatencyResponse,
        drive_history DriveHistoryRequest => DriveHistoryResponse,
    }

    #[tokio::test]
    async fn a_controller_may_call_what_it_uses_and_nothing_else() {
        let each = [
            DriveVerb::Cordon,
            DriveVerb::Locate,
            DriveVerb::Evacuate,
            DriveVerb::Acknowledge,
        ];
        is_all_that_may_be_called(BTreeSet::new()).await;
        is_all_that_may_be_called(BTreeSet::from(each)).await;
        for verb in each {
            is_all_that_may_be_called(BTreeSet::from([verb])).await;
        }
    }

    async fn is_all_that_may_be_called(drive_verbs: BTreeSet<DriveVerb>) {
        let verbs = drive_verbs.clone();
        let remote = Remote {
            service: Reached,
            shared: Arc::new(Shared {
                credentials: None,
                token: None,
                drive_verbs,
                met: Mutex::default(),
                announced: watch::Sender::new(1),
            }),
            slot: Slot {
                to: Address::Unix("/c.sock".into()),
                index: 0,
            },
            stage: watch::Sender::new(Stage::Silent),
            replica: watch::Sender::default(),
        };
        let used = [
            "create_group_snapshot",
            "create_snapshot",
            "create_volume",
            "delete_group_snapshot",
            "delete_snapshot",
            "delete_unused_volume",
            "delete_volume",
            "drive_history",
            "drive_latency",
            "expand_volume",
            "hello",
            "keep_placement",
            "list_copies",
            "prove",
            "refused",
            "watch_inventory",
        ];
        let codes = codes(&remote).await;
        assert_eq!(codes.len(), 29);
        for (call, code) in codes {
            let allowed = match call {
                "cordon_drive" => verbs.contains(&DriveVerb::Cordon),
                "locate_drive" => verbs.contains(&DriveVerb::Locate),
                "move_volumes" | "cancel_moves" | "list_moves" => {
                    verbs.contains(&DriveVerb::Evacuate)
                }
                _ => false,
            };
            let acknowledges =
                call == "acknowledge_drive" && verbs.contains(&DriveVerb::Acknowledge);
            let expected = if acknowledges {
                // The request of this test names no finding.
                Code::InvalidArgument
            } else if allowed || used.contains(&call) {
                Code::Unimplemented
            } else {
                Code::PermissionDenied
            };
            assert_eq!(code, expected, "{call}");
        }
    }
}

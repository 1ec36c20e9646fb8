//! The `Agent` service: calls of the controller and the command line.

use std::{pin::Pin, sync::Arc};

use drivebay_common::{kept_placements::KeptPlacements, rpc::logged};
use drivebay_csi::NewVolume;
use drivebay_proto::{
    agent::{self as wire, agent_server::Agent},
    names,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Code, Request, Response, Status};

use super::{counters, latency, moves::Moves, snapshots::Snapshots};
use crate::csi::status::status;
use drivebay_health::{
    CollectedEvidence,
    acknowledge::{AcknowledgeError, Acknowledger, NamedFinding, Order},
};
use drivebay_model::{CheckMethod, Cordon, DriveId, Snapshot, cause::chain};
use drivebay_node::{
    context::NodeContext,
    inventory::wire::{cordon as cordon_message, finding, smart_finding},
    scan_loop::Rescans,
    volumes::{Caller, VolumeError, Volumes, wipe::named},
};
use drivebay_smart::Acknowledgement;
use drivebay_sys::clock::unix_seconds;

/// Updates that may wait for a slow reader; further changes are merged into one delta.
const QUEUE: usize = 2;

/// Bytes of an acknowledgement's longest note, which stays in the drive's history.
const MAX_NOTE: usize = drivebay_model::cordon::MAX_TEXT;
/// Most findings that an acknowledgement names. A drive has fewer.
const MAX_NAMED: usize = 64;

#[derive(Debug, Clone)]
pub struct AgentService {
    node: NodeContext,
    volumes: Volumes,
    evidence: CollectedEvidence,
    rescans: Rescans,
    acknowledger: Acknowledger,
    machine_id: String,
    placements: Arc<KeptPlacements>,
}

impl AgentService {
    pub fn new(
        volumes: Volumes,
        evidence: CollectedEvidence,
        rescans: Rescans,
        acknowledger: Acknowledger,
        machine_id: String,
    ) -> Self {
        Self {
            node: volumes.node().clone(),
            volumes,
            evidence,
            rescans,
            acknowledger,
            machine_id,
            placements: Arc::default(),
        }
    }

    /// Returns the identity of the drive of this name.
    fn id_of(&self, name: &str) -> Result<DriveId, Status> {
        let snapshot = self.node.inventory().current();
        let drive = named(&snapshot, name).map_err(|error| status(&error))?;
        Ok(drive.id.clone())
    }

    fn snapshots(&self) -> Snapshots<'_> {
        Snapshots {
            volumes: &self.volumes,
        }
    }

    fn moves(&self) -> Moves<'_> {
        Moves {
            volumes: &self.volumes,
        }
    }

    /// Executes an operator's decision about a drive's findings.
    async fn decided(&self, id: DriveId, order: Order) -> Answer<wire::AcknowledgeDriveResponse> {
        let done = self.acknowledger.send(id.clone(), order).await;
        let done = done.map_err(|error| {
            let code = match error {
                AcknowledgeError::NotConfirmed { .. } => Code::InvalidArgument,
                AcknowledgeError::NotMonitored(_)
                | AcknowledgeError::NotNamed { .. }
                | AcknowledgeError::StateCounts { .. } => Code::FailedPrecondition,
                AcknowledgeError::Write { .. } => Code::Internal,
                AcknowledgeError::Stopping => Code::Unavailable,
            };
            Status::new(code, chain(&error))
        })?;
        let health = &done.health;
        Ok(Response::new(wire::AcknowledgeDriveResponse {
            drive: id.0,
            acknowledged: done.acknowledged.iter().map(smart_finding).collect(),
            remaining: health.counting().map(|one| finding(one, health)).collect(),
            verdict: health.shown_verdict(),
            revision: done.revision,
            nothing: done.nothing,
            takes_new_volumes: health.is_fit(),
        }))
    }
}

/// Errs unless a text is short and fits on one line of any output.
pub(super) fn printable(field: &str, text: &str) -> Result<(), Status> {
    if text.len() > MAX_NOTE || text.chars().any(char::is_control) {
        let why = format!("{field} must have at most {MAX_NOTE} bytes and no control characters");
        return Err(Status::invalid_argument(why));
    }
    Ok(())
}

/// Errs unless an operator is named, so that each acknowledgement has a responsible person.
pub(super) fn require_operator(by: &str) -> Result<(), Status> {
    if by.is_empty() {
        return Err(Status::invalid_argument(
            "by is empty: it must name the operator",
        ));
    }
    printable("by", by)
}

type Answer<T> = Result<Response<T>, Status>;
type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Agent for AgentService {
    async fn prove(&self, _: Request<wire::ProveRequest>) -> Answer<wire::ProveResponse> {
        Err(Status::unimplemented(
            "tokens are shown to controllers alone",
        ))
    }

    async fn hello(&self, _request: Request<wire::HelloRequest>) -> Answer<wire::HelloResponse> {
        Ok(Response::new(wire::HelloResponse {
            node_id: self.node.config().node_id.clone(),
            instance: self.node.sender().instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine_id: self.machine_id.clone(),
            protocol: names::AGENT_PROTOCOL,
            oldest_protocol: names::OLDEST_AGENT_PROTOCOL,
            copies: true,
        }))
    }

    async fn refused(
        &self,
        request: Request<wire::RefusedRequest>,
    ) -> Answer<wire::RefusedResponse> {
        let reason = request.into_inner().reason;
        tracing::error!(reason, "controller refused this agent");
        Ok(Response::new(wire::RefusedResponse {}))
    }

    type WatchInventoryStream = Updates<wire::InventoryUpdate>;

    async fn watch_inventory(
        &self,
        _request: Request<wire::WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut snapshots = self.node.inventory().subscribe();
        let words = self.node.sender().clone();
        let samples = self.volumes.last_samples();
        let pods = self.node.expected().pods();
        tokio::spawn(async move {
            let mut last: Arc<Snapshot> = snapshots.borrow_and_update().clone();
            let mut update = words.full_with_usage(&last, &samples, pods);
            loop {
                // If the reader is gone, the task ends at its next update.
                if sender.send(Ok(update)).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    changed = snapshots.changed() => if changed.is_err() { return },
                }
                let next = snapshots.borrow_and_update().clone();
                update = words.changes(&last, &next);
                last = next;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        logged("Agent/CreateVolume", async {
            let requested = NewVolume::try_from(request.into_inner()).map_err(VolumeError::from);
            let requested = requested.map_err(|error| status(&error))?;
            let created = self.volumes.create(requested).await;
            let (volume, revision) = created.map_err(|error| status(&error))?;
            Ok(wire::CreateVolumeResponse {
                volume: Some(self.node.sender().volume(&volume)),
                revision,
            })
        })
        .await
    }

    async fn keep_placement(
        &self,
        request: Request<wire::KeepPlacementRequest>,
    ) -> Answer<wire::KeepPlacementResponse> {
        Ok(Response::new(self.placements.keep(request.into_inner())))
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        let request = request.into_inner();
        logged("Agent/DeleteVolume", async {
            let revision = self
                .volumes
                .delete(request.id, request.quarantine, Caller::CsiDelete)
                .await
                .map_err(|error| status(&error))?;
            Ok(wire::DeleteVolumeResponse { revision })
        })
        .await
    }

    async fn delete_unused_volume(
        &self,
        request: Request<wire::DeleteUnusedVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        let wire::DeleteUnusedVolumeRequest { id, name } = request.into_inner();
        logged("Agent/DeleteUnusedVolume", async {
            let revision = self.volumes.delete_unused(id, &name).await;
            let revision = revision.map_err(|error| status(&error))?;
            Ok(wire::DeleteVolumeResponse { revision })
        })
        .await
    }

    async fn expand_volume(
        &self,
        request: Request<wire::ExpandVolumeRequest>,
    ) -> Answer<wire::ExpandVolumeResponse> {
        let request = request.into_inner();
        logged("Agent/ExpandVolume", async {
            let (volume, revision) = self
                .volumes
                .expand(
                    request.id,
                    request.required_bytes,
                    request.limit_bytes,
                    Caller::Csi,
                )
                .await
                .map_err(|error| status(&error))?;
            Ok(wire::ExpandVolumeResponse {
                volume: Some(self.node.sender().volume(&volume)),
                revision,
            })
        })
        .await
    }

    async fn rescan(&self, _request: Request<wire::RescanRequest>) -> Answer<wire::RescanResponse> {
        self.evidence.request_polls();
        self.rescans
            .now()
            .await
            .map(|revision| Response::new(wire::RescanResponse { revision }))
            .map_err(|why| Status::unavailable(format!("the drive scan failed: {why}")))
    }

    async fn adopt_drive(
        &self,
        request: Request<wire::AdoptDriveRequest>,
    ) -> Answer<wire::AdoptDriveResponse> {
        let request = request.into_inner();
        let contents = self
            .volumes
            .adopt(&request.drive, &request.confirm)
            .await
            .map_err(|error| status(&error))?;
        let revision = self.rescans.now().await.map_err(|why| {
            Status::unavailable(format!(
                "the drive is adopted, but the following drive scan failed: {why}"
            ))
        })?;
        Ok(Response::new(wire::AdoptDriveResponse {
            revision,
            volumes: contents.volumes.len() as u64,
        }))
    }

    async fn acknowledge_drive(
        &self,
        request: Request<wire::AcknowledgeDriveRequest>,
    ) -> Answer<wire::AcknowledgeDriveResponse> {
        let request = request.into_inner();
        let (by, note) = (request.by, request.note);
        require_operator(&by)?;
        printable("note", &note)?;
        let id = self.id_of(&request.drive)?;
        if request.named.len() > MAX_NAMED {
            let why = format!("named has more than {MAX_NAMED} findings");
            return Err(Status::invalid_argument(why));
        }
        let named = request.named.into_iter().map(|one| NamedFinding {
            code: one.code,
            subject: one.subject,
            value: one.value,
        });
        let order = Order::Acknowledge {
            confirmed: request.confirm == id.0,
            named: named.collect(),
            ack: Acknowledgement {
                by,
                note,
                until: Some(request.until).filter(|until| *until > 0),
                takes_new_volumes: request.takes_new_volumes,
            },
        };
        self.decided(id, order).await
    }

    async fn unacknowledge_drive(
        &self,
        request: Request<wire::UnacknowledgeDriveRequest>,
    ) -> Answer<wire::AcknowledgeDriveResponse> {
        let wire::UnacknowledgeDriveRequest { drive, by } = request.into_inner();
        require_operator(&by)?;
        let id = self.id_of(&drive)?;
        self.decided(id, Order::Withdraw { by }).await
    }

    async fn cordon_drive(
        &self,
        request: Request<wire::CordonDriveRequest>,
    ) -> Answer<wire::CordonDriveResponse> {
        logged("Agent/CordonDrive", async {
            let request = request.into_inner();
            let (by, reason) = (request.by, request.reason);
            require_operator(&by)?;
            printable("reason", &reason)?;
            let at = unix_seconds();
            let cordon = (!request.uncordon).then(|| Cordon {
                at,
                by: by.clone(),
                reason,
            });
            let done = self.volumes.set_cordon(&request.drive, &by, cordon).await;
            let done = done.map_err(|error| status(&error))?;
            Ok(wire::CordonDriveResponse {
                drive: done.drive.0,
                cordon: done.cordon.as_ref().map(cordon_message),
                changed: done.changed,
                revision: done.revision,
            })
        })
        .await
    }

    async fn locate_drive(
        &self,
        request: Request<wire::LocateDriveRequest>,
    ) -> Answer<wire::LocateDriveResponse> {
        logged("Agent/LocateDrive", async {
            let wire::LocateDriveRequest { drive, on } = request.into_inner();
            let switched = self.volumes.switch_light(&drive, on).await;
            let (drive, by) = switched.map_err(|error| status(&error))?;
            Ok(wire::LocateDriveResponse {
                drive: drive.0,
                by: by.as_str().to_owned(),
            })
        })
        .await
    }

    async fn move_volumes(
        &self,
        request: Request<wire::MoveVolumesRequest>,
    ) -> Answer<wire::MoveVolumesResponse> {
        let moves = self.moves();
        logged("Agent/MoveVolumes", moves.request(request.into_inner())).await
    }

    async fn cancel_moves(
        &self,
        request: Request<wire::CancelMovesRequest>,
    ) -> Answer<wire::CancelMovesResponse> {
        let moves = self.moves();
        logged("Agent/CancelMoves", moves.cancel(request.into_inner())).await
    }

    async fn list_moves(
        &self,
        _: Request<wire::ListMovesRequest>,
    ) -> Answer<wire::ListMovesResponse> {
        Ok(Response::new(self.moves().list()))
    }

    async fn create_snapshot(
        &self,
        request: Request<wire::CreateSnapshotRequest>,
    ) -> Answer<wire::CreateSnapshotResponse> {
        let snapshots = self.snapshots();
        logged("Agent/CreateSnapshot", snapshots.take(request.into_inner())).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<wire::DeleteSnapshotRequest>,
    ) -> Answer<wire::DeleteSnapshotResponse> {
        let snapshots = self.snapshots();
        logged(
            "Agent/DeleteSnapshot",
            snapshots.delete(request.into_inner()),
        )
        .await
    }

    async fn create_group_snapshot(
        &self,
        request: Request<wire::CreateGroupSnapshotRequest>,
    ) -> Answer<wire::CreateGroupSnapshotResponse> {
        let snapshots = self.snapshots();
        logged(
            "Agent/CreateGroupSnapshot",
            snapshots.take_group(request.into_inner()),
        )
        .await
    }

    async fn delete_group_snapshot(
        &self,
        request: Request<wire::DeleteGroupSnapshotRequest>,
    ) -> Answer<wire::DeleteSnapshotResponse> {
        let snapshots = self.snapshots();
        logged(
            "Agent/DeleteGroupSnapshot",
            snapshots.delete_group(request.into_inner()),
        )
        .await
    }

    async fn list_copies(
        &self,
        _: Request<wire::ListCopiesRequest>,
    ) -> Answer<wire::ListCopiesResponse> {
        Ok(Response::new(self.snapshots().copies()))
    }

    async fn prefer_place(
        &self,
        request: Request<wire::PreferPlaceRequest>,
    ) -> Answer<wire::PreferPlaceResponse> {
        let moves = self.moves();
        logged("Agent/PreferPlace", moves.prefer(request.into_inner())).await
    }

    async fn retire_drive(
        &self,
        request: Request<wire::RetireDriveRequest>,
    ) -> Answer<wire::RetireDriveResponse> {
        let moves = self.moves();
        logged("Agent/RetireDrive", moves.retire(request.into_inner())).await
    }

    async fn drive_latency(
        &self,
        request: Request<wire::DriveLatencyRequest>,
    ) -> Answer<wire::DriveLatencyResponse> {
        let snapshot = self.node.inventory().current();
        let drive =
            named(&snapshot, &request.into_inner().drive).map_err(|error| status(&error))?;
        let mut speeds = self.evidence.speeds().all();
        let speed = speeds.remove(&drive.id).unwrap_or_default();
        Ok(Response::new(latency::response(&speed)))
    }

    async fn drive_history(
        &self,
        request: Request<wire::DriveHistoryRequest>,
    ) -> Answer<wire::DriveHistoryResponse> {
        let snapshot = self.node.inventory().current();
        let drive =
            named(&snapshot, &request.into_inner().drive).map_err(|error| status(&error))?;
        let points = self.evidence.counters().of(&drive.id);
        Ok(Response::new(counters::response(points)))
    }

    async fn check_volume(
        &self,
        request: Request<wire::CheckVolumeRequest>,
    ) -> Answer<wire::CheckVolumeResponse> {
        let check = self
            .volumes
            .check_now(&request.into_inner().volume_id)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(wire::CheckVolumeResponse {
            method: check.method.map_or("", CheckMethod::as_str).to_owned(),
            tool: check.tool,
            outcome: check.outcome.result().to_string(),
            detail: check.outcome.text(),
            took_ms: check.took_ms,
        }))
    }

    type WipeDriveStream = Updates<wire::WipeDriveProgress>;

    async fn wipe_drive(
        &self,
        request: Request<wire::WipeDriveRequest>,
    ) -> Answer<Self::WipeDriveStream> {
        let request = request.into_inner();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let wipe = self
            .volumes
            .begin_wipe(&request.drive, &request.confirm)
            .map_err(|error| status(&error))?;
        let (volumes, rescans) = (self.volumes.clone(), self.rescans.clone());
        tokio::spawn(async move {
            let result = volumes.wipe(&wipe, &sender).await;
            // The drive has changed; a failed scan is repeated by the periodic one.
            if let Err(why) = rescans.now().await {
                tracing::warn!(why, "drive scan after a wipe failed");
            }
            drop(wipe);
            let last = match result {
                Ok(progress) => Ok(progress),
                Err(error) => Err(status(&error)),
            };
            // The client may be gone.
            let _ = sender.send(last).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

//! A fake agent that keeps its volumes in memory, and the controller service over it.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use drivebay_common::{kept_placements::KeptPlacements, tls::KeyFingerprint};
use drivebay_csi::HealthApi;
use drivebay_proto::{
    VolumeId,
    agent::{
        agent_server::{Agent, AgentServer},
        *,
    },
    csi,
};
use drivebay_service::{
    Agents, ControllerConfig, ControllerService, agents::Identity, in_process_channel,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Response, Status,
    transport::{Server, server::Router},
};
use uuid::Uuid;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const DRIVER: &str = "csi.drivebay.io";

/// Behaviour of the fake at its next change.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// Answers with this code and does nothing.
    Refuse(Code),
    /// Does it, and the connection breaks before the answer.
    LoseAnswer,
    /// Answers with a volume of a few bytes.
    Nonsense,
    /// Waits until `Fake::go_on`, then does it.
    Wait,
    /// Waits until `Fake::go_on`, then answers with this code and does nothing.
    WaitAndRefuse(Code),
}

#[derive(Debug, Clone)]
pub struct State {
    pub node: String,
    pub machine: String,
    pub drives: Vec<Drive>,
    pub instance: String,
    pub revision: u64,
    pub ready: bool,
    pub volumes: BTreeMap<String, Volume>,
    pub classes: BTreeMap<String, Class>,
    pub trouble: Option<Trouble>,
    /// Streams of an older generation end.
    pub generation: u64,
    /// The next delta builds on a revision that was never sent.
    pub gap: bool,
    /// Changes are not sent while this holds.
    pub silent: bool,
    /// Number of full updates sent so far, on all streams.
    pub snapshots: u64,
    /// Hellos are not answered while this holds, as over a connection whose other end is gone.
    pub mute: bool,
    /// ServiceAccount token with which it proves its node.
    pub token: Option<String>,
    /// Advertised in its hello: takes snapshots and makes copies.
    pub copies: bool,
    /// A volume with a source is copied while this holds, and is complete from the first repeat on that finds it not to.
    pub copying: bool,
    /// Requested changes and received refusals, oldest first, as text.
    pub calls: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Fake {
    pub state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    going: watch::Sender<bool>,
    placements: Arc<KeptPlacements>,
}

pub fn class(name: &str, free: u64) -> Class {
    Class {
        name: name.into(),
        layout: "partition".into(),
        total_bytes: 4 * free,
        free_bytes: free,
        largest_volume_bytes: free / 2,
        smallest_volume_bytes: MIB,
        fs_type: "ext4".into(),
        extent_bytes: MIB,
    }
}

impl Fake {
    pub fn new(node: &str) -> Self {
        let state = State {
            node: node.into(),
            machine: "m".into(),
            drives: Vec::new(),
            instance: "first".into(),
            revision: 1,
            ready: true,
            volumes: BTreeMap::new(),
            classes: [("hdd".into(), class("hdd", 100 * GIB))].into(),
            trouble: None,
            generation: 0,
            gap: false,
            silent: false,
            snapshots: 0,
            mute: false,
            token: None,
            copies: true,
            copying: false,
            calls: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: watch::Sender::new(0),
            going: watch::Sender::new(false),
            placements: Arc::default(),
        }
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        let result = change(&mut state);
        state.revision += 1;
        drop(state);
        self.changed.send_modify(|n| *n += 1);
        result
    }

    pub fn with(self, change: impl FnOnce(&mut State)) -> Self {
        self.change(change);
        self
    }

    pub fn put(&self, volume: Volume) {
        self.change(|state| state.volumes.insert(volume.id.clone(), volume));
    }

    pub fn trouble(&self, trouble: Trouble) {
        self.state.lock().unwrap().trouble = Some(trouble);
    }

    pub fn go_on(&self) {
        self.going.send_replace(true);
    }

    pub fn router(&self) -> Router {
        Server::builder().add_service(AgentServer::new(self.clone()))
    }

    /// The controller service over this agent, as soon as it has seen the inventory.
    pub async fn controller(&self, health_api: HealthApi) -> ControllerService {
        let agents = Agents::single(in_process_channel(self.router()));
        let mut ready = agents.ready();
        let waiting = ready.wait_for(|ready| *ready);
        tokio::time::timeout(Duration::from_secs(10), waiting)
            .await
            .unwrap()
            .unwrap();
        service(agents, health_api)
    }

    async fn begin(&self, call: String) -> Result<Option<Trouble>, Status> {
        let trouble = {
            let mut state = self.state.lock().unwrap();
            state.calls.push(call);
            state.trouble.take()
        };
        if let Some(Trouble::Wait | Trouble::WaitAndRefuse(_)) = trouble {
            let mut going = self.going.subscribe();
            going.wait_for(|go| *go).await.unwrap();
        }
        match trouble {
            Some(Trouble::Refuse(code) | Trouble::WaitAndRefuse(code)) => {
                Err(Status::new(code, format!("refused with {code:?}")))
            }
            Some(Trouble::Wait) => Ok(None),
            other => Ok(other),
        }
    }
}

/// Returns the identity that a certificate with this key for this node proves.
pub fn certified(node: &str, key: u8) -> Identity {
    Identity::Certificate {
        node: node.to_owned(),
        key: KeyFingerprint([key; 32]),
    }
}

pub fn service(agents: Agents, health_api: HealthApi) -> ControllerService {
    let config = ControllerConfig {
        driver_name: DRIVER.into(),
        health_api,
        attach: false,
    };
    ControllerService::new(config, agents)
}

fn end(trouble: Option<Trouble>, volume: &mut Volume) {
    match trouble {
        // Ends the connection, as a crash of the agent would.
        Some(Trouble::LoseAnswer) => panic!("the answer is lost, as the test asks for"),
        Some(Trouble::Nonsense) => volume.size_bytes = 3,
        _ => {}
    }
}

/// Takes the group of this name, or returns the existing one if it has the same volumes.
fn take_group(
    state: &mut State,
    request: &CreateGroupSnapshotRequest,
) -> Result<(SnapshotGroup, Vec<GroupMember>), Status> {
    let node = state.node.clone();
    let new_id = || {
        let (uuid, node) = (Uuid::new_v4(), node.clone());
        VolumeId { uuid, node }.to_string()
    };
    let (name, ids) = (&request.name, &request.volume_ids);
    let existing = state.volumes.iter().filter_map(|(id, volume)| {
        let mut snapshots = volume.snapshots.iter();
        let snapshot = snapshots.find(|one| {
            let group = one.group.as_ref();
            group.is_some_and(|group| group.name == *name)
        });
        Some((id.clone(), snapshot?.clone()))
    });
    let mut members: BTreeMap<String, VolumeSnapshot> = existing.collect();
    if members.is_empty() {
        let group = SnapshotGroup {
            id: new_id(),
            name: name.clone(),
            members: u32::try_from(ids.len()).unwrap(),
        };
        for (n, id) in ids.iter().enumerate() {
            let volume = state.volumes.get_mut(id).unwrap();
            let snapshot = VolumeSnapshot {
                id: new_id(),
                name: format!("{name}-{n}"),
                created_at: 1_800_000_000,
                size_bytes: volume.size_bytes,
                state: "ready".into(),
                group: Some(group.clone()),
                ..VolumeSnapshot::default()
            };
            volume.snapshots.push(snapshot.clone());
            members.insert(id.clone(), snapshot);
        }
    }
    if members.len() != ids.len() || ids.iter().any(|id| !members.contains_key(id)) {
        return Err(Status::already_exists("a group of this name is different"));
    }
    let group = members.values().find_map(|one| one.group.clone());
    let members = members
        .into_iter()
        .map(|(volume_id, snapshot)| GroupMember {
            snapshot: Some(snapshot),
            volume_id,
        });
    Ok((group.unwrap(), members.collect()))
}

fn update(state: &State, sent: Option<&State>) -> InventoryUpdate {
    let changed =
        |volume: &&Volume| sent.is_none_or(|sent| sent.volumes.get(&volume.id) != Some(*volume));
    let removed = sent.map_or(Vec::new(), |sent| {
        let old = sent.volumes.keys();
        old.filter(|id| !state.volumes.contains_key(*id))
            .cloned()
            .collect()
    });
    InventoryUpdate {
        instance: state.instance.clone(),
        revision: state.revision,
        full: sent.is_none(),
        drives: state.drives.clone(),
        volumes: state.volumes.values().filter(changed).cloned().collect(),
        classes: state.classes.values().cloned().collect(),
        removed_volumes: removed,
        node_id: state.node.clone(),
        ready: state.ready,
        since_revision: sent.map_or(0, |sent| sent.revision),
        ..InventoryUpdate::default()
    }
}

#[tonic::async_trait]
impl Agent for Fake {
    async fn prove(&self, _: Request<ProveRequest>) -> Result<Response<ProveResponse>, Status> {
        let token = self.state.lock().unwrap().token.clone();
        let service_account_token = token.ok_or(Status::unimplemented("it has no token"))?;
        Ok(Response::new(ProveResponse {
            service_account_token,
        }))
    }

    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        if self.state.lock().unwrap().mute {
            std::future::pending::<()>().await;
        }
        let state = self.state.lock().unwrap();
        Ok(Response::new(HelloResponse {
            node_id: state.node.clone(),
            instance: state.instance.clone(),
            version: "0".into(),
            machine_id: state.machine.clone(),
            copies: state.copies,
            ..HelloResponse::default()
        }))
    }

    async fn refused(
        &self,
        request: Request<RefusedRequest>,
    ) -> Result<Response<RefusedResponse>, Status> {
        let reason = request.into_inner().reason;
        self.state
            .lock()
            .unwrap()
            .calls
            .push(format!("refused: {reason}"));
        Ok(Response::new(RefusedResponse {}))
    }

    type WatchInventoryStream = ReceiverStream<Result<InventoryUpdate, Status>>;

    async fn watch_inventory(
        &self,
        _: Request<WatchInventoryRequest>,
    ) -> Result<Response<Self::WatchInventoryStream>, Status> {
        let (sender, receiver) = mpsc::channel(4);
        let (fake, mut changed) = (self.clone(), self.changed.subscribe());
        tokio::spawn(async move {
            let mut sent: Option<State> = None;
            loop {
                let next = {
                    let mut state = fake.state.lock().unwrap();
                    let generation = sent
                        .as_ref()
                        .map_or(state.generation, |sent| sent.generation);
                    if generation != state.generation {
                        return;
                    }
                    let silent = state.silent && sent.is_some();
                    (!silent).then(|| {
                        let mut next = update(&state, sent.as_ref());
                        if next.full {
                            state.snapshots += 1;
                        } else if std::mem::take(&mut state.gap) {
                            next.since_revision += 1000;
                        }
                        sent = Some(state.clone());
                        next
                    })
                };
                if let Some(next) = next
                    && sender.send(Ok(next)).await.is_err()
                {
                    return;
                }
                if changed.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn keep_placement(
        &self,
        request: Request<KeepPlacementRequest>,
    ) -> Result<Response<KeepPlacementResponse>, Status> {
        Ok(Response::new(self.placements.keep(request.into_inner())))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let trouble = self.begin(format!("create {}", request.name)).await?;
        let (mut volume, revision) = {
            let existing = {
                let state = self.state.lock().unwrap();
                let existing = state.volumes.values();
                existing
                    .clone()
                    .find(|volume| volume.name == request.name && volume.state != "erasing")
                    .cloned()
            };
            match existing {
                Some(existing) if existing.state == "copying" => {
                    let complete = self.change(|state| {
                        let volume = state.volumes.get_mut(&existing.id).unwrap();
                        if !state.copying {
                            volume.state = "new".into();
                        }
                        volume.clone()
                    });
                    if complete.state == "copying" {
                        return Err(Status::aborted("copying, 40 %"));
                    }
                    (complete, self.state.lock().unwrap().revision)
                }
                Some(existing) => {
                    let limit = request.limit_bytes;
                    let fits = existing.size_bytes >= request.required_bytes
                        && (limit == 0 || existing.size_bytes <= limit)
                        && existing.mode == request.mode
                        && existing.class == request.class
                        && existing.source_snapshot == request.source_snapshot
                        && existing.source_volume == request.source_volume;
                    if !fits {
                        return Err(Status::already_exists("a volume of this name is different"));
                    }
                    (existing, self.state.lock().unwrap().revision)
                }
                None => {
                    let free =
                        self.state.lock().unwrap().classes[&request.class].largest_volume_bytes;
                    if request.required_bytes > free {
                        return Err(Status::resource_exhausted(format!(
                            "{} bytes needed, the largest free piece is {free} bytes",
                            request.required_bytes
                        )));
                    }
                    let node = self.state.lock().unwrap().node.clone();
                    let mut made = volume(Uuid::new_v4().as_u128(), &node);
                    made.name = request.name;
                    made.class = request.class;
                    made.size_bytes = request.required_bytes;
                    made.fs_type = request.fs_type;
                    made.mode = request.mode;
                    made.parameters = request.parameters.into_iter().collect();
                    made.source_snapshot = request.source_snapshot;
                    made.source_volume = request.source_volume;
                    let is_copy = made.source_snapshot != made.source_volume;
                    if is_copy && self.state.lock().unwrap().copying {
                        made.state = "copying".into();
                        self.put(made);
                        return Err(Status::aborted("copying, 0 %"));
                    }
                    self.put(made.clone());
                    (made, self.state.lock().unwrap().revision)
                }
            }
        };
        end(trouble, &mut volume);
        Ok(Response::new(CreateVolumeResponse {
            volume: Some(volume),
            revision,
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteVolumeRequest { id, quarantine } = request.into_inner();
        let (how, becomes) = if quarantine {
            ("quarantine", "quarantined")
        } else {
            ("delete", "erasing")
        };
        let trouble = self.begin(format!("{how} {id}")).await?;
        self.change(|state| {
            if let Some(volume) = state.volumes.get_mut(&id) {
                volume.state = becomes.into();
            }
        });
        end(trouble, &mut Volume::default());
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(DeleteVolumeResponse { revision }))
    }

    async fn delete_unused_volume(
        &self,
        request: Request<DeleteUnusedVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteUnusedVolumeRequest { id, name } = request.into_inner();
        self.begin(format!("delete unused {id} {name}")).await?;
        self.change(|state| {
            if let Some(volume) = state.volumes.get_mut(&id) {
                volume.state = "erasing".into();
            }
        });
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(DeleteVolumeResponse { revision }))
    }

    async fn expand_volume(
        &self,
        request: Request<ExpandVolumeRequest>,
    ) -> Result<Response<ExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let trouble = self.begin(format!("expand {}", request.id)).await?;
        let mut volume = self.change(|state| {
            let volume = state.volumes.get_mut(&request.id).unwrap();
            volume.size_bytes = volume.size_bytes.max(request.required_bytes);
            volume.clone()
        });
        end(trouble, &mut volume);
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(ExpandVolumeResponse {
            volume: Some(volume),
            revision,
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let trouble = self
            .begin(format!(
                "snapshot {} reserve {}%",
                request.name, request.reserve_percent
            ))
            .await?;
        let snapshot = self.change(|state| {
            let node = state.node.clone();
            let volume = state.volumes.get_mut(&request.volume_id).unwrap();
            let mut snapshots = volume.snapshots.iter();
            if let Some(existing) = snapshots.find(|existing| existing.name == request.name) {
                return existing.clone();
            }
            let id = VolumeId {
                uuid: Uuid::new_v4(),
                node,
            };
            let made = VolumeSnapshot {
                id: id.to_string(),
                name: request.name.clone(),
                created_at: 1_800_000_000,
                size_bytes: volume.size_bytes,
                state: "ready".into(),
                ..VolumeSnapshot::default()
            };
            volume.snapshots.push(made.clone());
            made
        });
        end(trouble, &mut Volume::default());
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(CreateSnapshotResponse {
            snapshot: Some(snapshot),
            volume_id: request.volume_id,
            revision,
        }))
    }

    async fn create_group_snapshot(
        &self,
        request: Request<CreateGroupSnapshotRequest>,
    ) -> Result<Response<CreateGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let (name, many) = (&request.name, request.volume_ids.len());
        let age = request.max_age_seconds;
        let call = format!("group snapshot {name} of {many}, age limit {age:?}");
        let trouble = self.begin(call).await?;
        let (group, members) = self.change(|state| take_group(state, &request))?;
        end(trouble, &mut Volume::default());
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(CreateGroupSnapshotResponse {
            group: Some(group),
            members,
            revision,
        }))
    }

    async fn delete_group_snapshot(
        &self,
        request: Request<DeleteGroupSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let id = request.into_inner().id;
        self.begin(format!("delete group snapshot {id}")).await?;
        self.change(|state| {
            for volume in state.volumes.values_mut() {
                let is_in = |of: &SnapshotGroup| of.id == id;
                volume
                    .snapshots
                    .retain(|snapshot| !snapshot.group.as_ref().is_some_and(is_in));
            }
        });
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(DeleteSnapshotResponse { revision }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let id = request.into_inner().id;
        self.begin(format!("delete snapshot {id}")).await?;
        self.change(|state| {
            for volume in state.volumes.values_mut() {
                volume.snapshots.retain(|snapshot| snapshot.id != id);
            }
        });
        let revision = self.state.lock().unwrap().revision;
        Ok(Response::new(DeleteSnapshotResponse { revision }))
    }

    async fn list_copies(
        &self,
        _: Request<ListCopiesRequest>,
    ) -> Result<Response<ListCopiesResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn rescan(&self, _: Request<RescanRequest>) -> Result<Response<RescanResponse>, Status> {
        Err(Status::unimplemented("not in the fake"))
    }

    type WipeDriveStream = ReceiverStream<Result<WipeDriveProgress, Status>>;

    async fn acknowledge_drive(
        &self,
        _: Request<drivebay_proto::agent::AcknowledgeDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::AcknowledgeDriveResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn unacknowledge_drive(
        &self,
        _: Request<drivebay_proto::agent::UnacknowledgeDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::AcknowledgeDriveResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn cordon_drive(
        &self,
        _: Request<drivebay_proto::agent::CordonDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::CordonDriveResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn move_volumes(
        &self,
        _: Request<drivebay_proto::agent::MoveVolumesRequest>,
    ) -> Result<Response<drivebay_proto::agent::MoveVolumesResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn cancel_moves(
        &self,
        _: Request<drivebay_proto::agent::CancelMovesRequest>,
    ) -> Result<Response<drivebay_proto::agent::CancelMovesResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn list_moves(
        &self,
        _: Request<drivebay_proto::agent::ListMovesRequest>,
    ) -> Result<Response<drivebay_proto::agent::ListMovesResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn prefer_place(
        &self,
        _: Request<drivebay_proto::agent::PreferPlaceRequest>,
    ) -> Result<Response<drivebay_proto::agent::PreferPlaceResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn retire_drive(
        &self,
        _: Request<drivebay_proto::agent::RetireDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::RetireDriveResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn locate_drive(
        &self,
        _: Request<drivebay_proto::agent::LocateDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::LocateDriveResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn drive_latency(
        &self,
        _: Request<drivebay_proto::agent::DriveLatencyRequest>,
    ) -> Result<Response<drivebay_proto::agent::DriveLatencyResponse>, Status> {
        let read = drivebay_proto::agent::DirectionLatency {
            history_ms: vec![5.0, -1.0],
            ..Default::default()
        };
        Ok(Response::new(drivebay_proto::agent::DriveLatencyResponse {
            at: 60,
            compared_with: "model".into(),
            peers: 3,
            read: Some(read),
            write: None,
        }))
    }

    async fn drive_history(
        &self,
        _: Request<drivebay_proto::agent::DriveHistoryRequest>,
    ) -> Result<Response<drivebay_proto::agent::DriveHistoryResponse>, Status> {
        let points = [(60, 3), (3660, 48)];
        let points = points.map(|(at, value)| drivebay_proto::agent::CounterPoint { at, value });
        let counter = drivebay_proto::agent::CounterHistory {
            name: "ata-197".into(),
            points: points.to_vec(),
        };
        Ok(Response::new(drivebay_proto::agent::DriveHistoryResponse {
            counters: vec![counter],
        }))
    }

    async fn check_volume(
        &self,
        _: Request<drivebay_proto::agent::CheckVolumeRequest>,
    ) -> Result<Response<drivebay_proto::agent::CheckVolumeResponse>, Status> {
        Err(Status::unimplemented("not asked of this one"))
    }

    async fn adopt_drive(
        &self,
        _: Request<drivebay_proto::agent::AdoptDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::AdoptDriveResponse>, Status> {
        Err(Status::unimplemented("not asked of this one"))
    }

    async fn wipe_drive(
        &self,
        _: Request<WipeDriveRequest>,
    ) -> Result<Response<Self::WipeDriveStream>, Status> {
        Err(Status::unimplemented("not in the fake"))
    }
}

/// A ready 1 GiB ext4 volume.
pub fn volume(uuid: u128, node: &str) -> Volume {
    Volume {
        id: VolumeId {
            uuid: Uuid::from_u128(uuid),
            node: node.into(),
        }
        .to_string(),
        name: format!("pvc-{uuid}"),
        class: "hdd".into(),
        drive: "wwn-0x5000c500a1b2c3d4".into(),
        size_bytes: GIB,
        mode: "mount".into(),
        fs_type: "ext4".into(),
        state: "ready".into(),
        ..Volume::default()
    }
}

use csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

pub fn capability(access_type: AccessType, mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

pub fn mount(fs_type: &str) -> csi::VolumeCapability {
    let mount = MountVolume {
        fs_type: fs_type.into(),
        ..MountVolume::default()
    };
    capability(AccessType::Mount(mount), Mode::SingleNodeWriter)
}

pub fn block() -> csi::VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), Mode::SingleNodeWriter)
}

pub fn range(required: i64, limit: i64) -> Option<csi::CapacityRange> {
    Some(csi::CapacityRange {
        required_bytes: required,
        limit_bytes: limit,
    })
}

pub fn create(name: &str) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: name.into(),
        capacity_range: range(GIB as i64, 0),
        volume_capabilities: vec![mount("")],
        ..csi::CreateVolumeRequest::default()
    }
}

pub fn code<T: std::fmt::Debug>(result: Result<Response<T>, Status>) -> Code {
    match result {
        Ok(_) => Code::Ok,
        Err(status) => {
            assert!(
                !status.message().is_empty(),
                "CSI wants a message with {status:?}"
            );
            assert!(status.details().is_empty(), "CSI allows no details");
            status.code()
        }
    }
}

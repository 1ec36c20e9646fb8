//! An agent on a socket, with what a test gives it, and the program that asks it.

use std::{
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use drivebay_proto::agent::{
    self as proto, Drive, DriveHealth, Finding, InventoryUpdate, Reject, Volume, WipeDriveProgress,
    agent_server::{Agent, AgentServer},
    manual_volumes_server::{ManualVolumes, ManualVolumesServer},
};
use nix::pty::{Winsize, openpty};
use tokio::net::UnixListener;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, transport::Server};

type Answer<T> = Result<Response<T>, Status>;

/// An agent with one used drive; what it does when asked to wipe depends on the drive's name.
pub(crate) struct FakeAgent {
    pub(crate) drive: &'static str,
    pub(crate) silent: bool,
    /// Instead of the one drive.
    pub(crate) inventory: Option<InventoryUpdate>,
}

#[tonic::async_trait]
impl Agent for FakeAgent {
    async fn refused(
        &self,
        _: Request<drivebay_proto::agent::RefusedRequest>,
    ) -> Result<Response<drivebay_proto::agent::RefusedResponse>, Status> {
        Err(Status::unimplemented("not asked by a command line"))
    }

    type WatchInventoryStream = ReceiverStream<Result<InventoryUpdate, Status>>;
    type WipeDriveStream = ReceiverStream<Result<WipeDriveProgress, Status>>;

    async fn watch_inventory(
        &self,
        _: Request<proto::WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let sick = self.drive == "wwn-sick";
        let update = InventoryUpdate {
            node_id: "node7".into(),
            full: true,
            ready: true,
            drives: vec![Drive {
                id: self.drive.into(),
                kernel_name: "sdx".into(),
                size_bytes: 1 << 40,
                verdict: if sick { "BAD" } else { "UNKNOWN" }.into(),
                health: Some(DriveHealth {
                    findings: vec![
                        Finding {
                            code: "MediumReadOnly".into(),
                            message: "replace the drive".into(),
                            ..Finding::default()
                        };
                        usize::from(sick)
                    ],
                    ..DriveHealth::default()
                }),
                state: if sick { "claimed" } else { "rejected" }.into(),
                rejects: vec![Reject {
                    code: "Filesystem".into(),
                    detail: "ext4".into(),
                }],
                ..Drive::default()
            }],
            volumes: vec![Volume {
                name: "pvc-1".into(),
                state: "ready".into(),
                ..Volume::default()
            }],
            ..InventoryUpdate::default()
        };
        let update = self.inventory.clone().unwrap_or(update);
        let silent = self.silent;
        tokio::spawn(async move {
            if !silent {
                let _ = sender.send(Ok(update)).await;
            }
            // A watch has no end until the client closes it.
            sender.closed().await;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    // As an agent of an earlier release.
    async fn drive_latency(
        &self,
        _: Request<proto::DriveLatencyRequest>,
    ) -> Result<Response<proto::DriveLatencyResponse>, Status> {
        Err(Status::unimplemented("not known"))
    }

    // As an agent of an earlier release.
    async fn drive_history(
        &self,
        _: Request<proto::DriveHistoryRequest>,
    ) -> Result<Response<proto::DriveHistoryResponse>, Status> {
        Err(Status::unimplemented("not known"))
    }

    // What comes of it is in the volume's id.
    async fn check_volume(
        &self,
        request: Request<proto::CheckVolumeRequest>,
    ) -> Result<Response<proto::CheckVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        let outcomes = ["clean", "corrupt", "inconclusive", "not-checkable"];
        let outcome = outcomes.into_iter().find(|outcome| id.starts_with(outcome));
        let outcome = outcome.ok_or_else(|| Status::not_found(format!("no volume {id}")))?;
        // Long enough for a progress line on a terminal.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        Ok(Response::new(proto::CheckVolumeResponse {
            method: "unmounted".into(),
            tool: "e2fsck".into(),
            outcome: outcome.into(),
            detail: format!("it is {outcome}"),
            took_ms: 2500,
        }))
    }

    async fn adopt_drive(
        &self,
        _: Request<proto::AdoptDriveRequest>,
    ) -> Result<Response<proto::AdoptDriveResponse>, Status> {
        Err(Status::unimplemented("not asked of this one"))
    }

    async fn wipe_drive(
        &self,
        request: Request<proto::WipeDriveRequest>,
    ) -> Answer<Self::WipeDriveStream> {
        let request = request.into_inner();
        assert_eq!(request.drive, self.drive);
        if self.drive == "wwn-in-use" {
            return Err(Status::failed_precondition(
                "drive wwn-in-use is in use: mounted at /srv",
            ));
        }
        if request.confirm.is_empty() {
            return Err(Status::invalid_argument("confirm: spell out its identity"));
        }
        assert_eq!(request.confirm, self.drive);
        let steps: &[u64] = if self.drive == "wwn-dies" {
            &[1, 2]
        } else {
            &[1, 2, 3, 4]
        };
        let (sender, receiver) = tokio::sync::mpsc::channel(8);
        for step in steps {
            let progress = WipeDriveProgress {
                done_bytes: step << 38,
                total_bytes: 1 << 40,
                finished: *step == 4,
            };
            let _ = sender.send(Ok(progress)).await;
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn acknowledge_drive(
        &self,
        request: Request<proto::AcknowledgeDriveRequest>,
    ) -> Answer<proto::AcknowledgeDriveResponse> {
        let request = request.into_inner();
        if request.drive != self.drive {
            return Err(Status::invalid_argument(format!(
                "drive: no drive {:?} on this node",
                request.drive
            )));
        }
        assert_eq!((&*request.note, &*request.by), ("seen it", "ann"));
        assert_eq!(request.confirm, self.drive);
        assert_eq!(request.until, 1_924_992_000);
        Ok(Response::new(proto::AcknowledgeDriveResponse {
            drive: request.drive,
            acknowledged: vec![proto::SmartFinding {
                code: "ReportedUncorrect".into(),
                subject: "ata-187".into(),
                value: 3,
                threshold: 1,
                message: "reads failed".into(),
                acknowledged: true,
                reading: "187 uncorrected errors: 3".into(),
            }],
            verdict: "BAD, acknowledged".into(),
            revision: 43,
            takes_new_volumes: request.takes_new_volumes,
            ..proto::AcknowledgeDriveResponse::default()
        }))
    }

    async fn unacknowledge_drive(
        &self,
        request: Request<proto::UnacknowledgeDriveRequest>,
    ) -> Answer<proto::AcknowledgeDriveResponse> {
        let request = request.into_inner();
        assert_eq!(request.by, "ann");
        Ok(Response::new(proto::AcknowledgeDriveResponse {
            drive: request.drive,
            remaining: vec![Finding {
                code: "ReportedUncorrect".into(),
                message: "reads failed".into(),
                ..Finding::default()
            }],
            verdict: "BAD".into(),
            ..proto::AcknowledgeDriveResponse::default()
        }))
    }

    async fn locate_drive(
        &self,
        request: Request<proto::LocateDriveRequest>,
    ) -> Answer<proto::LocateDriveResponse> {
        let drive = request.into_inner().drive;
        let by = "ses".to_owned();
        Ok(Response::new(proto::LocateDriveResponse { drive, by }))
    }

    async fn cordon_drive(
        &self,
        request: Request<proto::CordonDriveRequest>,
    ) -> Answer<proto::CordonDriveResponse> {
        let request = request.into_inner();
        assert_eq!(request.by, "ann");
        let (by, reason) = (request.by, request.reason);
        let cordon = (!request.uncordon).then_some(proto::Cordon { at: 1, by, reason });
        Ok(Response::new(proto::CordonDriveResponse {
            drive: request.drive,
            changed: true,
            cordon,
            revision: 43,
        }))
    }

    async fn move_volumes(
        &self,
        _: Request<proto::MoveVolumesRequest>,
    ) -> Answer<proto::MoveVolumesResponse> {
        Err(Status::unimplemented(""))
    }
    async fn cancel_moves(
        &self,
        _: Request<proto::CancelMovesRequest>,
    ) -> Answer<proto::CancelMovesResponse> {
        Err(Status::unimplemented(""))
    }
    async fn list_moves(
        &self,
        _: Request<proto::ListMovesRequest>,
    ) -> Answer<proto::ListMovesResponse> {
        Ok(Response::new(proto::ListMovesResponse::default()))
    }
    async fn create_snapshot(
        &self,
        _: Request<proto::CreateSnapshotRequest>,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn create_group_snapshot(
        &self,
        request: Request<proto::CreateGroupSnapshotRequest>,
    ) -> Answer<proto::CreateGroupSnapshotResponse> {
        let request = request.into_inner();
        let group = proto::SnapshotGroup {
            id: "uuid-group@node7".into(),
            name: request.name.clone(),
            members: 2,
        };
        let member = |(n, volume_id): (u64, String)| proto::GroupMember {
            snapshot: Some(proto::VolumeSnapshot {
                id: format!("uuid-{n}@node7"),
                name: format!("{}-{n}", request.name),
                state: "ready".into(),
                created_at: 1_800_000_000,
                expires_at: request.max_age_seconds.map_or(0, |age| 1_800_000_000 + age),
                group: Some(group.clone()),
                ..proto::VolumeSnapshot::default()
            }),
            volume_id,
        };
        let members = (1..).zip(request.volume_ids.clone()).map(member).collect();
        Ok(Response::new(proto::CreateGroupSnapshotResponse {
            group: Some(group.clone()),
            members,
            revision: 1,
        }))
    }

    async fn delete_group_snapshot(
        &self,
        request: Request<proto::DeleteGroupSnapshotRequest>,
    ) -> Answer<proto::DeleteSnapshotResponse> {
        assert_eq!(request.into_inner().id, "uuid-group@node7");
        Ok(Response::new(proto::DeleteSnapshotResponse { revision: 1 }))
    }

    async fn delete_snapshot(
        &self,
        _: Request<proto::DeleteSnapshotRequest>,
    ) -> Result<Response<proto::DeleteSnapshotResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn list_copies(
        &self,
        _: Request<proto::ListCopiesRequest>,
    ) -> Result<Response<proto::ListCopiesResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }

    async fn prefer_place(
        &self,
        _: Request<proto::PreferPlaceRequest>,
    ) -> Answer<proto::PreferPlaceResponse> {
        Err(Status::unimplemented(""))
    }

    /// Answers that not all data of the drive is erased.
    async fn retire_drive(
        &self,
        request: Request<proto::RetireDriveRequest>,
    ) -> Answer<proto::RetireDriveResponse> {
        let request = request.into_inner();
        assert_eq!(request.by.is_empty(), request.plan);
        Ok(Response::new(proto::RetireDriveResponse {
            drive: request.drive,
            serial: "S4YP".into(),
            not_erased: vec!["volume db: the drive takes no writes".into()],
            ..proto::RetireDriveResponse::default()
        }))
    }

    async fn rescan(&self, _: Request<proto::RescanRequest>) -> Answer<proto::RescanResponse> {
        Ok(Response::new(proto::RescanResponse { revision: 42 }))
    }

    async fn prove(
        &self,
        _: Request<proto::ProveRequest>,
    ) -> Result<Response<proto::ProveResponse>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn hello(&self, _: Request<proto::HelloRequest>) -> Answer<proto::HelloResponse> {
        Err(Status::unimplemented(""))
    }
    async fn create_volume(
        &self,
        _: Request<proto::CreateVolumeRequest>,
    ) -> Answer<proto::CreateVolumeResponse> {
        Err(Status::unimplemented(""))
    }
    async fn keep_placement(
        &self,
        _: Request<proto::KeepPlacementRequest>,
    ) -> Answer<proto::KeepPlacementResponse> {
        Err(Status::unimplemented(""))
    }
    async fn delete_unused_volume(
        &self,
        _: Request<proto::DeleteUnusedVolumeRequest>,
    ) -> Answer<proto::DeleteVolumeResponse> {
        Err(Status::unimplemented(""))
    }
    async fn delete_volume(
        &self,
        _: Request<proto::DeleteVolumeRequest>,
    ) -> Answer<proto::DeleteVolumeResponse> {
        Err(Status::unimplemented(""))
    }
    async fn expand_volume(
        &self,
        _: Request<proto::ExpandVolumeRequest>,
    ) -> Answer<proto::ExpandVolumeResponse> {
        Err(Status::unimplemented(""))
    }
}

pub(crate) struct Served {
    _dir: tempfile::TempDir,
    pub(crate) socket: PathBuf,
}

pub(crate) fn serve(drive: &'static str, silent: bool) -> Served {
    serve_it(FakeAgent {
        drive,
        silent,
        inventory: None,
    })
}

/// An agent that has seen this.
pub(crate) fn serve_inventory(inventory: InventoryUpdate) -> Served {
    serve_it(FakeAgent {
        drive: "wwn-0x5000c500a1b2c3d4",
        silent: false,
        inventory: Some(inventory),
    })
}

fn serve_it(agent: FakeAgent) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let manual_volumes = ManualVolumesServer::new(FakeManualVolumes(
        agent.inventory.clone().unwrap_or_default(),
    ));
    tokio::spawn(
        Server::builder()
            .add_service(AgentServer::new(agent))
            .add_service(manual_volumes)
            .serve_with_incoming(UnixListenerStream::new(listener)),
    );
    Served { _dir: dir, socket }
}

pub(crate) async fn run(args: &[&str]) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_drivebay-agent"))
        .args(args)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

pub(crate) async fn run_against(served: &Served, args: &[&str]) -> Output {
    let socket = served.socket.to_str().unwrap();
    let mut all = args.to_vec();
    all.extend(["--socket", socket]);
    run(&all).await
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn write(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("drivebay.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs the program on a terminal of this width. Returns its output, including standard error, and its exit code.
pub(crate) async fn on_terminal(
    served: &Served,
    width: u16,
    args: &[&str],
) -> (String, Option<i32>) {
    let size = Winsize {
        ws_row: 50,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).unwrap();
    let to_it = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_drivebay-agent"));
    command
        .args(args)
        .arg("--socket")
        .arg(&served.socket)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(to_it())
        .stderr(to_it());
    let mut child = command.spawn().unwrap();
    drop(command);
    drop(pty.slave);
    let master = pty.master;
    let output = tokio::task::spawn_blocking(move || read_all(master));
    let code = child.wait().await.unwrap().code();
    (output.await.unwrap().replace("\r\n", "\n"), code)
}

/// Until the other end is closed, which a terminal says as an error.
fn read_all(master: OwnedFd) -> String {
    let (mut file, mut all) = (std::fs::File::from(master), Vec::new());
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = file.read(&mut piece) {
        all.extend(&piece[..read]);
    }
    String::from_utf8(all).unwrap()
}

/// Service for manual operations that supports only finding volumes.
struct FakeManualVolumes(InventoryUpdate);

#[tonic::async_trait]
impl ManualVolumes for FakeManualVolumes {
    async fn find_volume(
        &self,
        request: Request<proto::FindVolumeRequest>,
    ) -> Answer<proto::FindVolumeResponse> {
        let called = request.into_inner().volume;
        let volume = self.0.volumes.iter().find(|one| one.name == called);
        let volume = volume.ok_or_else(|| Status::not_found("no such volume"))?;
        Ok(Response::new(proto::FindVolumeResponse {
            volume: Some(volume.clone()),
        }))
    }

    async fn create_volume(
        &self,
        _: Request<proto::CreateVolumeRequest>,
    ) -> Answer<proto::CreateVolumeResponse> {
        Err(Status::unimplemented(""))
    }

    async fn expand_volume(
        &self,
        _: Request<proto::ExpandVolumeRequest>,
    ) -> Answer<proto::ExpandManualVolumeResponse> {
        Err(Status::unimplemented(""))
    }

    async fn delete_volume(
        &self,
        _: Request<proto::DeleteVolumeRequest>,
    ) -> Answer<proto::DeleteVolumeResponse> {
        Err(Status::unimplemented(""))
    }

    async fn erase_quarantined(
        &self,
        _: Request<proto::EndQuarantineRequest>,
    ) -> Answer<proto::EndQuarantineResponse> {
        Err(Status::unimplemented(""))
    }

    async fn restore_volume(
        &self,
        _: Request<proto::EndQuarantineRequest>,
    ) -> Answer<proto::EndQuarantineResponse> {
        Err(Status::unimplemented(""))
    }

    async fn mount_volume(
        &self,
        request: Request<proto::MountVolumeRequest>,
    ) -> Answer<proto::MountVolumeResponse> {
        let request = request.into_inner();
        Ok(Response::new(proto::MountVolumeResponse {
            mount: Some(proto::HandMount {
                name: request.volume,
                path: request.path,
                ..proto::HandMount::default()
            }),
        }))
    }

    async fn unmount_volume(
        &self,
        _: Request<proto::UnmountVolumeRequest>,
    ) -> Answer<proto::UnmountVolumeResponse> {
        Ok(Response::new(proto::UnmountVolumeResponse { mount: None }))
    }

    async fn list_mounts(
        &self,
        _: Request<proto::ListMountsRequest>,
    ) -> Answer<proto::ListMountsResponse> {
        Ok(Response::new(proto::ListMountsResponse {
            mounts: Vec::new(),
        }))
    }

    async fn list_erased(
        &self,
        _: Request<proto::ListErasedRequest>,
    ) -> Answer<proto::ListErasedResponse> {
        Err(Status::unimplemented(""))
    }

    async fn change_secret(
        &self,
        _: Request<proto::ChangeSecretRequest>,
    ) -> Answer<proto::ChangeSecretResponse> {
        Err(Status::unimplemented(""))
    }

    async fn check_secret(
        &self,
        _: Request<proto::CheckSecretRequest>,
    ) -> Answer<proto::CheckSecretResponse> {
        Err(Status::unimplemented(""))
    }

    async fn add_recovery_key(
        &self,
        _: Request<proto::AddRecoveryKeyRequest>,
    ) -> Answer<proto::AddRecoveryKeyResponse> {
        Err(Status::unimplemented(""))
    }

    async fn release_drive(
        &self,
        _: Request<proto::ReleaseDriveRequest>,
    ) -> Answer<proto::ReleaseDriveResponse> {
        Err(Status::unimplemented(""))
    }

    async fn get_driver(
        &self,
        _: Request<proto::GetDriverRequest>,
    ) -> Answer<proto::GetDriverResponse> {
        Err(Status::unimplemented(""))
    }
}

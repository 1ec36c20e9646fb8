//! Moves of volumes in the agent's protocol.

use drivebay_node::volumes::{
    Volumes,
    moves::{MovePlan, MoveRequest, MoveScope, MoveStatus, PlannedMove, Retirement},
};
use drivebay_proto::{VolumeId, agent as wire};
use tonic::Status;
use uuid::Uuid;

use super::service::{printable, require_operator};
use crate::csi::status::status;

#[derive(Debug, Clone, Copy)]
pub(super) struct Moves<'a> {
    pub(super) volumes: &'a Volumes,
}

impl Moves<'_> {
    fn id(&self, uuid: Uuid) -> String {
        let node = self.volumes.node().config().node_id.clone();
        VolumeId { uuid, node }.to_string()
    }

    pub(super) async fn request(
        &self,
        request: wire::MoveVolumesRequest,
    ) -> Result<wire::MoveVolumesResponse, Status> {
        let only_plan = request.plan;
        let request = parse_request(request)?;
        if only_plan {
            let plan = self.volumes.plan_moves(&request);
            return Ok(self.plan(plan.map_err(|error| status(&error))?, 0));
        }
        require_operator(&request.by)?;
        let requested = self.volumes.request_moves(request).await;
        let (plan, revision) = requested.map_err(|error| status(&error))?;
        Ok(self.plan(plan, revision))
    }

    pub(super) async fn cancel(
        &self,
        request: wire::CancelMovesRequest,
    ) -> Result<wire::CancelMovesResponse, Status> {
        let scope = scope(request.volume_id, request.drive, Vec::new())?;
        require_operator(&request.by)?;
        let ended = self.volumes.cancel_moves(&scope, &request.by).await;
        let ended = ended.map_err(|error| status(&error))?;
        let ids = |uuids: Vec<Uuid>| uuids.into_iter().map(|uuid| self.id(uuid)).collect();
        Ok(wire::CancelMovesResponse {
            cancelled: ids(ended.cancelled),
            too_late: ids(ended.too_late),
        })
    }

    pub(super) fn list(&self) -> wire::ListMovesResponse {
        let moves = self.volumes.list_moves().into_iter();
        let not_evacuated = self.volumes.not_evacuated().into_iter();
        wire::ListMovesResponse {
            moves: moves.map(|one| self.status(one)).collect(),
            not_evacuated: not_evacuated
                .map(|(drive, reason)| wire::NotEvacuated {
                    drive: drive.0,
                    reason,
                })
                .collect(),
        }
    }

    pub(super) async fn prefer(
        &self,
        request: wire::PreferPlaceRequest,
    ) -> Result<wire::PreferPlaceResponse, Status> {
        let wire::PreferPlaceRequest {
            volume_id,
            drive,
            by,
        } = request;
        named("volume_id", &volume_id)?;
        named("drive", &drive)?;
        require_operator(&by)?;
        let preferred = self.volumes.prefer_place(volume_id, &drive, &by).await;
        let (drive, generation, revision) = preferred.map_err(|error| status(&error))?;
        Ok(wire::PreferPlaceResponse {
            drive: drive.0,
            generation,
            revision,
        })
    }

    pub(super) async fn retire(
        &self,
        request: wire::RetireDriveRequest,
    ) -> Result<wire::RetireDriveResponse, Status> {
        let wire::RetireDriveRequest { drive, plan, by } = request;
        named("drive", &drive)?;
        match plan {
            true => printable("by", &by)?,
            false => require_operator(&by)?,
        }
        let retirement = self.volumes.retire_drive(&drive, plan, &by).await;
        Ok(retired(retirement.map_err(|error| status(&error))?))
    }

    fn plan(&self, plan: MovePlan, revision: u64) -> wire::MoveVolumesResponse {
        let planned = plan.moves.into_iter();
        wire::MoveVolumesResponse {
            drive: plan.drive.map(|drive| drive.0).unwrap_or_default(),
            moves: planned.map(|one| self.planned(one)).collect(),
            refusals: plan.refusals,
            revision,
        }
    }

    fn planned(&self, one: PlannedMove) -> wire::PlannedMove {
        wire::PlannedMove {
            volume_id: self.id(one.uuid),
            name: one.name,
            from: one.from.0,
            to: one.to.0,
            size_bytes: one.size_bytes,
            in_use: one.in_use,
            claims: one.claims,
        }
    }

    fn status(&self, one: MoveStatus) -> wire::Move {
        wire::Move {
            volume_id: self.id(one.uuid),
            name: one.name,
            from: one.from.0,
            to: one.to.0,
            phase: one.phase.to_string(),
            done_bytes: one.done_bytes,
            total_bytes: one.total_bytes,
            bytes_per_second: one.bytes_per_second,
            eta_seconds: one.eta_seconds,
            waits_for: one.waits_for,
            by: one.by,
            requested_at: one.requested_at,
            old_place_seconds: one.old_place_seconds,
            unfenced: one.unfenced,
        }
    }
}

fn retired(it: Retirement) -> wire::RetireDriveResponse {
    wire::RetireDriveResponse {
        drive: it.drive.0,
        serial: it.serial,
        bay: it.bay,
        keeps: it.keeps,
        erasing_bytes: it.erasing_bytes,
        not_erased: it.not_erased,
    }
}

/// Converts a request; `by` may be empty.
fn parse_request(request: wire::MoveVolumesRequest) -> Result<MoveRequest, Status> {
    printable("by", &request.by)?;
    for to in &request.to {
        named("to", to)?;
    }
    Ok(MoveRequest {
        scope: scope(request.volume_id, request.drive, request.only)?,
        to: request.to,
        hold: request.hold,
        abort_on_error: request.abort_on_error,
        by: request.by,
    })
}

/// Returns the scope: one volume, or volumes of a drive; exactly one of them must be named.
fn scope(volume: String, drive: String, only: Vec<String>) -> Result<MoveScope, Status> {
    match (volume.is_empty(), drive.is_empty(), only.is_empty()) {
        (false, true, true) => {
            named("volume_id", &volume)?;
            Ok(MoveScope::Volume(volume))
        }
        (true, false, _) => {
            named("drive", &drive)?;
            for one in &only {
                named("only", one)?;
            }
            Ok(MoveScope::Drive { name: drive, only })
        }
        _ => Err(Status::invalid_argument(
            "either volume_id or drive must be given, and only goes with drive",
        )),
    }
}

/// Errs unless a name is given and printable.
fn named(field: &str, name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Err(Status::invalid_argument(format!("{field} is empty")));
    }
    printable(field, name)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_request_names_one_volume_or_one_drive_in_printable_words() {
        let request = |volume: &str, drive: &str, only: &[&str], to: &[&str], by: &str| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            parse_request(wire::MoveVolumesRequest {
                volume_id: volume.into(),
                drive: drive.into(),
                only: owned(only),
                to: owned(to),
                by: by.into(),
                ..wire::MoveVolumesRequest::default()
            })
        };
        let one = request("v@n", "", &[], &["sdb"], "").unwrap();
        assert_eq!(one.scope, MoveScope::Volume("v@n".into()));
        assert_eq!(one.to, ["sdb"]);
        let some = request("", "sda", &["v@n"], &[], "ann").unwrap();
        let (name, only) = ("sda".into(), vec!["v@n".into()]);
        assert_eq!(some.scope, MoveScope::Drive { name, only });
        let long = "x".repeat(drivebay_model::cordon::MAX_TEXT + 1);
        for refused in [
            request("", "", &[], &[], "ann"),
            request("v@n", "sda", &[], &[], "ann"),
            request("v@n", "", &["w@n"], &[], "ann"),
            request("", "sda", &[""], &[], "ann"),
            request("", "sda", &[], &[""], "ann"),
            request("", "sda\n", &[], &[], "ann"),
            request("v@n\u{1b}", "", &[], &[], "ann"),
            request("", "sda", &[], &["sdb\r"], "ann"),
            request("", "sda", &[], &[], "ann\n"),
            request("", "sda", &[], &[], &long),
        ] {
            assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
        }
    }
}

//! Which events are due, of the Node and of the claims on it: what no sidecar of CSI says.
//!
//! Pure. The name of an event follows from what it says, so whichever replica is first makes it, and a restart makes no other.

use drivebay_common::units::count;
use drivebay_proto::{
    agent::{Drive, Finding, Volume},
    words::{DriveState, Verdict, VolumeState},
};
use ring::digest;

use super::{moves, snapshots};
use drivebay_service::{
    expected::ClaimedBy,
    peer_log::{printable, printable_sentence},
};

/// Largest number of claims that get events for one drive, or for volumes on two nodes; the Node's event has the number of all of them.
pub(super) const MAX_CLAIMS: usize = 200;
/// Bytes of a digest in an event's name.
const NAME_DIGEST: usize = 8;
/// Largest note of an event that the API server accepts, bytes.
const MAX_NOTE: usize = 1024;
/// Last character of a truncated note.
const CUT: char = '…';

/// Involved object of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    Node(String),
    Claim(ClaimedBy),
}

/// An event that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) object: Object,
    /// Reason of the event, a constant in CamelCase. It is a part of `digest`.
    pub(super) reason: &'static str,
    pub(super) note: String,
    /// True if the operator or the user of the claim has to act: an event of type Warning, else Normal.
    pub(super) is_warning: bool,
    /// End of the event's name: derived from the facts of the event, so that the API server refuses a second event of the same facts.
    pub(super) digest: String,
}

impl Notice {
    pub(super) fn new(object: Object, reason: &'static str, note: &str, of: &[&str]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        let about = match &object {
            Object::Node(name) => name.as_bytes(),
            Object::Claim(claim) => claim.uid.as_bytes(),
        };
        let parts = of.iter().map(|part| part.as_bytes());
        for part in [about, reason.as_bytes()].into_iter().chain(parts) {
            context.update(part);
            context.update(&[0]);
        }
        let bytes = context.finish();
        let bytes = bytes.as_ref().iter().take(NAME_DIGEST);
        Self {
            object,
            reason,
            note: cut(printable_sentence(note)),
            is_warning: true,
            digest: bytes.map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

fn cut(mut note: String) -> String {
    if note.len() > MAX_NOTE {
        note.truncate(note.floor_char_boundary(MAX_NOTE - CUT.len_utf8()));
        note.push(CUT);
    }
    note
}

/// A volume of the node, and the claim that has it.
#[derive(Debug, Clone)]
pub(super) struct Claimed {
    pub(super) volume: Volume,
    pub(super) claim: Option<ClaimedBy>,
}

/// Those of one node, as its connected agent last reported it. `volumes`: also those that were deleted.
pub(super) fn due(node: &str, drives: &[Drive], volumes: &[Claimed]) -> Vec<Notice> {
    let mut notices = Vec::new();
    for drive in drives {
        let on_it: Vec<&Claimed> = volumes
            .iter()
            .filter(|of| {
                of.volume.drive == drive.id && drivebay_service::catalog::exists(&of.volume)
            })
            .collect();
        if on_it.is_empty() {
            continue;
        }
        if let Some(trouble) = Trouble::of(drive) {
            notices.extend(trouble.notices(node, drive, &on_it));
        }
    }
    let quarantined: Vec<&str> = volumes
        .iter()
        .filter(|of| of.volume.known_state() == Some(VolumeState::Quarantined))
        .map(|of| of.volume.id.as_str())
        .collect();
    if !quarantined.is_empty() {
        let note = format!(
            "{} of node {node} deleted while it was forgotten, kept in quarantine and erased after the delay: drivebay-controller volumes --deleted --node {node}",
            count(quarantined.len(), "volume")
        );
        let of_node = Object::Node(node.to_owned());
        notices.push(Notice::new(
            of_node,
            "VolumesQuarantined",
            &note,
            &quarantined,
        ));
    }
    notices.extend(moves::due(node, drives, volumes));
    notices.extend(snapshots::due(node, volumes));
    notices
}

/// A drive that is missing, BAD or SUSPECT: the reason and text of its event, and the time of its earliest finding, which distinguishes
/// this event from earlier ones.
struct Trouble {
    reason: &'static str,
    what: String,
    since: u64,
}

impl Trouble {
    fn of(drive: &Drive) -> Option<Self> {
        let health = drive.health.as_ref();
        let findings: Vec<&Finding> = health.iter().flat_map(|of| of.counting()).collect();
        // The time of the earliest finding distinguishes this condition from an earlier one of the drive.
        let since = findings.iter().map(|finding| finding.since).min();
        let because = findings.first().map_or("", |finding| &finding.message);
        let reason = match (drive.known_state(), drive.known_verdict()) {
            (Some(DriveState::Missing), _) => "DriveMissing",
            _ if drive.is_acknowledged() => return None,
            (_, Some(Verdict::Bad)) => "DriveBad",
            (_, Some(Verdict::Suspect)) => "DriveSuspect",
            _ => return None,
        };
        let what = match reason {
            "DriveMissing" => "is missing; reconnect it".to_owned(),
            "DriveBad" => format!("is BAD ({}); replace it", printable(because)),
            _ => format!(
                "is SUSPECT ({}), gets no new volumes and may fail",
                printable(because)
            ),
        };
        Some(Self {
            reason,
            what,
            since: since.unwrap_or(0),
        })
    }

    fn notices(&self, node: &str, drive: &Drive, on_it: &[&Claimed]) -> Vec<Notice> {
        let Self {
            reason,
            what,
            since,
        } = self;
        let name = printable(&drive.named());
        let since = since.to_string();
        let of = [drive.id.as_str(), since.as_str()];
        let volumes = count(on_it.len(), "volume");
        let id = printable(&drive.id);
        let note = format!(
            "drive {name} of node {node} {what}; {volumes} on it: drivebay-controller drive show {id} --node {node}"
        );
        let of_node = Notice::new(Object::Node(node.to_owned()), reason, &note, &of);
        let claims = on_it.iter().filter_map(|on| on.claim.clone());
        let of_claims = claims.take(MAX_CLAIMS).map(|claim| {
            let note = format!("the volume's drive {name} on node {node} {what}");
            Notice::new(Object::Claim(claim), reason, &note, &of)
        });
        std::iter::once(of_node).chain(of_claims).collect()
    }
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::{Acknowledged, DriveHealth};

    use super::*;

    fn drive(state: &str, verdict: &str, since: u64) -> Drive {
        Drive {
            id: "wwn-1".into(),
            kernel_name: "sda".into(),
            serial: "S4YP".into(),
            enclosure: "5000".into(),
            slot: "3".into(),
            state: state.into(),
            verdict: verdict.into(),
            health: Some(DriveHealth {
                findings: vec![Finding {
                    code: "X".into(),
                    message: "8 pending sectors".into(),
                    since,
                    acknowledged: false,
                }],
                ..DriveHealth::default()
            }),
            ..Drive::default()
        }
    }

    fn volume(n: u8, state: &str) -> Claimed {
        Claimed {
            volume: Volume {
                id: format!("00000000-0000-4000-8000-00000000000{n}@n1"),
                drive: "wwn-1".into(),
                state: state.into(),
                ..Volume::default()
            },
            claim: (n == 1).then(|| ClaimedBy {
                name: "shop/data".into(),
                uid: "u1".into(),
            }),
        }
    }

    fn reasons(notices: &[Notice]) -> Vec<(&'static str, bool)> {
        let of = |notice: &Notice| matches!(notice.object, Object::Claim(_));
        let one = |notice: &Notice| (notice.reason, of(notice));
        notices.iter().map(one).collect()
    }

    #[test]
    fn a_drive_in_trouble_is_reported_for_its_node_and_the_claims_on_it_and_an_empty_one_is_not() {
        let volumes = [volume(1, "ready"), volume(2, "ready")];
        for (state, verdict, reason) in [
            ("claimed", "SUSPECT", "DriveSuspect"),
            ("claimed", "BAD", "DriveBad"),
            ("missing", "UNKNOWN", "DriveMissing"),
        ] {
            let due = due("n1", &[drive(state, verdict, 7)], &volumes);
            assert_eq!(reasons(&due), [(reason, false), (reason, true)]);
            assert!(due[0].note.contains("2 volumes"), "{}", due[0].note);
            // Whoever reads it knows which drive to pull.
            for notice in &due {
                let named = "drive sda (serial S4YP, slot 3 of enclosure 5000)";
                assert!(notice.note.contains(named), "{}", notice.note);
            }
        }
        assert!(due("n1", &[drive("claimed", "SUSPECT", 7)], &[]).is_empty());
        assert!(due("n1", &[drive("claimed", "GOOD", 0)], &volumes).is_empty());
        // With all findings acknowledged, there is an event only if the drive is missing or has a further finding.
        let mut acknowledged = drive("claimed", "BAD", 7);
        let health = acknowledged.health.as_mut().unwrap();
        health.acknowledged = Some(Acknowledged::default());
        health.findings[0].acknowledged = true;
        assert!(due("n1", &[acknowledged.clone()], &volumes).is_empty());
        let mut more = acknowledged.clone();
        let health = more.health.as_mut().unwrap();
        health.findings.push(Finding {
            message: "9 new".into(),
            since: 9,
            ..Finding::default()
        });
        let notices = due("n1", &[more], &volumes);
        assert!(
            notices[0].note.contains("is BAD (9 new)"),
            "{}",
            notices[0].note
        );
        acknowledged.state = "missing".into();
        assert_eq!(
            reasons(&due("n1", &[acknowledged], &volumes))[0].0,
            "DriveMissing"
        );
        let deleted = [volume(1, "erasing")];
        assert!(due("n1", &[drive("claimed", "SUSPECT", 7)], &deleted).is_empty());
    }

    #[test]
    fn the_same_trouble_has_one_name_and_the_next_one_another() {
        let volumes = [volume(1, "ready")];
        let names = |since, verdict| -> Vec<String> {
            let due = due("n1", &[drive("claimed", verdict, since)], &volumes);
            due.into_iter().map(|notice| notice.digest).collect()
        };
        assert_eq!(names(7, "SUSPECT"), names(7, "SUSPECT"));
        assert_ne!(names(7, "SUSPECT"), names(8, "SUSPECT"));
        assert_ne!(names(7, "SUSPECT"), names(7, "BAD"));
        let both = names(7, "SUSPECT");
        assert_ne!(both[0], both[1]);
    }

    #[test]
    fn quarantined_volumes_are_reported_once_until_there_are_others() {
        let one = due("n1", &[], &[volume(1, "quarantined")]);
        assert_eq!(reasons(&one), [("VolumesQuarantined", false)]);
        let two = due(
            "n1",
            &[],
            &[volume(1, "quarantined"), volume(2, "quarantined")],
        );
        assert_ne!(one[0].digest, two[0].digest);
    }

    #[test]
    fn an_agents_words_forge_nothing_and_are_cut() {
        let mut long = drive("claimed", "SUSPECT", 7);
        long.id = "x\n".repeat(5000);
        long.kernel_name = String::new();
        let mut on = volume(1, "ready");
        on.volume.drive.clone_from(&long.id);
        let due = due("n1", &[long], &[on]);
        assert!(
            due.iter()
                .all(|notice| { notice.note.len() <= MAX_NOTE && !notice.note.contains('\n') })
        );
    }

    #[test]
    fn a_note_is_no_longer_than_the_api_server_takes() {
        let note = |text: &str| Notice::new(Object::Node("n".into()), "R", text, &[]).note;
        assert_eq!(note(&"x".repeat(MAX_NOTE)).len(), MAX_NOTE);
        for text in ["x".repeat(5000), "é".repeat(5000)] {
            let cut = note(&text);
            assert!(cut.len() <= MAX_NOTE && cut.ends_with(CUT), "{cut}");
        }
    }
}

//! Record and reserve of a snapshot that is to be taken. Pure.

use uuid::Uuid;

use drivebay_csi::new_snapshot::Reserve;
use drivebay_layout::lvm::snapshot::whole;
use drivebay_model::{RecordState, SnapshotRecord, Volume, volume_snapshot::SnapshotGroup};

/// Parameters of a snapshot that is to be taken.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) uuid: Uuid,
    pub(super) name: String,
    pub(super) reserve: Reserve,
    /// Time of the snapshot, seconds since 1970; the same for all members of a group.
    pub(super) created_at: u64,
    /// Seconds; None: it does not expire.
    pub(super) max_age: Option<u64>,
    /// None: it is taken alone.
    pub(super) group: Option<SnapshotGroup>,
}

/// Returns the record of a snapshot that is to be taken. A member of a group is recorded as incomplete.
pub(super) fn record(volume: &Volume, terms: &Terms) -> SnapshotRecord {
    let of = &volume.placed.record;
    SnapshotRecord {
        uuid: terms.uuid,
        name: terms.name.clone(),
        volume: volume.uuid,
        created_at: terms.created_at,
        size_bytes: of.size_bytes(),
        mode: of.mode,
        fs: match of.state {
            RecordState::Fs {
                fs_type,
                fs_uuid,
                mounted: true,
            } => Some((fs_type, fs_uuid)),
            _ => None,
        },
        expires_at: terms
            .max_age
            .map(|age| terms.created_at.saturating_add(age)),
        group: terms.group.clone(),
        is_complete: terms.group.is_none(),
        is_lost: false,
    }
}

/// Returns the reserve to request for a snapshot of a volume of this size, bytes. The share has room for that much of the volume's contents
/// and the kernel's metadata of them: 100 % never becomes full. The bounds apply to the reserve as a whole.
pub(super) fn reserve_bytes(reserve: Reserve, volume_bytes: u64) -> u64 {
    let share = u128::from(volume_bytes) * u128::from(reserve.percent) / 100;
    let share = whole(u64::try_from(share).unwrap_or(u64::MAX)).max(reserve.least);
    reserve.most.map_or(share, |most| share.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, GIB, MIB, samples};

    #[test]
    fn a_reserve_is_a_share_of_the_volume_within_its_bounds() {
        let of = |percent, least, most| {
            let reserve = Reserve {
                percent,
                least,
                most,
            };
            reserve_bytes(reserve, 10 * GIB)
        };
        assert_eq!(reserve_bytes(Reserve::default(), 10 * GIB), 2 * GIB + MIB);
        assert_eq!(of(50, 0, None), 5 * GIB + 2 * MIB);
        assert_eq!(of(100, 0, None), whole(10 * GIB));
        assert_eq!(of(1, GIB, None), GIB);
        assert_eq!(of(50, 0, Some(100 * MIB)), 100 * MIB);
        assert_eq!(of(1, 2 * GIB, Some(2 * GIB)), 2 * GIB);
        assert_eq!(
            reserve_bytes(
                Reserve {
                    percent: 100,
                    least: 0,
                    most: None
                },
                u64::MAX
            ),
            u64::MAX
        );
    }

    #[test]
    fn a_snapshot_expires_at_its_age_and_a_member_of_a_group_is_not_complete_yet() {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let volume = samples::volume(&drive, samples::placed(2, RecordState::Block));
        let terms = Terms {
            uuid: Uuid::from_u128(1),
            name: "s".into(),
            reserve: Reserve::default(),
            created_at: 1000,
            max_age: Some(60),
            group: None,
        };
        let alone = record(&volume, &terms);
        assert_eq!((alone.volume, alone.fs), (volume.uuid, None));
        assert_eq!((alone.expires_at, alone.is_complete), (Some(1060), true));
        let mut member = terms.clone();
        member.max_age = None;
        member.group = Some(SnapshotGroup {
            uuid: Uuid::from_u128(9),
            name: "g".into(),
            members: 2,
        });
        let recorded = record(&volume, &member);
        assert_eq!(recorded.group, member.group);
        assert_eq!((recorded.expires_at, recorded.is_complete), (None, false));
        member.max_age = Some(u64::MAX);
        assert_eq!(record(&volume, &member).expires_at, Some(u64::MAX));
    }
}

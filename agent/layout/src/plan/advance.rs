//! The state machine that keeps a volume from being formatted twice. Pure.

use uuid::Uuid;

use drivebay_model::{Mode, Record, RecordState};

/// The state of a volume that has just been made: decided here and now, so that the first stage has nothing to plan and a first
/// raw publish nothing to write. A copy has that of its original.
pub(crate) fn first_state(record: &Record) -> RecordState {
    if !record.place.is_live() {
        return record.state.clone();
    }
    match (record.mode, record.fs_type) {
        (Mode::Mount, Some(fs_type)) => RecordState::Fs {
            fs_type,
            fs_uuid: Uuid::new_v4(),
            mounted: false,
        },
        // Staging plans it.
        (Mode::Mount, None) => RecordState::New,
        (Mode::Block, _) => RecordState::Block,
    }
}

/// The state machine of design invariant 3.
pub(crate) fn may(record: &Record, to: &RecordState) -> bool {
    match (&record.state, to) {
        (
            RecordState::New,
            RecordState::Fs {
                mounted: false,
                fs_type,
                ..
            },
        ) => record.mode == Mode::Mount && record.fs_type.is_none_or(|asked| asked == *fs_type),
        (RecordState::New, RecordState::Block) => record.mode == Mode::Block,
        (
            RecordState::Fs {
                fs_type,
                fs_uuid,
                mounted: false,
            },
            RecordState::Fs {
                fs_type: to_type,
                fs_uuid: to_uuid,
                mounted: true,
            },
        ) => fs_type == to_type && fs_uuid == to_uuid,
        _ => false,
    }
}

/// Whether it is certain from its record that nothing was ever written through a mount or a raw publish. A raw volume's record says
/// so of none.
pub(crate) fn was_never_mounted(record: &Record) -> bool {
    let never = matches!(
        record.state,
        RecordState::New | RecordState::Fs { mounted: false, .. }
    );
    never && record.mode == Mode::Mount
}

/// A state in words.
pub(crate) fn named(state: &RecordState) -> String {
    match state {
        RecordState::Creating => "creating".into(),
        RecordState::New => "new".into(),
        RecordState::Fs {
            fs_type,
            fs_uuid,
            mounted,
        } => {
            format!(
                "{fs_type} {fs_uuid} ({})",
                if *mounted {
                    "mounted once"
                } else {
                    "never mounted"
                }
            )
        }
        RecordState::Block => "block".into(),
        RecordState::Erasing { .. } => "erasing".into(),
    }
}

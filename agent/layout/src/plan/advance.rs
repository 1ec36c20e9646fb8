//! The state machine that prevents formatting a volume twice. Pure.

use uuid::Uuid;

use drivebay_model::{Mode, Record, RecordState};

/// Returns the state of a new volume. It is decided at creation, so that the first stage has
/// nothing to plan and the first raw publish nothing to write. A copy has the state of its
/// original.
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
        // Staging plans the filesystem.
        (Mode::Mount, None) => RecordState::New,
        // The first stage makes its header, and records that it did.
        (Mode::Block, _) if record.encryption().is_some() => RecordState::New,
        (Mode::Block, _) => RecordState::Block,
    }
}

/// True if the state machine of design invariant 3 allows this transition.
pub(crate) fn may(record: &Record, to: &RecordState) -> bool {
    match (&record.state, to) {
        (
            RecordState::New,
            RecordState::Fs {
                mounted: false,
                fs_type,
                ..
            },
        ) => {
            record.mode == Mode::Mount
                && record.fs_type.is_none_or(|requested| requested == *fs_type)
        }
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

/// True if the record proves that nothing was ever written through a mount or a raw publish. The
/// record of a raw volume never does.
pub(crate) fn was_never_mounted(record: &Record) -> bool {
    let never = matches!(
        record.state,
        RecordState::New | RecordState::Fs { mounted: false, .. }
    );
    never && record.mode == Mode::Mount
}

/// Describes a state for messages.
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

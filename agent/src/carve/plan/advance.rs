//! The state machine that keeps a volume from being formatted twice. Pure.

use crate::model::{Mode, Record, RecordState};

/// The state machine of design invariant 3.
pub(in crate::carve) fn may(record: &Record, to: &RecordState) -> bool {
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

/// A state in words.
pub(in crate::carve) fn named(state: &RecordState) -> String {
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

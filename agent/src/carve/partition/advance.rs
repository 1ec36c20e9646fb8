//! Moving a volume's record on: the state machine that keeps a volume from being formatted twice.

use uuid::Uuid;

use super::Session;
use crate::carve::{
    device::{Device, Kernel},
    jobs::{CarveError, Changed},
};
use crate::model::{Mode, Record, RecordState};

impl<D: Device + Kernel> Session<'_, D> {
    /// Moves a volume's record on. Only forward: nothing makes a formatted volume new again.
    pub(in crate::carve) fn advance(
        mut self,
        uuid: Uuid,
        to: &RecordState,
    ) -> Result<Changed, CarveError> {
        let (placed, _) = self.living(uuid)?;
        let record = &placed.record;
        if record.state == *to {
            return Ok(Changed {
                contents: self.reread()?,
                changed: false,
            });
        }
        if !may_advance(record, to) {
            return Err(CarveError::BadTransition {
                uuid,
                from: named(&record.state),
                to: named(to),
            });
        }
        self.commit_label(
            self.label
                .content
                .with(uuid, |record| record.state = to.clone()),
        )?;
        let contents = self.reread()?;
        match contents.volume(uuid) {
            Some(now) if now.record.state == *to => Ok(Changed {
                contents,
                changed: true,
            }),
            _ => Err(CarveError::Damaged {
                drive: self.id.to_string(),
                reason: format!("volume {uuid} did not read back as {}", named(to)),
            }),
        }
    }
}

/// The state machine of design invariant 3.
pub(in crate::carve) fn may_advance(record: &Record, to: &RecordState) -> bool {
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

//! Moving a volume's record on: one `lvchange` that takes away and adds the tags that differ.

use uuid::Uuid;

use super::{session::Session, tags};
use crate::carve::{
    jobs::{CarveError, Changed},
    partition::{may_advance, named},
};
use crate::model::{Record, RecordState};

impl Session<'_> {
    /// Only forward: nothing makes a formatted volume new again.
    pub(super) fn advance(mut self, uuid: Uuid, to: &RecordState) -> Result<Changed, CarveError> {
        let (placed, lv) = self.living(uuid)?;
        let record = &placed.record;
        if record.state == *to {
            return Ok(self.answer(false));
        }
        if !may_advance(record, to) {
            return Err(CarveError::BadTransition {
                uuid,
                from: named(&record.state),
                to: named(to),
            });
        }
        let wanted = tags::of_record(&Record {
            state: to.clone(),
            ..record.clone()
        });
        let mut args = tags::options(&lv.tags, &wanted);
        args.push(self.path(&lv));
        self.lvm("writing the record", "lvchange", args)?;
        self.see_again()?;
        self.keep_copy()?;
        match self.volume(uuid) {
            Some(now) if now.record.state == *to && now.ambiguous.is_none() => {
                Ok(self.answer(true))
            }
            _ => Err(CarveError::Damaged {
                drive: self.id.to_string(),
                reason: format!("volume {uuid} did not read back as {}", named(to)),
            }),
        }
    }
}

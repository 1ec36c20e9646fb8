//! Making a drive another node's, on an operator's word: one `vgchange` of the VG's tags, no volume is touched.

use super::{
    session::Session,
    tags::{self, VgMark},
};
use crate::carve::{
    jobs::{Adopt, CarveError, Changed},
    partition,
};

impl Session<'_> {
    /// Gives the VG the mark of its new node and reads everything again.
    pub(super) fn adopt(mut self, job: &Adopt) -> Result<Changed, CarveError> {
        let label = partition::adopted(job);
        if self.view.mark.label == label {
            return Ok(self.answer(false));
        }
        let wanted = VgMark {
            label: label.clone(),
            ..self.view.mark.clone()
        };
        let mut args = tags::options(&self.committed.vg.tags, &tags::of_vg(&wanted));
        args.push(self.vg().into());
        self.lvm("writing the drive's mark", "vgchange", args)?;
        self.see_again()?;
        if self.view.mark.label != label {
            return Err(super::session::damaged(
                &self.id,
                "the mark of its new node did not read back".to_owned(),
            ));
        }
        self.keep_copy()?;
        Ok(self.answer(true))
    }
}

//! Making a drive another node's, on an operator's word: one label is written, no volume is touched.

use super::Session;
use crate::carve::{
    device::{Device, Kernel},
    jobs::{Adopt, CarveError, Changed},
};
use crate::model::Label;

/// Whether the drive still has the label that was seen, or has been adopted already.
pub(in crate::carve) fn expected(label: &Label, job: &Adopt) -> Result<(), CarveError> {
    if *label == job.from || *label == adopted(job) {
        return Ok(());
    }
    Err(CarveError::NotClaimable {
        drive: job.drive.id.to_string(),
        reason: format!(
            "its label names cluster {:?}, node {:?} now, and not what was seen; look at it again",
            label.cluster, label.node
        ),
    })
}

/// The label with its new node.
pub(in crate::carve) fn adopted(job: &Adopt) -> Label {
    Label {
        cluster: job.cluster.clone(),
        node: job.node.clone(),
        ..job.from.clone()
    }
}

impl<D: Device + Kernel> Session<'_, D> {
    /// Writes the label with its new node and reads everything again.
    pub(super) fn adopt(mut self, job: &Adopt) -> Result<Changed, CarveError> {
        let label = adopted(job);
        let changed = self.label.content.label != label;
        if changed {
            let mut content = self.label.content.clone();
            content.label = label;
            self.commit_label(content)?;
        }
        Ok(Changed {
            contents: self.reread()?,
            changed,
        })
    }
}
